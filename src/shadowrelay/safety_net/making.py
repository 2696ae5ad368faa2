"""The script that makes the next messages of a request: it asks the members first, and compares contents."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime

from shadowrelay.core.decisions import VerdictKind
from shadowrelay.core.events.reports import resubmitted_id
from shadowrelay.core.identifiers import MessageId, RequestId, ServerName
from shadowrelay.core.ledger import Transaction
from shadowrelay.core.members.conversation import Query, Question
from shadowrelay.core.ownership import chores
from shadowrelay.core.policy import Policy
from shadowrelay.core.safety_net import resubmission
from shadowrelay.core.safety_net.resubmission import Batch, Contacts
from shadowrelay.core.steps import Ask, Compare, Transact, Unanswered
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
    policy: Policy,
    clock: Callable[[], datetime],
) -> Made:
    """Make up to ``most`` of the messages that this owner settled."""

    def look(ledger: Transaction) -> Batch | None:
        if chores.held_back(ledger) or ledger.resubmitting() >= MOST_UNSETTLED:
            return None
        return resubmission.batch(ledger, request, owner, contacts(), policy, clock(), most)

    found = await Transact(look)
    if found is None:
        return Made()
    elsewhere = await asked_elsewhere(found, contacts().reachable)
    if elsewhere is None:
        return Made()
    unsound = await Compare(tuple(one for one in found.ids if one not in elsewhere))
    count = await Transact(
        lambda ledger: resubmission.made(ledger, found, elsewhere, unsound, contacts(), policy, clock())
    )
    return Made(count, found.rest is not None)


async def asked_elsewhere(found: Batch, members: Collection[ServerName]) -> frozenset[MessageId] | None:
    """The originals of which a member has, or had, the new message. None: a member does not know yet.

    The question is at epoch 0: it claims no copy, so nobody records this node as a holder.
    """
    by_id = {resubmitted_id(found.request.id, original): original for original in found.ids}
    elsewhere: set[MessageId] = set()
    for member in sorted(members) if by_id else ():
        answered = await Ask(member, Query(0, questions=tuple(Question(id_, 0) for id_ in by_id)))
        if isinstance(answered, Unanswered):
            continue
        verdicts = {line.verdict.message_id: line.verdict.kind for line in answered.lines}
        if VerdictKind.PENDING in verdicts.values():
            return None
        elsewhere |= {
            by_id[id_] for id_, kind in verdicts.items() if id_ in by_id and kind is not VerdictKind.UNKNOWN
        }
    return frozenset(elsewhere)
