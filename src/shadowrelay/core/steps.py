"""Scripts and their steps: a script decides the order of steps, and a performer performs each step.

A script is a coroutine that awaits only steps: a transaction, a talk with a member, a delivery. An awaited
step goes to the performer, which sends back the result. So the order on which the promise rests (both copies
before the 250, persist before speaking, ask before delivering) is written once. The node runs it on sockets
and SQLite, the simulation on a virtual clock with faults between any two steps.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from datetime import datetime, timedelta
from typing import Any, Generic, TypeAlias, TypeVar

from shadowrelay.core.decisions import Member
from shadowrelay.core.delivery.journal import JournalCopy
from shadowrelay.core.delivery.settling import AttemptResult, Expansion, Hop, Report
from shadowrelay.core.identifiers import MessageId, NextHop, RequestId, ServerName
from shadowrelay.core.ledger import Transaction
from shadowrelay.core.members.conversation import Answered, Greeting, Query
from shadowrelay.core.messages import Copy, Digests, Envelope, Recipient
from shadowrelay.core.operating import Act, ActAnswer
from shadowrelay.core.reception.redundancy import Arrival, OfferAttempt
from shadowrelay.core.values import dataclass

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)

Script: TypeAlias = Coroutine[Any, Any, T]


class Step(Generic[R_co]):
    """One thing that a performer does for a script; R_co is its result."""

    __slots__ = ()

    def __await__(self) -> Generator[Step[R_co], Any, R_co]:
        result: R_co = yield self
        return result


@dataclass(frozen=True, slots=True)
class Transact(Step[T]):
    """Run ``work`` in a transaction; its result arrives only after the commit is durable."""

    work: Callable[[Transaction], T]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferCopy(Step[OfferAttempt]):
    """Send a copy to member ``to`` in a shadow session.

    ``recipients`` are all recipients of the message, settled ones included. ``given_for``: this node holds
    the copy for that owner, and gives it to the owner in place of a damaged one. ``refers``: the member has
    the content, as that of the message ``content_of``; it is sent only if the member asks for it.
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
    content_of: MessageId | None = None
    request: RequestId | None = None
    refers: bool = False

    @staticmethod
    def of(
        message: Arrival | Copy,
        to: ServerName,
        *,
        epoch: int,
        rank: int,
        given_for: ServerName | None = None,
        refers: bool = False,
    ) -> OfferCopy:
        """The offer of a message that is arriving, or of one that we have."""
        made = message if isinstance(message, Copy) else None
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
            content_of=made.content_of if made else None,
            request=made.request if made else None,
            refers=refers,
        )


@dataclass(frozen=True, slots=True)
class Both(Generic[T]):
    """Both results, and the member as the ledger knows it afterwards (or None)."""

    kept: T
    attempt: OfferAttempt
    member: Member | None


@dataclass(frozen=True, slots=True)
class Beside(Step[Both[T]], Generic[T]):
    """Run a transaction while a copy is offered; the result comes when both have ended."""

    work: Callable[[Transaction], T]
    offer: OfferCopy


@dataclass(frozen=True, slots=True)
class Pause(Step[None]):
    """Wait that long: a member that was asked a moment ago would only repeat its answer."""

    length: timedelta


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The member did not answer: which step failed, and how."""

    step: str
    error: str


@dataclass(frozen=True, slots=True)
class Greet(Step[Greeting | Unanswered]):
    """Introduce this node to a member; the result is the member's greeting."""

    to: ServerName
    greeting: Greeting


@dataclass(frozen=True, slots=True)
class Ask(Step[Answered | Unanswered]):
    """Send an XQDISCARD command; the result is the whole answer."""

    to: ServerName
    query: Query


@dataclass(frozen=True, slots=True)
class Operate(Step[ActAnswer | Unanswered]):
    """Send an XOPERATE command; the result is the whole answer."""

    to: ServerName
    act: Act


@dataclass(frozen=True, slots=True)
class Compare(Step[frozenset[MessageId]]):
    """Read the contents of stored messages; the result: those that differ from their digests."""

    messages: tuple[MessageId, ...]


@dataclass(frozen=True, slots=True)
class AllFound(Step[bool]):
    """Is it certain that a look through Safety Net by time of settlement found all that is there?

    What the look went by is compared with what is kept. If they differed, they do so no more.
    """


@dataclass(frozen=True, slots=True)
class Sent:
    """How an attempt ended: per recipient, and at which hop.

    ``damaged``: what is wrong with the content, if damage was found while the content was read. Then nothing
    was sent, or the content was not sent to its end.
    """

    results: tuple[AttemptResult, ...]
    hop: Hop
    dsn_offered: bool = True
    damaged: str = ""
    expansions: tuple[Expansion, ...] = ()


@dataclass(frozen=True, slots=True)
class SendOn(Step[Sent]):
    """Send a fork to its next hop."""

    next_hop: NextHop
    copy: Copy
    recipients: tuple[Recipient, ...]


@dataclass(frozen=True, slots=True)
class WriteReports(Step[tuple[Report | JournalCopy, ...]]):
    """Write the DSNs that these endings call for, and name the journal copy of the message."""

    copy: Copy
    results: tuple[AttemptResult, ...]
    hop: Hop
    dsn_offered: bool  # the next hop offers DSN, so it has the duty to report success


AnyStep: TypeAlias = (
    Transact[Any]
    | OfferCopy
    | Beside[Any]
    | Pause
    | Greet
    | Ask
    | Operate
    | Compare
    | AllFound
    | SendOn
    | WriteReports
)
