"""Finds the policy that counts for a domain (RFC 8461), and keeps policies fresh.

What is kept counts until its end. So a silent DNS or policy host, or one that somebody else plays, changes
nothing for a domain that this node knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from typing import Literal

import structlog

from shadowrelay.core.delivery.mta_sts import (
    NOT_AGAIN,
    WANTED_LATELY,
    InvalidPolicy,
    StsPolicy,
    announced,
    counts,
    parsed,
    record_of,
    to_be_fetched,
)
from shadowrelay.core.delivery.mx import DnsTrouble, literal
from shadowrelay.core.reckoning import Endings
from shadowrelay.core.spelling import canonical
from shadowrelay.database import sts_policies
from shadowrelay.database.sts_policies import KeptPolicy
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.delivery.sts_fetching import FetchFailed, FetchResult, PolicyFetcher
from shadowrelay.resolver import Resolver

log = structlog.get_logger(__name__)

AT_ONCE = 20
"""Fetches that have a place. Who waits for one does not go without: else slow domains could harm others."""

SLOW = 5.0
"""Seconds after which a fetch goes on without its place, and is waited for only where nothing else counts.
So no more than ``AT_ONCE / SLOW`` a second begin while all are slow: ``FETCH_LIMIT`` bounds those under way.
"""

MOST_FAILURES = 10_000
"""Domains of which it is remembered that a fetch failed."""

LOOK_INTERVAL = 600.0
PAGE = 200


class StsPolicies:
    """The policies of all domains. ``resolver``: the one of now. ``told`` is told what became of
    each fetch, by its domain: '' if it brought a policy. ``used``: whether any route goes by them.
    """

    def __init__(
        self,
        database: TransportDatabase,
        resolver: Callable[[], Resolver],
        fetcher: PolicyFetcher,
        endings: Callable[[], Endings],
        told: Callable[[str, FetchResult | Literal[""]], None] = lambda _domain, _result: None,
        used: Callable[[], bool] = lambda: True,
    ) -> None:
        self.fetcher = fetcher
        self._database = database
        self._resolver = resolver
        self._endings = endings
        self._told = told
        self._used = used
        self._not_before: dict[str, float] = {}  # by domain, on the loop's clock
        self._fetching: dict[str, asyncio.Task[StsPolicy | None]] = {}
        self._room = asyncio.Semaphore(AT_ONCE)

    async def of(self, domain: str) -> StsPolicy | None:
        """The policy that counts for mail to a domain now, looked up and fetched if need be; None if none."""
        if literal(domain) is not None:
            return None
        domain = canonical(domain)
        now = self._endings().now
        kept = await self._database.transact_briefly(partial(sts_policies.use, domain=domain, now=now))
        identifier = await self._announced(domain)
        if to_be_fetched(kept, identifier, self._endings()):
            patience = None if kept is None or kept.ended(self._endings()) else SLOW
            kept = await self._fetched(domain, identifier or "", now, patience) or kept
        return counts(kept, self._endings())

    async def kept(self, domain: str) -> StsPolicy | None:
        """The policy that is kept of a domain, for a report: nothing is asked or fetched."""
        found = await self._database.transact_briefly(partial(sts_policies.kept, domain=domain))
        return found.policy if found else None

    async def run(self) -> None:
        """Fetch policies again before they end, and forget those that have, until cancelled."""
        while True:
            if self._used():
                await self.refresh()
            await asyncio.sleep(LOOK_INTERVAL)

    async def refresh(self) -> None:
        """Look through all policies once. A fetch that fails changes nothing: there is time for others."""
        after = ""
        while True:
            ends = self._endings()
            look = partial(sts_policies.looked_through, after=after, most=PAGE, ends=ends)
            after, found = await self._database.transact(look)
            due = [
                one for one in found if one.policy.due(ends.now) and ends.now - one.used_at < WANTED_LATELY
            ]
            for few in range(0, len(due), AT_ONCE // 4):
                await asyncio.gather(*map(self._refresh, due[few : few + AT_ONCE // 4]))
            if not after:
                return

    async def _refresh(self, kept: KeptPolicy) -> None:
        identifier = await self._announced(kept.domain)
        if identifier is not None:
            await self._fetched(kept.domain, identifier, kept.used_at, SLOW)

    async def _announced(self, domain: str) -> str | None:
        """The id that the domain's record has; None if there is none, or no answer."""
        try:
            return announced(await self._resolver().texts(record_of(domain)))
        except DnsTrouble:
            return None

    async def _fetched(
        self, domain: str, identifier: str, used_at: datetime, patience: float | None
    ) -> StsPolicy | None:
        """Fetch a domain's policy once, however many wait. None: it is not to be had now, or not within
        ``patience`` seconds; then the fetch goes on.
        """
        if self._not_before.get(domain, 0.0) > asyncio.get_running_loop().time():
            return None
        task = self._fetching.get(domain)
        if task is None:
            task = self._fetching[domain] = asyncio.create_task(self._fetch(domain, identifier, used_at))
            task.add_done_callback(lambda _: self._fetching.pop(domain, None))
        done, _ = await asyncio.wait({task}, timeout=patience)
        return task.result() if done else None

    async def _fetch(self, domain: str, identifier: str, used_at: datetime) -> StsPolicy | None:
        try:
            policy = parsed(await self._text(domain), identifier, self._endings().now)
        except FetchFailed as error:
            self._without(domain, str(error), error.result)
            return None
        except InvalidPolicy as error:
            self._without(domain, str(error), "sts-policy-invalid")
            return None
        self._not_before.pop(domain, None)
        keep = partial(sts_policies.keep, domain=domain, policy=policy, used_at=used_at, ends=self._endings())
        if not await self._database.transact_briefly(keep):
            log.warning("sts_policy_not_kept", domain=domain, most=sts_policies.MOST)
        self._told(domain, "")
        log.info("sts_policy_fetched", domain=domain, mode=policy.mode.value, id=identifier)
        return policy

    async def _text(self, domain: str) -> str:
        await self._room.acquire()
        with ExitStack() as place:
            place.callback(self._room.release)
            place.callback(asyncio.get_running_loop().call_later(SLOW, place.close).cancel)
            return await self.fetcher.text(domain)

    def _without(self, domain: str, why: str, result: FetchResult) -> None:
        log.warning("sts_policy_not_fetched", domain=domain, result=result, error=why)
        now = asyncio.get_running_loop().time()
        if len(self._not_before) >= MOST_FAILURES:
            self._not_before = {one: until for one, until in self._not_before.items() if until > now}
        if len(self._not_before) < MOST_FAILURES:
            self._not_before[domain] = now + NOT_AGAIN.total_seconds()
        self._told(domain, result)
