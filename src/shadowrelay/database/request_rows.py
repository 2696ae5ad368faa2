"""Converts requests, progress and switches to and from rows: what decides is one column of JSON."""

from __future__ import annotations

import json

from shadowrelay.core.requests import Progress, Request
from shadowrelay.core.switches import Switch
from shadowrelay.database.sums import SqlRow
from shadowrelay.wire.requests import progress_from, progress_told, request_from, request_told
from shadowrelay.wire.switches import switch_from, switch_told


def request_row(request: Request) -> SqlRow:
    return request.id, json.dumps(request_told(request))


def request_of(row: SqlRow) -> Request:
    """Raises ValueError for a row that cannot be read."""
    return request_from(json.loads(row[1]))


def progress_row(progress: Progress) -> SqlRow:
    return progress.request, progress.node, progress.owner, json.dumps(progress_told(progress))


def progress_of(row: SqlRow) -> Progress:
    """Raises ValueError for a row that cannot be read."""
    return progress_from(json.loads(row[3]))


def switch_row(switch: Switch) -> SqlRow:
    return switch.name, json.dumps(switch_told(switch))


def switch_of(row: SqlRow) -> Switch:
    """Raises ValueError for a row that cannot be read."""
    return switch_from(json.loads(row[1]))
