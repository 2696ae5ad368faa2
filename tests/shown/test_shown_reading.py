"""An answer is read into its model, and what is not told stays unknown: in text, in sums, in folds."""

from __future__ import annotations

from typing import Any

import pytest
from nodes_told import a_status

from shadowrelay.shown.fold import fold
from shadowrelay.shown.messages import MessageAnswer, MessageEntry
from shadowrelay.shown.nodes import StatusesAnswer
from shadowrelay.shown.reading import NOT_TOLD_NUMBER, as_told, is_told, read, untold
from shadowrelay.shown.status import StatusEntry

NODE = "mx1.test"


def without(*fields: str, **more: Any) -> dict[str, Any]:
    found: Any = read(StatusEntry, a_status(NODE, **more))
    for field in fields:
        del found[field]
    return dict(read(StatusEntry, found))


def test_a_number_that_is_not_told_is_no_zero_and_makes_no_sum():
    unknown = NOT_TOLD_NUMBER
    assert bool(unknown)
    assert (str(unknown), f"{unknown:>5,}", f"{unknown:.0%}") == ("?", "    ?", "?")
    assert [is_told(one) for one in (sum([1, unknown]), unknown - 1, -unknown)] == [False] * 3
    assert not any((unknown > 0, unknown < 0, unknown == 0, unknown >= 0, unknown <= 0))
    assert list(unknown) == []


def test_what_an_answer_lacks_is_not_told_and_a_second_reading_changes_nothing():
    found = without("exposed", "peers", "version", "scrub")
    assert {one.partition(".")[0] for one in untold(found)} >= {"version", "exposed", "peers", "scrub"}
    again = read(StatusEntry, dict(found))
    assert untold(again) == untold(found)
    assert "exposed" not in as_told(found)
    assert as_told(found)["queued"] == 0


def test_null_where_a_value_has_to_be_is_not_told_either():
    found = read(StatusEntry, a_status(NODE) | {"queued": None, "oldest_queued": None})
    assert not is_told(found["queued"])
    assert found["oldest_queued"] is None


@pytest.mark.parametrize(
    ("field", "told", "sure"),
    [("exposed", 3, False), ("draining", True, False), ("draining", False, True), ("ready", False, False),
     ("ready", True, True), ("uptime", 5.0, True), ("oldest_queued", "2026-11-21T09:00:00.000Z", True)],
)  # fmt: skip
def test_of_two_workers_of_which_one_does_not_tell_only_what_is_sure_is_told(
    field: str, told: Any, sure: bool
):
    first, second = without(**{field: told}), without(field)
    for each in ([first, second], [second, first]):
        found: Any = fold(StatusEntry, each, NODE)[field]  # type: ignore[literal-required]
        assert (found == told) if sure else not is_told(found)


def test_a_node_that_does_not_answer_lacks_nothing():
    silent = {"node": NODE, "answers": False, "why": "it is silent"}
    found = read(
        StatusesAnswer, {"node": NODE, "nodes": [silent, {"node": "mx2", "answers": True, "why": ""}]}
    )
    assert found["nodes"][0] == silent
    assert {one.split(".")[0] for one in untold(found)} == {"nodes[]"}


def test_a_message_is_read_as_what_it_is():
    gone = {"id": "1", "state": "gone", "damage": None, "outcome": None, "revoked": None,
            "handed_over_by": None, "crashes": []}  # fmt: skip
    assert untold(read(MessageAnswer, dict(gone))) == []  # type: ignore[type-var]
    whole: Any = read(MessageEntry, {})
    del whole["rank"]
    assert "rank" in untold(read(MessageAnswer, whole))  # type: ignore[type-var]
