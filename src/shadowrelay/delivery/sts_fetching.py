"""Fetches the policy of a domain from its policy host (RFC 8461 3.3).

The host is whatever the domain's DNS says, so nothing is sent to it before its certificate shows its name,
and nothing but one fixed request. No redirect is followed, and no proxy is asked.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import field
from pathlib import Path
from typing import Literal

import httpx

from shadowrelay.core.delivery.mta_sts import LONGEST_POLICY, PATH, host_of
from shadowrelay.core.delivery.mx import DnsTrouble
from shadowrelay.core.values import dataclass
from shadowrelay.file_stamps import Stamp, stamp

FETCH_LIMIT = 60.0
"""Seconds that all of one fetch may take (3.3)."""

CONNECT_LIMIT = 10.0
"""Seconds for one address of several."""

FetchResult = Literal["sts-policy-fetch-error", "sts-policy-invalid", "sts-webpki-invalid"]


class FetchFailed(Exception):
    """There is no policy to be had now. ``result``: what a TLS report says of it (RFC 8460 4.3)."""

    def __init__(self, why: str, result: FetchResult = "sts-policy-fetch-error") -> None:
        super().__init__(why)
        self.result = result


@dataclass(slots=True)
class PolicyFetcher:
    """``addresses``: looks a host up in the DNS. ``port``: 443, but in labs. ``authorities``: a file of those
    that vouch for policy hosts; None: the system's. ``limit``: seconds for all of one fetch.

    To read the authorities costs more than a fetch: all fetches share what was read, until the file changes.
    """

    addresses: Callable[[str], Awaitable[tuple[str, ...]]]
    port: int = 443
    authorities: Path | None = None
    limit: float = FETCH_LIMIT
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _trusting: tuple[Stamp, ssl.SSLContext] | None = None

    async def text(self, domain: str) -> str:
        """The text of the domain's policy. Raises FetchFailed."""
        try:
            async with asyncio.timeout(self.limit):
                return await self._text(host_of(domain))
        except TimeoutError:
            raise FetchFailed("no policy in time") from None
        except DnsTrouble as error:
            raise FetchFailed(str(error)) from error
        except OSError as error:  # the file of authorities
            raise FetchFailed(f"{self.authorities}: {error.strerror}") from error

    async def _text(self, host: str) -> str:
        addresses = await self.addresses(host)
        async with self._reading:
            context = await asyncio.to_thread(self._context)
        async with httpx.AsyncHTTPTransport(verify=context, trust_env=False, http2=False) as transport:
            for number, address in enumerate(addresses, start=1):
                try:
                    return await self._asked(transport, host, address)
                except (httpx.HTTPError, ValueError) as error:
                    connecting = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                    if _untrusted(error):
                        raise FetchFailed(f"{host}: {error}", "sts-webpki-invalid") from error
                    if not connecting or number == len(addresses):
                        raise FetchFailed(f"{host}: {str(error) or type(error).__name__}") from error
        raise FetchFailed(f"{host} has no address")

    def _context(self) -> ssl.SSLContext:
        """What trusts the authorities. Blocks. A directory of the system's is read by OpenSSL as it goes."""
        path = self.authorities or ssl.get_default_verify_paths().cafile
        version = stamp(Path(path), FetchFailed) if path else ()
        if self._trusting is None or self._trusting[0] != version:
            self._trusting = version, ssl.create_default_context(cafile=self.authorities)
        return self._trusting[1]

    async def _asked(self, transport: httpx.AsyncHTTPTransport, host: str, address: str) -> str:
        at = f"[{address}]" if ":" in address else address
        request = httpx.Request(
            "GET",
            f"https://{at}:{self.port}{PATH}",
            headers={
                "Host": host if self.port == 443 else f"{host}:{self.port}",
                "User-Agent": "shadowrelay",
                "Accept": "text/plain",
                "Accept-Encoding": "identity",
            },
            extensions={"sni_hostname": host, "timeout": {"connect": CONNECT_LIMIT}},
        )
        answer = await transport.handle_async_request(request)
        try:
            return await _read(answer, host)
        finally:
            await answer.aclose()


async def _read(answer: httpx.Response, host: str) -> str:
    """The text of an answer that is one. Raises FetchFailed."""
    if answer.status_code != 200:  # a redirect, too
        raise FetchFailed(f"{host} answered {answer.status_code}")
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "text/plain" or answer.headers.get("content-encoding", "identity") != "identity":
        raise FetchFailed(f"{host} gave no plain text")
    octets = b""
    async for part in answer.aiter_raw():
        octets += part
        if len(octets) > LONGEST_POLICY:
            raise FetchFailed(f"{host} gave more than {LONGEST_POLICY} octets")
    return octets.decode("utf-8", "replace")


def _untrusted(error: BaseException | None) -> bool:
    """Did the host show no certificate for its name, by an authority that is known?"""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False
