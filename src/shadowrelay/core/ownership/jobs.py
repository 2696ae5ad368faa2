"""Jobs: how they are made, stopped, merged and forgotten, and how a node goes through its queue for one.

Every member has every job. Merging is a maximum, so the order in which members hear of a change makes no
difference.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from shadowrelay.core.decisions import Decision, Write
from shadowrelay.core.events.announcements import MILLISECOND
from shadowrelay.core.identifiers import FIRST, RequestId, ServerName
from shadowrelay.core.jobs import Filter, ForgetJob, Job, JobProgress, JobState, Verb
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.shared_records import next_revision
from shadowrelay.core.values import dataclass, replace

MOST_KEPT = 200
"""Jobs that a node stores: what members can make it hold is bounded."""

MOST_OPEN = 40
"""Jobs that this node itself has still to go through when it takes one more from an operator."""

KEPT_FOR = timedelta(days=14)
"""So long a job is kept after it was made, if all members are through."""

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
    return Decision(job, (job, *room))


def _after_all(ledger: Ledger, job: Job) -> Job:
    """The job, made after all those that it is to overrule: the clock of the node that made one of them may
    be ahead, and then a resume would change nothing.
    """
    latest = max((one.made_at for one in ledger.jobs() if one.verb in _UNDO), default=job.made_at)
    if job.verb not in _UNDO or latest < job.made_at:
        return job
    return replace(job, made_at=latest + MILLISECOND)


def stop(ledger: Ledger, job_id: RequestId, by: ServerName, now: datetime) -> Decision[Job | None]:
    """Stop a job for good; what was done stays done. The result: the job as it is now, None without one."""
    known = ledger.job(job_id)
    if known is None or known.state is JobState.STOPPED:
        return Decision(known)
    revision = next_revision(known.revision, now)
    after = replace(known, state=JobState.STOPPED, revision=revision, changed_by=by, changed_at=now)
    return Decision(after, (after,))


def merge(
    ledger: Ledger,
    given: Job,
    progress: Sequence[JobProgress],
    teller: ServerName,
    members: Collection[ServerName],
) -> Decision[Job | None]:
    """A member gave its record of a job, and its own progress. The result is the record as it is now.

    None: it is not kept. That is so if there is no room but for younger jobs, or more are open than are kept.
    """
    known = ledger.job(given.id)
    writes: list[Write] = []
    if known is None:
        room = _room(ledger, members, given.id)
        if room is None:
            return Decision(None)
        writes += room
    after = newest(known, given) if known else given
    writes += [after] if after != known else []
    told = {one.node: one.step for one in ledger.job_progress(given.id)}
    writes += [
        one
        for one in progress
        if one.node == teller and one.job == given.id and one.step > told.get(one.node, -1)
    ]
    return Decision(after, tuple(writes))


def newest(one: Job, other: Job) -> Job:
    """Of two revisions of a job, the one that counts. The order of merging makes no difference."""
    return max(one, other, key=_weight)


def _weight(job: Job) -> tuple[bool, int, datetime, list[int]]:
    by_name = [-ord(letter) for letter in job.changed_by] + [0]  # the first name weighs most
    return job.state is JobState.STOPPED, job.revision, job.changed_at, by_name


def _room(
    ledger: Ledger, members: Collection[ServerName], newcomer: RequestId | None = None
) -> list[ForgetJob] | None:
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
    return [ForgetJob(one) for one in gone]


def forget(ledger: Ledger, members: Collection[ServerName], now: datetime) -> Decision[int]:
    """Forget jobs that were made long ago and are over. The result: how many."""
    gone = [
        ForgetJob(one.id)
        for one in ledger.jobs()
        if now - one.made_at >= KEPT_FOR and over(ledger, one, members)
    ]
    return Decision(len(gone), tuple(gone))


def own(ledger: Ledger, job_id: RequestId) -> JobProgress:
    """How far this node is with a job."""
    found = (one for one in ledger.job_progress(job_id) if one.node == ledger.name)
    return next(found, JobProgress(job=job_id, node=ledger.name))


def further(progress: JobProgress, now: datetime) -> JobProgress:
    """The next report of this node; it counts over those that were lost when its database was put back."""
    return replace(progress, step=next_revision(progress.step, now))


def through(ledger: Ledger, job: Job) -> bool:
    """Has this node nothing more to do for the job, as far as it knows?"""
    return job.state is JobState.STOPPED or own(ledger, job.id).done


def all_done(ledger: Ledger, job: Job, members: Collection[ServerName]) -> bool:
    """Has every other member gone through its queue, and do all holders know what it did? Until they do, a
    holder that does not may take over a message to which the job is yet to be done.
    """
    done = {one.node for one in ledger.job_progress(job.id) if one.done and not one.pending}
    return done.issuperset(members)


def over(ledger: Ledger, job: Job, members: Collection[ServerName]) -> bool:
    """Is nothing left of a job on any member? ``members``: the others, without those that were retired."""
    told = {one.node: one for one in ledger.job_progress(job.id)}
    if job.state is JobState.STOPPED:
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
        if one.verb in _UNDO
        and one.state is not JobState.STOPPED
        and (one.made_at, one.id) > (job.made_at, job.id)
    ]


def again(progress: JobProgress, now: datetime) -> JobProgress:
    """Go through the queue once more, since messages were in hand when it was their turn."""
    return further(replace(progress, after=FIRST, waiting=0), now)
