"""What sessions with hosts of MX have to show, as DANE and MTA-STS say; and what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Literal

import structlog

from shadowrelay.core.delivery.mta_sts import StsPolicy
from shadowrelay.core.delivery.mx import TROUBLE_COUNTS, DnsTrouble, MxHost
from shadowrelay.core.delivery.tls_policy import (
    FailedTls,
    HostRefused,
    TlsResult,
    WantedKind,
    WantedTls,
    wanted,
)
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.values import dataclass
from shadowrelay.delivery.sts_policies import StsPolicies
from shadowrelay.resolver import Resolver
from shadowrelay.smtp.sending.session import NextHopServer, TlsTold
from shadowrelay.smtp.sending.shown import sees_chains

log = structlog.get_logger(__name__)

ASKED_AGAIN = 300.0
"""Seconds after which the name servers are asked again whether they validate."""


@dataclass(frozen=True, slots=True)
class TlsRoutes:
    """The routes that go by DANE, and by MTA-STS. ``signed_zone``: what shows that the name servers
    validate.
    """

    dane: frozenset[NextHop] = frozenset()
    mta_sts: frozenset[NextHop] = frozenset()
    signed_zone: str = "."


class TlsPolicies:
    """``note`` is told what became of each session, and of each host that was not tried. ``sts``: what
    domains ask for by MTA-STS.
    """

    def __init__(
        self, resolver: Resolver, routes: TlsRoutes, sts: StsPolicies, clock: Callable[[], datetime]
    ) -> None:
        self.note: Callable[[TlsResult], None] = lambda _: None
        self.sts = sts
        self._clock = clock
        self._chains = sees_chains()
        self.take(resolver, routes)

    def take(self, resolver: Resolver, routes: TlsRoutes) -> None:
        """The settings changed."""
        self._resolver, self._routes = resolver, routes
        # Until when on the loop's clock that counts, what was found, and of which name servers.
        self._judged: tuple[float, str, tuple[str, ...]] = (0.0, "", ())

    def concern(self, route: NextHop) -> bool:
        """Does anything count for that route? Nearly always nothing does."""
        return route in self._routes.dane or route in self._routes.mta_sts

    async def of(
        self, route: NextHop, domain: str, hosts: Iterable[MxHost], port: int
    ) -> list[WantedTls | HostRefused]:
        """What a session with each host of a domain has to show."""
        sts = await self.sts.of(domain) if route in self._routes.mta_sts else None
        return await asyncio.gather(*(self._of_host(route, domain, host, port, sts) for host in hosts))

    async def _of_host(
        self, route: NextHop, domain: str, host: MxHost, port: int, sts: StsPolicy | None
    ) -> WantedTls | HostRefused:
        answer = None
        if route in self._routes.dane:
            if why := await self._not_validating():
                return self._refused(domain, host, HostRefused("dane", "dnssec-invalid", why))
            if host.trouble:  # a second look may find what the first one hid: its addresses without TLSA
                return self._refused(domain, host, HostRefused("dane", "dnssec-invalid", host.trouble))
            answer = await self._resolver.tlsa(host.bases, port)
        found = wanted(host.name, domain, dane=answer, sts=sts, chains=self._chains)
        return self._refused(domain, host, found) if isinstance(found, HostRefused) else found

    def told(self, domain: str) -> TlsTold:
        """What is told of the sessions with a domain's hosts."""

        def tell(server: NextHopServer, result: FailedTls | Literal[""]) -> None:
            self._noted(domain, server.host, server.wanted, result)

        return tell

    def _refused(self, domain: str, host: MxHost, refused: HostRefused) -> HostRefused:
        log.warning("host_not_tried", domain=domain, host=host.name, result=refused.result, error=refused.why)
        kind: WantedKind = "dane" if refused.source == "dane" else "pkix"
        self._noted(domain, host.name, WantedTls(kind, refused.source), refused.result)
        return refused

    def _noted(self, domain: str, host: str, what: WantedTls, result: FailedTls | Literal[""]) -> None:
        self.note(
            TlsResult(domain, host, what.kind, what.source, result, self._clock(), testing=what.testing)
        )

    async def _not_validating(self) -> str:
        """Why nothing that the name servers say is proven; '' if it is. A resolver that stops validating
        calls nothing bogus any more: so this is asked again and again.
        """
        now = asyncio.get_running_loop().time()
        until, why, servers = self._judged
        try:
            asked = self._resolver.asked()
            if now < until and servers == asked:
                return why
            why = await self._resolver.not_validating(self._routes.signed_zone)
        except DnsTrouble as trouble:
            why, asked = str(trouble), ()
        if why:
            log.error("dane_without_validation", error=why, consequence="mail of these routes waits")
        self._judged = now + (TROUBLE_COUNTS.total_seconds() if why else ASKED_AGAIN), why, asked
        return why
