"""The pump of records: it gives every record to every member that can be reached, and learns theirs.

A member is due when a contact with it begins, after each change, and after a while. What was switched or
suspended is in force once it was read here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from datetime import timedelta
from functools import partial
from typing import Any

import structlog

from shadowrelay.core.identifiers import Incarnation, RequestId, ServerName
from shadowrelay.core.operating import ActAnswer, Told
from shadowrelay.core.reckoning import Endings
from shadowrelay.core.records import Record
from shadowrelay.core.replicating import Merging
from shadowrelay.core.retirements import RetiredMember
from shadowrelay.core.retiring import to_follow
from shadowrelay.core.safety_net.resubmission import Contacts
from shadowrelay.core.steps import Operate, Unanswered
from shadowrelay.core.suspensions import Suspension
from shadowrelay.core.switches import Switch
from shadowrelay.core.switching import REDUNDANCY, settled
from shadowrelay.core.values import dataclass
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.transport import DatabaseFailed, StandingRead, TransportDatabase
from shadowrelay.members.effective_policy import EffectivePolicy
from shadowrelay.members.pool import Members, seconds
from shadowrelay.members.sharing import RULES, News, Shared, news_of, received, share
from shadowrelay.members.telling import incarnations
from shadowrelay.running import Performer

log = structlog.get_logger(__name__)

INTERVAL = 1.0  # seconds between looks
PATIENCE = 10.0  # seconds that one record may take
REFRESH = 5.0  # seconds after which members are given the records again, and tell how far they are


@dataclass(slots=True)
class Given:
    """What this process knows of the records that a member has. ``run``: the incarnation that it is about: a
    later one may have another database, or an older state of its own.
    """

    since: float  # since when it can be reached, and its answer is waited for
    run: Incarnation | None = None
    news: News = frozenset()
    refused: Mapping[RequestId, str] = field(default_factory=dict)
    at: float | None = None  # when it answered last, since it can be reached
    had: News = frozenset()  # what it was told, also if the rest could not be

    def has(self, record: Record) -> bool:
        """Did it answer that it has the record as it is now?"""
        told = self.at is not None and record.id not in self.refused
        return told and any((record.id, record.revision) == news[:2] for news in self.news)


@dataclass(slots=True)
class Had:
    """The members that have a record, and since when all of them do."""

    members: set[ServerName] = field(default_factory=set)
    since: float | None = None


@dataclass(slots=True)
class Spread:
    """Which members have the records, in the memory of this process. Times are seconds of a clock that counts
    suspension.
    """

    refresh: float = REFRESH
    given: dict[ServerName, Given] = field(default_factory=dict)
    had: dict[tuple[RequestId, int], Had] = field(default_factory=dict)

    def meet(self, reachable: Mapping[ServerName, Incarnation | None], now: float) -> None:
        """``reachable``: the members, with the incarnation in which each was met last."""
        for name in self.given.keys() - reachable.keys():
            del self.given[name]
        for name, run in sorted(reachable.items()):
            known = self.given.get(name)
            if known is None or known.run != run:
                self.given[name] = Given(now, run)

    def due(
        self, reachable: Mapping[ServerName, Incarnation | None], news: News, now: float
    ) -> tuple[ServerName, ...]:
        """The members that can be reached, and do not have the records as they are now, or not lately."""
        self.meet(reachable, now)

        def fresh(known: Given) -> bool:
            return known.at is not None and now - known.at < self.refresh and known.news == news

        return tuple(name for name, known in sorted(self.given.items()) if not fresh(known))

    def answered(self, name: ServerName, shared: Shared, told: News, now: float) -> Mapping[RequestId, str]:
        """A member was given the records, when they were as ``told``. Returns the refusals that are new."""
        known = self.given.get(name)
        if known is None:
            return {}
        if shared.failed is not None:
            known.had = shared.had
            return {}
        refused = dict(shared.refused)
        news = {record: why for record, why in refused.items() if known.refused.get(record) != why}
        known.news, known.refused, known.at, known.had = told, refused, now, shared.had
        return news

    def settled(
        self, switches: Iterable[Switch], members: Collection[ServerName], now: float
    ) -> list[Switch]:
        """The spans that are pending, and that every member has had for as long as any of them may last."""
        found, before = [], self.had
        self.had = {}
        for one in switches:
            if not one.pending:
                continue
            known = before.get((one.id, one.revision)) or Had()
            for name, given in self.given.items():
                (known.members.add if given.has(one) else known.members.discard)(name)
            whole = known.members.issuperset(members)
            known.since = None if not whole else now if known.since is None else known.since
            self.had[one.id, one.revision] = known
            if known.since is not None and now - known.since >= (one.longest or 0) / 1000:
                found.append(one)
        return found

    def heard(self, patience: timedelta, now: float) -> bool:
        """Has every member that can be reached told what it has? This waits so long for it at most."""
        most = patience.total_seconds()
        return all(known.at is not None or now - known.since >= most for known in self.given.values())


class RecordReplication:
    """One node's."""

    def __init__(
        self,
        members: Members,
        database: TransportDatabase,
        contacts: Callable[[], Contacts],
        in_force: EffectivePolicy,
        endings: Callable[[], Endings],
        switched: Callable[[], None],
        retire: Callable[[RetiredMember], Awaitable[None]],
    ) -> None:
        self._members = members
        self._database = database
        self._contacts = contacts
        self._in_force = in_force
        self._endings = endings
        self._switched = switched  # called when another value is in force
        self._retire = retire  # a member, as another node has it on record
        self._told_overruled = False
        self._spread = Spread(REFRESH)
        self._records = StandingRead(database, _read)
        self.suspensions_read: Callable[[Sequence[Suspension]], object] = lambda _: None
        self.wake = asyncio.Event()

    @property
    def given(self) -> dict[ServerName, Given]:
        """What the members that can be reached have of the records."""
        return self._spread.given

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._settle()
            if news := await self.look():
                due = self._spread.due(self._runs(), news, seconds())
                await asyncio.gather(*(self._give(name, news) for name in due))
            try:
                async with asyncio.timeout(INTERVAL):
                    await self.wake.wait()
            except TimeoutError:
                continue
            self.wake.clear()

    async def look(self) -> News:
        """Read the records; what was switched, suspended or retired is so from now on."""
        news, switches, suspensions, retirements = await self._records()
        self.suspensions_read(suspensions)
        for one in retirements:
            await self._retire(one)
        changed = self._in_force.take(switches)
        for name in sorted(changed - {REDUNDANCY}):
            by = _by(self._in_force.switches.get(name))
            log.warning("setting_switched", name=name, value=str(getattr(self._in_force.policy, name)), **by)
        if REDUNDANCY in changed:
            on, by = self._in_force.redundancy, _by(self._in_force.switch)
            log.warning("shadow_redundancy_switched", on=on, **by)
            self._switched()
        elif self._in_force.overruled and not self._told_overruled:
            log.warning("switch_overruled_by_settings_file", on=self._in_force.redundancy)
        self._told_overruled = self._in_force.overruled
        return news

    async def _settle(self) -> None:
        """Spans that every member has for long enough count from now on as they were set."""
        switches = self._in_force.switches.values()
        for one in self._spread.settled(switches, self._contacts().members, seconds()):
            await self._merge(partial(_settled, one))
            log.warning("span_settled", name=one.name, value=one.value)

    async def share(self) -> None:
        """A record changed: apply it here, and give it to the members at once."""
        await self.look()
        self.wake.set()

    async def take(self, kind: str, member: ServerName, told: Told) -> Told:
        """Merge the record that a member gives. It is in force before the member hears so. Raises
        Malformed.
        """
        about = self._about()
        ours = await self._database.transact(
            lambda ledger: received(ledger, RULES[kind], member, told, about)
        )
        await self.share()
        return ours

    def heard(self) -> bool:
        """Has every member that can be reached told what it has, or been waited for long enough?"""
        self._spread.meet(self._runs(), seconds())
        return self._spread.heard(self._in_force.policy.reconcile_timeout, seconds())

    def _runs(self) -> dict[ServerName, Incarnation | None]:
        return incarnations(self._database.ledger.known, self._contacts().reachable)

    def _about(self) -> Merging:
        return Merging(self._in_force.file_policy, self._endings(), self._contacts().members)

    async def _give(self, name: ServerName, news: News) -> None:
        async def operate(step: Operate) -> ActAnswer | Unanswered:
            return await self._members.operate(step, PATIENCE)

        had = self.given[name].had if name in self.given else frozenset()
        performer = Performer(transact=self._merge, operate=operate)
        shared = await performer.run(share(name, self._about, had))
        for record, why in self._spread.answered(name, shared, news, seconds()).items():
            log.warning("record_refused_by_member", member=name, record=record, why=why)

    async def _merge(self, work: Callable[[SqlLedger], Any]) -> Any:
        """A transaction about the records. An unexpected error in one record skips that record alone."""
        try:
            return await self._database.transact(work)
        except DatabaseFailed:
            raise
        except Exception:
            log.exception("record_skipped")
            return []


def _read(
    ledger: SqlLedger,
) -> tuple[News, Sequence[Switch], Sequence[Suspension], Sequence[RetiredMember]]:
    switches, suspensions = ledger.records(Switch), ledger.suspensions()
    return news_of(ledger), switches, suspensions, tuple(to_follow(ledger))


def _settled(switch: Switch, ledger: SqlLedger) -> bool:
    return ledger.apply(settled(ledger, switch))


def _by(switch: Switch | None) -> dict[str, str | None]:
    if switch is None:
        return dict.fromkeys(("by", "operator", "reason"))
    return {"by": switch.changed_by, "operator": switch.operator, "reason": switch.reason}
