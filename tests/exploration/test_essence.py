"""Situations that count as one lead to situations that count as one, and break the same rules."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.checks import Broken

from .automaton import Memory
from .boundary import Boundary
from .essence import Essence
from .search import explore
from .setup import Setup
from .situation import Known, Situation, Taken, Wrong

CUTS = ("cut mx1 mx2", "cut mx1 > mx2", "cut mx2 > mx1")
WHOSE = ("m1", 1)


def after(first: str, *then: str) -> Setup:
    return Setup(faults=((first,), then), grain="talks", at_once=True, reject=None, causes=False)


def compared(setup: Setup, most: int) -> tuple[int, int]:
    """How many situations counted as one that was there already, and how many of these went on otherwise.

    All are gone on from, the merged ones too.
    """
    of = Boundary(setup, Memory())
    essence = Essence(of.policy)
    known: dict[Any, tuple[Any, ...]] = {}

    def what_counts(at: Situation) -> tuple[Any, ...]:
        if (at.packets, at[2:]) not in known:
            known[at.packets, at[2:]] = essence(at)
        return at.nodes, *known[at.packets, at[2:]]

    start = of.start()
    seen, queue, futures, merged, otherwise = {start}, [start], dict[Any, set[Any]](), 0, 0
    for at in queue:
        if len(seen) > most:
            break
        future = set()
        for move in of.moves(at):
            try:
                next_ = of.make(at, move)
            except Broken as error:
                future.add(str(error).split(" for ")[0])
                continue
            future.add(what_counts(next_))
            if next_ not in seen:
                seen.add(next_)
                queue.append(next_)
        if what_counts(at) in futures:
            merged += 1
            otherwise += futures[what_counts(at)] != future
        futures.setdefault(what_counts(at), future)
    return merged, otherwise


@pytest.mark.slow
@pytest.mark.parametrize(
    "setup",
    [
        after("crash mx1", *CUTS),
        after("cut mx1 mx2", "rollback mx1", "rollback mx2"),
        after("disk mx1", "freeze mx1", "freeze mx2"),
        after("freeze mx1", "lost", "late"),
        after("lost", "crash mx1", "disk mx2"),
        after("freeze mx2", "hop"),
        after("row mx1", "crash mx1"),
        after("page mx1", "disk mx2", "crash mx2"),
    ],
    ids=lambda setup: setup.title,
)
def test_situations_that_count_as_one_have_the_same_future(setup: Setup) -> None:
    merged, otherwise = compared(setup, 12_000)
    assert merged > 100
    assert not otherwise


@pytest.mark.slow
def test_what_is_forgotten_too_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Essence, "_knowing", lambda *_: None)
    assert compared(after("crash mx1", *CUTS), 12_000)[1] > 0


@pytest.mark.slow
def test_fewer_situations_stand_for_all_and_end_as_they_do() -> None:
    apart, merged = (
        explore(Setup((("drain mx1",), ("disk mx1", "hop")), grain="talks", at_once=True, causes=causes))
        for causes in (True, False)
    )
    assert apart.complete
    assert merged.complete
    assert merged.states < apart.states
    assert merged.begun.keys() == apart.begun.keys()


def settled_at(since: int, *wrong: Wrong, begun: int | None = None) -> Situation:
    """mx2 knows m1 to be settled since then; mx1 began to send it so long ago."""
    sends = [(False, ("send", "mx1", 1, 9, "m1", "example.net", (1,), begun))] if begun is not None else []
    return Situation(
        (0, 0), tuple(sends), taken=(Taken(*WHOSE, "mx2", reply_lost=False),),
        known=(Known(*WHOSE, "mx2", since),), wrong=wrong,
    )  # fmt: skip


def test_what_a_verdict_asks_tells_situations_apart() -> None:
    of = Essence(Boundary(after("hop", "hop"), Memory()).policy)
    over = Wrong("partition", "mx1", "mx2", start=4, end=1, long=False)
    assert of(settled_at(2, over)) == of(settled_at(3, over))  # both can be asked since the link is whole
    assert of(settled_at(1)) != of(settled_at(2))
    assert of(settled_at(5)) == of(settled_at(6))  # long enough
    lasts = over._replace(end=None)
    assert of(settled_at(2, lasts)) == of(settled_at(3, lasts))
    assert of(settled_at(2, lasts)) != of(settled_at(2, over))
    crash = Wrong("crash", "mx1", None, start=5, end=2)
    assert of(settled_at(3, crash)) != of(settled_at(2, crash))  # it should ask about what was known before
    assert of(settled_at(6, begun=0)) != of(settled_at(6, begun=1))  # would be wrong: nothing is forgotten
    assert of(settled_at(3, over, begun=2)) == of(settled_at(3, over, begun=3))  # neither would be wrong
