"""Records as JSON: between members, and in the transport database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from shadowrelay.core.identifiers import RequestId
from shadowrelay.core.jobs import Job, JobProgress
from shadowrelay.core.records import Record, RecordPart
from shadowrelay.core.requests import Progress, Request
from shadowrelay.core.retirements import RetiredMember
from shadowrelay.core.suspensions import Suspension
from shadowrelay.core.switches import Switch
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
from shadowrelay.wire.told import count_in, maybe_text_in, micros_of, moment_in, object_of, text_in
from shadowrelay.wire.xshadow import database_id, message_id, server_name

R = TypeVar("R", Record, RecordPart)


def _retirement_told(record: RetiredMember) -> dict[str, Any]:
    return {
        "id": record.id,
        "member": record.member,
        "database_id": record.database_id,
        "revision": record.revision,
        "operator": record.operator,
        "reason": record.reason,
        "changed_by": record.changed_by,
        "changed_at": micros_of(record.changed_at),
    }


def _retirement_from(told: object) -> RetiredMember:
    found = object_of(told)
    database = maybe_text_in(found, "database_id")
    return RetiredMember(
        id=RequestId(message_id(text_in(found, "id"))),
        member=server_name(text_in(found, "member")),
        database_id=None if database is None else database_id(database),
        revision=count_in(found, "revision"),
        operator=text_in(found, "operator"),
        reason=text_in(found, "reason"),
        changed_by=server_name(text_in(found, "changed_by")),
        changed_at=moment_in(found, "changed_at"),
    )


_Codec = tuple[Callable[[Any], dict[str, Any]], Callable[[object], Any]]
_CODECS: dict[type[Record | RecordPart], _Codec] = {
    Request: (request_told, request_from),
    Job: (job_told, job_from),
    Suspension: (suspension_told, suspension_from),
    Switch: (switch_told, switch_from),
    RetiredMember: (_retirement_told, _retirement_from),
    Progress: (progress_told, progress_from),
    JobProgress: (job_progress_told, job_progress_from),
}


def record_told(record: Record | RecordPart) -> dict[str, Any]:
    """A record, or how far a node is with one, as JSON; see ``record_from``."""
    return _CODECS[type(record)][0](record)


def record_from(kind: type[R], told: object) -> R:
    """Read one of that kind. Raises Malformed."""
    found: R = _CODECS[kind][1](told)
    return found
