"""Does mail flow? What keeps the mail of each queue, the worst first, alike in the console and in commands.

Pure. A queue that is being sent, or is due now, or is tried again without an error, flows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from shadowrelay.core.values import dataclass
from shadowrelay.shown.fold import Fields

MOST = 5
"""Queues that are told one by one."""


@dataclass(frozen=True, slots=True)
class HeldQueue:
    """A queue that does not flow. ``failing``: nobody meant that."""

    next_hop: str
    messages: int
    failing: bool
    text: str


def flow_sentence(held: Sequence[HeldQueue]) -> str:
    """One sentence about all queues, without its full stop."""
    failing = [one for one in held if one.failing]
    if failing:
        return f"Mail for {_hops(len(failing))} waits: {_messages(sum(one.messages for one in failing))}"
    if held:
        return f"Mail flows, but for {_hops(len(held))} that {_are(len(held))} suspended"
    return "Mail flows"


def held_up(queues: Sequence[Any], at: Callable[[str], str] = str) -> list[HeldQueue]:
    """The queues of all nodes that do not flow: those that fail first, and of these the longest. ``at``: a
    time as text.
    """
    found = [one for queue in queues for one in _held(queue, at)]
    return sorted(found, key=lambda one: (not one.failing, -one.messages, one.next_hop))


def _held(queue: Fields, at: Callable[[str], str]) -> Iterator[HeldQueue]:
    name, count = queue["next_hop"], queue["messages"]
    oldest = f", the oldest from {at(queue['oldest'])}" if queue["oldest"] else ""
    waits = f"{_messages(count)} {'waits' if count == 1 else 'wait'}{oldest}"
    error = queue.get("last_error", "")
    last = f". Last error: {error}" if error else ""
    if stopped := queue.get("suspension"):
        why = f"{stopped['operator']} suspended it: {stopped['reason']}"
        yield HeldQueue(name, count, failing=False, text=f"{name}: {waits}. {why}")
    elif queue["status"] == "suspended":
        yield HeldQueue(
            name, count, failing=False, text=f"{name}: {waits}. Each of its messages is suspended"
        )
    elif queue["failures"]:
        since = f" since {at(queue['failing_since'])}" if queue.get("failing_since") else ""
        yield HeldQueue(name, count, failing=True, text=f"{name} fails{since}: {waits}{last}")
    elif queue.get("overdue_since"):
        since = at(queue["overdue_since"])
        yield HeldQueue(name, count, failing=True, text=f"{name}: {waits}. It is overdue since {since}{last}")
    elif queue["status"] == "retry" and error:
        yield HeldQueue(name, count, failing=True, text=f"{name} puts mail off: {waits}{last}")


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"


def _hops(count: int) -> str:
    return "1 next hop" if count == 1 else f"{count:,} next hops"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
