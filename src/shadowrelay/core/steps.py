"""Scripts: procedures that decide the order of steps, and leave every step to whoever runs them.

A script is a generator. It yields steps (a transaction, a word with a peer, a delivery) and is sent their
results, so that the order on which the promise rests (both copies before the 250, persist before speaking,
ask before delivering) stands in one place: the node runs it on sockets and SQLite, the simulation on a
virtual clock with faults between any two steps.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypeVar

from shadowrelay.core.conversation import Greeting, Query
from shadowrelay.core.decisions import Member
from shadowrelay.core.delivery import Hop, Result
from shadowrelay.core.identifiers import MessageId, NextHop, ServerName
from shadowrelay.core.ledger import Transaction
from shadowrelay.core.messages import Copy, Digests, Envelope, Recipient
from shadowrelay.core.redundancy import Attempt
from shadowrelay.core.values import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Transact:
    """Run this in a transaction; its result arrives only after the commit is durable."""

    work: Callable[[Transaction], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferCopy:
    """Send a copy to that member in a shadow session. Result: Attempt.

    ``recipients`` are all of the message; those that are settled are marked so. ``given_for``: the copy is a
    shadow copy for that owner, and given to replace a damaged one.
    """

    to: ServerName
    message_id: MessageId
    epoch: int
    rank: int
    envelope: Envelope
    recipients: tuple[Recipient, ...]
    digests: Digests | None
    received_at: datetime
    given_for: ServerName | None = None


@dataclass(frozen=True, slots=True)
class Beside:
    """A transaction while a copy is offered. Result: Both, when both have ended."""

    work: Callable[[Transaction], Any]
    offer: OfferCopy


@dataclass(frozen=True, slots=True)
class Both:
    """The results of the transaction and of the offer, and what is known by then of the member (or None)."""

    kept: Any
    attempt: Attempt
    member: Member | None


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for that time: who was asked a moment ago would say the same again. Result: None."""

    length: timedelta


@dataclass(frozen=True, slots=True)
class Greet:
    """Introduce ourselves. Result: the member's Greeting; Unanswered if it did not answer."""

    to: ServerName
    greeting: Greeting


@dataclass(frozen=True, slots=True)
class Ask:
    """Send an XQDISCARD. Result: Answered or Unanswered."""

    to: ServerName
    query: Query


@dataclass(frozen=True, slots=True)
class SendOn:
    """Send a fork to its next hop. Result: Sent."""

    next_hop: NextHop
    copy: Copy
    recipients: tuple[Recipient, ...]


@dataclass(frozen=True, slots=True)
class WriteReports:
    """Write the DSNs that these endings call for. Result: a tuple of Report."""

    copy: Copy
    results: tuple[Result, ...]
    hop: Hop
    dsn_offered: bool  # the next hop took the duty to report success


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The peer did not answer: which step failed, and how."""

    step: str
    error: str


@dataclass(frozen=True, slots=True)
class Sent:
    """How an attempt ended: per recipient, and at which hop. ``damaged``: what is wrong with the content, if
    that was found while it was read; then nothing was sent, or not its end.
    """

    results: tuple[Result, ...]
    hop: Hop
    dsn_offered: bool = True
    damaged: str = ""


Step: TypeAlias = Transact | OfferCopy | Beside | Pause | Greet | Ask | SendOn | WriteReports
Script: TypeAlias = Generator[Step, Any, T]
