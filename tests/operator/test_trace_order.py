"""The life of a message over all nodes is in the order of time, and of one node's log in that of its rows."""

from __future__ import annotations

from typing import Any

import pytest

from shadowrelay.operator.tracing import cursor, in_order, places


def row(sequence: int, at: str, database: str = "d1") -> dict[str, Any]:
    return {"sequence": sequence, "at": at, "database_id": database}


def test_nodes_are_merged_by_time_and_a_clock_that_steps_back_reorders_no_node():
    ours = {"node": "mx1", "events": [row(3, "10:02"), row(1, "10:05"), row(2, "10:01"), row(2, "10:01")]}
    theirs = {"node": "mx2", "events": [row(9, "10:03"), row(10, "10:06")]}
    silent = {"node": "mx3", "answers": False}
    told = [(one["node"], one["sequence"]) for one in in_order([ours, theirs, silent])]
    assert told == [("mx2", 9), ("mx1", 1), ("mx1", 2), ("mx1", 3), ("mx2", 10)]


def test_a_cursor_says_for_each_node_where_older_files_begin():
    given = cursor([{"node": "mx1", "older": "7 a"}, {"node": "mx2", "older": ""}, {"node": "mx3"}])
    assert given is not None
    assert places(given) == {"mx1": "7 a"}
    assert cursor([{"node": "mx2", "older": ""}]) is None
    assert places("") == {}


@pytest.mark.parametrize("given", ["x", "[]", '{"mx1": 7}', '{"mx1": ""}'])
def test_what_is_no_cursor_is_refused(given):
    with pytest.raises(ValueError, match=r"cursor|Expecting"):
        places(given)
