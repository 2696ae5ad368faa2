"""Text of a row that cannot be taken for something else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from ledger_at_hand import message

from shadowrelay.core.tracking_row import entries, fork, listed, numbers, timestamp


def test_a_member_with_a_semicolon_is_one_member() -> None:
    assert listed(["a", "b;c", "d"]) == "a;'b;c';d"


def test_a_value_cannot_forge_another_entry_and_an_empty_one_is_left_out() -> None:
    assert (
        entries({"Epoch": "1", "None": "", "Reason": "x;S:Epoch=2"}) == "S:Epoch=1;S:Reason=x\\x3bS:Epoch=2"
    )


def test_a_moment_is_written_in_utc_with_milliseconds() -> None:
    there = datetime(2030, 1, 1, 2, 0, 0, 1999, tzinfo=timezone(timedelta(hours=2)))
    assert timestamp(there) == timestamp(there.astimezone(UTC)) == "2030-01-01T00:00:00.001Z"


def test_a_fork_is_named_by_its_first_recipient_wherever_that_one_stands() -> None:
    recipients = message().recipients
    assert (fork(recipients[::-1]), numbers(recipients)) == ("1", "1+2")
    assert fork(()) == ""
