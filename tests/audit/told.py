"""Messages and sums of events by plain Python, for comparison with those of the tables."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any

Row = dict[str, Any]

_RANK = {
    "delivered": 5, "failed": 4, "removed": 4, "expired": 4, "dropped": 4, "sent": 3, "expanded": 2,
    "deferred": 1, "open": 0,
}  # fmt: skip
_OUTCOME = {
    "SENDEXTERNAL": "delivered", "DELIVER": "delivered", "DUPLICATEDELIVER": "delivered", "FAIL": "failed",
    "REMOVE": "removed", "EXPIRE": "expired", "DROP": "dropped", "DEFER": "deferred",
}  # fmt: skip
_ABOUT = (
    "node", "date_time", "server_hostname", "client_hostname", "source_context", "source", "event_id",
    "internal_message_id", "message_id", "network_message_id", "recipient_address", "recipient_status",
    "total_bytes", "related_recipient_address", "reference", "message_subject", "sender_address",
    "custom_data",
)  # fmt: skip


def once(rows: Iterable[Row]) -> list[Row]:
    """Each row as often as that file has it which has it most often."""
    by_file: dict[str, Counter[str]] = defaultdict(Counter)
    kept: Counter[str] = Counter()
    found = []
    for row in sorted(rows, key=lambda row: (row["file"], row["line"] or 0)):
        own = (row["database"], row["incarnation"], row["sequence"])
        identity = json.dumps(own if None not in own else [row[name] for name in _ABOUT], default=str)
        by_file[row["file"]][identity] += 1
        if by_file[row["file"]][identity] > kept[identity]:
            kept[identity] += 1
            found.append(row)
    return found


def resubmits(row: Row) -> bool:
    ours = row["software"] == "shadowrelay"
    return bool(ours and row["event_id"] == "RESUBMIT" and row["source"] == "SAFETYNET")


def sent_again(row: Row) -> bool:
    """Is it a message that was made because a hop beyond the boundary was lost?"""
    return _redundancy(row) and (row["custom_data"] or {}).get("HopDb") is not None


def promotes(row: Row) -> bool:
    return _redundancy(row) and not sent_again(row)


def _redundancy(row: Row) -> bool:
    return bool(row["event_id"] == "RESUBMIT" and row["source"] == "REDUNDANCY")


def received(row: Row) -> bool:
    copied = (
        row["software"] == "shadowrelay"
        and row["source"] in ("AGENT", "ROUTING")
        and row["reference"] is not None
    )
    return row["event_id"] == "RECEIVE" and not copied


def begins_a_message(row: Row) -> bool:
    return row["event_id"] in ("RECEIVE", "DSN") or resubmits(row) or sent_again(row)


def messages(rows: Iterable[Row]) -> list[Row]:
    """As the table ``messages``, in the order of ids."""
    by_id: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        name = row["network_message_id"] or row["message_id"]
        if row["date_time"] and row["event_id"] and name:
            by_id[name].append(row)
    return [_message(name, by_id[name]) for name in sorted(by_id)]


def _order(row: Row) -> tuple[datetime, str, int]:
    number = row["sequence"] if row["sequence"] is not None else row["line"]
    return row["date_time"], row["database"] or row["node"], number


def _moment(row: Row) -> tuple[datetime, int]:
    at, _, number = _order(row)
    return at, number


def _message(name: str, rows: list[Row]) -> Row:
    ordered = sorted(rows, key=lambda row: (not begins_a_message(row), _order(row)))

    def first(column: str, entry: str = "") -> Any:
        values = ((row["custom_data"] or {}).get(entry) if entry else row[column] for row in ordered)
        return next((value for value in values if value is not None), None)

    begins = [row for row in rows if begins_a_message(row)]
    given_back = [row["reference"] for row in rows if resubmits(row) and row["reference"]]
    promoted = list(filter(promotes, rows))
    owners = sorted([*begins, *promoted], key=lambda row: (row["epoch"] or 1, _order(row)))
    recipients, duplicates = _recipients(rows)
    settled = recipients and not {one["outcome"] for one in recipients} & {"open", "deferred", "sent"}
    at = [row["date_time"] for row in rows]
    holders = {row["node"] for row in rows if row["event_id"] == "HARECEIVE"}
    holders |= {row["server_hostname"] for row in rows if row["event_id"] == "HAREDIRECT"}
    return {
        "network_message_id": name,
        "message_id": first("message_id"),
        "subject": first("message_subject"),
        "sender": first("sender_address"),
        "size": first("total_bytes"),
        "content": first("", "Content"),
        "envelope": first("", "Envelope"),
        "owner": owners[-1]["node"] if owners else None,
        "holders": sorted(holders - {None}),
        "accepted_at": min((row["date_time"] for row in begins), default=None),
        "first_at": min(at),
        "last_at": max(at),
        "finished_at": max(one["at"] for one in recipients) if settled else None,
        "exposed": any(
            row["event_id"] == "RECEIVE" and (row["custom_data"] or {}).get("Replication") is not None
            for row in rows
        ),
        "recipients": recipients,
        "deferrals": sum(row["event_id"] == "DEFER" for row in rows),
        "promotions": len(promoted),
        "duplicates": duplicates,
        "original": min(given_back, default=None),
        "nodes": sorted({row["node"] for row in rows}),
        "events": len(rows),
        "day": min(at).date(),
    }


def _recipients(rows: list[Row]) -> tuple[list[Row], int]:
    steps: dict[str, list[tuple[str, Row, int]]] = defaultdict(list)
    for row in rows:
        for place, address in enumerate(row["recipient_address"] or ()):
            steps[_canonical(address)].append((_outcome(row), row, place))
        if row["event_id"] in ("EXPAND", "RESOLVE", "REDIRECT"):
            for address in row["related_recipient_address"] or ():
                if address not in (row["recipient_address"] or ()):
                    steps[_canonical(address)].append(("expanded", row, -1))
    gone = [row["date_time"] for row in rows if row["event_id"] == "DROP" and not row["recipient_address"]]
    return (
        [_recipient(address, steps[address], min(gone, default=None)) for address in sorted(steps)],
        sum(max(sum(one[0] == "delivered" for one in some) - 1, 0) for some in steps.values()),
    )


def _recipient(address: str, steps: list[tuple[str, Row, int]], gone: datetime | None) -> Row:
    top = max(_RANK[outcome] for outcome, _, _ in steps)
    best = sorted((one for one in steps if _RANK[one[0]] == top), key=lambda one: _order(one[1])[1])
    if best[0][0] == "deferred":
        outcome, row, place = max(reversed(best), key=lambda one: _moment(one[1]))
    else:
        outcome, row, place = min(reversed(best), key=lambda one: _moment(one[1]))
    told: Row = {"address": address, "outcome": outcome}
    if outcome == "open":
        told |= {"at": None, "node": None, "next_hop": None, "reply": None}
    else:
        hop = None if outcome == "expanded" else row["server_hostname"]
        reply = None if outcome == "expanded" else _reply(row, place)
        told |= {"at": row["date_time"], "node": row["node"], "next_hop": hop, "reply": reply}
    if gone and outcome in ("open", "deferred"):
        told |= {"outcome": "dropped", "at": gone}
    return told


def _outcome(row: Row) -> str:
    if row["event_id"] == "SEND":
        return "delivered" if row["software"] == "shadowrelay" else "sent"
    return _OUTCOME.get(row["event_id"], "open")


def _reply(row: Row, place: int) -> str | None:
    statuses = row["recipient_status"] or []
    status = statuses[place] if place < len(statuses) else None
    if status and "LED=" in status and (found := status.partition("LED=")[2].partition("}")[0]):
        return str(found)
    if row["software"] == "exchange" and status is not None:
        return str(status)
    context: str | None = row["source_context"]
    return context


def _canonical(address: str) -> str:
    local, at, domain = address.rpartition("@")
    return local + at + domain.lower()


def latencies(rows: Iterable[Row]) -> Counter[tuple[Any, ...]]:
    """Deliveries by day, node, next hop and step."""
    rows = [row for row in rows if row["date_time"]]
    began: dict[tuple[str, str], datetime] = {}
    for row in rows:
        if begins_a_message(row) and row["network_message_id"]:
            key = (row["database"] or row["node"], row["network_message_id"])
            began[key] = min(began.get(key, row["date_time"]), row["date_time"])
    found: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        at = began.get((row["database"] or row["node"], row["network_message_id"] or ""))
        if row["event_id"] in ("SEND", "SENDEXTERNAL", "DELIVER") and at:
            milliseconds = max(round((row["date_time"] - at).total_seconds() * 1000), 0)
            step = math.floor(math.log10(milliseconds + 1) * 20)
            found[row["date_time"].date(), row["node"], row["server_hostname"], step] += 1
    return found
