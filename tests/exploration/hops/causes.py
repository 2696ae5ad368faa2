"""Why a message reaches the sink a second time: only what docs/decisions/0034-from-hop-to-hop.md allows."""

from __future__ import annotations

from typing import NamedTuple

from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.messages import Reason

from .sides import Told


class Delivery(NamedTuple):
    """What the sink took: through which host, A's id of it, and B's."""

    through: str
    by_a: MessageId
    by_b: MessageId


def cause(sink: tuple[Delivery, ...], again: tuple[Told, ...], fault: str) -> str:
    """Why the last delivery is not the first; '' if it is. '!…' if nothing explains it.

    It is compared with the one before that is most like it.
    """
    *before, last = sink
    if not before:
        return ""
    for one in before:
        if last.through == "B" and one.by_b == last.by_b and one.through == "B":
            return _named(
                fault,
                {
                    "sink's reply": "sink's reply lost",
                    "kill B": "B killed before it wrote the sink's reply down",
                    "put back B": "B put back",
                },
            )
    for one in before:
        if one.by_a == last.by_a:
            return _same_of_a(one, last, fault)
    made = {told.message_id: told for told in again}
    for one in before:
        told = made.get(last.by_a) or made.get(one.by_a)
        if told and _root(one.by_a, made) == _root(last.by_a, made):
            if told.reason is Reason.HEARTBEAT_LOST:
                return _named(
                    fault,
                    {
                        "cut off": "given up, and back with the same database",
                        "kill B": "given up, and back with the same database",
                        "disk B": "B's disk lost",
                        "put back B": "B put back",
                    },
                )
            return _named(fault, {"disk B": "B's disk lost", "put back B": "B put back"})
    return _named(
        fault,
        {
            "client's reply": "client's reply lost",
            "kill A": "A killed before the client had its reply",
            "disk A": "A's disk lost before the client had its reply",
        },
    )


def _same_of_a(one: Delivery, last: Delivery, fault: str) -> str:
    if one.through != last.through:
        return _named(
            fault,
            {
                "cut off": "B's reply lost, and another host took it",
                "kill B": "B's reply lost, and another host took it",
                "disk B": "B's disk lost",
                "put back B": "B put back",
            },
        )
    return _named(fault, {"disk B": "B's disk lost", "put back B": "B put back"})


def _root(message_id: MessageId, made: dict[MessageId, Told]) -> MessageId | None:
    told = made.get(message_id)
    return told.original if told else message_id


def _named(fault: str, causes: dict[str, str]) -> str:
    return causes.get(fault, f"!delivered twice, with no cause but {fault or 'no fault'}")
