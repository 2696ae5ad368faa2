"""What disks do by themselves: bits flip, files are cut, exchanged or lost, a page is the one of before."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.messages import Copy

if TYPE_CHECKING:
    from .node import Node

CONTENT, ROW, PAGE = "content damaged", "row damaged", "stale page"
EVENT = "event damaged"
KINDS = (CONTENT, ROW, PAGE)


def _flipped(draw: random.Random, octets: bytes) -> bytes:
    at = draw.randrange(len(octets))
    return octets[:at] + bytes([octets[at] ^ (1 << draw.randrange(8))]) + octets[at + 1 :]


CONTENTS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _flipped,
    lambda _, octets: octets[: len(octets) // 2],
    lambda _, octets: bytes(len(octets)),
    lambda _, octets: octets + b"\r\n",
    lambda _, __: b"",
    lambda _, __: b"",  # it is gone: there is nothing to read
)


def damage_content(node: Node, draw: random.Random) -> list[MessageId]:
    """Of one message, or of two that are exchanged. Which ones; none if nothing is stored."""
    contents = node.ledger.state.contents
    there = sorted(message_id for message_id in contents if contents[message_id])
    if not there:
        return []
    first = draw.choice(there)
    other = draw.choice(there)
    if contents[first] != contents[other] and draw.random() < 0.3:
        contents[first], contents[other] = contents[other], contents[first]
        return [user for one in (first, other) for user in (one, *node.ledger.state.users(one))]
    contents[first] = draw.choice(CONTENTS)(draw, contents[first])
    return [first, *node.ledger.state.users(first)]


def damage_row(node: Node, draw: random.Random) -> list[MessageId]:
    there = sorted(node.ledger.state.copies)
    if not there:
        return []
    chosen = draw.choice(there)
    node.ledger.rot_row(chosen)
    return [chosen]


def put_page_back(node: Node, draw: random.Random) -> list[MessageId]:
    """What is durable of a message is what was durable of it before, or nothing at all."""
    there = sorted(node.versions)
    if not there:
        return []
    chosen = draw.choice(there)
    former: tuple[Copy, bytes] | None = draw.choice([None, *node.versions[chosen]])
    node.ledger.put_back(chosen, *(former or (None, None)))
    return [chosen]


def damage_event(node: Node, draw: random.Random) -> list[MessageId]:
    """A discard event that waits for its addressee; the message it is about."""
    there = sorted(node.ledger.state.events)
    if not there:
        return []
    chosen = draw.choice(there)
    about = node.ledger.state.events[chosen].verdict.message_id
    node.ledger.rot_event(chosen)
    return [about]


WAYS: dict[str, Callable[[Node, random.Random], list[MessageId]]] = {
    CONTENT: damage_content,
    ROW: damage_row,
    PAGE: put_page_back,
    EVENT: damage_event,
}
