"""Resubmit requests: what Safety Net is asked to give back, and how far each node has come with it.

A request is on every member of the boundary. Its UUID is its identity: two nodes that cannot see each other
may both make a request with the same number, which is for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import ClassVar, NamedTuple

from shadowrelay.core.identifiers import FIRST, MessageId, NextHop, RequestId, ServerName
from shadowrelay.core.reckoning import Endings
from shadowrelay.core.records import Record, RecordPart
from shadowrelay.core.spelling import compared
from shadowrelay.core.values import dataclass, replace


class RequestState(StrEnum):
    """What an operator wants of a request. REMOVED is final."""

    RUNNING = "running"
    PAUSED = "paused"
    REMOVED = "removed"


class Skipped(StrEnum):
    """Why a message that a request selects was not resubmitted by this node.

    ELSEWHERE: another member made it, or delivers it. OUTSIDE: it crossed the boundary. RESUBMITTED: it was
    itself resubmitted by an earlier request. DAMAGED: no good copy of its content is here. GONE: its copy
    expired before its turn.
    """

    ELSEWHERE = "elsewhere"
    OUTSIDE = "outside"
    RESUBMITTED = "resubmitted"
    DAMAGED = "damaged"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Which settled recipients a request is about; all given conditions have to hold.

    ``since`` and ``until``: the time of delivery, both ends included. ``next_hops``: names of routes.
    ``sender`` and ``recipient``: an address, or ``*@DOMAIN``; both lower case. ``message_id``: the Message-ID
    header. ``network_message_id``: the id of one message.
    """

    since: datetime
    until: datetime
    next_hops: tuple[NextHop, ...] = ()
    sender: str | None = None
    recipient: str | None = None
    message_id: str | None = None
    network_message_id: MessageId | None = None

    def covers(self, settled_at: datetime | None) -> bool:
        """Is that time of delivery in the window?"""
        return settled_at is not None and self.since <= settled_at <= self.until


class Place(NamedTuple):
    """A place in the order of (delivery time, id). ``at`` is None at the beginning."""

    at: datetime | None = None
    after: MessageId = FIRST


BEGIN = Place()


class Selected(NamedTuple):
    """What one part of a window has: for each selected message the delivery time of its first recipient that
    matches, and its id, in this order. ``rest``: where the next part begins; None at the end of the window.
    A part may have no message and still not be the last.
    """

    messages: list[tuple[datetime, MessageId]]
    rest: Place | None = None


def address_matches(pattern: str | None, address: str) -> bool:
    """Does an address match ``pattern``: None for every address, an address, or ``*@DOMAIN``? A domain in
    Unicode and its A-labels are the same.
    """
    if pattern is None:
        return True
    wanted, given = compared(pattern), compared(address)
    return given.endswith(wanted[1:]) if wanted.startswith("*@") else given == wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Record):
    """A resubmit request, as every member stores it.

    ``gone``: members that the operator said are gone, so that holders answer for them at once.
    """

    kind: ClassVar[str] = "request"

    number: int
    made_by: ServerName
    made_at: datetime
    selector: Selector
    gone: tuple[ServerName, ...] = ()
    state: RequestState = RequestState.RUNNING

    @property
    def final(self) -> bool:
        return self.state is RequestState.REMOVED

    def open(self, ends: Endings, most: timedelta) -> bool:
        """May messages still be made for it, now or after a ``resume``?"""
        return not self.final and self.since > ends.before(most)

    def runs(self, ends: Endings, most: timedelta) -> bool:
        """May messages be made for it now?"""
        return self.state is RequestState.RUNNING and self.open(ends, most)

    def changed(
        self,
        state: RequestState,
        by: ServerName,
        now: datetime,
        operator: str,
        *,
        gone: tuple[ServerName, ...] = (),
    ) -> Request:
        """The next revision of the request. A removed request stays removed."""
        if self.final:
            return self
        merged = tuple(sorted({*self.gone, *gone}))
        if state is self.state and merged == self.gone:
            return self
        changed = replace(self, changed_by=by, changed_at=now, last_operator=operator)
        return replace(changed, state=state, gone=merged, revision=self.revision + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(RecordPart):
    """How far ``node`` has come with a request, in the messages that ``owner`` owned.

    A node has one for itself, and one for each owner for which it answers. ``place``: how far it has looked.
    ``made`` counts messages; ``skipped`` counts messages
    by ``Skipped``. ``done``: it has looked at all that it has. ``whole``: all that it keeps for that owner,
    not only what the owner has lost. ``trusting``: without what the owner said to have gone through itself,
    since it may come back.
    """

    kind: ClassVar[type[Record]] = Request

    request: RequestId
    owner: ServerName
    place: Place = BEGIN
    made: int = 0
    skipped: tuple[tuple[Skipped, int], ...] = ()
    done: bool = False
    whole: bool = True
    trusting: bool = False

    @property
    def key(self) -> tuple[RequestId, ServerName, str]:
        return self.request, self.node, self.owner

    def has_passed(self, place: Place) -> bool:
        """Has it looked at what stands at that place?"""
        return self.done or (self.place.at is not None and place.at is not None and place <= self.place)

    def again(self) -> Progress:
        """The same, to be gone through once more: what was made is known by its id."""
        return replace(self, place=BEGIN, skipped=(), done=False)

    def further(self, made: int, skipped: Mapping[Skipped, int]) -> Progress:
        """The same with more messages made and skipped."""
        counts = dict(self.skipped)
        for cause, count in skipped.items():
            counts[cause] = counts.get(cause, 0) + count
        ordered = tuple((cause, counts[cause]) for cause in Skipped if counts.get(cause))
        return replace(self, made=self.made + made, skipped=ordered)
