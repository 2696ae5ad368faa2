"""Selectors of resubmit requests as parameters of SQL, and the rows that such queries find.

SQLite's own ``lower`` knows ASCII alone. If an address in a selector is not ASCII, the queries use
``folded``, which every connection that runs them must know: a call of Python for each row.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.recipients import canonical
from shadowrelay.core.requests import BEGIN, Place, Selected, Selector
from shadowrelay.database.records import micros, moment
from shadowrelay.database.sums import SqlRow


def know_folded(connection: sqlite3.Connection) -> None:
    """Give a connection the functions ``folded``: a text in lower case, as selectors have it; and
    ``domain_of``: the domain of an address in its one spelling.
    """
    connection.create_function("folded", 1, _folded, deterministic=True)
    connection.create_function("domain_of", 1, _domain_of, deterministic=True)


def _folded(address: object) -> str:
    return str(address).lower()


def _domain_of(address: object) -> str:
    return canonical(str(address).rpartition("@")[2])


def parameters(selector: Selector, place: Place = BEGIN) -> dict[str, Any]:
    """The parameters of a selector, and of the place behind which a part of its window begins."""
    sender, sender_end = pattern(selector.sender)
    recipient, recipient_end = pattern(selector.recipient)
    return {
        "since": micros(selector.since),
        "until": micros(selector.until),
        "hops": json.dumps(selector.next_hops) if selector.next_hops else None,
        "plain": all(text is None or text.isascii() for text in (selector.sender, selector.recipient)),
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
    if pattern is not None and pattern.startswith("*@"):
        return None, pattern[1:]
    return pattern, None


def part(rows: list[SqlRow], most: int) -> Selected:
    """What rows of (time, id, whether it is selected) say, of which a query gave up to ``most``."""
    found = dict.fromkeys((moment(at), MessageId(id_)) for at, id_, meant in rows if meant)
    rest = None if len(rows) < most else Place(moment(rows[-1][0]), MessageId(rows[-1][1]))
    return Selected(list(found), rest)
