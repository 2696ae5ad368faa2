"""The scripts of the talk between members: polling, questions – and what a failure calls for."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from functools import partial

from shadowrelay.core import heartbeat
from shadowrelay.core.claims import Sighting, sighting_of
from shadowrelay.core.conversation import Answered, Greeting, Query, ask, told
from shadowrelay.core.decisions import Part
from shadowrelay.core.heartbeat import Alarm
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.ledger import Transaction
from shadowrelay.core.messages import Reason
from shadowrelay.core.policy import Policy
from shadowrelay.core.questions import Speaker
from shadowrelay.core.second_opinion import Others
from shadowrelay.core.steps import Ask, Script, Transact, Unanswered
from shadowrelay.core.values import dataclass
from shadowrelay.members.inquiry import AT_ONCE, Inquiry

Clock = Callable[[], datetime]


def poll(member: Greeting, inquiry: Inquiry, policy: Policy, clock: Clock) -> Script[Unanswered | None]:
    """Ask for events and about copies, until there is no more to fetch. None when all went well."""
    more = True
    while more:
        query: Query = yield Transact(lambda books: ask(books, member.name, inquiry, clock(), member.version))
        answered: Answered | Unanswered = yield Ask(member.name, query)
        if isinstance(answered, Unanswered):
            return answered
        speaker = Speaker(member.name, member.lineage.database_id, answered.mark, member.version)

        def apply(
            books: Transaction,
            query: Query = query,
            answered: Answered = answered,
            speaker: Speaker = speaker,
        ) -> bool:
            return told(books, speaker, query, answered.lines, inquiry, policy, clock())

        more = yield Transact(apply)
    return None


@dataclass(frozen=True, slots=True)
class Consequence:
    """What came of a failed heartbeat: messages that are to be promoted, or why none may be."""

    promoting: int = 0
    seen_by: ServerName | None = None
    alone: bool = False


NOTHING = Consequence()


def unreachable(
    member: ServerName,
    alarms: Collection[Alarm],
    others: Others,
    silent: Callable[[], bool],
    clock: Clock,
) -> Script[Consequence]:
    """What follows when a member cannot be reached. Repeated at every heartbeat, it changes nothing new.

    Before anything is promoted by time the other members are asked whether they had contact with it. If no
    other machine answers, then this node may be the one that is cut off. In a boundary of two, time decides.
    ``silent`` is asked again at the end: is the member still out of reach?
    """

    def work(books: Transaction) -> tuple[Sighting | None, Part | None]:
        rest = heartbeat.lose_holder(books, member, first) if Alarm.HOLDER_LOST in alarms else None
        return (sighting_of(books, member) if Alarm.PROMOTE in alarms else None), rest

    def lose(books: Transaction, part: Part) -> Part | None:
        return heartbeat.lose_holder(books, member, part) if silent() else None

    first = Part(most=AT_ONCE)
    sighting: Sighting | None
    rest: Part | None
    sighting, rest = (yield Transact(work)) if alarms else (None, None)
    while rest:
        rest = yield Transact(partial(lose, part=rest))
    if sighting is None:
        return NOTHING
    opinions: set[ServerName] = set()
    for other in sorted(others.members):
        answered: Answered | Unanswered = yield Ask(other, Query(0, sighting=sighting))
        if isinstance(answered, Answered):
            opinions.add(other)
            if answered.seen == member:
                return Consequence(seen_by=other)
    if others.none_of(opinions) and Alarm.PROMOTE_ALONE not in alarms:
        return Consequence(alone=True)

    def promote(books: Transaction, part: Part) -> tuple[int, Part | None]:
        if not silent():
            return 0, None
        return heartbeat.take_over(books, member, Reason.HEARTBEAT_LOST, clock(), part)

    promoting, rest = 0, first
    while rest:
        more, rest = yield Transact(partial(promote, part=rest))
        promoting += more
    return Consequence(promoting)
