"""Makes messages of those in Safety Net, for a resubmit request: whose turn it is, of what, and once.

Each node makes what it settled itself. A holder answers for an owner that is lost, or that has lost the
database in which it settled the message. Silence is no proof of a loss: the holder asks the other members
whether they see the owner. Until the owner is retired or shows another database, it may have what it said to
have made, so that is left to it. The id of the new message is derived from the request and the original, so
every node gives it the same id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import datetime
from enum import Enum

from shadowrelay.core.decisions import Content, Decision, SaveCopy
from shadowrelay.core.digests import of_envelope
from shadowrelay.core.events.reports import resubmitted_id
from shadowrelay.core.identifiers import MessageId, RequestId, ServerName
from shadowrelay.core.ledger import Ledger, Transaction, own_progress
from shadowrelay.core.messages import Confirmation, Copy, Digests, Recipient, Role, Stage, Status
from shadowrelay.core.ownership.transfer import made_here
from shadowrelay.core.policy import Policy
from shadowrelay.core.reckoning import Endings
from shadowrelay.core.requests import Place, Progress, Request, RequestState, Selector, Skipped
from shadowrelay.core.safety_net.selection import matching
from shadowrelay.core.tracking import Resubmit
from shadowrelay.core.values import dataclass, replace

AT_ONCE = 50
"""Messages that one step of a request makes; members are asked about them in one command."""

LOOKS = 500
"""Settled recipients that one step looks at, however few of them the request means."""


@dataclass(frozen=True, slots=True)
class Contacts:
    """The other members as this process sees them.

    ``members``: all in the settings that were not retired. ``silent``: out of reach for
    ``unresponsive_primary_interval`` or longer.
    """

    members: frozenset[ServerName]
    reachable: frozenset[ServerName]
    silent: frozenset[ServerName]


class Loss(Enum):
    """Why the holders answer for everything that an owner settled. RETIRED: it is no member any more. SAID:
    an operator said that it is gone. SILENT: nobody did, and others may see it.
    """

    RETIRED = "retired"
    SAID = "said"
    SILENT = "silent"


def lost(ledger: Ledger, request: Request, owner: ServerName, contacts: Contacts) -> Loss | None:
    """Do the holders answer for everything that this owner settled, and why?"""
    member = ledger.member(owner)
    if owner not in contacts.members or (member is not None and member.retired):
        return Loss.RETIRED
    if owner in contacts.reachable:
        return None
    if owner in request.gone:
        return Loss.SAID
    return Loss.SILENT if owner in contacts.silent else None


def lost_of(ledger: Ledger, copy: Copy, settled_at: datetime | None, policy: Policy) -> bool:
    """Has the owner of this shadow copy lost it: did it settle the copy in a database that is gone?

    The owner's database may be younger than we know: therefore ``resubmit_overlap``.
    """
    member = ledger.member(copy.owner)
    if member is None or member.lineage is None:
        return False
    if copy.owner_database != member.lineage.database_id:
        return True
    if member.broken_at is None or settled_at is None:
        return False
    return settled_at < member.broken_at + policy.resubmit_overlap


def owners(ledger: Ledger, contacts: Contacts) -> tuple[ServerName, ...]:
    """The owners for which this node may have to answer: itself first, then every other that it knows of."""
    others = {*contacts.members, *(member.name for member in ledger.members())} - {ledger.name}
    return (ledger.name, *sorted(others))


def turn(ledger: Ledger, request: Request, owner: ServerName, contacts: Contacts) -> Progress | None:
    """The progress to go on from with what this owner settled; None if nothing is to be done now."""
    known = next((one for one in own_progress(ledger, request.id) if one.owner == owner), None)
    loss = None if owner == ledger.name else lost(ledger, request, owner, contacts)
    whole, trusting = owner == ledger.name or loss is not None, loss in (Loss.SAID, Loss.SILENT)
    if not whole:
        member = ledger.member(owner)
        if member is None or member.broken_at is None:
            return None
    if known is None:
        return Progress(request=request.id, node=ledger.name, owner=owner, whole=whole, trusting=trusting)
    if whole and (not known.whole or (known.trusting and not trusting)):
        # What was passed over, because its owner had it or had made it, comes again.
        return replace(known.again(), whole=True, trusting=trusting)
    return None if known.done else known


def looked_at_again(ledger: Ledger) -> Decision[None]:
    """What this node was to find by may have hidden some of it: go through every request once more. What was
    made is known by its id.
    """
    own = [one for request in ledger.requests() for one in own_progress(ledger, request.id)]
    return Decision(None, tuple(one.again() for one in own if one != one.again()))


def inside(selector: Selector, copy: Copy) -> tuple[Recipient, ...]:
    """The recipients that a selector means and that ended delivered inside the boundary: no others."""
    return tuple(one for one in matching(selector, copy) if one.status is Status.DELIVERED)


def refusal(request: Request, copy: Copy | None) -> Skipped | None:
    """Why a message that the request's window has is not made; None if it is to be made."""
    if copy is None or copy.stage is not Stage.SAFETY_NET:
        return Skipped.GONE
    if not inside(request.selector, copy):
        return Skipped.OUTSIDE
    if copy.request is not None:
        return Skipped.RESUBMITTED
    if copy.damage is not None or copy.digests is None or copy.digests.content is None:
        return Skipped.DAMAGED
    return None


