"""What keeps an exploration small must not change what comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from . import boundary
from .alone import Alone, Event
from .automaton import Automaton, Memory
from .boundary import Boundary
from .keys import Walk
from .search import explore
from .setup import Setup
from .situation import Situation


@pytest.mark.slow
def test_a_frozen_process_answers_the_last_of_equal_requests_and_it_is_as_if_it_answered_each() -> None:
    memory = Memory()
    explore(Setup(faults=(("freeze mx2",),), grain="talks", at_once=True), most=6_000, memory=memory)
    merged = 0
    for automaton in memory.every():
        for state, event, given_up in requests_said_before(automaton):
            each, last = automaton.again(state), automaton.again(state)
            each._said_before = lambda *_: None  # type: ignore[method-assign]
            assert thawed(each, event, given_up) == thawed(last, event, given_up)
            merged += 1
    assert merged > 10


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["cut mx1 mx2", "content mx2", "row mx1", "page mx1"])
def test_whichever_way_a_node_came_to_a_state_it_does_the_same_from_there(fault: str) -> None:
    memory = Memory()
    explore(Setup(faults=((fault,),), grain="talks", at_once=True), most=9_000, memory=memory)
    compared = 0
    for automaton in memory.every():
        follows = {state: event for state, event, _, _ in automaton.known()}
        for state, event, after, _ in list(automaton.known())[::20]:
            if after not in follows:
                continue
            first, other = automaton.again(after), automaton.again(state)
            other.reach(event)
            other.sent.clear()
            first.sent.clear()
            for world in (first, other):
                world.reach(follows[after])
            assert (Walk(first).digest(), first.sent) == (Walk(other).digest(), other.sent)
            compared += 1
    assert compared > 50


@pytest.mark.slow
def test_forgotten_ages_change_nothing_that_members_and_packets_come_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setup, memory = Setup(faults=(("disk mx1",),), grain="talks", at_once=True), Memory()
    fewer = everything(Boundary(setup, memory))
    monkeypatch.setattr(boundary, "tidy", lambda at: at)
    more = everything(Boundary(setup, memory))
    assert len(fewer) < len(more)
    assert {without_ages(at) for at in fewer} == {without_ages(at) for at in more}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setup", "any_"),
    [
        (Setup(faults=(("disk mx1",),), grain="talks", at_once=True), True),
        (Setup(faults=(("hop",),), grain="packets", at_once=True), False),
    ],
    ids=["a process ended", "greetings under way"],
)
def test_sessions_that_nobody_uses_any_more_change_nothing_when_they_are_forgotten(
    monkeypatch: pytest.MonkeyPatch, setup: Setup, any_: bool
) -> None:
    memory = Memory()
    reduced = Boundary(setup, memory)
    fewer, forget = everything(reduced), reduced._hung_up
    monkeypatch.setattr(Boundary, "_hung_up", lambda _, at: at)
    more = everything(Boundary(setup, memory))
    assert (len(fewer) < len(more)) == any_
    assert {forget(at) for at in more} == fewer


@pytest.mark.slow
def test_policy_as_a_choice_is_both_policies_and_nothing_else() -> None:
    setup = Setup(faults=(("lost",),), grain="talks", at_once=True)
    accept, reject, either = (
        Boundary(replace(setup, reject=policy), Memory()) for policy in (False, True, None)
    )
    both = named(accept, everything(accept)), named(reject, everything(reject))
    assert named(either, everything(either)) == both[0] | both[1]
    assert both[1] - both[0]  # 451


@pytest.mark.slow
def test_second_faults_in_one_exploration_are_those_of_an_exploration_for_each() -> None:
    setup, memory = Setup(grain="talks", at_once=True), Memory()
    first, then = ("drain mx1",), ("disk mx1", "hop")
    together = everything(Boundary(replace(setup, faults=(first, then)), memory))
    apart = [everything(Boundary(replace(setup, faults=(first, (second,))), memory)) for second in then]
    assert together == apart[0] | apart[1]
    assert apart[0] - apart[1]
    assert apart[1] - apart[0]


@pytest.mark.slow
def test_a_second_fault_when_everything_is_settled_finds_nothing_that_it_could_harm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setup, memory = Setup(faults=(("drain mx1",), ("disk mx1",)), grain="talks", at_once=True), Memory()
    of = Boundary(setup, memory)
    fewer = everything(of)
    monkeypatch.setattr(Boundary, "_can_be_harmed", lambda *_: True)
    more = everything(Boundary(setup, memory))
    assert fewer < more
    for at in more - fewer:
        assert not any(view.stored.waiting for view in of.views(at))
        assert not any(packet[0] == "send" for _, packet in at.packets)
        assert len(at.taken) == 1


@pytest.mark.slow
def test_what_a_walk_remembers_of_rows_is_what_it_would_find() -> None:
    memory = Memory()
    explore(Setup(faults=(("disk mx2",),), grain="talks", at_once=True), most=3_000, memory=memory)
    for automaton in memory.every():
        for state in range(0, len(automaton.views), 7):
            assert automaton._numbers[Walk(automaton.again(state)).digest()] == state


@pytest.mark.slow
def test_a_node_that_was_put_away_is_the_same_and_goes_on_as_it_would_have() -> None:
    memory = Memory()
    explore(Setup(faults=(("hop",),), grain="talks", at_once=True), memory=memory)
    explore(Setup(faults=(("crash mx1",),), grain="talks", at_once=True), memory=memory)
    compared = dict.fromkeys(("taken", "answer", "step", "second"), 0)
    for automaton in memory.every():
        keys = {number: key for key, number in automaton._numbers.items()}
        reactions: dict[int, list[Event]] = {}
        for state, event, _, _ in automaton.known():
            reactions.setdefault(state, []).append(event)
        for state, kept in automaton._kept.items():
            if kept is None or not kept.restore().calls:
                continue
            assert Walk(kept.restore()).digest() == keys[state]
            for event in reactions[state]:
                if event[0] in compared and compared[event[0]] < 100:
                    one, other = kept.restore(), automaton.again(state)
                    for world in (one, other):
                        world.sent.clear()
                        world.reach(event)
                        world.reach(("second",))
                    assert (Walk(one).digest(), one.sent) == (Walk(other).digest(), other.sent)
                    compared[event[0]] += 1
    assert min(compared.values()) > 20


def named(of: Boundary, situations: set[Situation]) -> set[Situation]:
    """The same with what members are in, instead of numbers."""
    keys: Any = [{number: key for key, number in automaton._numbers.items()} for automaton in of.automata]
    return {
        at._replace(nodes=tuple(key[number] for key, number in zip(keys, at.nodes, strict=True)))
        for at in situations
    }


def everything(of: Boundary) -> set[Situation]:
    seen = {of.start()}
    queue = [*seen]
    for at in queue:
        for _, _, after in of.steps(at):
            if after not in seen:
                seen.add(after)
                if not (of.at_rest(after) and of.spent(after)):
                    queue.append(after)
    return seen


def without_ages(at: Situation) -> tuple[object, ...]:
    packets = tuple((late, packet[:-1] if packet[0] == "send" else packet) for late, packet in at.packets)
    return at.nodes, packets, at.mail, at.begun, at.fault, not at.taken


def requests_said_before(automaton: Automaton) -> Iterator[tuple[int, Event, set[tuple[Any, ...]]]]:
    """Reactions of that member in which one of two equal requests went away, and which call that was."""
    for state, event, _, sent in automaton.known():
        gone = {packet[1:] for packet in sent if packet[0] == "unanswered"}
        if event[0] == "request" and gone:
            yield state, event, gone


def thawed(world: Alone, event: Event, given_up: set[tuple[Any, ...]]) -> tuple[bytes, list[tuple[Any, ...]]]:
    """The state after that request and the end of the freeze, and what is said to those who still listen."""
    world.sent.clear()
    world.reach(event)
    world.reach(("thaw",))
    said = [packet for packet in world.sent if packet[0] != "unanswered"]
    return Walk(world).digest(), [p for p in said if p[0] != "answer" or p[3:6] not in given_up]
