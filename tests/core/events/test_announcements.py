"""Who is told of what was delivered."""

from __future__ import annotations

from dataclasses import replace

from decision_inputs import holder
from ledger_at_hand import DB, NOW, B, C, M, message

from shadowrelay.core.decisions import Verdict, VerdictKind
from shadowrelay.core.events.discard_notices import addressed, delivered, listeners
from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.messages import HolderState, Stage, Status


def test_nobody_is_told_of_a_recipient_whose_report_is_not_safe() -> None:
    copy = message()
    waiting = copy.with_recipients(
        replace(r, status=Status.FAILED, report=MessageId("dsn")) for r in copy.recipients
    )
    assert delivered(waiting, waiting.recipients) == ()


def test_events_go_to_every_possible_holder_and_not_to_ourselves() -> None:
    copy = message(
        holders=(holder(B, HolderState.LOST), holder(C, HolderState.UNCERTAIN, 2)), stage=Stage.SAFETY_NET
    )
    assert listeners(copy) == (DB[B], DB[C])
    assert len(addressed([DB[B], DB[B]], (Verdict(M, 1, VerdictKind.DELIVERED),), NOW)) == 1