def make(
    ledger: Ledger, request: Request, original: Copy, contacts: Contacts, policy: Policy, now: datetime
) -> Decision[MessageId]:
    """Make the message, which ``refusal`` does not refuse.

    Nobody gets a report about it. It waits for its second copy, for ``shadow_time_cap`` at most, and then
    leaves exposed: the original stays in Safety Net. Two nodes may make it at once, so every member that can
    be reached is asked about it before it leaves.
    """
    others = bool(contacts.members) and policy.shadow_redundancy_enabled
    waits = now + policy.shadow_time_cap if others else None
    recipients = tuple(
        Recipient(one.number, one.address, one.next_hop, ("NEVER",), one.orcpt, next_attempt=waits)
        for one in inside(request.selector, original)
    )
    envelope = replace(original.envelope, ret=None, envid=None)
    content = original.digests.content if original.digests else None
    new = replace(
        made_here(
            ledger,
            resubmitted_id(request.id, original.id),
            envelope,
            recipients,
            Digests(content, of_envelope(envelope, recipients)),
            now,
        ),
        content_of=original.id,
        request=request.id,
        confirmation=Confirmation.ASK if others else Confirmation.NONE,
        confirm_since=now if others else None,
    )
    owner = ledger.name if original.role is Role.PRIMARY else original.owner
    event = Resubmit(at=now, copy=new, original=original.id, request=request.id, owner=owner)
    return Decision(new.id, (SaveCopy(None, new, Content(of=original.id)),), (event,))


@dataclass(frozen=True, slots=True)
class Batch:
    """The next messages of a request, in the order of their settlement: to be asked about, then made."""

    request: Request
    progress: Progress
    originals: tuple[tuple[datetime, MessageId], ...]
    rest: Place | None  # where the next batch begins
    suspected: bool = False  # silence alone speaks against the owner

    @property
    def ids(self) -> tuple[MessageId, ...]:
        return tuple(message_id for _, message_id in self.originals)


def batch(
    ledger: Ledger,
    request_id: RequestId,
    owner: ServerName,
    contacts: Contacts,
    policy: Policy,
    ends: Endings,
    most: int = AT_ONCE,
) -> Batch | None:
    """The next messages that this owner settled; None if nothing is to be done for it now."""
    request = ledger.request(request_id)
    if request is None or not request.runs(ends, policy.resubmit_request_age):
        return None
    progress = turn(ledger, request, owner, contacts)
    if progress is None:
        return None
    whose = None if owner == ledger.name else owner
    found, rest = ledger.resubmittable(request.selector, whose, progress.place, LOOKS)
    if len(found) > most:
        found, rest = found[:most], Place(*found[most - 1])
    suspected = owner != ledger.name and lost(ledger, request, owner, contacts) is Loss.SILENT
    return Batch(request, progress, tuple(found), rest, suspected)


def made(
    ledger: Transaction,
    looked_at: Batch,
    elsewhere: Collection[MessageId],
    unsound: Collection[MessageId],
    contacts: Contacts,
    policy: Policy,
    now: datetime,
) -> int:
    """Make the messages of a batch, and write down how far it is, in one transaction. Returns how many.

    ``elsewhere``: originals whose new message a member has or had. ``unsound``: originals whose content
    differs from its digest, or cannot be read. The request may have been paused or removed since the batch
    was read, and its owner may be back: then nothing is made.
    """
    request = ledger.request(looked_at.request.id)
    owner = looked_at.progress.owner
    if request is None or request.state is not RequestState.RUNNING:
        return 0
    now_at = turn(ledger, request, owner, contacts)
    begun = looked_at.progress
    if now_at is None or _where(now_at) != _where(begun):
        return 0
    skipped: Counter[Skipped] = Counter()
    count = 0
    owners = next((one for one in ledger.progress(request.id) if one.node == one.owner == owner), None)
    for settled_at, message_id in looked_at.originals:
        copy = ledger.copy(message_id)
        if copy is not None and not _answered_for(ledger, copy, owner, now_at, settled_at, policy):
            continue
        left_to_it = now_at.trusting and owners and owners.has_passed(Place(settled_at, message_id))
        if left_to_it and not (copy and lost_of(ledger, copy, settled_at, policy)):
            skipped[Skipped.ELSEWHERE] += 1
            continue
        before = _made_before(ledger, request, message_id)
        if before:  # by this node, which has counted it
            continue
        why = refusal(request, copy) if before is None else Skipped.ELSEWHERE
        if why is None and message_id in elsewhere:
            why = Skipped.ELSEWHERE
        if why is None and message_id in unsound:
            why = Skipped.DAMAGED
        if why is None and copy is not None:
            ledger.apply(make(ledger, request, copy, contacts, policy, now))
            count += 1
        elif why is not None:
            skipped[why] += 1
    after = now_at.further(count, skipped)
    after = replace(after, place=looked_at.rest) if looked_at.rest else replace(after, done=True)
    ledger.apply(Decision(None, (after,)))
    return count


def _where(progress: Progress) -> tuple[Place, bool, bool]:
    return progress.place, progress.whole, progress.trusting


def _answered_for(
    ledger: Ledger, copy: Copy, owner: ServerName, progress: Progress, settled_at: datetime, policy: Policy
) -> bool:
    """Is the message still this node's to make, in this part of the request?"""
    if owner == ledger.name:
        return copy.role is Role.PRIMARY
    if copy.role is not Role.SHADOW or copy.owner != owner:
        return False
    return progress.whole or lost_of(ledger, copy, settled_at, policy)


def _made_before(ledger: Ledger, request: Request, original: MessageId) -> bool | None:
    """Was the message made already: by this node (True), by another (False)? None: not that we know."""
    id_ = resubmitted_id(request.id, original)
    if not ledger.knows(id_):
        return None
    copy = ledger.copy(id_)
    return copy is not None and copy.role is Role.PRIMARY
