"""A message that crashes set aside: what becomes of it when an operator resumes it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core.ledger_at_hand import NOW, A, B, LedgerAtHand, message

from shadowrelay.core.decisions import Content, Decision, SaveCopy
from shadowrelay.core.identifiers import DatabaseId
from shadowrelay.core.messages import Confirmation, Copy, Holder, HolderState, Stage
from shadowrelay.core.ownership import set_aside


@pytest.mark.parametrize("kept_elsewhere", [True, False])
def test_a_resumed_message_goes_out_after_its_holders_are_asked(kept_elsewhere: bool) -> None:
    holders = (Holder(B, DatabaseId("d2"), None, 1, HolderState.HOLDING),) if kept_elsewhere else ()
    copy = replace(message(), holders=holders)
    ledger = LedgerAtHand(A)
    ledger.apply(Decision(None, (SaveCopy(None, copy, Content()),)))
    decision = set_aside.poisonous(copy, ("once", "twice"), NOW)
    assert decision is not None
    ledger.apply(decision)
    again = ledger.apply(set_aside.resume(ledger, copy.id, NOW))
    assert isinstance(again, Copy)
    asked = Confirmation.ASK if kept_elsewhere else Confirmation.NONE
    assert (again.stage, again.confirmation) == (Stage.QUEUED, asked)
