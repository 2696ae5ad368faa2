"""Puts together the life of a message from the tracking logs of all nodes. Pure.

The rows of a node stay in the order in which it committed them, whatever its clock did. Between nodes the
times decide.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from heapq import merge
from typing import Any, TypeAlias

from shadowrelay.shown.reading import is_told

Event: TypeAlias = dict[str, Any]

MOST = 500
"""Events of a node after which no older file of its log is read."""

_LONG = 2000  # characters of a list of recipients that is shown whole
_SHOWN = 5


def event(row: Mapping[str, str], sequence: int, incarnation: str, custom: Mapping[str, str]) -> Event:
    """A row of the log as an event. ``custom``: its custom-data."""
    addresses = [one.strip("'") for one in row.get("recipient-address", "").split(";") if one]
    server, client = row.get("server-hostname", ""), row.get("client-hostname", "")
    columns = {
        name: text if len(text) <= _LONG or not name.startswith("recipient") else text[:_LONG] + " …"
        for name, text in row.items()
        if text and name not in {"log-id", "schema-version", "custom-data", "network-message-id"}
    }
    return {
        "at": row.get("date-time", ""),
        "sequence": sequence,
        "incarnation": incarnation,
        "database_id": custom.get("Db", ""),
        "event": row.get("event-id", ""),
        "source": row.get("source", ""),
        "context": row.get("source-context", ""),
        "server": server,
        "client": client,
        "recipients": addresses[:_SHOWN],
        "recipient_count": int(count) if (count := row.get("recipient-count", "")).isdigit() else 0,
        "status": row.get("recipient-status", "")[:_LONG],
        "custom": {name: text for name, text in custom.items() if name not in {"Seq", "Boot", "Db"}},
        "columns": columns,
    }


def cursor(nodes: Iterable[Mapping[str, Any]]) -> str | None:
    """Where the next page goes on, for each node that has older files; None if no node has."""
    older = {one["node"]: one["older"] for one in nodes if one.get("older")}
    return json.dumps(older, separators=(",", ":")) if older else None


def places(given: str) -> dict[str, str]:
    """The inverse of ``cursor``. Raises ValueError."""
    found = json.loads(given) if given else {}
    if not isinstance(found, dict) or not all(isinstance(one, str) and one for one in found.values()):
        raise ValueError("after is no cursor of a trace")
    return found


def in_order(nodes: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The events of all nodes in the order of time, and of one node's in the order of their sequence."""
    lives = []
    for node in nodes:
        for one in _by_database(node.get("events", ())):
            lives.append(_placed(node["node"], one))
    return [one for _, one in merge(*lives, key=lambda placed: placed[0])]


def _by_database(events: Iterable[Event]) -> list[list[Event]]:
    """Sequences count in one database."""
    found: dict[str, dict[int, Event]] = {}
    for place, one in enumerate(events):
        sequence = one["sequence"] if is_told(one["sequence"]) else place
        found.setdefault(one["database_id"], {})[sequence] = one
    return [[rows[number] for number in sorted(rows)] for rows in found.values()]


def _placed(node: str, events: Iterable[Event]) -> list[tuple[tuple[str, str, int], Event]]:
    """Events with their places among others. A clock that stepped back moves none before the last."""
    placed, latest = [], ""
    for one in events:
        latest = max(latest, one["at"])
        placed.append(((latest, node, one["sequence"]), {**one, "node": node}))
    return placed
