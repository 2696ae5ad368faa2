"""Gives records to the other members, and learns theirs: every member has every resubmit request, switch, job
and suspended queue.

Each record is given whole, and the answer is the record as the other node has it after merging, with its own
progress. So a member that was away learns at its return what was paused or removed meanwhile. A record that
is not live (its progress is over) is given once in a contact, and after each change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from typing import TypeAlias

import structlog

from shadowrelay.core import suspending, switching
from shadowrelay.core.decisions import Member
from shadowrelay.core.identifiers import Incarnation, RequestId, ServerName
from shadowrelay.core.jobs import Filter, Job, JobProgress
from shadowrelay.core.ledger import Ledger, Transaction, own_progress
from shadowrelay.core.operating import Act, Scope, Told, act_about
from shadowrelay.core.ownership import jobs
from shadowrelay.core.policy import Policy
from shadowrelay.core.requests import Progress, Request
from shadowrelay.core.safety_net import requesting
from shadowrelay.core.steps import Operate, Transact, Unanswered
from shadowrelay.core.switching import REDUNDANCY
from shadowrelay.core.values import dataclass
from shadowrelay.wire.jobs import (
    job_from,
    job_progress_from,
    job_progress_told,
    job_told,
    suspension_from,
    suspension_told,
)
from shadowrelay.wire.requests import progress_from, progress_told, request_from, request_told
from shadowrelay.wire.switches import switch_from, switch_told
from shadowrelay.wire.xshadow import Malformed

log = structlog.get_logger(__name__)

ACTION = "request"
"""The action of XOPERATE that gives a resubmit request."""

SWITCH = "switch"
"""The action that gives a setting that was switched for all members."""

JOB = "job"
"""The action that gives a job."""

SUSPENSION = "suspension"
"""The action that gives the record of a suspended queue."""

NOT_KEPT = "it does not keep the record: it has too many, or forgot it"
"""Why a member does not have a record of which it answers nothing."""

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


def _nobody() -> Collection[ServerName]:
    return ()


@dataclass(frozen=True, slots=True)
class Sharing:
    """What a node knows when it merges records. ``policy``: the file's. ``members``: the others, without
    those that were retired.
    """

    policy: Policy
    clock: Callable[[], datetime]
    members: Callable[[], Collection[ServerName]] = _nobody


@dataclass(frozen=True, slots=True)
class SharedRecord:
    """A record on its way to a member: the act that gives it, and what is done with the member's own.
    ``live``: the member is given it again and again, since its progress changes.
    """

    act: Act
    news: tuple[RequestId, int, int]
    merge: Callable[[Transaction, Told], object]  # takes the answer; skips one that is malformed
    live: bool = True


async def share(member: ServerName, about: Sharing, had: News = frozenset()) -> Shared:
    """Give records to a member, one by one, and merge what it answers. What it ``had`` is left out, but for
    records that are live.
    """
    records = await Transact(lambda ledger: list(_records(ledger, member, about)))
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
        told = answer.told

        def merge(ledger: Transaction, record: SharedRecord = record, told: Told = told) -> None:
            record.merge(ledger, told)

        await Transact(merge)
    return Shared(tuple(refused), had=frozenset(told_of))


def _records(ledger: Ledger, member: ServerName, about: Sharing) -> Iterator[SharedRecord]:
    yield from _suspensions(ledger, about)
    yield from _jobs(ledger, member, about)
    yield from _requests(ledger, member, about)
    yield from _switches(ledger, about)


def _suspensions(ledger: Ledger, about: Sharing) -> Iterator[SharedRecord]:
    def merge(ledger: Transaction, told: Told) -> None:
        try:
            if told:
                suspension_received(ledger, told, about)
        except Malformed as error:
            log.error("suspension_skipped", error=str(error))

    for found in ledger.suspensions():
        act = act_about(found, SUSPENSION, Scope.OPERATE, {"suspension": suspension_told(found)})
        yield SharedRecord(act, (found.id, found.revision, 0), merge, live=False)


def suspension_received(ledger: Transaction, told: Told, about: Sharing) -> Told:
    """A member gave the record of a suspended queue: merge it, and answer with ours. Raises Malformed."""
    given = suspension_from(told.get("suspension"))
    ours = ledger.apply(suspending.merged(ledger, given, about.clock()))
    return {"suspension": suspension_told(ours)} if ours else {}


def _jobs(ledger: Ledger, member: ServerName, about: Sharing) -> Iterator[SharedRecord]:
    def merge(ledger: Transaction, told: Told) -> None:
        try:
            if told:
                job_received(ledger, member, told, about)
        except Malformed as error:
            log.error("job_skipped", error=str(error))

    for job in ledger.jobs():
        own = jobs.own(ledger, job.id)
        act = act_about(job, JOB, Scope.OPERATE, told_job(job, own))
        live = not jobs.over(ledger, job, about.members())
        yield SharedRecord(act, (job.id, job.revision, _done(own)), merge, live=live)


def _done(own: JobProgress) -> int:
    """How far the node is, as news: members are told at once when one of these changes."""
    return own.done + 2 * own.closed + 4 * (own.done and not own.pending)


def told_job(job: Job | None, own: JobProgress) -> Told:
    """A job and how far this node is, as arguments or as an answer."""
    return {"job": job_told(job), "progress": [job_progress_told(own)]} if job else {}


def job_received(ledger: Transaction, member: ServerName, told: Told, about: Sharing) -> Told:
    """A member gave a job: merge it, and answer with ours. Raises Malformed."""
    given, parts = job_from(told.get("job")), told.get("progress", [])
    if given.filter == Filter():
        raise Malformed("a job without a condition would mean all mail")
    if not isinstance(parts, list) or len(parts) > MOST_PROGRESS:
        raise Malformed("bad progress")
    progress = [job_progress_from(one) for one in parts]
    merged = ledger.apply(jobs.merge(ledger, given, progress, member, about.members()))
    return told_job(merged, jobs.own(ledger, given.id))


def _requests(ledger: Ledger, member: ServerName, about: Sharing) -> Iterator[SharedRecord]:
    def merge(ledger: Transaction, told: Told) -> None:
        if found := _record(told):
            ledger.apply(requesting.merge(ledger, *found, member, about.policy, about.clock()))

    for request in ledger.requests():
        progress = own_progress(ledger, request.id)
        act = act_about(request, ACTION, Scope.OPERATE, told_record(request, progress))
        yield SharedRecord(act, _news_of_request(request, progress), merge)


def _news_of_request(request: Request, own: Sequence[Progress]) -> tuple[RequestId, int, int]:
    return request.id, request.revision, sum(part.done for part in own)


def _switches(ledger: Ledger, about: Sharing) -> Iterator[SharedRecord]:
    def merge(ledger: Transaction, told: Told) -> None:
        try:
            switch_received(ledger, told, about.policy)
        except Malformed as error:
            log.error("switch_skipped", error=str(error))

    if found := ledger.switch(REDUNDANCY):
        act = act_about(found, SWITCH, Scope.OPERATE, {"switch": switch_told(found)})
        yield SharedRecord(act, (found.id, found.revision, 0), merge)


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


def incarnations(
    known: Callable[[ServerName], Member | None], names: Collection[ServerName]
) -> dict[ServerName, Incarnation | None]:
    """The incarnation in which each of these members was met last."""
    found = {name: known(name) for name in names}
    return {name: one.lineage.incarnation if one and one.lineage else None for name, one in found.items()}


def news_of(ledger: Ledger, requests: Sequence[Request]) -> News:
    """What members have to be told at once of these requests, and of all other records."""
    switch = ledger.switch(REDUNDANCY)
    found = [_news_of_request(one, own_progress(ledger, one.id)) for one in requests]
    found += [(switch.id, switch.revision, 0)] if switch else []
    found += [(one.id, one.revision, _done(jobs.own(ledger, one.id))) for one in ledger.jobs()]
    found += [(one.id, one.revision, 0) for one in ledger.suspensions()]
    return frozenset(found)


def received(ledger: Transaction, member: ServerName, told: Told, policy: Policy, now: datetime) -> Told:
    """A member gave a record: merge it, and answer with ours. Raises Malformed."""
    request, progress = read_record(told)
    merged = ledger.apply(requesting.merge(ledger, request, progress, member, policy, now))
    return told_record(merged, own_progress(ledger, request.id))
