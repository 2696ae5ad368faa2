"""What each node does with whatever reaches it, worked out once.

A node's reaction depends on its own state and on nothing else. So the boundary is explored as several
automata that exchange packets: each reaction is found by running the simulation's node (from its beginning,
along the shortest way known), and remembered. The many situations of a whole boundary are then put together
from few states of its members.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import Any

from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.shadow_servers import MemberPlace
from shadowrelay.core.reckoning import Endings
from tests.simulation.checks import Broken
from tests.simulation.memory_ledger import Disagreement

from .alone import Alone, Event
from .checkpoint import Checkpoint, keep
from .keys import Rows, Walk
from .stand_ins import Due, cells, is_over
from .stored import Stored, stored

LIVE = 2_000
"""States of which nodes are kept running, so that the way to them need not be gone again."""

ALIKE = 4
"""Nodes of one state that are."""

Packet = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class View:
    """One state of a node, as far as the rest of the boundary has to know it."""

    node: Any  # shaped like a Node, for the rules of the simulation
    up: bool
    frozen: bool
    generation: int
    dirty: bool
    steps: tuple[str, ...]
    stored: Stored
    incarnation: str  # the one that runs, or ran last
    met: frozenset[tuple[str, str]]  # members and their incarnations, as far as this disk knows
    given_up: tuple[int, ...]  # calls on whose answers nobody waits any more
    used: frozenset[int]  # sessions that this process has opened, or is opening
    served: tuple[int, ...]  # sessions that others opened
    contacts: tuple[tuple[str, float], ...]  # members that answered and can be reached: seconds since


class Automaton:
    """One member: its states by number, and what leads from which to which."""

    def __init__(
        self, policy: Policy, places: tuple[MemberPlace, ...], index: int, *, commits_apart: bool
    ) -> None:
        self._make = lambda: Alone(policy, places, index, commits_apart=commits_apart)
        self._numbers: dict[bytes, int] = {}
        self._reactions: dict[tuple[int, Event], tuple[int, tuple[Packet, ...]] | str] = {}
        self._ways: list[tuple[int, Event]] = []
        self._live: dict[int, list[Alone]] = {}
        self._rows: Rows = {}
        self._kept: dict[int, Checkpoint | None] = {}
        self.views: list[View] = []

    def begin(self, event: Event) -> int:
        """The state after this first event."""
        world = self._make()
        world.reach(event)
        return self._number(world, -1, event)

    def react(self, state: int, event: Event) -> tuple[int, tuple[Packet, ...]]:
        """The state after that event, and what the node sent. Raises Broken where a rule falls."""
        known = self._reactions.get((state, event))
        if known is None:
            known = self._reactions[state, event] = self._found(state, event)
        if isinstance(known, str):
            raise Broken(known)
        return known

    def _found(self, state: int, event: Event) -> tuple[int, tuple[Packet, ...]] | str:
        world = self._world(state)
        if state not in self._kept:
            self._kept[state] = keep(world)
        world.sent.clear()
        try:
            world.reach(event)
        except (Broken, Disagreement) as error:
            return str(error)
        sent = tuple(world.sent)
        return self._number(world, state, event), sent

    def known(self) -> Iterator[tuple[int, Event, int, tuple[Packet, ...]]]:
        """Reactions found so far: in which state, to what, the state after it, and what was sent."""
        for (state, event), found in self._reactions.items():
            if not isinstance(found, str):
                yield state, event, *found

    def again(self, state: int) -> Alone:
        """A node of its own in that state, whatever else runs."""
        events = []
        while state >= 0:
            state, event = self._ways[state]
            events.append(event)
        world = self._make()
        for event in reversed(events):
            world.reach(event)
        return world

    def _world(self, state: int) -> Alone:
        """A node in that state. It goes the way there again from wherever a node still runs, or was kept."""
        events = []
        while state >= 0 and state not in self._live and self._kept.get(state) is None:
            state, event = self._ways[state]
            events.append(event)
        kept = self._kept.get(state)
        world = self._alive(state) or (kept.restore() if kept else self._make())
        for event in reversed(events):
            world.reach(event)
        return world

    def _alive(self, state: int) -> Alone | None:
        """One that runs is used up: it goes on from there."""
        worlds = self._live.get(state)
        if not worlds:
            return None
        world = worlds.pop()
        if not worlds:
            del self._live[state]
        return world

    def _keep_alive(self, state: int, world: Alone) -> None:
        """Whichever way it came there, it will do the same as any other in that state."""
        worlds = self._live.setdefault(state, [])
        if len(worlds) < ALIKE:
            worlds.append(world)
        else:
            world.end()
        if len(self._live) > LIVE:
            for old in self._live.pop(next(iter(self._live))):
                old.end()

    def _number(self, world: Alone, before: int, event: Event) -> int:
        key = Walk(world, self._rows).digest()
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.views)
            self._ways.append((before, event))
            self.views.append(view(world))
        self._keep_alive(number, world)
        return number


class Memory:
    """What is known of the members' reactions, for explorations that come one after the other."""

    def __init__(self) -> None:
        self._automata: dict[Any, list[Automaton]] = {}

    def automata(
        self, policy: Policy, places: tuple[MemberPlace, ...], *, commits_apart: bool
    ) -> list[Automaton]:
        key = (policy, places, commits_apart)
        if key not in self._automata:
            self._automata[key] = [
                Automaton(policy, places, index, commits_apart=commits_apart) for index in range(len(places))
            ]
        return self._automata[key]

    def every(self) -> Iterator[Automaton]:
        for team in self._automata.values():
            yield from team


