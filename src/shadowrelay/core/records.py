"""A record that every member has: what each kind of them has in common, and how two revisions of one merge.

Kinds are resubmit requests, jobs, suspended queues, settings that were switched and retired members.
"""

from __future__ import annotations

from dataclasses import field
from datetime import datetime, timedelta
from typing import ClassVar, TypeVar

from shadowrelay.core.identifiers import RequestId, ServerName
from shadowrelay.core.reckoning import Endings
from shadowrelay.core.values import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What operators want of the whole boundary.

    ``id``: of the record, or of its last change. ``revision`` (``next_revision``) grows with each change.
    ``last_operator``: who wanted the last change, where ``operator`` stays the one who made the record.

    Each node keeps for itself: ``kept_at``, when it first had the record, by its own reckoned time; and
    ``age``, how long the record certainly had been there by then, as the member said that gave it. A record
    ends by ``kept_at`` alone. ``age`` keeps one that ended from going round.
    """

    kind: ClassVar[str]

    id: RequestId
    operator: str
    reason: str
    revision: int = 1
    changed_by: ServerName
    changed_at: datetime
    last_operator: str | None = None
    kept_at: datetime | None = field(default=None, compare=False, repr=False)
    age: timedelta = field(default=timedelta(0), compare=False, repr=False)

    @property
    def key(self) -> str:
        """What tells it from other records of its kind."""
        return self.id

    @property
    def final(self) -> bool:
        """Did an operator end it for good?"""
        return False

    @property
    def since(self) -> datetime:
        """When this node first had it; of one that nobody has stored yet, when it was changed."""
        return self.kept_at or self.changed_at

    def age_now(self, ends: Endings) -> timedelta:
        """How long it certainly has been there, on this node or on one from which it came."""
        return self.age + ends.age(self.since)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPart:
    """How far a node is with a record."""

    kind: ClassVar[type[Record]]

    node: ServerName

    @property
    def key(self) -> tuple[RequestId, ServerName, str]:
        """The record, the node, and whose messages it is about if the kind tells that apart."""
        raise NotImplementedError


R = TypeVar("R", bound=Record)
P = TypeVar("P", bound=RecordPart)


def next_revision(known: int, now: datetime) -> int:
    """The revision of a change that an operator makes now: the milliseconds since 1970, but above ``known``.

    So a change counts over all that its node knows, whatever the clocks say, and over earlier ones that the
    node lost with its disk.
    """
    return max(known + 1, int(now.timestamp() * 1000))


def newest(one: R, other: R) -> R:
    """Of two revisions of a record, the one that counts. The order of merging makes no difference.

    What is final counts over all, then the higher revision. Of changes with one revision, which nodes made
    that did not hear each other, the later one counts; of the same moment, that of the first node by name.
    """
    return max(one, other, key=_weight)


def merged(known: R | None, given: R, now: datetime, age: timedelta) -> R:
    """The record as this node has it, once a member gave its own, which is of that ``age``."""
    if known is None:
        return replace(given, kept_at=now, age=age)
    return replace(newest(known, given), kept_at=known.kept_at, age=known.age)


def _weight(record: Record) -> tuple[bool, int, datetime, list[int], bool, str]:
    by_name = [-ord(letter) for letter in record.changed_by] + [0]  # the first name weighs most
    named = record.last_operator is not None  # a member of an older version gives it on without
    return record.final, record.revision, record.changed_at, by_name, named, repr(record)
