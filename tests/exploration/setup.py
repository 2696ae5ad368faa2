"""What is explored in one go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Grain = Literal["packets", "answers", "talks"]
"""What is one step between members: a packet; a question with its answer; a whole talk. Offers, and what is
said to them, are packets in any grain.
"""


@dataclass(frozen=True, slots=True)
class Setup:
    """What is explored in one go. ``faults``: for each fault in sequence, those that it may be."""

    faults: tuple[tuple[str, ...], ...] = ()
    nodes: int = 2
    reject: bool | None = False  # None: what policy says of an exposed message is a choice at every question
    messages: int = 1
    recipients: int = 1
    attempts: int = 1  # at each other member to leave a copy with it, one after the other
    commits_apart: bool = False
    at_once: bool = False  # a message comes first of all, nothing happens before
    refused: bool = False  # the next hop refuses every recipient: the sender gets a report
    defers: int = 0  # attempts that next hops may answer with 4yz
    resubmits: bool = False  # a message was delivered before, and a resubmit request comes at any time
    orders: bool = False  # an operator removes the message at any time
    grain: Grain = "packets"
    line: tuple[str, ...] = ()  # steps that come first of all, in words: see ``line``
    causes: bool = True  # of second deliveries, told apart; else only whether there is one: see ``essence``

    @property
    def title(self) -> str:
        return ", then ".join(_either(one) for one in self.faults) or "no fault"


def _either(faults: tuple[str, ...]) -> str:
    """They themselves where they are few, else their kinds."""
    return " or ".join(faults if len(faults) < 3 else dict.fromkeys(fault.split()[0] for fault in faults))


Move = tuple[Any, ...]
"""A step: its kind, and with what."""
