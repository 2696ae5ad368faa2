"""A message as its page shows it: put together from what nodes have of it and what their logs tell. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shadowrelay.console.words import short
from shadowrelay.core.identifiers import is_uuid
from shadowrelay.core.operating import Told
from shadowrelay.core.spelling import logged

_TALKS = frozenset({"SEND", "DELIVER", "DUPLICATEDELIVER", "SENDEXTERNAL", "DEFER", "FAIL"})
_MOST_TALKS = 8
_IN_QUEUES = frozenset({"queued", "set_aside", "damaged"})


def id_looks_whole(text: str) -> bool:
    return is_uuid(text)


def found_line(found: Told) -> dict[str, Any]:
    """A found message as a line of a table. Its state is that at its owner, if the owner answers."""
    copies = sorted(found["copies"], key=lambda one: one["role"] != "primary")
    first = copies[0] if copies else {}
    return {**_line(first, found), **_of_message(found)}


def listed_line(found: Told) -> dict[str, Any]:
    """A message of a list over all nodes as a line of a table."""
    return {**_line(found, found), **_of_message(found)}


def _of_message(found: Told) -> dict[str, Any]:
    names = ("id", "subject", "sender", "received_at", "size", "next_hops")
    return {**{name: found.get(name) for name in names}, "to": _to(found)}


def _line(copy: Told, found: Told) -> dict[str, Any]:
    """What a copy says of its message: in a queue, what it does and waits for."""
    state = copy.get("state") or "gone"
    doing = copy.get("doing")
    return {
        "state": doing if doing and state == "queued" else state,
        "exposed": bool(copy.get("exposed")),
        "suspended": copy.get("suspended"),
        "node": copy.get("node", ""),
        "next_hop": ", ".join(found.get("next_hops") or ()),
        **{name: copy.get(name) for name in ("reason", "attempts", "next_attempt")},
    }


def _to(found: Told) -> str:
    """The recipients of a message in one line."""
    addresses, count = found.get("addresses") or (), found.get("recipients") or 0
    more = f" and {count - 1} more" if count > 1 else ""
    return f"{addresses[0]}{more}" if addresses else "–"


def one_message(id_: str, here: Told | None, found: Told | None, traced: Told) -> dict[str, Any] | None:
    """``here``: what the node has that knows most; ``found``: what all have; ``traced``: what the logs tell.
    None if nobody knows it.
    """
    events = list(traced["events"])
    if here is None and found is None and not events:
        return None
    copies = [one for one in (found or {}).get("copies", ()) if one.get("role")]
    mine = here if here and "envelope" in here else None
    told: Told = mine or found or {}
    subject = next(
        (one["columns"]["message-subject"] for one in events if one["columns"].get("message-subject")), ""
    )
    states = {one["state"] for one in copies} | ({here["state"]} if here else set())
    return {
        "id": id_,
        "subject": told.get("subject") or logged(subject),
        "envelope": {name: told.get(name) for name in ("sender", "size", "message_id")}
        | (dict(mine["envelope"]) if mine else {})
        if told.get("sender") is not None
        else None,
        "received_at": told.get("received_at"),
        "recipients": list(mine["recipients"]) if mine else [],
        "addresses": [] if mine else list((found or {}).get("addresses") or ()),
        "refusals": list((here or {}).get("refusals", ())),
        "queued": bool(states & _IN_QUEUES) or "shadow" in states,
        "copies": list(_copies(copies)),
        "talks": list(_talks(events)),
        "timeline": list(_timeline(events)),
    }


def _copies(copies: list[Told]) -> Iterator[dict[str, Any]]:
    for one in sorted(copies, key=lambda each: each["role"] != "primary"):
        own = one["role"] == "primary"
        text = "It owns the message." if own else f"It keeps a copy for {short(one['owner'] or '')}."
        if own and one["exposed"]:
            text = "It owns the message, and no other member has a copy."
        elif own and one["state"] == "safety_net":
            text = "It delivered the message, and keeps it in Safety Net."
        kind = "own" if own else "kept"
        doing = one.get("doing")
        state = doing if own and doing and one["state"] == "queued" else one["state"]
        yield {"kind": kind, "text": text, "node": one.get("node"), "state": state}


def _talks(events: list[Told]) -> Iterator[dict[str, Any]]:
    """The last replies of next hops, the latest first; the same reply again and again is one line."""
    line: dict[str, Any] = {}
    told = 0
    for one in reversed(events):
        reply = one["status"] or one["context"]
        if one["event"] not in _TALKS or not reply:
            continue
        same = {"node": one["node"], "event": one["event"], "server": one["server"], "reply": reply}
        if line and all(line[name] == value for name, value in same.items()):
            line["times"] += 1
            continue
        if line:
            yield line
            told += 1
        if told == _MOST_TALKS:
            return
        line = {**same, "at": one["at"], "times": 1}
    if line:
        yield line


def _timeline(events: list[Told]) -> Iterator[dict[str, Any]]:
    """The rows as lines. What a node tells again and again is one line, with how often and until when."""
    line: dict[str, Any] = {}
    for one in events:
        text = text_of(one)
        if line and (line["node"], line["event"], line["text"]) == (one["node"], one["event"], text):
            line |= {"times": line["times"] + 1, "last": one["at"]}
            continue
        if line:
            yield line
        line = {"node": one["node"], "event": one["event"], "at": one["at"], "text": text, "times": 1}
    if line:
        yield line


def text_of(event: Told) -> str:
    """A row of a log in a line: with whom, about whom, and what was said."""
    parts = []
    if event["client"] and event["event"] in ("RECEIVE", "HARECEIVE", "RESUBMIT"):
        parts.append(f"from {event['client']}")
    ordered = event["source"] == "ADMIN" and event["custom"].get("Operator")
    if event["server"] and event["event"] not in ("RECEIVE", "HARECEIVE") and not ordered:
        parts.append(f"to {event['server']}")
    if event["recipients"]:
        more = f" and {event['recipient_count'] - 1} more" if event["recipient_count"] > 1 else ""
        parts.append(f"for {event['recipients'][0]}{more}")
    said = (event["status"] or event["context"]) if event["event"] in _TALKS else event["context"]
    text = " ".join(parts)
    if ordered:
        said = f"by {event['custom']['Operator']}: {event['custom'].get('Reason', '')}"
    return f"{text}: {said}" if text and said else text or said
