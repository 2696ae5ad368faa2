"""The stage that shares records with the members, and carries out resubmit requests, at a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import structlog

from shadowrelay import measures
from shadowrelay.core.identifiers import MessageId, RequestId, ServerName
from shadowrelay.core.members.conversation import Answered
from shadowrelay.core.members.second_opinion import Others
from shadowrelay.core.operating import ActAnswer
from shadowrelay.core.requests import Request
from shadowrelay.core.safety_net import resubmission
from shadowrelay.core.safety_net.resubmission import Contacts
from shadowrelay.core.steps import Ask, Compare, Operate, Unanswered
from shadowrelay.core.suspensions import Suspension
from shadowrelay.core.switches import Switch
from shadowrelay.core.switching import REDUNDANCY
from shadowrelay.database.examining import Examiner, Finding
from shadowrelay.database.indexes import SETTLED
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.transport import DatabaseFailed, TransportDatabase
from shadowrelay.members.in_force import InForce
from shadowrelay.members.indexes import Indexes
from shadowrelay.members.pool import Members, seconds
from shadowrelay.members.sharing import News, Sharing, incarnations, news_of, share
from shadowrelay.running import Performer
from shadowrelay.safety_net.making import make
from shadowrelay.safety_net.pace import Given, Pace

log = structlog.get_logger(__name__)

INTERVAL = 1.0  # seconds between looks
PATIENCE = 10.0  # seconds that one question may take


class Resubmitting:
    """Shares records with the members, and makes the messages that they call for."""

    def __init__(
        self,
        members: Members,
        database: TransportDatabase,
        contacts: Callable[[], Contacts],
        others: Callable[[ServerName], Others],
        examiner: Examiner,
        ready: Callable[[], bool],
        in_force: InForce,
        clock: Callable[[], datetime],
        indexes: Indexes,
        switched: Callable[[], None] = lambda: None,
    ) -> None:
        self._members = members
        self._database = database
        self._contacts = contacts
        self._others = others
        self._examiner = examiner
        self._ready = ready  # is there room, and is the node neither opening nor being drained?
        self._in_force = in_force
        self._switched = switched  # called when another value is in force
        self._clock = clock
        self._indexes = indexes
        self._pace = Pace(in_force.policy, seconds())
        self._told_overruled = False
        self.batches = measures.Histogram(measures.SLOW)  # how long a batch that made messages takes
        self.suspensions_read: Callable[[Sequence[Suspension]], object] = lambda _: None
        self.wake = asyncio.Event()

    @property
    def given(self) -> dict[ServerName, Given]:
        """What the members that can be reached have of the records."""
        return self._pace.given

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            records, news = await self.look()
            if news:
                runs = incarnations(self._database.ledger.known, self._contacts().reachable)
                due = self._pace.due(runs, news, seconds())
                await asyncio.gather(*(self._give(name, news) for name in due))
                open_ones = [
                    one.id
                    for one in records
                    if one.runs(self._clock(), self._in_force.policy.resubmit_request_age)
                ]
                if open_ones and self._pace.may_go_on(seconds()):
                    await self._work(open_ones)
            try:
                async with asyncio.timeout(INTERVAL):
                    await self.wake.wait()
            except TimeoutError:
                continue
            self.wake.clear()

    async def look(self) -> tuple[Sequence[Request], News]:
        """Read the records; what was switched or suspended is in force from now on."""
        records, news, switch, suspensions = await self._database.transact(_records)
        self.suspensions_read(suspensions)
        changed = self._in_force.take(switch)
        self._pace.policy = self._in_force.policy
        if changed:
            log.warning(
                "shadow_redundancy_switched",
                on=self._in_force.redundancy,
                by=switch.changed_by if switch else None,
                operator=switch.operator if switch else None,
                reason=switch.reason if switch else None,
            )
            self._switched()
        elif self._in_force.overruled and not self._told_overruled:
            log.warning("switch_overruled_by_settings_file", on=self._in_force.redundancy)
        self._told_overruled = self._in_force.overruled
        return records, news

    async def _give(self, name: ServerName, news: News) -> None:
        about = Sharing(self._in_force.file_policy, self._clock, lambda: self._contacts().members)
        had = self._pace.given[name].had if name in self._pace.given else frozenset()
        performer = replace(self._performer(), transact=self._merge)
        shared = await performer.run(share(name, about, had))
        for request, why in self._pace.answered(name, shared, news, seconds()).items():
            log.warning("record_refused_by_member", member=name, record=request, why=why)

    async def _merge(self, work: Callable[[SqlLedger], Any]) -> Any:
        """A transaction about the records. An unexpected error in one record skips that record alone."""
        try:
            return await self._database.transact(work)
        except DatabaseFailed:
            raise
        except Exception:
            log.exception("record_skipped")
            return []

    async def _work(self, requests: Sequence[RequestId]) -> None:
        """One turn: every request, and every owner for which this node answers, as far as the rate allows."""
        contacts = self._contacts()
        owners = await self._database.transact(lambda ledger: resubmission.owners(ledger, contacts))
        for request in self._pace.in_turn(requests):
            for owner in owners:
                while await self._step(request, owner):
                    pass

    async def _step(self, request: RequestId, owner: ServerName) -> bool:
        """One batch. False if nothing more is to be done for this owner now."""
        most = self._pace.most(seconds())
        if most < 1 or not self._ready():
            return False
        began = measures.now()
        script = make(
            request, owner, most, self._contacts, self._others(owner), self._in_force.policy, self._clock
        )
        made = await self._performer().run(script)
        self._pace.made(made.count)
        if made.count:
            self.batches.since(began)
            log.info("messages_resubmitted", request=request, owner=owner, messages=made.count)
        return made.more

    async def _unsound(self, originals: Collection[MessageId]) -> frozenset[MessageId]:
        """Those whose content differs from its digest, or cannot be read: verify, then send."""
        unsound = set()
        for message_id in originals:
            if await self._examiner.look(message_id) is not Finding.SOUND:
                unsound.add(message_id)
        return frozenset(unsound)

    def _performer(self) -> Performer:
        async def ask(step: Ask) -> Answered | Unanswered:
            return await self._members.ask(step, PATIENCE)

        async def operate(step: Operate) -> ActAnswer | Unanswered:
            return await self._members.operate(step, PATIENCE)

        async def compare(step: Compare) -> frozenset[MessageId]:
            return await self._unsound(step.messages)

        rebuilt = self._indexes.rebuilt  # before the look whose end is asked about

        async def all_found() -> bool:
            return await self._indexes.hold(SETTLED) and self._indexes.rebuilt == rebuilt

        return Performer(
            transact=self._database.transact,
            ask=ask,
            operate=operate,
            compare=compare,
            all_found=all_found,
        )


def _records(
    ledger: SqlLedger,
) -> tuple[Sequence[Request], News, Switch | None, Sequence[Suspension]]:
    records = ledger.requests()
    return records, news_of(ledger, records), ledger.switch(REDUNDANCY), ledger.suspensions()
