"""Tells results of TLS to a collector of reports on this machine (RFC 8460): tlsrpt-reporter's, by datagrams.

It makes the reports, and sends them. A collector that is slow or gone loses reports, and holds nothing up.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import field
from pathlib import Path
from typing import Any

import structlog

from shadowrelay.core.delivery.mta_sts import StsPolicy
from shadowrelay.core.delivery.mx import DnsTrouble
from shadowrelay.core.delivery.tls_policy import FailedTls, Source, TlsResult
from shadowrelay.core.spelling import canonical
from shadowrelay.core.values import dataclass

log = structlog.get_logger(__name__)

MOST_WAITING = 1000
"""Results that wait for their domain's record; more are lost."""

AT_ONCE = 20
"""Domains whose records are looked up: one that is silent hides no result of others."""

MOST_PATTERNS_TOLD = 20
"""Of one policy: a datagram has to fit."""

_RECORD = re.compile(r"v=TLSRPTv1[ \t]*;")
_TYPES: dict[Source, int] = {"dane": 1, "mta-sts": 2}
_NO_POLICY = 9
_CODES: dict[FailedTls, int] = {
    "starttls-not-supported": 201,
    "certificate-host-mismatch": 202,
    "certificate-not-trusted": 203,
    "certificate-expired": 204,
    "validation-failure": 205,
    "sts-policy-fetch-error": 301,
    "sts-policy-invalid": 302,
    "sts-webpki-invalid": 303,
    "tlsa-invalid": 304,
    "dnssec-invalid": 305,
    "dane-required": 306,
}
"""As libtlsrpt numbers policies and results."""


@dataclass(slots=True)
class TlsReporting:
    """``to``: the collector's socket; None: nothing is told. ``texts``: the TXT records of a name.
    ``policy``: what is kept of a domain's policy. ``counts``: results that were ``sent``, that are ``lost``,
    and those of domains that want no reports (``unwanted``).
    """

    to: Callable[[], Path | None]
    texts: Callable[[str], Awaitable[tuple[str, ...]]]
    policy: Callable[[str], Awaitable[StsPolicy | None]]
    counts: Counter[str] = field(default_factory=lambda: Counter(sent=0, lost=0, unwanted=0))
    _waiting: dict[str, deque[TlsResult]] = field(default_factory=dict)  # by domain, in order
    _turns: asyncio.Queue[str] = field(default_factory=asyncio.Queue)  # domains of which nobody tells now
    _held: int = 0

    def heard(self, result: TlsResult) -> None:
        """A result of TLS. Waits for nothing."""
        if self.to() is None:
            return
        if self._held >= MOST_WAITING:
            self.counts["lost"] += 1
            return
        self._held += 1
        domain = canonical(result.domain)
        if domain not in self._waiting:
            self._waiting[domain] = deque()
            self._turns.put_nowait(domain)
        self._waiting[domain].append(result)

    async def run(self) -> None:
        """Tell results until cancelled."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
            own.setblocking(False)
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(self._tell_in_turn(own))

    async def _tell_in_turn(self, own: socket.socket) -> None:
        """One result of a domain at a time, so that those of one domain keep their order."""
        while True:
            domain = await self._turns.get()
            results = self._waiting[domain]
            self.counts[await self._tell(own, domain, results[0])] += 1
            self._held -= 1
            results.popleft()
            if results:
                self._turns.put_nowait(domain)
            else:
                del self._waiting[domain]

    async def _tell(self, own: socket.socket, domain: str, result: TlsResult) -> str:
        """What became of it."""
        to = self.to()
        try:
            records = await self.texts(f"_smtp._tls.{domain}")
        except DnsTrouble:
            return "lost"
        wanted = [one for one in records if _RECORD.match(one)]
        if len(wanted) != 1 or to is None:
            return "unwanted"
        policy = await self.policy(domain) if result.source == "mta-sts" else None
        datagram = json.dumps(_datagram(domain, wanted[0], result, policy)).encode()
        try:
            own.sendto(datagram, str(to))
        except OSError as error:  # it is gone, or reads too slowly
            log.warning("tls_report_lost", socket=str(to), error=error.strerror)
            return "lost"
        return "sent"


def _datagram(domain: str, record: str, result: TlsResult, policy: StsPolicy | None) -> dict[str, Any]:
    failed = bool(result.result)
    told: dict[str, Any] = {
        "policy-type": _TYPES.get(result.source, _NO_POLICY),
        "policy-domain": domain,
        "t": int(failed),
        "f": failed,
    }
    if policy is not None:
        some = policy.mx[:MOST_PATTERNS_TOLD]
        told["policy-string"] = [
            "version: STSv1",
            f"mode: {policy.mode}",
            *(f"mx: {one}" for one in some),
            f"max_age: {int(policy.max_age.total_seconds())}",
        ]
        told["mx-host"] = list(some)
    if result.result:
        told["failure-details"] = [{"c": _CODES[result.result], "n": result.host}]
    return {"dpv": "1", "d": domain, "pr": record, "policies": [told]}
