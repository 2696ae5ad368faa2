"""What operators may do with suspended queues on this node: suspend one on all members, resume it, see it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

import structlog

from shadowrelay.core import suspending
from shadowrelay.core.events.discard_notices import whole
from shadowrelay.core.identifiers import MessageId, NextHop, RequestId, ServerName
from shadowrelay.core.operating import Act, Scope, Told
from shadowrelay.core.safety_net.resubmission import Contacts
from shadowrelay.core.suspensions import Suspension
from shadowrelay.core.values import dataclass
from shadowrelay.database import job_selection
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.operator.acts import Action
from shadowrelay.operator.asking import AskMember, asked_all
from shadowrelay.operator.queue_names import QueueNames
from shadowrelay.operator.resubmit_estimate import CannotDo
from shadowrelay.shown.records import SuspendedAt, SuspensionRecord
from shadowrelay.shown.rendering import rendered
from shadowrelay.wire.records import record_from, record_told
from shadowrelay.wire.xoperate import TooLong, format_act
from shadowrelay.wire.xshadow import Malformed

log = structlog.get_logger(__name__)

LOOK = "look-suspensions"
"""The action of XOPERATE: which queues are on record at a node, and what it sends there."""

PATIENCE = 2.0  # seconds that a member may take


@dataclass(slots=True, kw_only=True)
class Suspending:
    """One node's. ``ask``: asks a member, within that many seconds. ``share``: a record changed: it is in
    force here when this returns, and is given to the members. ``in_force``: what is on record is in force
    when this returns. ``why_away``: of a member that cannot be reached, why. ``names``: what queues are
    called.
    """

    database: TransportDatabase
    contacts: Callable[[], Contacts]
    clock: Callable[[], datetime]
    mint: Callable[[datetime], MessageId]
    ask: AskMember
    why_away: Callable[[ServerName], str]
    share: Callable[[], Awaitable[None]]
    in_force: Callable[[], Awaitable[object]]
    names: QueueNames

    @property
    def name(self) -> ServerName:
        return self.database.ledger.name

    async def suspend(
        self, given: str, operator: str, reason: str, until: datetime | None = None
    ) -> SuspensionRecord:
        """Suspend a queue on all members. Raises CannotDo."""
        queue = await self.names.named(given)
        if until is not None and until <= self.clock():
            raise CannotDo("until has to be in the future")
        return await self._change(queue, operator, reason, until, suspended=True)

    async def resume(self, given: str, operator: str, reason: str) -> SuspensionRecord:
        """Resume a queue on all members. Raises CannotDo."""
        queue = await self.names.named(given)
        known = await self.database.transact(lambda ledger: ledger.suspension(queue))
        if known is None or not known.in_force(self.clock()):
            raise CannotDo(f"the queue {queue} is not suspended")
        return await self._change(queue, operator, reason, None, suspended=False)

    async def _change(
        self, queue: NextHop, operator: str, reason: str, until: datetime | None, *, suspended: bool
    ) -> SuspensionRecord:
        if not reason.strip():
            raise CannotDo("this needs a reason: members and their tracking logs show it")
        now = whole(self.clock())
        given = Suspension(
            id=RequestId(self.mint(now)),
            next_hop=queue,
            suspended=suspended,
            until=until and whole(until),
            operator=operator,
            reason=reason,
            changed_by=self.name,
            changed_at=now,
        )
        try:
            told = {"suspension": record_told(record_from(Suspension, record_told(given)))}
            format_act(self._act(Suspension.kind, operator, told, reason))
        except (Malformed, TooLong) as error:
            raise CannotDo(f"the record cannot be given to members: {error}") from error
        stored = await self.database.transact(
            lambda ledger: ledger.apply(suspending.changed(ledger, given, now))
        )
        if stored is None:
            raise CannotDo(f"{suspending.MOST_KEPT} queues are suspended already: resume one first")
        log.warning(
            "queue_suspended" if suspended else "queue_resumed",
            next_hop=queue,
            operator=operator,
            reason=reason,
            until=until,
            revision=stored.revision,
        )
        await self.share()
        return await self.show(queue, operator)

    async def show(self, queue: NextHop, operator: str = "") -> SuspensionRecord:
        """The record of one queue. Raises CannotDo if there is none."""
        for found in await self.all(operator):
            if found["queue"] == queue:
                return found
        raise CannotDo(f"the queue {queue} was never suspended")

    async def all(self, operator: str = "") -> list[SuspensionRecord]:
        """All records, with what each member says about them now."""
        act = self._act(LOOK, operator, {})
        answers = dict(await asked_all(self.contacts(), self.ask, self.why_away, act, PATIENCE))
        here = {self.name: await self._look_for(self.name, act), **answers}
        records = await self.database.transact(lambda ledger: tuple(ledger.suspensions()))
        return [self._shown(one, here) for one in records]

    def _shown(self, record: Suspension, answers: dict[ServerName, Told | str]) -> SuspensionRecord:
        nodes = [_node(name, record, answer) for name, answer in answers.items()]
        now = self.clock()
        suspended = record.in_force(now)
        return rendered(
            SuspensionRecord,
            record,
            suspended=suspended,
            pending=suspended and not all(one["has"] and not one["sending"] for one in nodes),
            nodes=nodes,
        )

    def _act(self, action: str, operator: str, arguments: Told, reason: str = "") -> Act:
        return Act(
            job=RequestId(self.mint(self.clock())),
            action=action,
            scope=Scope.OPERATE if action == Suspension.kind else Scope.READ,
            operator=operator,
            reason=reason,
            arguments=arguments,
        )

    def actions(self) -> dict[str, Action]:
        """What members may ask here."""
        return {LOOK: Action(Scope.READ, self._look_for, quiet=True)}

    async def _look_for(self, member: ServerName, act: Act) -> Told:
        del member, act
        await self.in_force()  # only then no attempt begins any more that is not counted

        def read(ledger: SqlLedger) -> Told:
            return {
                "suspensions": [
                    [one.next_hop, one.revision, job_selection.sending(ledger, one.next_hop)]
                    for one in ledger.suspensions()
                ]
            }

        return await self.database.transact(read)


def _node(name: ServerName, record: Suspension, answer: Told | str) -> SuspendedAt:
    """Whether a node has the record as it is here, and how many attempts to the next hop are under way."""
    if isinstance(answer, str):
        return {"node": name, "answers": False, "has": False, "sending": None, "why": answer}
    found = answer.get("suspensions")
    for one in found if isinstance(found, list) else ():
        if isinstance(one, list) and len(one) == 3 and one[0] == record.next_hop:
            has = one[1] == record.revision
            why = "" if has else "it was not told of the last change yet"
            return {"node": name, "answers": True, "has": has, "sending": int(one[2]), "why": why}
    return {"node": name, "answers": True, "has": False, "sending": 0, "why": "it was not told of it yet"}
