"""How far and how fast a scrub goes on in the background: spread evenly over the time that it may take."""

from __future__ import annotations

from datetime import datetime, timedelta

from shadowrelay.core.values import dataclass

PER_MESSAGE = 4096
"""Octets that a message counts for beside its content: what its rows take to be read."""


@dataclass(frozen=True, slots=True)
class Amount:
    """Messages, and octets of content."""

    messages: int = 0
    octets: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.messages + other.messages, self.octets + other.octets)

    @property
    def work(self) -> int:
        return self.octets + PER_MESSAGE * self.messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round, as far as it has come: it reads everything that is kept. ``at_once``: it does not rest.
    ``contents``, ``rows``: messages with such damage, old or new; ``mended``: those of which only a derived
    column was wrong; ``unreadable``: contents that could not be read for now. ``complete_at``: when the last
    round went through everything.
    """

    number: int = 0  # since the node was started
    began_at: datetime | None = None
    at_once: bool = False
    done: Amount = Amount()
    of: Amount = Amount()
    contents: int = 0
    rows: int = 0
    mended: int = 0
    unreadable: int = 0
    complete_at: datetime | None = None

    @property
    def damaged(self) -> int:
        return self.contents + self.rows


def share(done: Amount, of: Amount) -> float:
    """How much of the work is done, from 0 to 1. What came since it was counted makes it no more than 1."""
    return min(1.0, done.work / of.work) if of.work else 1.0


def pause(done: Amount, of: Amount, elapsed: timedelta, within: timedelta) -> timedelta:
    """How long to rest now, so that the work ends when that time has passed and not before."""
    return max(timedelta(0), within * share(done, of) - elapsed)
