"""What decisions are made of: their order, tombstones, and the parts of a queue."""

from __future__ import annotations

import pytest
from ledger_at_hand import DB, NOW, A, B, M, message

from shadowrelay.core.decisions import ALL, Decision, DropCopy, DropEvents, Part, Tombstone
from shadowrelay.core.identifiers import MessageId, ServerName
from shadowrelay.core.tracking import OfRows, RowsDamaged


def test_a_decision_that_rests_on_another_is_written_after_it() -> None:
    found, mended = (RowsDamaged(at=NOW, message_id=M, reason=why, told=OfRows.DAMAGED) for why in "12")
    first = Decision("first", (DropCopy(message()),), (found,))
    second = Decision("second", (DropEvents(DB[B]),), (mended,)).after(first)
    assert second == Decision("second", (DropCopy(message()), DropEvents(DB[B])), (found, mended))
    assert second.but(0) == Decision(0, second.writes, second.events)


@pytest.mark.parametrize(
    ("owner", "epoch", "rank", "refused"),
    [
        (A, 2, 3, True),
        (A, 2, 1, True),
        (A, 1, 9, True),
        (A, 2, 4, False),
        (A, 3, 1, False),
        (B, 2, 3, False),
    ],
)
def test_a_tombstone_refuses_what_its_owner_offered_up_to_then(
    owner: ServerName, epoch: int, rank: int, refused: object
) -> None:
    assert Tombstone(M, A, 2, 3, NOW).refuses(owner, epoch, rank) is refused


def test_a_queue_goes_on_behind_a_full_part_and_ends_with_one_that_is_not() -> None:
    ids = [MessageId("1"), MessageId("2")]
    assert Part(most=2).rest(ids) == Part(ids[-1], 2)
    assert Part(most=2).rest(ids[:1]) is None
    assert Part(most=2).rest([]) is None
    assert ALL.rest(ids) is None
