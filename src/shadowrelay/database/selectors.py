"""Selectors of resubmit requests as parameters of SQL, and the rows that such queries find.

SQLite's own ``lower`` knows ASCII alone. For an address that is not ASCII the queries use ``compared``, and
for a header field with encoded words ``read_text``, which every connection that runs them must know: a call
of Python for such a row.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from typing import Any

from shadowrelay.core.identifiers import MessageId, id_time, is_uuid, tells_its_time
from shadowrelay.core.requests import BEGIN, Place, Selected, Selector
from shadowrelay.core.spelling import canonical, compared, in_unicode, read_without_case, without_case
from shadowrelay.database.records import micros, moment
from shadowrelay.database.sums import SqlRow


def know_folded(connection: sqlite3.Connection) -> None:
    """Give a connection functions of text. ``compared``: an address as selectors have it; ``address_text``:
    in all its spellings; ``domain_of``: its domain in its one spelling. ``folded``: a text without regard to
    case; ``read_text``: the same of what a person reads of a header field. ``came_at``: when a message was
    received that was resumed.
    """
    for name, function in (
        ("compared", compared),
        ("address_text", _address_text),
        ("domain_of", _domain_of),
        ("folded", without_case),
        ("read_text", read_without_case),
    ):
        connection.create_function(name, 1, _of_text(function), deterministic=True)
    connection.create_function("came_at", 2, _came_at, deterministic=True)


def _came_at(message_id: object, received_at: Any) -> Any:
    """When a message was received about which an operator gave an order, as ``Copy.came_at`` says."""
    if not isinstance(received_at, int) or not is_uuid(str(message_id)):
        return received_at
    id_ = MessageId(str(message_id))
    return min(received_at, micros(id_time(id_))) if tells_its_time(id_) else received_at


def _of_text(function: Callable[[str], str]) -> Callable[[object], str]:
    return lambda value: function(str(value))


def _address_text(address: str) -> str:
    """An address in both spellings, for a search of its parts."""
    return f"{without_case(in_unicode(address))} {compared(address)}"


def _domain_of(address: str) -> str:
    return canonical(address.rpartition("@")[2])


def parameters(selector: Selector, place: Place = BEGIN) -> dict[str, Any]:
    """The parameters of a selector, and of the place behind which a part of its window begins."""
    sender, sender_end = pattern(selector.sender)
    recipient, recipient_end = pattern(selector.recipient)
    return {
        "since": micros(selector.since),
        "until": micros(selector.until),
        "hops": json.dumps(selector.next_hops) if selector.next_hops else None,
        "sender": sender,
        "sender_end": sender_end,
        "recipient": recipient,
        "recipient_end": recipient_end,
        "message_id": selector.message_id,
        "id": selector.network_message_id,
        "at": micros(selector.since if place.at is None else place.at),
        "after": place.after,
    }


def pattern(pattern: str | None) -> tuple[str | None, str | None]:
    """The address, or the end of addresses, that a pattern means."""
    if pattern is None:
        return None, None
    wanted = compared(pattern)
    return (None, wanted[1:]) if wanted.startswith("*@") else (wanted, None)


def part(rows: list[SqlRow], most: int) -> Selected:
    """What rows of (time, id, whether it is selected) say, of which a query gave up to ``most``."""
    found = dict.fromkeys((moment(at), MessageId(id_)) for at, id_, meant in rows if meant)
    rest = None if len(rows) < most else Place(moment(rows[-1][0]), MessageId(rows[-1][1]))
    return Selected(list(found), rest)
