"""The record of a setting that an operator switched for all members (``switching`` has its rules)."""

from __future__ import annotations

from datetime import datetime

from shadowrelay.core.identifiers import RequestId, ServerName
from shadowrelay.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A setting with the value that all members are to have, and who switched it.

    ``against``: what the settings file of this node said when it learnt this revision; every node keeps its
    own. ``revision`` (``next_revision``) grows with each change; of two changes with the same revision, which
    nodes made that did not hear each other, the later one counts.
    """

    id: RequestId  # of the last change: the job of the act that gives it
    name: str
    value: bool
    against: bool
    revision: int = 1
    operator: str
    reason: str
    changed_by: ServerName
    changed_at: datetime
