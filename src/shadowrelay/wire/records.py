"""Records as JSON: between members, and in the transport database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from shadowrelay.core.jobs import Job, JobProgress
from shadowrelay.core.records import Record, RecordPart
from shadowrelay.core.requests import Progress, Request
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

R = TypeVar("R", Record, RecordPart)

_Codec = tuple[Callable[[Any], dict[str, Any]], Callable[[object], Any]]
_CODECS: dict[type[Record | RecordPart], _Codec] = {
    Request: (request_told, request_from),
    Job: (job_told, job_from),
    Suspension: (suspension_told, suspension_from),
    Switch: (switch_told, switch_from),
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
