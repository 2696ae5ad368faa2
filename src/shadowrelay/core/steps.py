"""Scripts: procedures that decide the order of steps, and leave every step to whoever runs them.

A script is a coroutine that awaits steps, and nothing else: a transaction, a word with a member, a delivery.
A step that is awaited hands itself to the driver, which sends its result. So the order on which the promise
rests (both copies before the 250, persist before speaking, ask before delivering) stands in one place: the
node runs it on sockets and SQLite, the simulation on a virtual clock with faults between any two steps.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from datetime import datetime, timedelta
from typing import Any, Generic, TypeAlias, TypeVar

from shadowrelay.core.decisions import Member
from shadowrelay.core.delivery.settling import AttemptResult, Hop, Report
from shadowrelay.core.identifiers import MessageId, NextHop, ServerName
from shadowrelay.core.ledger import Transaction
from shadowrelay.core.members.conversation import Answered, Greeting, Query
from shadowrelay.core.messages import Copy, Digests, Envelope, Recipient
from shadowrelay.core.reception.redundancy import Arrival, OfferAttempt
from shadowrelay.core.values import dataclass

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)

Script: TypeAlias = Coroutine[Any, Any, T]


class Step(Generic[R_co]):
    """What a script leaves to whoever runs it; R_co is its result."""

    __slots__ = ()

    def __await__(self) -> Generator[Step[R_co], Any, R_co]:
        result: R_co = yield self
        return result


@dataclass(frozen=True, slots=True)
class Transact(Step[T]):
    """Run this in a transaction; its result arrives only after the commit is durable."""

    work: Callable[[Transaction], T]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferCopy(Step[OfferAttempt]):
    """Send a copy to that member in a shadow session.

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

    @staticmethod
    def of(
        message: Arrival | Copy, to: ServerName, *, epoch: int, rank: int, given_for: ServerName | None = None
    ) -> OfferCopy:
        """The offer of what arrives, or of a message that we have."""
        return OfferCopy(
            to=to,
            message_id=message.id,
            epoch=epoch,
            rank=rank,
            envelope=message.envelope,
            recipients=message.recipients,
            digests=message.digests,
            received_at=message.received_at,
            given_for=given_for,
        )


@dataclass(frozen=True, slots=True)
class Both(Generic[T]):
    """The results of the transaction and of the offer, and what is known by then of the member (or None)."""

    kept: T
    attempt: OfferAttempt
    member: Member | None


@dataclass(frozen=True, slots=True)
class Beside(Step[Both[T]], Generic[T]):
    """A transaction while a copy is offered; the result comes when both have ended."""

    work: Callable[[Transaction], T]
    offer: OfferCopy


@dataclass(frozen=True, slots=True)
class Pause(Step[None]):
    """Wait for that time: who was asked a moment ago would say the same again."""

    length: timedelta


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The member did not answer: which step failed, and how."""

    step: str
    error: str


@dataclass(frozen=True, slots=True)
class Greet(Step[Greeting | Unanswered]):
    """Introduce ourselves; the member's greeting is the result."""

    to: ServerName
    greeting: Greeting


@dataclass(frozen=True, slots=True)
class Ask(Step[Answered | Unanswered]):
    """Send an XQDISCARD."""

    to: ServerName
    query: Query


@dataclass(frozen=True, slots=True)
class Sent:
    """How an attempt ended: per recipient, and at which hop. ``damaged``: what is wrong with the content, if
    that was found while it was read; then nothing was sent, or not its end.
    """

    results: tuple[AttemptResult, ...]
    hop: Hop
    dsn_offered: bool = True
    damaged: str = ""


@dataclass(frozen=True, slots=True)
class SendOn(Step[Sent]):
    """Send a fork to its next hop."""

    next_hop: NextHop
    copy: Copy
    recipients: tuple[Recipient, ...]


@dataclass(frozen=True, slots=True)
class WriteReports(Step[tuple[Report, ...]]):
    """Write the DSNs that these endings call for."""

    copy: Copy
    results: tuple[AttemptResult, ...]
    hop: Hop
    dsn_offered: bool  # the next hop took the duty to report success


AnyStep: TypeAlias = Transact[Any] | OfferCopy | Beside[Any] | Pause | Greet | Ask | SendOn | WriteReports
