"""What operators may do with jobs on this node: preview a filter, make a job, stop it, see how far it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, cast

import structlog

from shadowrelay.core.events.discard_notices import whole
from shadowrelay.core.identifiers import MessageId, RequestId, ServerName
from shadowrelay.core.jobs import Filter, Job, JobProgress, JobState, Verb
from shadowrelay.core.operating import Act, Scope, Told, act_about
from shadowrelay.core.ownership import jobs
from shadowrelay.core.ownership.jobs import JobRefused
from shadowrelay.core.safety_net.resubmission import Contacts
from shadowrelay.core.spelling import decoded
from shadowrelay.core.tracking_row import timestamp
from shadowrelay.core.values import dataclass
from shadowrelay.database import job_selection
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.operator.acts import Action, ActRefused
from shadowrelay.operator.asking import AskMember, asked_all
from shadowrelay.operator.queue_names import QueueNames
from shadowrelay.operator.resubmit_estimate import CannotDo
from shadowrelay.shown.fold import fold
from shadowrelay.shown.records import (
    FilterEntry,
    JobCounts,
    JobEntry,
    JobMade,
    JobNode,
    JobPreview,
    JobPreviewNode,
    MailCounts,
    SampledMessage,
)
from shadowrelay.shown.rendering import rendered
from shadowrelay.wire.records import record_from, record_told
from shadowrelay.wire.xoperate import TooLong, format_act
from shadowrelay.wire.xshadow import Malformed

log = structlog.get_logger(__name__)

PREVIEW, LOOK = "preview-job", "look-job"
"""Actions of XOPERATE: what a filter means on a node, and how far a node is with a job."""

PATIENCE = 15.0  # seconds that a member may take to count
LOOK_PATIENCE = 2.0  # seconds that a member may take to say how far it is


class NoSuchJob(CannotDo):
    """There is none with that id."""


class Phase(StrEnum):
    """How a job is, for people. PENDING: every node that answers is through, and a member has still to hear
    of it or to say that it knows.
    """

    RUNNING = "running"
    PENDING = "pending"
    DONE = "done"
    STOPPED = "stopped"


@dataclass(slots=True, kw_only=True)
class Jobs:
    """One node's. ``ask``: asks a member, within that many seconds. ``wake``: a job changed: carry it out,
    and tell the members. ``why_away``: of a member that cannot be reached, why. ``refusal``: why a member
    does not take a job; empty if nothing is known of that. ``names``: what queues are called.
    """

    database: TransportDatabase
    contacts: Callable[[], Contacts]
    clock: Callable[[], datetime]
    mint: Callable[[datetime], MessageId]
    ask: AskMember
    why_away: Callable[[ServerName], str]
    wake: Callable[[], None]
    refusal: Callable[[RequestId, ServerName], str]
    names: QueueNames

    @property
    def name(self) -> ServerName:
        return self.database.ledger.name

    async def preview(self, wanted: Filter, operator: str = "") -> JobPreview:
        """What a job with that filter would be about, on every node that answers: counts, and the first ten
        messages. Raises CannotDo.
        """
        if wanted == Filter():
            raise CannotDo("a filter needs a condition: it would mean all mail")
        wanted = await self.names.in_filter(wanted)
        now = self.clock()
        act = self._act(PREVIEW, operator, {"filter": record_told(wanted), "at": timestamp(now)})
        others = asyncio.ensure_future(self._asked_all(act, PATIENCE))
        nodes = [_counted(self.name, await self._count(wanted))]
        nodes += [_counted(name, answer) for name, answer in await others]
        sample: list[SampledMessage] = sorted(
            ({**one, "node": node["node"]} for node in nodes for one in node["sample"]),
            key=lambda one: str(one["id"]),
        )
        return {
            "filter": filter_shown(wanted),
            **fold(MailCounts, nodes),
            "whole": all(one["answers"] for one in nodes),
            "nodes": nodes,
            "sample": sample[: job_selection.MOST_SAMPLED],
        }

    async def _count(self, wanted: Filter) -> Told:
        now = self.clock()
        if wanted.ids:
            found = await self.database.transact(lambda ledger: job_selection.named(ledger, wanted, now))
        else:
            found = await self.database.read(lambda readers: job_selection.counted(readers, wanted, now))
        return {
            "messages": found.messages,
            "recipients": found.recipients,
            "octets": found.octets,
            "sample": [
                {
                    "id": one.id,
                    "received_at": timestamp(one.received_at),
                    "sender": one.sender,
                    "size": one.size,
                    "subject": decoded(one.subject),
                    "subject_header": one.subject,
                    "message_id": one.message_id,
                    "suspended": one.suspended and timestamp(one.suspended),
                    "recipients": [
                        {"address": address, "next_hop": hop, "last_reply": reply}
                        for address, hop, reply in one.recipients[:MOST_SHOWN]
                    ],
                }
                for one in found.sample
            ],
        }

    async def add(
        self,
        verb: Verb,
        wanted: Filter,
        operator: str,
        reason: str,
        *,
        until: datetime | None = None,
        with_report: bool = False,
    ) -> JobEntry:
        """Make a job. Raises CannotDo."""
        wanted = await self.names.in_filter(wanted)
        # Rounded up: the job is about a message that came in this millisecond, before the order.
        now = whole(self.clock() + timedelta(microseconds=999))
        job = Job(
            id=RequestId(self.mint(now)),
            verb=verb,
            filter=wanted,
            operator=operator,
            reason=reason,
            made_by=self.name,
            made_at=now,
            until=until and whole(until),
            with_report=with_report,
            changed_by=self.name,
            changed_at=now,
        )
        try:
            record_from(Job, record_told(job))
            progress = record_told(JobProgress(job=job.id, node=self.name))
            told = {Job.kind: record_told(job), "progress": [progress]}
            format_act(act_about(job, Job.kind, Scope.OPERATE, told))
        except (Malformed, TooLong) as error:
            raise CannotDo(f"the job cannot be given to members: {error}") from error
        members = self.contacts().members
        made = await self.database.transact(lambda ledger: ledger.apply(jobs.add(ledger, job, members)))
        if isinstance(made, JobRefused):
            raise CannotDo(made.why)
        log.warning(
            "job_added",
            job=made.id,
            verb=verb.value,
            operator=operator,
            reason=reason,
            filter=filter_shown(wanted),
        )
        self.wake()
        return await self._shown(made, [])

    async def stop(self, job_id: str, operator: str) -> JobEntry:
        """Stop a job on all members: what was done stays done. Raises NoSuchJob."""
        known, now = await self._found(job_id), whole(self.clock())
        after = await self.database.transact(
            lambda ledger: ledger.apply(jobs.stop(ledger, known.id, self.name, now, operator))
        )
        if after is None:
            raise NoSuchJob(f"this node has no job {job_id} any more")
        log.warning("job_stopped", job=after.id, operator=operator)
        self.wake()
        return await self._shown(after, [])

    async def show(self, job_id: str, operator: str = "") -> JobEntry:
        """A job, and how far each node is, as it says now. Raises NoSuchJob."""
        job = await self._found(job_id)
        act = self._act(LOOK, operator, {"job": job.id})
        return await self._shown(job, await self._asked_all(act, LOOK_PATIENCE))

    async def all(self) -> list[JobEntry]:
        """All jobs, the latest first, as far as this node knows."""
        found = await self.database.transact(lambda ledger: tuple(ledger.jobs()))
        return [await self._shown(job, []) for job in reversed(found)]

    async def _found(self, given: str) -> Job:
        """The job with that id, or beginning of an id."""
        wanted = given.lower()
        records = await self.database.transact(lambda ledger: tuple(ledger.jobs()))
        found = [one for one in records if one.id == wanted]
        found = found or [one for one in records if len(wanted) >= 4 and one.id.startswith(wanted)]
        if not found:
            raise NoSuchJob(f"this node has no job {given}")
        if len(found) > 1:
            raise CannotDo(f"several jobs begin with {given}: {', '.join(one.id for one in found)}")
        return found[0]

    async def _shown(self, job: Job, answers: Sequence[tuple[ServerName, Told | str]]) -> JobEntry:
        progress = await self.database.transact(
            lambda ledger: {one.node: one for one in ledger.job_progress(job.id)}
        )
        contacts, heard = self.contacts(), dict(answers)
        nodes = [_node(job, self.name, progress.get(self.name), has=True, why="")]
        for name in sorted(contacts.members):
            known, why = progress.get(name), "" if name in contacts.reachable else self.why_away(name)
            answer = heard.get(name)
            has = known is not None
            if isinstance(answer, str):
                why = answer
            elif answer is not None:
                try:
                    newer = record_from(JobProgress, answer["progress"]) if answer.get("progress") else None
                except Malformed:
                    newer = None
                has = newer is not None
                if newer is not None and newer.node == name and (known is None or newer.step > known.step):
                    known = newer
            if not has and not why:
                refusal = self.refusal(job.id, name)
                why = f"it refuses: {refusal}" if refusal else "it has not heard of the job yet"
            nodes.append(_node(job, name, known, has=has, why=why))
        return {**shown(job), "phase": _phase(job, nodes).value, **fold(JobCounts, nodes), "nodes": nodes}

    async def _asked_all(self, act: Act, patience: float) -> list[tuple[ServerName, Told | str]]:
        """The answer of each member, or why there is none."""
        return await asked_all(self.contacts(), self.ask, self.why_away, act, patience)

    def _act(self, action: str, operator: str, arguments: Told) -> Act:
        return Act(
            job=RequestId(self.mint(self.clock())),
            action=action,
            scope=Scope.READ,
            operator=operator,
            reason="",
            arguments=arguments,
        )

    def actions(self) -> dict[str, Action]:
        """What members may ask here, for operators on their nodes."""
        return {
            PREVIEW: Action(Scope.READ, self._preview_for, quiet=True),
            LOOK: Action(Scope.READ, self._look_for, quiet=True),
        }

    async def _preview_for(self, member: ServerName, act: Act) -> Told:
        del member
        try:
            return await self._count(record_from(Filter, act.arguments.get("filter")))
        except Malformed as error:
            raise ActRefused(str(error)) from error

    async def _look_for(self, member: ServerName, act: Act) -> Told:
        del member
        wanted = RequestId(str(act.arguments.get("job")))

        def read(ledger: SqlLedger) -> Told:
            if ledger.job(wanted) is None:
                return {}
            return {"progress": record_told(jobs.own(ledger, wanted))}

        return await self.database.transact(read)


MOST_SHOWN = 5
"""Recipients that a sample shows of each message."""


def shown(job: Job) -> JobMade:
    """A job as the API shows it, without how far it is."""
    return rendered(JobMade, job, filter=filter_shown(job.filter))


def filter_shown(wanted: Filter) -> FilterEntry:
    """A filter as the API takes and shows it: ages in seconds."""
    ages = {"older": wanted.older, "younger": wanted.younger}
    seconds = {name: age / timedelta(seconds=1) for name, age in ages.items() if age is not None}
    return cast(FilterEntry, record_told(wanted) | seconds)


def _node(job: Job, name: ServerName, known: JobProgress | None, *, has: bool, why: str) -> JobNode:
    progress = known or JobProgress(job=job.id, node=name)
    after = progress.after or None
    return rendered(JobNode, progress, node=name, answers=not why or has, has=has, why=why, after=after)


def _phase(job: Job, nodes: Sequence[JobNode]) -> Phase:
    if job.state is JobState.STOPPED:
        return Phase.STOPPED
    if all(one["closed"] and not one["pending"] for one in nodes):
        return Phase.DONE
    if all(one["done"] or not one["has"] for one in nodes):
        return Phase.PENDING
    return Phase.RUNNING


def _counted(name: ServerName, answer: Told | str) -> JobPreviewNode:
    """What a node counted, or why it did not: it does not answer, or is not understood."""
    nothing = {**dict.fromkeys(MailCounts.__annotations__, 0), "sample": []}
    told: Told = nothing if isinstance(answer, str) else answer
    counts: list[Any] = [told.get(name) for name in MailCounts.__annotations__]
    sample, why = told.get("sample"), answer if isinstance(answer, str) else ""
    if not all(type(one) is int for one in counts) or not isinstance(sample, list):
        counts, sample, why = [0, 0, 0], [], "its answer is not understood"
    messages, recipients, octets = counts
    found: list[Any] = [one for one in sample if isinstance(one, dict) and "id" in one]
    return {
        "node": name,
        "answers": not why,
        "why": why,
        "messages": messages,
        "recipients": recipients,
        "octets": octets,
        "sample": found,
    }
