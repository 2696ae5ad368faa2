"""The script that makes the next messages of a request: it asks the members first, and compares contents."""

from __future__ import annotations

from collections.abc import Callable, Collection

from shadowrelay.core.decisions import VerdictKind
from shadowrelay.core.events.reports import resubmitted_id
from shadowrelay.core.identifiers import MessageId, RequestId, ServerName
from shadowrelay.core.ledger import Transaction
from shadowrelay.core.members.claims import Sighting, sighting_of_member
from shadowrelay.core.members.conversation import Query, Question
from shadowrelay.core.members.second_opinion import Others
from shadowrelay.core.ownership import chores
from shadowrelay.core.policy import Policy
from shadowrelay.core.reckoning import Endings
from shadowrelay.core.safety_net import resubmission
from shadowrelay.core.safety_net.resubmission import Batch, Contacts
from shadowrelay.core.steps import AllFound, Ask, Compare, Transact, Unanswered
from shadowrelay.core.values import dataclass

MOST_UNSETTLED = 500
"""Resubmitted messages of this node in its queue at a time."""


@dataclass(frozen=True, slots=True)
class Made:
    """How many messages were made, and whether the request has more for this owner now."""

    count: int = 0
    more: bool = False


async def make(
    request: RequestId,
    owner: ServerName,
    most: int,
    contacts: Callable[[], Contacts],
    others: Others,
    policy: Policy,
    endings: Callable[[], Endings],
) -> Made:
    """Make up to ``most`` of the messages that this owner settled. ``others``: the members without it."""

    def look(ledger: Transaction) -> tuple[Batch, Sighting | None] | None:
        if chores.held_back(ledger) or ledger.resubmitting() >= MOST_UNSETTLED:
            return None
        found = resubmission.batch(ledger, request, owner, contacts(), policy, endings(), most)
        return (found, sighting_of_member(ledger, owner) if found.suspected else None) if found else None

    looked = await Transact(look)
    if looked is None:
        return Made()
    found, sighting = looked
    elsewhere = await asked_elsewhere(found, contacts().reachable, sighting, others)
    if elsewhere is None:
        return Made()
    by_time = found.request.selector.network_message_id is None
    if by_time and found.rest is None and not await AllFound():  # an index alone does not say: done
        return Made(more=True)
    unsound = await Compare(tuple(one for one in found.ids if one not in elsewhere))
    count = await Transact(
        lambda ledger: resubmission.made(ledger, found, elsewhere, unsound, contacts(), policy, endings().now)
    )
    return Made(count, found.rest is not None)


async def asked_elsewhere(
    found: Batch, members: Collection[ServerName], sighting: Sighting | None, others: Others
) -> frozenset[MessageId] | None:
    """The originals of which a member has, or had, the new message. None: nothing may be made now, because a
    member does not know yet; or because the owner is merely silent (``sighting``), and a member sees it, or
    no other machine answers.

    The question is at epoch 0: it claims no copy, so nobody records this node as a holder.
    """
    by_id = {resubmitted_id(found.request.id, original): original for original in found.ids}
    about = Query(0, questions=tuple(Question(id_, 0) for id_ in by_id), sighting=sighting)
    elsewhere: set[MessageId] = set()
    answering: set[ServerName] = set()
    for member in sorted(members) if by_id else ():
        answered = await Ask(member, about)
        if isinstance(answered, Unanswered):
            continue
        answering.add(member)
        verdicts = {line.verdict.message_id: line.verdict.kind for line in answered.lines}
        if VerdictKind.PENDING in verdicts.values() or answered.seen is not None:
            return None
        elsewhere |= {
            by_id[id_] for id_, kind in verdicts.items() if id_ in by_id and kind is not VerdictKind.UNKNOWN
        }
    alone = bool(by_id) and sighting is not None and others.none_of(answering)
    return None if alone else frozenset(elsewhere)
