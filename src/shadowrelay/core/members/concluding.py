"""Concludes an open question: one decision about a message, made from the members' answers."""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime
from enum import Enum

from shadowrelay.core.decisions import Decision, OpenQuestion, SaveCopy
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.ledger import Transaction
from shadowrelay.core.messages import Confirmation, Copy, Reason, Role, Stage
from shadowrelay.core.ownership.set_aside import set_aside
from shadowrelay.core.ownership.transfer import promote, withdraw
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception import arrivals
from shadowrelay.core.values import dataclass, replace


class Conclusion(Enum):
    """How one open question ended, or that it is still open (OPEN, UNREAD).

    UNREAD: the content of the copy has to be compared with its digest first.
    """

    OPEN = "open"
    UNREAD = "unread"
    WITHDRAWN = "withdrawn"
    PROMOTED = "promoted"
    IN_DOUBT = "in doubt"
    ANSWERED = "answered"
    SET_ASIDE = "set aside"


@dataclass(frozen=True, slots=True)
class QuestionState:
    """What is known about one open question at this moment.

    ``by``: members that have answered. ``confirmed``: one of them holds a copy in transit. ``waited``: the
    question is older than ``reconcile_timeout``. ``forgotten``: the question is asked because this node
    returned, from an absence after which all members may have forgotten the message; None: how long it was
    is not known yet. ``sound``: the content of the copy matches its digest.
    """

    by: Set[ServerName]
    reachable: frozenset[ServerName]
    confirmed: bool
    waited: bool
    forgotten: bool | None
    sound: bool


def may_be_closed(question: OpenQuestion, by: Set[ServerName], reachable: frozenset[ServerName]) -> bool:
    """Has every member answered that can be reached, or is the owner back from which we would promote?"""
    return _complete(question, by, reachable) or question.taken_from in reachable


def _complete(question: OpenQuestion, by: Set[ServerName], reachable: frozenset[ServerName]) -> bool:
    return reachable - {question.taken_from} <= by


def conclude(
    ledger: Transaction,
    copy: Copy,
    question: OpenQuestion,
    said: QuestionState,
    policy: Policy,
    now: datetime,
) -> Conclusion:
    """Decide one message, and store the decision.

    The message waits for every member that can be reached. If a holder is out of reach, the message waits for
    ``reconcile_timeout``, or not at all if a member that can be reached has answered and holds a copy; then
    it goes out in doubt. After a long absence of this node, a message that no member confirms is set aside,
    unless no member was ever offered a copy. A copy is promoted only when its content is sound. After such an
    absence it waits for its owner's word; if it is promoted before that, it is set aside then, whyever it is
    promoted: as a message of ours it gets a holder, whatever the operator decides.
    """
    if copy.pending is Reason.HEARTBEAT_LOST and copy.owner in said.reachable:
        ledger.apply(withdraw(copy, now, still_asked=said.forgotten is not False))
        return Conclusion.WITHDRAWN
    if not _complete(question, said.by, said.reachable):
        return Conclusion.OPEN
    asks_owner = copy.held and copy.pending is None
    if asks_owner and said.forgotten is not False and copy.owner not in said.by:
        return Conclusion.OPEN  # only its owner can say what became of it
    forgotten = said.forgotten if _may_be_forgotten(copy) and not said.confirmed else False
    if forgotten is None:
        return Conclusion.OPEN
    missing = {holder.name for holder in copy.holders} - said.by
    waited = said.waited or copy.kept_by(said.reachable & said.by)
    if missing and (copy.confirmation is Confirmation.IN_DOUBT or not waited):
        return Conclusion.OPEN
    if copy.pending and copy.damaged:
        return Conclusion.OPEN
    if copy.pending and not said.sound:
        return Conclusion.UNREAD
    if copy.stage is Stage.ARRIVING:
        message = ledger.apply(arrivals.concluded(copy, policy, now))
        if message is None:
            return Conclusion.ANSWERED
        copy = message
    if copy.pending:
        ledger.apply(promote(ledger, copy, now))
        promoted = ledger.copy(copy.id)
        if not forgotten or promoted is None:
            return Conclusion.PROMOTED
        copy = promoted
    if forgotten and copy.confirmation is Confirmation.ASK:
        ledger.apply(set_aside(copy, now))
        return Conclusion.SET_ASIDE
    if missing and copy.owned:
        ledger.apply(Decision(None, (SaveCopy(copy, replace(copy, confirmation=Confirmation.IN_DOUBT)),)))
        return Conclusion.IN_DOUBT
    answered = replace(copy, confirmation=Confirmation.NONE, confirm_since=None)
    ledger.apply(Decision(None, (SaveCopy(copy, answered),)))
    return Conclusion.ANSWERED


def _may_be_forgotten(copy: Copy) -> bool:
    """May a member have settled the message, that forgot it since? Not if we received it, and no member was
    offered a copy; and whoever took it over here asked its former owner then. Who hands a copy over knows it.
    """
    if copy.held:
        return copy.pending not in {None, Reason.HANDED_OVER}
    return copy.role is Role.PRIMARY and copy.former_owner is None and copy.ranks_given > 0
