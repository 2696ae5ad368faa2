"""Records, and what they are made of, as JSON: between members, and in the transport database.

Times are microseconds since 1970, and durations are microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from typing import Any, TypeVar, cast, get_args, get_type_hints

from shadowrelay.core.identifiers import DatabaseId, MessageId, NextHop, RequestId, ServerName
from shadowrelay.core.jobs import Filter, Job, JobProgress
from shadowrelay.core.operating import Told
from shadowrelay.core.requests import Place, Progress, Request, Selector, Skipped
from shadowrelay.core.retirements import RetiredMember
from shadowrelay.core.spans import Span
from shadowrelay.core.suspensions import Suspension
from shadowrelay.core.switches import Switch, SwitchValue
from shadowrelay.wire.json_fields import (
    count_in,
    duration_in,
    flag_in,
    micros_of,
    moment_in,
    names_in,
    object_of,
    one_of,
    text_in,
)
from shadowrelay.wire.xshadow import Malformed, database_id, message_id, server_name

R = TypeVar("R")

_FIELDS: dict[type[Any], tuple[str, ...]] = {
    kind: tuple(names.split())
    for kind, names in {
        Request: "id number made_by made_at operator reason selector gone state revision changed_by"
        " changed_at last_operator",
        Selector: "since until next_hops sender recipient message_id network_message_id",
        Job: "id verb filter operator reason made_by made_at until with_report state revision changed_by"
        " changed_at last_operator",
        Filter: "ids queue sender recipient domain subject error suspended older younger larger smaller",
        JobProgress: "job node after did late waiting pending done closed step since",
        Suspension: "id next_hop suspended until spans revision operator reason changed_by changed_at",
        Switch: "id name value against revision operator reason changed_by changed_at longest shortest",
        RetiredMember: "id member database_id revision operator reason changed_by changed_at",
    }.items()
}
"""What is told of each, in this order. What a node keeps for itself is not told."""

_CONDITIONS = (Selector, Filter)
"""Told without the conditions that they do not have."""

_AT_TIMES = ("longest", "shortest", "last_operator")
"""Told only where there is such a value."""

_MICROSECOND = timedelta(microseconds=1)
_MOST_SPANS = 64


def record_told(record: Any) -> dict[str, Any]:
    """A record, how far a node is with one, or a selection, as JSON; see ``record_from``."""
    if isinstance(record, Progress):
        return _progress_told(record)
    told = {name: _value_told(getattr(record, name)) for name in _FIELDS[type(record)]}
    if isinstance(record, _CONDITIONS):
        return {name: value for name, value in told.items() if value not in (None, [])}
    return {name: value for name, value in told.items() if value is not None or name not in _AT_TIMES}


def record_from(kind: type[R], told: object) -> R:
    """Read one of that kind. Raises Malformed, also for a condition of a later version: without the condition
    a filter would mean more messages.
    """
    found = object_of(told)
    if kind is Progress:
        return _progress_from(found)  # type: ignore[return-value]
    if kind is Filter and (unknown := sorted(set(found) - set(_FIELDS[Filter]))):
        raise Malformed(f"unknown condition {unknown[0][:40]}")
    return kind(**{name: read(found, name) for name, read in _readers(cast("Any", kind)).items()})


def _value_told(value: Any) -> Any:
    match value:
        case Enum():
            return value.value
        case datetime():
            return micros_of(value)
        case timedelta():
            return value // _MICROSECOND
        case tuple():
            return [_value_told(one) for one in value]
        case _ if type(value) in _FIELDS:
            return record_told(value)
        case _:
            return value


@cache
def _readers(kind: Any) -> dict[str, Callable[[Told, str], Any]]:
    hints = get_type_hints(kind)
    found = {name: _reader(hints[name]) for name in _FIELDS[kind]}
    if "after" in found:
        found["after"] = _place_in
    return found


def _reader(hint: Any) -> Callable[[Told, str], Any]:
    """Reads the value of a field of that type."""
    if hint in _READERS:
        return _READERS[hint]
    inner = get_args(hint)
    if type(None) in inner:
        read = _reader(next(one for one in inner if one is not type(None)))
        return lambda found, name: None if found.get(name) is None else read(found, name)
    if inner:  # a tuple of names
        one_in = _reader(inner[0])
        return lambda found, name: tuple(one_in({name: one}, name) for one in names_in(found, name))
    if hint in _FIELDS:
        return lambda found, name: record_from(hint, found.get(name))
    return lambda found, name: one_of(hint, text_in(found, name))


def _place_in(found: Told, name: str) -> MessageId:
    """The id of a message, or '': behind none yet."""
    text = text_in(found, name)
    return message_id(text) if text else MessageId("")


def _spans_in(found: Told, name: str) -> tuple[Span, ...]:
    value = found.get(name, [])
    if not isinstance(value, list) or len(value) > _MOST_SPANS:
        raise Malformed("bad spans")
    spans = []
    for one in value:
        if not isinstance(one, list) or len(one) != 2:
            raise Malformed("bad spans")
        begin, end = (moment_in({name: at}, name) for at in one)
        if begin >= end:
            raise Malformed("bad spans")
        spans.append((begin, end))
    return tuple(spans)


def _value_in(found: Told, name: str) -> SwitchValue:
    match value := found.get(name):
        case None | bool():
            return value
        case str():
            return text_in(found, name)
        case _:
            return count_in(found, name)


_READERS: dict[Any, Callable[[Told, str], Any]] = {
    SwitchValue: _value_in,
    str: text_in,
    int: count_in,
    bool: flag_in,
    datetime: moment_in,
    timedelta: duration_in,
    NextHop: lambda found, name: NextHop(text_in(found, name)),
    MessageId: lambda found, name: message_id(text_in(found, name)),
    RequestId: lambda found, name: RequestId(message_id(text_in(found, name))),
    ServerName: lambda found, name: server_name(text_in(found, name)),
    DatabaseId: lambda found, name: database_id(text_in(found, name)),
    tuple[tuple[datetime, datetime], ...]: _spans_in,
}


def _progress_told(progress: Progress) -> dict[str, Any]:
    return {
        "request": progress.request,
        "node": progress.node,
        "owner": progress.owner,
        "at": None if progress.place.at is None else micros_of(progress.place.at),
        "after": progress.place.after,
        "made": progress.made,
        "skipped": {cause.value: count for cause, count in progress.skipped},
        "done": progress.done,
        "whole": progress.whole,
        "trusting": progress.trusting,
    }


def _progress_from(found: Told) -> Progress:
    skipped = object_of(found.get("skipped", {}))
    at = None if found.get("at") is None else moment_in(found, "at")
    return Progress(
        request=RequestId(message_id(text_in(found, "request"))),
        node=server_name(text_in(found, "node")),
        owner=server_name(text_in(found, "owner")),
        place=Place(at, _place_in(found, "after")),
        made=count_in(found, "made"),
        skipped=tuple((one_of(Skipped, cause), count_in(skipped, cause)) for cause in skipped),
        done=found.get("done") is True,
        whole=found.get("whole") is True,
        trusting=found.get("trusting") is True,
    )
