"""The pace of a scrub: how far it has come, and the pauses that spread it evenly over its time."""

from __future__ import annotations

from datetime import datetime, timedelta

from shadowrelay.core.values import dataclass

PER_MESSAGE = 4096
"""How many octets the rows of a message count for, beside its content."""


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of messages, and of octets of content."""

    messages: int = 0
    octets: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.messages + other.messages, self.octets + other.octets)

    @property
    def work(self) -> int:
        return self.octets + PER_MESSAGE * self.messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The state of one round, which reads everything that the node keeps. ``at_once``: it does not pause.
    ``operator``: who had it begin at once; '' if nobody did.
    ``contents``, ``rows``: messages with damaged content or rows, known before or not, and damaged rows that
    are of no message. ``mended``: messages whose only fault was a derived column. ``unreadable``: contents
    that could not be read for now. ``compared``: rows and entries of all tables and indexes. ``rebuilt``:
    indexes that differed from their tables, and were built again. ``complete_at``: when the last complete
    round ended.
    """

    number: int = 0  # since the node was started
    began_at: datetime | None = None
    at_once: bool = False
    operator: str = ""
    done: Amount = Amount()
    of: Amount = Amount()
    contents: int = 0
    rows: int = 0
    mended: int = 0
    unreadable: int = 0
    compared: int = 0
    rebuilt: tuple[str, ...] = ()
    complete_at: datetime | None = None

    @property
    def damaged(self) -> int:
        return self.contents + self.rows + len(self.rebuilt)


def share(done: Amount, of: Amount) -> float:
    """The share of the work that is done, from 0 to 1, also if new messages came since the count."""
    return min(1.0, done.work / of.work) if of.work else 1.0


def pause(done: Amount, of: Amount, elapsed: timedelta, within: timedelta) -> timedelta:
    """How long to pause now, so that the work takes the time ``within`` and not less."""
    return max(timedelta(0), within * share(done, of) - elapsed)
