"""The stage that carries out jobs: page by page through this node's queue, in the order of ids.

How far a job is, is stored with what was done in one transaction. So a node that was killed goes on where it
was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from functools import partial

import structlog

from shadowrelay.core.decisions import Content, Decision
from shadowrelay.core.filtering import about, overruled, reaches
from shadowrelay.core.identifiers import FIRST, MessageId, NextHop, RequestId
from shadowrelay.core.jobs import Filter, Job, JobProgress, JobState, Verb
from shadowrelay.core.messages import Copy
from shadowrelay.core.ownership import jobs
from shadowrelay.core.safety_net.resubmission import Contacts
from shadowrelay.core.tracking import QueueActed, retried
from shadowrelay.core.values import dataclass, replace
from shadowrelay.database import job_selection
from shadowrelay.database.content import stored
from shadowrelay.database.job_selection import Selection
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queue import being_sent
from shadowrelay.database.transport import DatabaseFailed, TransportDatabase
from shadowrelay.operator import verbs
from shadowrelay.operator.verbs import Written

log = structlog.get_logger(__name__)

INTERVAL = 1.0  # seconds between looks at messages in hand, at what is pending, and at what was taken over
IDLE = 5.0  # seconds between looks while every job is over
LOOK = 400  # messages that one transaction looks at; all other writes wait meanwhile
MOST = 40  # messages to which one transaction does something: about a millisecond each
SET_BACK = timedelta(minutes=1)  # so far this node's clock may be set back while it carries out a job
LEFT_FOR = 60.0  # seconds for which a job is left after an unexpected error in it
MOST_WRITTEN = 20  # messages for which reports are written at a time


@dataclass(slots=True)
class _Working:
    """What this process remembers of one job.

    ``waiting``: messages in hand, which were left. ``through``: the walk through the queue has come to its
    end. ``walked``: how many promotions this process had counted when it began to walk through all that it
    took over from others; None before the first such walk. ``retried``: messages taken over that were tried
    again, and wait because an answer could not be read: once is enough.
    """

    waiting: frozenset[MessageId] = frozenset()
    retried: frozenset[MessageId] = frozenset()
    through: bool = False
    walked: int | None = None


@dataclass(frozen=True, slots=True)
class _Part:
    """Messages to look at now. ``place``: the walk through the queue is there afterwards; None: it stays.

    ``written``: the reports of those of which a report is due; None if the verb needs none. ``more``: the
    walk goes on behind the part. ``taken``: these are messages that this node took over from others.
    """

    ids: Sequence[MessageId]
    place: MessageId | None = None
    written: Mapping[MessageId, Written] | None = None
    more: bool = False
    taken: bool = False


@dataclass(frozen=True, slots=True)
class _Came:
    """What a transaction came to."""

    progress: JobProgress
    did: int
    waiting: frozenset[MessageId]
    retried: frozenset[MessageId]


@dataclass(slots=True, kw_only=True)
class JobRunner:
    """One node's. ``try_now``: ends the rest of a next hop. ``changed``: mail may be due now. ``tell``:
    members have to hear of a job's progress.
    """

    database: TransportDatabase
    writer: verbs.ReportWriter
    contacts: Callable[[], Contacts]
    clock: Callable[[], datetime]
    try_now: Callable[[NextHop], None]
    changed: Callable[[], None]
    tell: Callable[[], None]
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    _working: dict[RequestId, _Working] = field(default_factory=dict)
    _left: dict[RequestId, float] = field(default_factory=dict)  # until when, after an error

    async def run(self) -> None:
        """Until cancelled."""
        await self.database.transact(partial(_begin_again, now=self.clock()))
        while True:
            self.wake.clear()
            pause = INTERVAL if await self.turn() else IDLE
            try:
                async with asyncio.timeout(pause):
                    await self.wake.wait()
            except TimeoutError:
                continue

    async def turn(self) -> bool:
        """Take every open job as far as it goes now. Returns whether one of them is still open.

        An unexpected error in a job ends that job's part of the turn alone: every member has the job, and
        each of them would end with it.
        """
        members = self.contacts().members
        opened = await self.database.transact(
            lambda ledger: [
                (job, jobs.own(ledger, job.id), jobs.all_done(ledger, job, members))
                for job in ledger.jobs()
                if not _finished(ledger, job)
            ]
        )
        self._working = {job.id: self._working.get(job.id, _Working()) for job, _, _ in opened}
        running = [job for job, own, _ in opened if job.state is JobState.RUNNING and not own.done]
        for job in running:
            if job.verb is Verb.RETRY and job.filter.queue is not None and not self._working[job.id].through:
                self.try_now(job.filter.queue)
        while running:  # a page of each in turn, so that a large one does not keep the others waiting
            running = [job for job in running if await self._guarded(job, self._page)]
        for job, own, all_done in opened:
            await self._guarded(job, partial(self._rest, own=own, all_done=all_done))
        return bool(opened)

    async def _guarded(self, job: Job, work: Callable[[Job], Awaitable[bool]]) -> bool:
        """Do it, unless there was an error in the job a short time ago. Returns what the work returns."""
        now = asyncio.get_running_loop().time()
        if self._left.get(job.id, 0) > now:
            return False
        try:
            return await work(job)
        except DatabaseFailed:
            raise
        except Exception:
            log.exception("job_failed", job=job.id, verb=job.verb.value, again_in=LEFT_FOR)
            self._left[job.id] = now + LEFT_FOR
            return False

    async def _rest(self, job: Job, *, own: JobProgress, all_done: bool) -> bool:
        """What a job has to do beside its walk through the queue."""
        if job.state is JobState.RUNNING:
            await self._again(job)
            if own.done:
                await self._walk(job, all_done=all_done)
        await self._count_pending(job)
        return False

    async def _page(self, job: Job) -> bool:
        """One page of the queue. Returns whether there are more."""
        working = self._working[job.id]
        if working.through:
            return False

        now = self.clock()

        def read(ledger: SqlLedger) -> Selection:
            after = jobs.own(ledger, job.id).after
            return job_selection.page(ledger, job.filter, job.made_at, now, after, LOOK)

        found = await self.database.transact(read)
        left = found.ids
        while True:
            part = await self._part(job, Selection(left, found.last))
            left = left[len(part.ids) :]
            working.through = not part.more
            if not await self._do(job, part):
                return False
            if not left:
                return part.more

    async def _again(self, job: Job) -> None:
        """Look again at messages that were in hand."""
        working = self._working[job.id]
        left = sorted(working.waiting)
        while left:
            part = await self._part(job, Selection(left, None))
            left = left[len(part.ids) :]
            await self._do(job, replace(part, place=None))

    async def _walk(self, job: Job, *, all_done: bool) -> None:
        """Look at what this node took over since, and close the job when every other member is through."""
        working = self._working[job.id]
        promotions = self.database.ledger.tracked["RESUBMIT"]
        if working.walked != promotions:
            after: MessageId | None = FIRST
            while after is not None:

                def read(ledger: SqlLedger, after: MessageId = after) -> Selection:
                    return job_selection.taken(ledger, after, MOST)

                part = await self._part(job, await self.database.transact(read))
                await self._do(job, replace(part, place=None, taken=True))
                after = part.place if part.more else None
            working.walked = promotions
        if not all_done or working.waiting:
            return

        def close(ledger: SqlLedger) -> bool:
            """A copy whose promotion is pending is looked at when it is promoted."""
            if ledger.tracked["RESUBMIT"] != promotions or job_selection.promoting(ledger):
                return False
            return _close(ledger, job.id, self.clock())

        if await self.database.transact(close):
            self.tell()

    async def _part(self, job: Job, found: Selection) -> _Part:
        """As much of what was found as one transaction may have, with the reports that are due."""
        ids = found.ids[: MOST_WRITTEN if verbs.needs_reports(job) else MOST]
        whole = len(ids) == len(found.ids)
        place = (found.last or (ids[-1] if ids else None)) if whole else ids[-1]
        written = await self._written(job, ids) if verbs.needs_reports(job) else None
        return _Part(ids, place, written, more=not whole or found.last is not None)

    async def _written(self, job: Job, ids: Sequence[MessageId]) -> dict[MessageId, Written]:
        now = self.clock()

        def read(ledger: SqlLedger) -> list[tuple[Copy, tuple[int, ...], Content]]:
            copies = (ledger.copy(one) for one in ids)
            return [
                (copy, numbers, stored(ledger, copy.id) or Content())
                for copy in copies
                if copy is not None and reaches(job.filter, copy) and (numbers := about(job, copy, now))
            ]

        found = await self.database.transact(read)
        return {copy.id: await self.writer.write(job, copy, numbers, of) for copy, numbers, of in found}

    async def _do(self, job: Job, part: _Part) -> bool:
        """Do it to the messages of a part, and store the place, in one transaction. Returns whether the job
        goes on: it may have been stopped.
        """
        working = self._working[job.id]
        came = await self.database.transact(lambda ledger: self._done(ledger, job.id, part, working))
        if came is None:
            working.waiting = frozenset()
            return False
        working.waiting, working.retried = came.waiting, came.retried
        if came.did:
            self.changed()
        if came.progress.done and not came.progress.closed:
            self.tell()
        return True

    def _done(self, ledger: SqlLedger, job_id: RequestId, part: _Part, working: _Working) -> _Came | None:
        job, own, now = ledger.job(job_id), jobs.own(ledger, job_id), self.clock()
        if job is None or job.state is JobState.STOPPED:
            return None
        later = jobs.to_overrule(job, ledger.jobs())
        did, late, left, retried = 0, 0, set(working.waiting), set(working.retried)
        for message_id in part.ids:
            copy = ledger.copy(message_id)
            numbers = about(job, copy, now) if copy is not None and reaches(job.filter, copy) else ()
            if copy is not None and job.verb is Verb.RETRY and part.taken:
                numbers = () if message_id in retried else _kept_back(copy, numbers)
            if later and copy is not None:
                numbers = tuple(sorted(set(numbers) - overruled(later, copy)))
            if copy is None or not numbers:
                late += message_id in left
                left.discard(message_id)
            elif being_sent(ledger, message_id) or not _ready(part, message_id, numbers):
                left.add(message_id)
            else:
                left.discard(message_id)
                did += verbs.perform(ledger, job, copy, numbers, part.written, now)
                retried |= {message_id} if job.verb is Verb.RETRY and _once(copy) else set()
        found = replace(
            own,
            after=part.place or own.after,
            did=own.did + did,
            late=own.late + late,
            pending=own.pending + did,  # until they are counted: it must not be over before
            waiting=len(left),
            done=own.done or (working.through and not left),
            since=own.since or (now if did else None),
        )
        if found != own:
            found = jobs.further(found, now)
            ledger.apply(Decision(None, (found,), _queue_acts(job, own, now)))
        return _Came(found, did, frozenset(left), frozenset(retried))

    async def _count_pending(self, job: Job) -> None:
        """Count the messages of which not every member that may hold a copy knows yet what was done."""

        alone = not self.contacts().members

        def count(ledger: SqlLedger) -> bool:
            own = jobs.own(ledger, job.id)
            began = own.since and own.since - SET_BACK
            left = job_selection.unacknowledged(ledger, job.verb, began, alone=alone) if began else 0
            pending = min(own.did, left)
            if pending == own.pending or ledger.job(job.id) is None:
                return False
            ledger.apply(Decision(None, (jobs.further(replace(own, pending=pending), self.clock()),)))
            return not pending

        if await self.database.transact(count):
            self.tell()


def _once(copy: Copy) -> bool:
    """Is it a message taken over, of which a walk through all of these might retry a recipient again?"""
    return copy.former_owner is not None and any(one.unread for one in copy.unsettled)


def _kept_back(copy: Copy, numbers: Sequence[int]) -> tuple[int, ...]:
    """Those recipients that a promotion left waiting: a host may have the message already. Every other one is
    due since this node took the message over.
    """
    return tuple(one.number for one in copy.unsettled if one.number in numbers and one.unread)


def _ready(part: _Part, message_id: MessageId, numbers: Sequence[int]) -> bool:
    """Are the reports written, if the verb needs some?"""
    if part.written is None:
        return True
    written = part.written.get(message_id)
    return written is not None and set(numbers) <= set(written.numbers)


def _queue_acts(job: Job, before: JobProgress, now: datetime) -> tuple[QueueActed, ...]:
    """The row about a whole queue that is retried, when this node does its first part."""
    queue = job.filter.queue
    whole = queue is not None and job.verb is Verb.RETRY and job.filter == Filter(queue=queue)
    return (retried(job, queue, now),) if queue is not None and whole and not before.step else ()


def _finished(ledger: SqlLedger, job: Job) -> bool:
    """Is there nothing to do, whatever becomes of the members?"""
    own = jobs.own(ledger, job.id)
    return not own.pending and (own.closed or job.state is JobState.STOPPED)


def _close(ledger: SqlLedger, job_id: RequestId, now: datetime) -> bool:
    own = jobs.own(ledger, job_id)
    if not own.done or own.closed or ledger.job(job_id) is None:
        return False
    ledger.apply(Decision(None, (jobs.further(replace(own, closed=True), now),)))
    return True


def _begin_again(ledger: SqlLedger, now: datetime) -> None:
    """Nobody knows any more which messages were in hand when the process before ended."""
    for job in ledger.jobs():
        own = jobs.own(ledger, job.id)
        if own.waiting:
            ledger.apply(Decision(None, (jobs.again(own, now),)))
