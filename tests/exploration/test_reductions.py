"""What keeps an exploration small must not change what comes of it."""

from __future__ import annotations

from typing import Any

from .alone import Alone
from .automaton import Automaton, Memory
from .keys import Walk
from .search import explore
from .setup import Setup


def test_a_frozen_process_answers_the_last_of_equal_requests_and_it_is_as_if_it_answered_each() -> None:
    memory = Memory()
    explore(Setup(faults=(("freeze mx2",),), grain="talks", at_once=True), most=6_000, memory=memory)
    merged = 0
    for automaton in memory.every():
        for (state, event), given_up in requests_said_before(automaton):
            each, last = automaton.again(state), automaton.again(state)
            each._said_before = lambda *_: None  # type: ignore[method-assign]
            assert thawed(each, event, given_up) == thawed(last, event, given_up)
            merged += 1
    assert merged > 10


def requests_said_before(automaton: Automaton) -> Any:
    """Reactions of that member in which one of two equal requests went away, and the numbers of that one."""
    for key, found in automaton.known():
        gone = {packet[1:] for packet in found if packet[0] == "unanswered"}
        if key[1][0] == "request" and gone:
            yield key, gone


def thawed(world: Alone, event: tuple[Any, ...], given_up: Any) -> tuple[bytes, list[tuple[Any, ...]]]:
    """The state after that request and the end of the freeze, and what is said to those who still listen."""
    world.sent.clear()
    world.reach(event)
    world.reach(("thaw",))
    said = [packet for packet in world.sent if packet[0] != "unanswered"]
    return Walk(world).digest(), [p for p in said if p[0] != "answer" or p[3:6] not in given_up]
