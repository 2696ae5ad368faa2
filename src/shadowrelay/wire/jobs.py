"""Jobs, how far nodes are with them, and suspended queues as JSON: between members, and in the transport
database.

Times are microseconds since 1970, and durations are microseconds.
"""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from shadowrelay.core.identifiers import MessageId, NextHop, RequestId
from shadowrelay.core.jobs import Filter, Job, JobProgress, JobState, Verb
from shadowrelay.core.operating import Told
from shadowrelay.core.suspensions import Suspension
from shadowrelay.wire.told import (
    count_in,
    flag_in,
    maybe_count_in,
    maybe_duration_in,
    maybe_moment_in,
    maybe_text_in,
    micros_of,
    moment_in,
    names_in,
    object_of,
    one_of,
    text_in,
)
from shadowrelay.wire.xshadow import Malformed, message_id, server_name

_MICROSECOND = timedelta(microseconds=1)
_MOST_SPANS = 64
_CONDITIONS = frozenset(field.name for field in fields(Filter))


def job_told(job: Job) -> dict[str, Any]:
    """A job as JSON; see ``job_from``."""
    return {
        "id": job.id,
        "verb": job.verb.value,
        "filter": filter_told(job.filter),
        "operator": job.operator,
        "reason": job.reason,
        "made_by": job.made_by,
        "made_at": micros_of(job.made_at),
        "until": None if job.until is None else micros_of(job.until),
        "with_report": job.with_report,
        "state": job.state.value,
        "revision": job.revision,
        "changed_by": job.changed_by,
        "changed_at": micros_of(job.changed_at),
    }


def job_from(told: object) -> Job:
    """Read a job. Raises Malformed."""
    found = object_of(told)
    return Job(
        id=RequestId(message_id(text_in(found, "id"))),
        verb=one_of(Verb, text_in(found, "verb")),
        filter=filter_from(found.get("filter")),
        operator=text_in(found, "operator"),
        reason=text_in(found, "reason"),
        made_by=server_name(text_in(found, "made_by")),
        made_at=moment_in(found, "made_at"),
        until=maybe_moment_in(found, "until"),
        with_report=flag_in(found, "with_report"),
        state=one_of(JobState, text_in(found, "state")),
        revision=count_in(found, "revision"),
        changed_by=server_name(text_in(found, "changed_by")),
        changed_at=moment_in(found, "changed_at"),
    )


def filter_told(wanted: Filter) -> dict[str, Any]:
    """A filter as JSON, without the conditions that it does not have."""
    told = {
        "ids": list(wanted.ids) or None,
        "queue": wanted.queue,
        "sender": wanted.sender,
        "recipient": wanted.recipient,
        "domain": wanted.domain,
        "subject": wanted.subject,
        "error": wanted.error,
        "suspended": wanted.suspended,
        "older": None if wanted.older is None else wanted.older // _MICROSECOND,
        "younger": None if wanted.younger is None else wanted.younger // _MICROSECOND,
        "larger": wanted.larger,
        "smaller": wanted.smaller,
    }
    return {name: value for name, value in told.items() if value is not None}


def filter_from(told: object) -> Filter:
    """Read a filter. Raises Malformed, also for a condition of a later version: without the condition the
    filter would mean more messages.
    """
    found = object_of(told)
    if unknown := sorted(set(found) - _CONDITIONS):
        raise Malformed(f"unknown condition {unknown[0][:40]}")
    queue = maybe_text_in(found, "queue")
    return Filter(
        ids=tuple(message_id(one) for one in names_in(found, "ids")),
        queue=None if queue is None else NextHop(queue),
        sender=maybe_text_in(found, "sender"),
        recipient=maybe_text_in(found, "recipient"),
        domain=maybe_text_in(found, "domain"),
        subject=maybe_text_in(found, "subject"),
        error=maybe_text_in(found, "error"),
        suspended=None if found.get("suspended") is None else flag_in(found, "suspended"),
        older=maybe_duration_in(found, "older"),
        younger=maybe_duration_in(found, "younger"),
        larger=maybe_count_in(found, "larger"),
        smaller=maybe_count_in(found, "smaller"),
    )


def job_progress_told(progress: JobProgress) -> dict[str, Any]:
    """How far a node is with a job, as JSON; see ``job_progress_from``."""
    return {
        "job": progress.job,
        "node": progress.node,
        "after": progress.after,
        "did": progress.did,
        "late": progress.late,
        "waiting": progress.waiting,
        "pending": progress.pending,
        "done": progress.done,
        "closed": progress.closed,
        "step": progress.step,
        "since": None if progress.since is None else micros_of(progress.since),
    }


def job_progress_from(told: object) -> JobProgress:
    """Read how far a node is. Raises Malformed."""
    found = object_of(told)
    after = text_in(found, "after")
    return JobProgress(
        job=RequestId(message_id(text_in(found, "job"))),
        node=server_name(text_in(found, "node")),
        after=message_id(after) if after else MessageId(""),
        did=count_in(found, "did"),
        late=count_in(found, "late"),
        waiting=count_in(found, "waiting"),
        pending=count_in(found, "pending"),
        done=flag_in(found, "done"),
        closed=flag_in(found, "closed"),
        step=count_in(found, "step"),
        since=maybe_moment_in(found, "since"),
    )


def suspension_told(record: Suspension) -> dict[str, Any]:
    """The record of a suspended queue as JSON; see ``suspension_from``."""
    return {
        "id": record.id,
        "next_hop": record.next_hop,
        "suspended": record.suspended,
        "until": None if record.until is None else micros_of(record.until),
        "spans": [[micros_of(begin), micros_of(end)] for begin, end in record.spans],
        "revision": record.revision,
        "operator": record.operator,
        "reason": record.reason,
        "changed_by": record.changed_by,
        "changed_at": micros_of(record.changed_at),
    }


def suspension_from(told: object) -> Suspension:
    """Read the record of a suspended queue. Raises Malformed."""
    found = object_of(told)
    return Suspension(
        id=RequestId(message_id(text_in(found, "id"))),
        next_hop=NextHop(text_in(found, "next_hop")),
        suspended=flag_in(found, "suspended"),
        until=maybe_moment_in(found, "until"),
        spans=_spans_in(found),
        revision=count_in(found, "revision"),
        operator=text_in(found, "operator"),
        reason=text_in(found, "reason"),
        changed_by=server_name(text_in(found, "changed_by")),
        changed_at=moment_in(found, "changed_at"),
    )


def _spans_in(found: Told) -> tuple[tuple[datetime, datetime], ...]:
    value = found.get("spans", [])
    if not isinstance(value, list) or len(value) > _MOST_SPANS:
        raise Malformed("bad spans")
    spans = []
    for one in value:
        if not isinstance(one, list) or len(one) != 2:
            raise Malformed("bad spans")
        begin, end = (moment_in({"spans": at}, "spans") for at in one)
        if begin >= end:
            raise Malformed("bad spans")
        spans.append((begin, end))
    return tuple(spans)
