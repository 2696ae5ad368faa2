"""What two situations must have in common to count as one: everything that can still make a difference.

A walk over whatever the simulation keeps: rows, the memory of processes, packets under way, and running
scripts with the place they are at. Moments count by how far they lie from now, and only so far. Nothing here
knows what a node does, so that a new field is part of it from the start.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from hashlib import blake2b
from types import BuiltinFunctionType, FunctionType, GeneratorType, MethodType
from typing import Any

from shadowrelay.core.boundary import Boundary
from shadowrelay.core.conversation import Greeting
from shadowrelay.core.decisions import Content
from shadowrelay.core.policy import Policy
from shadowrelay.core.shadow_servers import MemberPlace
from tests.simulation.books import MemoryBooks
from tests.simulation.checks import Invariants
from tests.simulation.node import Node, Task
from tests.simulation.peers import Peers
from tests.simulation.world import START, World

from .alone import Alone
from .stand_ins import Beyond, Elsewhere, Instant, cells, is_over

FAR = 5
"""Seconds: what lies further away than that is simply long ago, or far ahead."""

AGES = {"received_at", "created_at", "keep_until", "settled_at", "alive_at"}
"""Moments on which only expiry depends, which is not explored."""

WORDS = {"error", "last_reply", "reply"}
"""Texts for people."""

SESSIONS = {"session", "member"}
"""Variables of scripts that name a member with which there is a session."""

APART = {"world", "checks", "place", "policy", "others", "name", "sql", "offset", "commits", "books", "peers"}
APART |= {"snapshots", "generation"}
"""Of a node: what never changes, or says nothing about what it will do."""

LEAVES = (Policy, MemberPlace, Content, World, Invariants, MemoryBooks)


class Walk:
    """One walk; ``text`` is what it found."""

    def __init__(self, world: Alone) -> None:
        self.world = world
        self.now = float(world.now)
        self.out: list[str] = []
        self._node(world.node)
        for entry in sorted(world.todo, key=lambda entry: entry.at):
            self.out.append(str(entry.at - int(world.now)))
            self.see(entry.run)
            self.see(entry.arguments)
        self.see(world.calls)
        self.see(world.vain)
        self.see(world.blocked)

    def digest(self) -> bytes:
        return blake2b("\x1f".join(self.out).encode(), digest_size=12).digest()

    def moment(self, ahead: float) -> str:
        return f"@{max(-FAR, min(FAR, ahead)):g}"

    def see(self, value: Any) -> None:
        say = self.out.append
        kind = type(value)
        if kind is str:
            say(value)
        elif kind is Instant:
            say(self.moment(float(value) - self.now))
        elif value is None or kind in (int, bool, float, bytes):
            say(repr(value))
        elif kind is tuple or kind is list:
            say("(")
            for item in value:
                self.see(item)
            say(")")
        elif kind is dict:
            say("{")
            for key in sorted(value):
                self.see(key)
                self.see(value[key])
            say("}")
        elif kind in (set, frozenset):
            say(repr(sorted(value)))
        elif kind is datetime:
            say(self.moment((value - START).total_seconds() - self.now))
        elif kind is timedelta:
            say(str(value))
        elif isinstance(value, Enum):
            say(value.name)
        elif kind is FunctionType:
            self.function(value)
        elif kind is MethodType:
            say(value.__func__.__qualname__)
            self.see(value.__self__)
        elif kind is GeneratorType:
            self.script(value)
        elif kind in (Node, Elsewhere, Beyond):
            say(value.name)
        elif kind is Peers:
            say(value.node.name)
        elif kind is Task:
            say(str(value.generation == value.node.generation))
            say(value.node.name)
            self.see(value.script)
            self.see(value.done)
        elif kind is Boundary:
            self.boundary(value)
        elif isinstance(value, LEAVES):
            say(kind.__name__)
        elif is_dataclass(value):
            self.record(value)
        elif isinstance(value, BuiltinFunctionType | type):
            say(value.__qualname__)
        elif hasattr(value, "__reduce__") and kind.__name__.endswith("iterator"):
            self.see(value.__reduce__()[1:])
        elif isinstance(value, str):
            say(value)
        else:
            raise TypeError(f"no rule for {kind}")

    def record(self, value: Any) -> None:
        kind = type(value)
        self.out.append(kind.__name__)
        for name in _names(kind):
            if name == "heard_at" and len(self.world.places) == 2:
                continue  # read only when a third member asks, see ``Watch.sighted``
            if name == "failures":
                self.out.append(str(min(value.failures, self.world.policy.holder_loss_heartbeats)))
            else:
                self.see(getattr(value, name))

    def function(self, value: FunctionType) -> None:
        self.out.append(value.__qualname__)
        if is_over(value):
            return
        for name, content in cells(value):
            self._variable(name, content)
        for default in value.__defaults__ or ():
            self.see(default)

    def script(self, value: GeneratorType[Any, Any, Any]) -> None:
        """Where it is, and what it knows there."""
        self.out.append(value.__qualname__)
        frame = value.gi_frame
        if frame is None:
            return
        self.out.append(str(frame.f_lasti))
        known = frame.f_locals
        for name in sorted(known):
            self.out.append(name)
            self._variable(name, known[name])
        if value.gi_yieldfrom is not None:
            self.see(value.gi_yieldfrom)

    def _variable(self, name: str, value: Any) -> None:
        if name in SESSIONS and type(value) is Greeting:
            self._session(value.name, 0, value)
        else:
            self.see(value)

    def boundary(self, value: Boundary) -> None:
        self.see(value.watches)
        self.see({name: until for name, until in value._skipped.items() if until > self.now})
        self.see(value._turn % max(1, len(value.places)))

    def _node(self, node: Node) -> None:
        self.see(node.books.state)
        self.see(node.snapshots)
        if node.books.dirty:
            self.see(
                [(str(key), old if is_dataclass(old) else None) for key, old in node.books._undo.items()]
            )
        self.out.append(f"{node.up} {node.generation}")
        if not node.up:
            return
        for name, value in sorted(vars(node).items()):
            if name in APART:
                continue
            if name == "pump_at" and (value is None or value <= self.now):
                continue  # no look at the queue is planned, however that came about
            self.out.append(name)
            self.see(value)
        peers = node.peers
        for kind, sessions in (("open", peers.open), ("shadow", peers.shadow)):
            self.out.append(kind)
            for name, session in sorted(sessions.items()):
                self._session(name, session.number, session.theirs)
        self.out.append("speakers")
        for number, theirs in sorted(peers.speakers.items()):
            self._session(theirs.name, number, theirs)
        self.see(peers.wishes)

    def _session(self, name: str, number: int, theirs: Greeting) -> None:
        """Who is at its other end; how far that member was when it said so is of no more use."""
        self.out.append(f"{name} {number} {theirs.lineage.database_id} {theirs.lineage.incarnation}")


_FIELDS: dict[type, tuple[str, ...]] = {}


def _names(kind: type) -> tuple[str, ...]:
    if kind not in _FIELDS:
        _FIELDS[kind] = tuple(f.name for f in fields(kind) if f.name not in AGES and f.name not in WORDS)
    return _FIELDS[kind]