def view(world: Alone) -> View:
    node = world.node
    state = node.ledger.state.snapshot()
    shape = SimpleNamespace(
        name=node.name,
        place=node.place,
        up=node.up,
        frozen=node.frozen,
        in_flight=node.up and bool(node.in_flight),
        active=node.up and bool(node.active),
        repairing=node.up and bool(node.repairing),
        ledger=SimpleNamespace(state=state, dirty=node.ledger.dirty),
        boundary=SimpleNamespace(watches=dict(node.boundary.watches)) if node.up else None,
        clock=partial(_same, node.clock()),
        time=SimpleNamespace(endings=partial(_same, Endings(node.clock()))),
    )
    return View(
        node=shape,
        up=node.up,
        frozen=node.frozen,
        generation=node.generation,
        dirty=node.ledger.dirty,
        steps=tuple(name_of(entry, node.name) for entry in world.steps()),
        stored=stored(world),
        incarnation=str(state.incarnations[-1][0]) if state.incarnations else "",
        met=frozenset((str(m.name), str(m.lineage.incarnation)) for m in state.known.values() if m.lineage),
        given_up=tuple(sorted(number for number, reply in world.calls.items() if is_over(reply))),
        used=world.used() if node.up else frozenset(),
        served=tuple(sorted(node.peers.speakers)) if node.up else (),
        contacts=tuple(
            (str(name), float(world.now) - float(watch.contact_at))
            for name, watch in (node.boundary.watches.items() if node.up else ())
            if watch.reachable and watch.contact_at is not None
        ),
    )


def _same(moment: datetime) -> datetime:
    return moment


def name_of(entry: Due, node: str) -> str:
    """A step of a process, in words."""
    inner = entry.arguments[1] if len(entry.arguments) > 1 else entry.run
    name = getattr(inner, "__name__", "")
    if name == "_talk":
        return f"{node} turns to {entry.arguments[2][0]}"
    words = {
        "finish": "gives up waiting",
        "_commit": "commits",
        "pump": "looks at its queue",
        "resume": "asks again",
    }
    if name in words:
        return f"{node} {words[name]}"
    known = dict(cells(entry.run)) if isinstance(entry.run, FunctionType) else {}
    return f"{node} reads the next hop's reply" if "noted" in known else f"{node} {name}"
