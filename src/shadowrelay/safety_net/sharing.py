"""Gives records to the other members, and learns theirs: every member has every resubmit request and switch.

Each record is given whole, and the answer is the record as the other node has it after merging, with its own
progress. So a member that was away learns at its return what was paused or removed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TypeAlias

import structlog

from shadowrelay.core import switching
from shadowrelay.core.identifiers import RequestId, ServerName
from shadowrelay.core.ledger import Ledger, Transaction, own_progress
from shadowrelay.core.operating import Act, Scope, Told
from shadowrelay.core.policy import Policy
from shadowrelay.core.requests import Progress, Request
from shadowrelay.core.safety_net import requesting
from shadowrelay.core.steps import Operate, Transact, Unanswered
from shadowrelay.core.switching import REDUNDANCY
from shadowrelay.core.values import dataclass
from shadowrelay.wire.requests import progress_from, progress_told, request_from, request_told
from shadowrelay.wire.switches import switch_from, switch_told
from shadowrelay.wire.xshadow import Malformed

log = structlog.get_logger(__name__)

ACTION = "request"
"""The action of XOPERATE that gives a resubmit request."""

SWITCH = "switch"
"""The action that gives a setting that was switched for all members."""

MOST_PROGRESS = 8
"""Parts of one record in one command or answer: it has to fit into a line."""


News: TypeAlias = frozenset[tuple[RequestId, int, int]]
"""Of each record its revision, and how many parts of it are done here."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What giving the records to a member came to. ``refused``: why the member does not have a request."""

    refused: tuple[tuple[RequestId, str], ...] = ()
    failed: Unanswered | None = None


@dataclass(frozen=True, slots=True)
class SharedRecord:
    """A record on its way to a member: the act that gives it, and what is done with the member's own."""

    act: Act
    merge: Callable[[Transaction, Told], object]  # takes the answer; skips one that is malformed


async def share(member: ServerName, policy: Policy, clock: Callable[[], datetime]) -> Shared:
    """Give all records to a member, one by one, and merge what it answers. ``policy``: the file's."""
    records = await Transact(
        lambda ledger: [*_requests(ledger, member, policy, clock), *_switches(ledger, policy)]
    )
    refused: list[tuple[RequestId, str]] = []
    for record in records:
        answer = await Operate(member, record.act)
        if isinstance(answer, Unanswered):
            return Shared(tuple(refused), answer)
        if answer.refused:
            refused.append((record.act.job, answer.refused))
            continue
        told = answer.told

        def merge(ledger: Transaction, record: SharedRecord = record, told: Told = told) -> None:
            record.merge(ledger, told)

        await Transact(merge)
    return Shared(tuple(refused))


def _requests(
    ledger: Ledger, member: ServerName, policy: Policy, clock: Callable[[], datetime]
) -> Iterator[SharedRecord]:
    def merge(ledger: Transaction, told: Told) -> None:
        if found := _record(told):
            ledger.apply(requesting.merge(ledger, *found, member, policy, clock()))

    for request in ledger.requests():
        record = told_record(request, own_progress(ledger, request.id))
        yield SharedRecord(requesting.act_about(request, ACTION, Scope.OPERATE, record), merge)


def _switches(ledger: Ledger, policy: Policy) -> Iterator[SharedRecord]:
    def merge(ledger: Transaction, told: Told) -> None:
        try:
            switch_received(ledger, told, policy)
        except Malformed as error:
            log.error("switch_skipped", error=str(error))

    if found := ledger.switch(REDUNDANCY):
        act = Act(
            job=found.id,
            action=SWITCH,
            scope=Scope.OPERATE,
            operator=found.operator,
            reason=found.reason,
            arguments={"switch": switch_told(found)},
        )
        yield SharedRecord(act, merge)


def switch_received(ledger: Transaction, told: Told, policy: Policy) -> Told:
    """A member gave a switch: merge it, and answer with ours. Raises Malformed."""
    given = switch_from(told.get("switch"))
    if given.name != REDUNDANCY:
        raise Malformed(f"this node cannot switch {given.name[:40]}")
    ours = ledger.apply(switching.merged(ledger, given, file=policy.shadow_redundancy_enabled))
    return {"switch": switch_told(ours)}


def told_record(request: Request | None, progress: Sequence[Progress]) -> Told:
    """A record as arguments or as an answer."""
    if request is None:
        return {}
    return {
        "request": request_told(request),
        "progress": [progress_told(one) for one in progress[:MOST_PROGRESS]],
    }


def _record(told: Told) -> tuple[Request, list[Progress]] | None:
    """The record in arguments or in an answer; None if there is none, or it is malformed."""
    try:
        return read_record(told) if told else None
    except Malformed as error:
        log.error("request_skipped", error=str(error))
        return None


def read_record(told: Told) -> tuple[Request, list[Progress]]:
    """Raises Malformed."""
    parts = told.get("progress", [])
    if not isinstance(parts, list) or len(parts) > MOST_PROGRESS:
        raise Malformed("bad progress")
    return request_from(told.get("request")), [progress_from(one) for one in parts]


def news_of(ledger: Ledger, requests: Sequence[Request]) -> News:
    """What members have to be told at once of these records, and of what was switched."""
    switch = ledger.switch(REDUNDANCY)
    return frozenset(
        [(one.id, one.revision, sum(part.done for part in own_progress(ledger, one.id))) for one in requests]
        + ([(switch.id, switch.revision, 0)] if switch else [])
    )


def received(ledger: Transaction, member: ServerName, told: Told, policy: Policy, now: datetime) -> Told:
    """A member gave a record: merge it, and answer with ours. Raises Malformed."""
    request, progress = read_record(told)
    merged = ledger.apply(requesting.merge(ledger, request, progress, member, policy, now))
    return told_record(merged, own_progress(ledger, request.id))
