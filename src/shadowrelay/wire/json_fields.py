"""Reads and writes the values of records that members give each other as JSON. All readers raise Malformed.

Times are microseconds since 1970.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from shadowrelay.core.operating import Told
from shadowrelay.wire.xshadow import Malformed

MOST_TEXT = 500
"""Characters that a text may have: all of it fits into one line between members."""

MOST_NAMES = 20
"""Next hops, and members that are gone, that one record may name."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LAST = 221_845_392_000_000_000  # the year 9000; what a policy adds to a time stays a datetime
_LONGEST = timedelta(days=36_500)
_MOST_COUNT = 1 << 53

_NO_TEXT = re.compile("[\0\ud800-\udfff]")


def object_of(told: object) -> Told:
    if not isinstance(told, Mapping):
        raise Malformed("not an object")
    return told


def text_in(found: Told, name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or len(value) > MOST_TEXT or not is_text(value):
        raise Malformed(f"bad {name}")
    return value


def is_text(value: str) -> bool:
    """Is it Unicode text? JSON can name half a character, which neither database nor tracking log takes, and
    the character NUL, behind which the database sees nothing.
    """
    return _NO_TEXT.search(value) is None


def maybe_text_in(found: Told, name: str) -> str | None:
    return None if found.get(name) is None else text_in(found, name)


def names_in(found: Told, name: str) -> tuple[str, ...]:
    value = found.get(name, [])
    if not isinstance(value, list) or len(value) > MOST_NAMES:
        raise Malformed(f"bad {name}")
    if not all(isinstance(one, str) and len(one) <= MOST_TEXT and is_text(one) for one in value):
        raise Malformed(f"bad {name}")
    return tuple(value)


def count_in(found: Told, name: str) -> int:
    value = found.get(name)
    if type(value) is not int or not 0 <= value <= _MOST_COUNT:
        raise Malformed(f"bad {name}")
    return value


def moment_in(found: Told, name: str) -> datetime:
    value = found.get(name)
    if type(value) is not int or not 0 <= value <= _LAST:
        raise Malformed(f"bad {name}")
    return _EPOCH + value * _MICROSECOND


def duration_in(found: Told, name: str) -> timedelta:
    micros = count_in(found, name)
    if micros > _LONGEST // _MICROSECOND:
        raise Malformed(f"bad {name}")
    return micros * _MICROSECOND


def micros_of(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def flag_in(found: Told, name: str) -> bool:
    value = found.get(name)
    if not isinstance(value, bool):
        raise Malformed(f"bad {name}")
    return value


def one_of(kind: Any, text: str) -> Any:
    try:
        return kind(text)
    except ValueError as error:
        raise Malformed(f"unknown: {text[:40]}") from error
