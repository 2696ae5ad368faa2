"""Gives records to the other members, and learns theirs: every member has every resubmit request, switch, job
and suspended queue.

Each record is given whole, and the answer is the record as the other node has it after merging, with its own
progress. So a member that was away learns at its return what was paused or removed meanwhile. A record that
is not live (its progress is over) is given once in a contact, and after each change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias

import structlog

from shadowrelay.core import retiring, suspending, switching
from shadowrelay.core.identifiers import RequestId, ServerName
from shadowrelay.core.ledger import Ledger, Transaction
from shadowrelay.core.operating import Act, Scope, Told, act_about
from shadowrelay.core.ownership import jobs
from shadowrelay.core.records import Record, RecordPart
from shadowrelay.core.replicating import Merging, Rules, merge
from shadowrelay.core.safety_net import requesting
from shadowrelay.core.steps import Operate, Transact, Unanswered
from shadowrelay.core.values import dataclass, replace
from shadowrelay.wire.json_fields import duration_in
from shadowrelay.wire.records import record_from, record_told
from shadowrelay.wire.xshadow import Malformed

log = structlog.get_logger(__name__)

_KINDS = (suspending.RULES, jobs.RULES, requesting.RULES, switching.RULES, retiring.RULES)
RULES: dict[str, Rules[Any]] = {rules.kind.kind: rules for rules in _KINDS}
"""By kind, which is the action of XOPERATE that gives a record."""

NOT_KEPT = "it does not keep the record: it has too many, or forgot it"
"""Why a member does not have a record of which it answers nothing."""

_MICROSECOND = timedelta(microseconds=1)

MOST_PROGRESS = 8
"""Parts of one record in one command or answer: it has to fit into a line."""


News: TypeAlias = frozenset[tuple[RequestId, int, int]]
"""Of each record its revision, and how much of it is done here."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What giving the records to a member came to. ``refused``: why the member does not have a record.
    ``had``: what the member has been told of the records, also if the rest ``failed``.
    """

    refused: tuple[tuple[RequestId, str], ...] = ()
    failed: Unanswered | None = None
    had: News = frozenset()


@dataclass(frozen=True, slots=True)
class SharedRecord:
    """A record on its way to a member: the act that gives it. ``live``: the member is given it again and
    again, since what nodes tell of it changes.
    """

    act: Act
    news: tuple[RequestId, int, int]
    live: bool


async def share(member: ServerName, about: Callable[[], Merging], had: News = frozenset()) -> Shared:
    """Give records to a member, one by one, and merge what it answers. What it ``had`` is left out, but for
    records that are live.
    """
    records = await Transact(lambda ledger: list(_records(ledger, about())))
    refused: list[tuple[RequestId, str]] = []
    told_of = {record.news for record in records if record.news in had and not record.live}
    for record in records:
        if record.news in told_of:
            continue
        answer = await Operate(member, record.act)
        if isinstance(answer, Unanswered):
            return Shared(tuple(refused), answer, frozenset(told_of))
        told_of.add(record.news)
        if why := answer.refused or ("" if answer.told else NOT_KEPT):
            refused.append((record.act.job, why))
            continue
        await Transact(partial(_merge, record.act.action, member, answer.told, about()))
    return Shared(tuple(refused), had=frozenset(told_of))


def _merge(kind: str, member: ServerName, told: Told, about: Merging, ledger: Transaction) -> None:
    """Merge what a member answered; skip what is malformed."""
    try:
        received(ledger, RULES[kind], member, told, about)
    except Malformed as error:
        log.error("record_skipped", kind=kind, error=str(error))


def _records(ledger: Ledger, about: Merging) -> Iterator[SharedRecord]:
    for rules in RULES.values():
        for record in ledger.records(rules.kind):
            own = _own(ledger, rules, record)
            act = act_about(record, record.kind, Scope.OPERATE, _told(record, own, about))
            live = rules.live is not None and rules.live(ledger, record, about)
            yield SharedRecord(act, _news(rules, record, own), live)


def _own(ledger: Ledger, rules: Rules[Any], record: Record) -> Sequence[RecordPart] | None:
    return rules.own(ledger, record) if rules.own else None


def _news(rules: Rules[Any], record: Record, own: Sequence[RecordPart] | None) -> tuple[RequestId, int, int]:
    return record.id, record.revision, rules.done(own or ())


def _told(record: Record, own: Sequence[RecordPart] | None, about: Merging) -> Told:
    """A record and how far this node is with it, as arguments or as an answer."""
    told: dict[str, object] = {record.kind: record_told(record)}
    if own is not None:
        told["progress"] = [record_told(one) for one in own[:MOST_PROGRESS]]
    return told | {"age": record.age_now(about.ends) // _MICROSECOND}


def received(ledger: Transaction, rules: Rules[Any], member: ServerName, told: Told, about: Merging) -> Told:
    """A member gave a record: merge it, and answer with ours; with nothing if it is not kept. Raises
    Malformed.
    """
    given = record_from(rules.kind, told.get(rules.kind.kind))
    parts = told.get("progress", [])
    if rules.fault and (why := rules.fault(given)):
        raise Malformed(why)
    if not isinstance(parts, list) or len(parts) > MOST_PROGRESS:
        raise Malformed("bad progress")
    progress = [record_from(rules.part, one) for one in parts] if rules.part else []
    # A member of a version before 5 tells no age: only the date of the last change is known.
    dated = max(timedelta(0), about.ends.now - given.changed_at)
    age = duration_in(told, "age") if "age" in told else dated
    ours = ledger.apply(merge(ledger, rules, given, progress, member, replace(about, age=age)))
    return _told(ours, _own(ledger, rules, ours), about) if ours else {}


def news_of(ledger: Ledger) -> News:
    """What members have to be told at once."""
    return frozenset(
        _news(rules, record, _own(ledger, rules, record))
        for rules in RULES.values()
        for record in ledger.records(rules.kind)
    )
