"""Which members are told of something that every member is to know."""

from __future__ import annotations

from shadowrelay.core.identifiers import Incarnation, ServerName
from shadowrelay.members.telling import Telling

B = ServerName("mx2.example.org")
FIRST, LATER = Incarnation("a" * 16), Incarnation("b" * 16)


def test_a_member_is_told_once_and_again_after_a_while() -> None:
    telling = Telling[int](again=300.0)
    assert telling.due({B: FIRST}, 4, 0.0) == [B]
    telling.told(B, 4, FIRST, 0.0)
    assert telling.due({B: FIRST}, 4, 299.0) == []
    assert telling.due({B: FIRST}, 5, 299.0) == [B]
    assert telling.due({B: FIRST}, 4, 300.0) == [B]


def test_a_member_that_was_started_again_is_told_again_at_once() -> None:
    """Its database may be another one, or an older state of its own."""
    telling = Telling[int](again=300.0)
    telling.told(B, 4, FIRST, 0.0)
    assert telling.due({B: LATER}, 4, 1.0) == [B]


def test_a_member_that_could_not_be_reached_is_told_again() -> None:
    telling = Telling[int](again=300.0)
    telling.told(B, 4, FIRST, 0.0)
    assert telling.due({}, 4, 1.0) == []
    assert telling.due({B: FIRST}, 4, 2.0) == [B]
