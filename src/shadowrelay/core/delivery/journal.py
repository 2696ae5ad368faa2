"""Journal copies: a copy of each accepted message goes to the journal, as a message of our own.

It is queued by the transaction that settles the first recipients of the message. Until it is safe (it has a
second copy, or is settled), no member is told that they are settled: if this node is lost before that, a
holder delivers the message again, and makes the same journal copy, because its id is derived.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from shadowrelay.core.decisions import Content, Decision, SaveCopy
from shadowrelay.core.digests import of_envelope
from shadowrelay.core.events.reports import derived_id, is_derived
from shadowrelay.core.events.side_effects import already_safe
from shadowrelay.core.identifiers import MessageId, NextHop
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.messages import Confirmation, Copy, Digests, Envelope, Recipient, Role, Status
from shadowrelay.core.ownership.transfer import made_here
from shadowrelay.core.tracking import Dsn, Journaled, SentAgain, ToMembers
from shadowrelay.core.values import dataclass, replace

Journals = Mapping[NextHop, tuple[str, NextHop]]
"""For each route whose mail is journaled: the address of the journal, and the next hop of that address."""


@dataclass(frozen=True, slots=True)
class JournalCopy:
    """The journal copy of a message, not queued yet."""

    id: MessageId
    recipients: tuple[Recipient, ...]


def journal_of(copy: Copy, journals: Journals, behind: Iterable[NextHop] = ()) -> JournalCopy | None:
    """The journal copy that a message has; None if it has none. ``behind``: next hops of its lists' members.

    A message that was made from another one (a report, a journal copy, a resubmitted message) has none. The
    addresses are part of the id: nodes with different settings make different messages.
    """
    if not journals or is_derived(copy.id) or copy.request is not None or copy.damaged:
        return None
    ways = {NextHop(one.next_hop.partition("/")[0]) for one in copy.recipients}
    to = sorted({journals[way] for way in ways.union(behind) if way in journals})
    recipients = tuple(Recipient(n, address, hop, ("NEVER",)) for n, (address, hop) in enumerate(to, 1))
    addresses = (address for address, _ in to)
    return JournalCopy(derived_id("journal", copy.id, *addresses), recipients) if to else None


def journaled(
    ledger: Ledger, original: Copy, wanted: JournalCopy | None, now: datetime
) -> Decision[MessageId | None]:
    """Queue the journal copy when the first recipients of a message are settled. The result: the journal copy
    for which they wait, None if they wait for none.

    If a recipient was settled before, the journal copy was made then. As long as it is not safe, nobody but
    this node knows of a settlement.
    """
    waiting = next((one.journal for one in original.recipients if one.journal), None)
    if wanted is None or waiting or any(_journaled(one) for one in original.recipients):
        return Decision(waiting)
    like = original.envelope
    envelope = Envelope(
        sender="",
        size=like.size,
        body=like.body,
        smtputf8=like.smtputf8,
        message_id=like.message_id,
        subject=like.subject,
        tls=like.tls,
    )
    found = original.digests
    digests = found and Digests(found.content, of_envelope(envelope, wanted.recipients), found.late)
    plain = made_here(ledger, wanted.id, envelope, wanted.recipients, digests, now)
    made = replace(plain, content_of=original.id)
    event = Journaled(at=now, copy=made, original=original.id)
    queued = queue_once(ledger, original, made, Content(of=original.id), event, now)
    return queued.but(None if already_safe(ledger, wanted.id) else wanted.id)


def _journaled(one: Recipient) -> bool:
    """Was a journal copy made with this one? None is made when an operator removes a recipient."""
    return one.settled and one.status is not Status.REMOVED


def queue_once(
    ledger: Ledger,
    original: Copy,
    made: Copy,
    content: Content,
    event: Dsn | Journaled | SentAgain | ToMembers,
    now: datetime,
    *,
    awaited: bool = True,
) -> Decision[None]:
    """Queue a message that is made of another one: a primary message of this node, exposed until the repair
    stage gives it a holder. ``awaited``: recipients of the original wait for it.

    If the original was taken over, another node may have made the same message. If it came before this
    process began, this node may have made it itself, and was put back since. Every member is asked first.
    """
    known = ledger.copy(made.id)
    if known and known.exposed and known.reports_on is None and awaited:  # promoted from a copy
        return Decision(None, (SaveCopy(known, replace(known, reports_on=original.id)),))
    if known or ledger.outcome(made.id):
        return Decision(None)
    earlier = original.offered_in != ledger.lineage.incarnation
    ask = original.epoch > 1 or original.role is Role.SHADOW or earlier
    copy = replace(
        made,
        confirmation=Confirmation.ASK if ask else Confirmation.NONE,
        confirm_since=now if ask else None,
        reports_on=original.id if awaited else None,
    )
    return Decision(None, (SaveCopy(None, copy, content),), (replace(event, copy=copy),))
