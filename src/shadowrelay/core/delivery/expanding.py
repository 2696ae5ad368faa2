"""Expansion of a distribution list: its members get a message of our own, which the list's recipient awaits.

The message is queued by the transaction that settles the list. No other node is told of that before the
message is safe. If this node is lost earlier, a holder of the original expands the list again: from the same
file it makes the same message (its id is derived). The id has the whole envelope in it, so nodes with
different files never give one id to different recipients: a recipient is settled by its number alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from shadowrelay.core.decisions import Content, Decision
from shadowrelay.core.delivery.journal import queue_once
from shadowrelay.core.digests import of_envelope
from shadowrelay.core.events.reports import derived_id
from shadowrelay.core.identifiers import MessageId, NextHop
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.messages import Copy, Digests, Envelope, Recipient
from shadowrelay.core.ownership.transfer import made_here
from shadowrelay.core.recipients import LISTS, AddressBook, folded
from shadowrelay.core.tracking import Expand, ToMembers
from shadowrelay.core.values import dataclass, replace

if TYPE_CHECKING:
    from shadowrelay.core.delivery.settling import AttemptResult


@dataclass(frozen=True, slots=True)
class Expansion:
    """The message to the members of the list that is recipient number ``about``, not queued yet."""

    about: int
    id: MessageId
    envelope: Envelope
    recipients: tuple[Recipient, ...]
    posted: bool  # in the name of the list's owner
    loops: tuple[str, ...] = ()  # lists that were met inside themselves


def expansion_of(
    copy: Copy,
    about: Recipient,
    book: AddressBook,
    next_hop: Callable[[str], NextHop],
    typed: Callable[[str], str],
) -> Expansion | None:
    """The message to the members of a list; None if the book has no list of that address, or it is empty.

    A list with an owner sends in the owner's name, and none of the sender's wishes for reports apply to that.
    Without one the sender stays, and what it asked for (RFC 3461 5.2.7.2): all but reports of success, for
    the report on the list is that one. The null sender stays in any case, or reports on reports never end.
    A member that nobody has fails when it is tried, like an address that a next hop refuses.
    """
    found = book.expand(about.address)
    if found is None or not found.members:
        return None
    owner = book.owner(about.address) if copy.envelope.sender else ""
    like = copy.envelope
    envelope = replace(like, sender=owner, ret=None, envid=None) if owner else like
    orcpt = None if owner else about.orcpt or typed(about.address)
    recipients = tuple(
        Recipient(
            number,
            member.address,
            LISTS if member.unknown else next_hop(member.address),
            () if owner else _but_success(about.notify),
            orcpt,
        )
        for number, member in enumerate(found.members, 1)
    )
    made = derived_id("list", copy.id, folded(about.address), of_envelope(envelope, recipients))
    return Expansion(about.number, made, envelope, recipients, posted=bool(owner), loops=found.loops)


def _but_success(notify: tuple[str, ...]) -> tuple[str, ...]:
    left = tuple(word for word in notify if word != "SUCCESS")
    return left if left or not notify else ("NEVER",)


def queue_expansion(
    ledger: Ledger,
    original: Copy,
    wanted: Expansion,
    results: Sequence[AttemptResult],
    now: datetime,
    *,
    first: bool = True,
) -> Decision[None]:
    """Queue the message to the members of a list that is settled, and log what became of the list. ``first``:
    no other recipient that is the same list queues it in this decision.
    """
    found = original.digests
    digests = found and Digests(found.content, of_envelope(wanted.envelope, wanted.recipients), found.late)
    plain = made_here(ledger, wanted.id, wanted.envelope, wanted.recipients, digests, now)
    # Who owned the list's message may have made this one: it is asked about it when it is back.
    made = replace(plain, content_of=original.id, former_owner=original.former_owner)
    reply = next(one.reply for one in results if one.number == wanted.about)
    about = tuple(one for one in original.recipients if one.number == wanted.about)
    told = Expand(at=now, copy=original, recipients=about, made=wanted.id, reply=reply)
    if not first:
        return Decision(None, (), (told,))
    event = ToMembers(at=now, copy=made, original=original.id)
    queued = queue_once(ledger, original, made, Content(of=original.id), event, now)
    return replace(queued, events=(told, *queued.events))
