"""Jobs: how they are made, stopped, merged and forgotten, and how a node goes through its queue for one.

Every member has every job. Merging is a maximum, so the order in which members hear of a change makes no
difference.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from shadowrelay.core.decisions import Decision
from shadowrelay.core.events.discard_notices import MILLISECOND
from shadowrelay.core.identifiers import FIRST, RequestId, ServerName
from shadowrelay.core.jobs import Filter, Job, JobProgress, JobState, Verb
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.records import next_revision
from shadowrelay.core.replicating import Rules
from shadowrelay.core.shared_records import ForgetRecord
from shadowrelay.core.values import dataclass, replace

MOST_KEPT = 200
"""Jobs that a node stores: what members can make it hold is bounded."""

MOST_OPEN = 40
"""Jobs that this node itself has still to go through when it takes one more from an operator."""

_UNDO = {Verb.SUSPEND, Verb.RESUME}
"""Verbs of which the latest that is about a message counts."""


@dataclass(frozen=True, slots=True)
class JobRefused:
    """A job is not taken: a sentence for the operator."""

    why: str


def fault(job: Job) -> str:
    """What is wrong with a job; empty if nothing is."""
    if job.filter == Filter():
        return "a filter needs a condition: it would mean all mail"
    if job.until is not None and job.verb is not Verb.SUSPEND:
        return f"until belongs to suspend, and not to {job.verb.value}"
    if job.until is not None and job.until <= job.made_at:
        return "until has to be in the future"
    if job.with_report and job.verb is not Verb.REMOVE:
        return f"a report belongs to remove, and not to {job.verb.value}"
    if not job.reason.strip():
        return "a job needs a reason: members and their tracking logs show it"
    return ""


def add(ledger: Ledger, job: Job, members: Collection[ServerName]) -> Decision[Job | JobRefused]:
    """Store a new job. Again with its id: no change. ``members``: the others."""
    if known := ledger.job(job.id):
        return Decision(known)
    if why := fault(job):
        return Decision(JobRefused(why))
    job = _after_all(ledger, job)
    open_here = sum(not through(ledger, one) for one in ledger.jobs())
    if open_here >= MOST_OPEN:
        return Decision(JobRefused(f"{open_here} jobs run here: wait until some are done, or stop one"))
    room = _room(ledger, members)
    if room is None:
        return Decision(JobRefused(f"{MOST_KEPT} jobs are open: stop some, or retire members that are gone"))
    job = replace(job, kept_at=job.changed_at)
    return Decision(job, (job, *room))


def _after_all(ledger: Ledger, job: Job) -> Job:
    """The job, made after all those that it is to overrule: the clock of the node that made one of them may
    be ahead, and then a resume would change nothing.
    """
    latest = max((one.made_at for one in ledger.jobs() if one.verb in _UNDO), default=job.made_at)
    if job.verb not in _UNDO or latest < job.made_at:
        return job
    return replace(job, made_at=latest + MILLISECOND)


def stop(
    ledger: Ledger, job_id: RequestId, by: ServerName, now: datetime, operator: str
) -> Decision[Job | None]:
    """Stop a job for good; what was done stays done. The result: the job as it is now, None without one."""
    known = ledger.job(job_id)
    if known is None or known.final:
        return Decision(known)
    revision = next_revision(known.revision, now)
    changed = replace(known, revision=revision, changed_by=by, changed_at=now, last_operator=operator)
    after = replace(changed, state=JobState.STOPPED)
    return Decision(after, (after,))


def _room(
    ledger: Ledger, members: Collection[ServerName], newcomer: RequestId | None = None
) -> list[ForgetRecord] | None:
    """What has to be forgotten, so that one more job fits; None if none may be. Jobs that are over go first,
    the oldest of them at first. One that is older than all of these does not come back for them.
    """
    jobs = ledger.jobs()
    too_many = len(jobs) - MOST_KEPT + 1
    if too_many <= 0:
        return []
    gone = [one.id for one in jobs if over(ledger, one, members)][:too_many]
    if len(gone) < too_many or (newcomer is not None and newcomer < gone[-1]):
        return None
    return [ForgetRecord(Job, one) for one in gone]


def own(ledger: Ledger, job_id: RequestId) -> JobProgress:
    """How far this node is with a job."""
    found = (one for one in ledger.job_progress(job_id) if one.node == ledger.name)
    return next(found, JobProgress(job=job_id, node=ledger.name))


def further(progress: JobProgress, now: datetime) -> JobProgress:
    """The next report of this node; it counts over those that were lost when its database was put back."""
    return replace(progress, step=next_revision(progress.step, now))


def through(ledger: Ledger, job: Job) -> bool:
    """Has this node nothing more to do for the job, as far as it knows?"""
    return job.final or own(ledger, job.id).done


def all_done(ledger: Ledger, job: Job, members: Collection[ServerName]) -> bool:
    """Has every other member gone through its queue, and do all holders know what it did? Until they do, a
    holder that does not may take over a message to which the job is yet to be done.
    """
    done = {one.node for one in ledger.job_progress(job.id) if one.done and not one.pending}
    return done.issuperset(members)


def over(ledger: Ledger, job: Job, members: Collection[ServerName]) -> bool:
    """Is nothing left of a job on any member? ``members``: the others, without those that were retired."""
    told = {one.node: one for one in ledger.job_progress(job.id)}
    if job.final:
        return not any(one.pending for one in told.values())
    return all(
        (one := told.get(name)) is not None and one.closed and not one.pending
        for name in {*members, ledger.name}
    )


def to_overrule(job: Job, jobs: Collection[Job]) -> list[Job]:
    """Later jobs that overrule this one where they are about the same recipients."""
    if job.verb not in _UNDO:
        return []
    return [
        one
        for one in jobs
        if one.verb in _UNDO and not one.final and (one.made_at, one.id) > (job.made_at, job.id)
    ]


def again(progress: JobProgress, now: datetime) -> JobProgress:
    """Go through the queue once more, since messages were in hand when it was their turn."""
    return further(replace(progress, after=FIRST, waiting=0), now)


def _done(parts: Sequence[JobProgress]) -> int:
    (own,) = parts
    return own.done + 2 * own.closed + 4 * (own.done and not own.pending)


RULES = Rules(
    kind=Job,
    part=JobProgress,
    fault=lambda job: "a job without a condition would mean all mail" if job.filter == Filter() else "",
    room=lambda ledger, job, about: _room(ledger, about.members, job.id),
    own=lambda ledger, job: (own(ledger, job.id),),
    done=_done,
    live=lambda ledger, job, about: not over(ledger, job, about.members),
    newer=lambda part, known: part.step > (known.step if known else -1),
)
