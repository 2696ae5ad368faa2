"""What tests of decisions begin with: attempts, offers and holders of the message at hand."""

from __future__ import annotations

from ledger_at_hand import DB, NOW, RUN, A, B, C, LedgerAtHand, M, message

from shadowrelay.core.decisions import Content
from shadowrelay.core.delivery.settling import Hop
from shadowrelay.core.identifiers import Mark, ServerName
from shadowrelay.core.members.questions import Speaker
from shadowrelay.core.messages import Envelope, Holder, HolderState, Reason
from shadowrelay.core.ownership import transfer
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception import redundancy
from shadowrelay.core.reception.holding import ShadowCopyOffer
from shadowrelay.core.reception.redundancy import Answer, Arrival, Leg, OfferAttempt

POLICY = Policy(reject_message_on_shadow_failure=True)
HOP = Hop("mail.example.net", inside=False, mailbox=False)
SPEAKER = {name: Speaker(name, DB[name], Mark(RUN[name], 10)) for name in (A, B, C)}


def arrival() -> Arrival:
    return Arrival(
        id=M,
        envelope=Envelope(sender="s@example.org", size=1),
        recipients=message().recipients,
        digests=message().digests,
        received_at=NOW,
    )


def attempt(leg: Leg, name: ServerName = B, rank: int = 1, sequence: int = 10) -> OfferAttempt:
    mark = Mark(RUN[name], sequence) if leg is Leg.ACKNOWLEDGED else None
    return OfferAttempt(name, leg, rank, "250", DB[name], mark)


def offer(epoch: int = 1, rank: int = 1, owner: ServerName = A) -> ShadowCopyOffer:
    return ShadowCopyOffer(
        message_id=M,
        epoch=epoch,
        rank=rank,
        owner=owner,
        owner_database=DB[owner],
        mark=Mark(RUN[owner], 11),
        received_at=NOW,
        envelope=Envelope(sender="s@example.org", size=1),
        recipients=message().recipients,
        digests=message().digests,
    )


def holder(name: ServerName, state: HolderState = HolderState.HOLDING, rank: int = 1) -> Holder:
    return Holder(name, DB[name], Mark(RUN[name], 5), rank, state)


def take_over(on: LedgerAtHand, reason: Reason = Reason.HEARTBEAT_LOST) -> None:
    """Promote, when nobody had anything against it."""
    on.apply(transfer.intend(on.copies[M], reason, NOW))
    on.apply(transfer.promote(on, on.copies[M], NOW))


def accept(
    on: LedgerAtHand, *attempts: OfferAttempt, policy: Policy = POLICY, last_resort: bool = False
) -> Answer:
    content = Content(data=b"x")
    decision = redundancy.accept(on, arrival(), content, attempts, policy, NOW, last_resort=last_resort)
    answer: Answer = on.apply(decision)
    return answer
