"""Steps and packets in words."""

from __future__ import annotations

from typing import Any

from .boundary import Boundary
from .setup import Move
from .situation import Situation

MISHAPS = {"late": "put off", "hop": "its reply is lost"}


def describe(boundary: Boundary, at: Situation, move: Move) -> str:
    """A step in words."""
    kind, *given = move
    if kind == "reject":
        return f"{describe(boundary, at, tuple(given))} (and policy rejects)"
    if kind == "step":
        return boundary.views(at)[given[0]].steps[given[1]]
    if kind == "message":
        return f"a sender sends a message to {given[1]}"
    if kind == "ask":
        return f"an operator of {given[0]} asks for what was delivered"
    if kind == "remove":
        return f"an operator of {given[0]} removes {given[1]}"
    if kind == "second":
        return "a second passes"
    if kind == "scrub":
        return f"{boundary.names[given[0]]} reads what it stores"
    if kind == "resume":
        return f"an operator of {boundary.names[given[0]]} has a good copy of {given[1]} looked for again"
    if kind == "age":
        return f"the copy of {given[1]} on {boundary.names[given[0]]} is about to expire"
    if kind == "drain":
        return f"{given[0]} is to hand its queue over"
    if kind == "begin":
        what, *words = given[0].split()
        if what == "rollback" and not at.fault:
            return f"snapshot of {words[0]}"
        if what == "page":
            return f"what {words[0]} stores of {given[1]} is noted"
        return {"freeze": f"{words[0]} freezes", "cut": f"link cut: {' '.join(words)}"}.get(
            what, f"{words[0]} is killed" + (", and nobody notices" if given[1:] else "")
        )
    if kind == "rot":
        what, name = given[0].split()
        return {
            "content": f"the content of {given[1]} on {name} is damaged",
            "row": f"the row of {given[1]} on {name} is damaged",
            "page": f"{name} stores nothing of {given[1]} any more: a page of before",
        }[what]
    if kind == "end":
        what, *words = at.fault.split()
        return {
            "crash": f"{words[0]} starts with its database",
            "disk": f"{words[0]} starts with a new database",
            "rollback": f"{words[0]} starts with the snapshot",
            "freeze": f"{words[0]} goes on",
            "cut": "link mended",
            "page": f"{words[0]} stores again what was noted",
        }[what]
    late, packet = given[-1]
    said = spelt(packet) + (" (late)" if late else "")
    return {
        "packet": said,
        "defer": f"{said}: not now",
        "gone": f"{said}: lost with its process",
        "mishap": f"{said}: {MISHAPS.get(given[0], 'lost')}",
    }[kind]


def fault_of(move: Move) -> str:
    """The fault that begins with that step."""
    kind, *given = move
    if kind == "reject":
        return fault_of(tuple(given))
    return f"{kind} {given[0]}" if kind == "drain" else str(given[0])


def spelt(packet: tuple[Any, ...]) -> str:
    """A packet in words."""
    kind, source = packet[0], packet[1]
    if kind == "send":
        return f"{packet[5]} takes the message from {source}"
    if kind == "reset":
        return f"{source} > {packet[3]}: connections closed"
    if kind == "request":
        first = packet[6][0]
        return f"{source} > {packet[4]}: {first.decode().strip() if isinstance(first, bytes) else first}"
    return f"{source} > {packet[3]}: {' / '.join(packet[6]) or 'connection reset'}"
