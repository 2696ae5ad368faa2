"""Does mail flow? One sentence about all queues, and what keeps each."""

from __future__ import annotations

from typing import Any

import pytest
from nodes_told import a_queue

from shadowrelay.shown.flow_text import flow_sentence, held_up

SINCE = "2026-11-21T09:30:00.000Z"
SUSPENSION = {"operator": "carol", "reason": "a repair"}


@pytest.mark.parametrize(
    ("queue", "sentence", "text"),
    [
        ({}, "Mail flows", None),
        ({"status": "active"}, "Mail flows", None),
        ({"status": "retry"}, "Mail flows", None),
        (
            {"status": "retry", "last_error": "451 greylisted"},
            "Mail for 1 next hop waits: 1 message",
            "inside puts mail off: 1 message waits, the oldest from 09:00. Last error: 451 greylisted",
        ),
        (
            {"status": "resting", "failures": 3, "failing_since": SINCE, "last_error": "connect: refused"},
            "Mail for 1 next hop waits: 1 message",
            "inside fails since 09:30: 1 message waits, the oldest from 09:00. Last error: connect: refused",
        ),
        (
            {"status": "ready", "failures": 1},
            "Mail for 1 next hop waits: 1 message",
            "inside fails: 1 message waits, the oldest from 09:00",
        ),
        (
            {"status": "suspended", "suspension": SUSPENSION, "messages": 2, "failures": 1},
            "Mail flows, but for 1 next hop that is suspended",
            "inside: 2 messages wait, the oldest from 09:00. carol suspended it: a repair",
        ),
        (
            {"status": "suspended"},
            "Mail flows, but for 1 next hop that is suspended",
            "inside: 1 message waits, the oldest from 09:00. Each of its messages is suspended",
        ),
        (
            {"status": "ready", "overdue_since": SINCE},
            "Mail for 1 next hop waits: 1 message",
            "inside: 1 message waits, the oldest from 09:00. It is overdue since 09:30",
        ),
    ],
)
def test_what_keeps_a_queue_is_one_sentence(queue: dict[str, Any], sentence: str, text: str | None) -> None:
    held = held_up([a_queue("mx1.test", "inside", **queue)], lambda at: at[11:16])
    assert flow_sentence(held) == sentence
    assert [one.text for one in held] == ([] if text is None else [text])


def test_what_fails_comes_first_and_of_that_what_has_most_mail() -> None:
    def queue(hop: str, messages: int, **more: Any) -> dict[str, Any]:
        return a_queue("mx1.test", hop, messages=messages, **more)

    held = held_up(
        [
            queue("a", 90, status="suspended", suspension=SUSPENSION),
            queue("b", 1, failures=1),
            queue("c", 1200, failures=1),
            queue("d", 5),
        ]
    )
    assert [one.next_hop for one in held] == ["c", "b", "a"]
    assert flow_sentence(held) == "Mail for 2 next hops waits: 1,201 messages"
