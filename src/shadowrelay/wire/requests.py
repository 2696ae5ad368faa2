"""Resubmit requests and their progress as JSON: between members, and in the transport database.

Times are microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from shadowrelay.core.identifiers import MessageId, NextHop, RequestId
from shadowrelay.core.operating import Told
from shadowrelay.core.requests import Place, Progress, Request, RequestState, Selector, Skipped
from shadowrelay.wire.xshadow import Malformed, message_id, server_name

MOST_TEXT = 500
"""Characters that a text of a request may have: all of it fits into one line between members."""

MOST_NAMES = 20
"""Next hops, and members that are gone, that one request may name."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LAST = 253_402_300_799_000_000  # the year 9999, where datetime ends
_MOST_COUNT = 1 << 53


def request_told(request: Request) -> dict[str, Any]:
    """A request as JSON; see ``request_from``."""
    return {
        "id": request.id,
        "number": request.number,
        "made_by": request.made_by,
        "made_at": _micros(request.made_at),
        "operator": request.operator,
        "reason": request.reason,
        "selector": selector_told(request.selector),
        "gone": list(request.gone),
        "state": request.state.value,
        "revision": request.revision,
        "changed_by": request.changed_by,
        "changed_at": _micros(request.changed_at),
    }


def selector_told(selector: Selector) -> dict[str, Any]:
    """A selector as JSON, without what it does not name."""
    told = {
        "since": _micros(selector.since),
        "until": _micros(selector.until),
        "next_hops": list(selector.next_hops),
        "sender": selector.sender,
        "recipient": selector.recipient,
        "message_id": selector.message_id,
        "network_message_id": selector.network_message_id,
    }
    return {name: value for name, value in told.items() if value not in (None, [])}


def request_from(told: object) -> Request:
    """Read a request. Raises Malformed."""
    found = _object(told)
    return Request(
        id=RequestId(message_id(_text(found, "id"))),
        number=_count(found, "number"),
        made_by=server_name(_text(found, "made_by")),
        made_at=_moment(found, "made_at"),
        operator=_text(found, "operator"),
        reason=_text(found, "reason"),
        selector=selector_from(found.get("selector")),
        gone=tuple(server_name(name) for name in _names(found, "gone")),
        state=_one_of(RequestState, _text(found, "state")),
        revision=_count(found, "revision"),
        changed_by=server_name(_text(found, "changed_by")),
        changed_at=_moment(found, "changed_at"),
    )


def selector_from(told: object) -> Selector:
    """Read a selector. Raises Malformed."""
    found = _object(told)
    named = _maybe_text(found, "network_message_id")
    return Selector(
        since=_moment(found, "since"),
        until=_moment(found, "until"),
        next_hops=tuple(map(NextHop, _names(found, "next_hops"))),
        sender=_maybe_text(found, "sender"),
        recipient=_maybe_text(found, "recipient"),
        message_id=_maybe_text(found, "message_id"),
        network_message_id=None if named is None else message_id(named),
    )


def progress_told(progress: Progress) -> dict[str, Any]:
    """How far a node has come, as JSON; see ``progress_from``."""
    return {
        "request": progress.request,
        "node": progress.node,
        "owner": progress.owner,
        "at": None if progress.place.at is None else _micros(progress.place.at),
        "after": progress.place.after,
        "made": progress.made,
        "skipped": {cause.value: count for cause, count in progress.skipped},
        "done": progress.done,
        "whole": progress.whole,
    }


def progress_from(told: object) -> Progress:
    """Read how far a node has come. Raises Malformed."""
    found = _object(told)
    after = _text(found, "after")
    skipped = _object(found.get("skipped", {}))
    return Progress(
        request=RequestId(message_id(_text(found, "request"))),
        node=server_name(_text(found, "node")),
        owner=server_name(_text(found, "owner")),
        place=Place(
            None if found.get("at") is None else _moment(found, "at"),
            message_id(after) if after else MessageId(""),
        ),
        made=_count(found, "made"),
        skipped=tuple((_one_of(Skipped, cause), _count(skipped, cause)) for cause in skipped),
        done=found.get("done") is True,
        whole=found.get("whole") is True,
    )


def _object(told: object) -> Told:
    if not isinstance(told, Mapping):
        raise Malformed("not an object")
    return told


def _text(found: Told, name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or len(value) > MOST_TEXT:
        raise Malformed(f"bad {name}")
    return value


def _maybe_text(found: Told, name: str) -> str | None:
    return None if found.get(name) is None else _text(found, name)


def _names(found: Told, name: str) -> tuple[str, ...]:
    value = found.get(name, [])
    if not isinstance(value, list) or len(value) > MOST_NAMES:
        raise Malformed(f"bad {name}")
    if not all(isinstance(one, str) and len(one) <= MOST_TEXT for one in value):
        raise Malformed(f"bad {name}")
    return tuple(value)


def _count(found: Told, name: str) -> int:
    value = found.get(name)
    if type(value) is not int or not 0 <= value <= _MOST_COUNT:
        raise Malformed(f"bad {name}")
    return value


def _moment(found: Told, name: str) -> datetime:
    value = found.get(name)
    if type(value) is not int or not 0 <= value <= _LAST:
        raise Malformed(f"bad {name}")
    return _EPOCH + value * _MICROSECOND


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def _one_of(kind: Any, text: str) -> Any:
    try:
        return kind(text)
    except ValueError as error:
        raise Malformed(f"unknown: {text[:40]}") from error
