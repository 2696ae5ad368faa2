"""What two situations must have in common to count as one: everything that can still make a difference.

A walk over whatever the simulation keeps: rows, the memory of processes, packets under way, and running
scripts with the place they are at. Moments count by how far they lie from now, and only so far. Nothing here
knows what a node does, so that a new field is part of it from the start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from hashlib import blake2b
from types import BuiltinFunctionType, CoroutineType, FunctionType, MethodType
from typing import Any

from shadowrelay.core.decisions import Content
from shadowrelay.core.members.conversation import Greeting
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.shadow_servers import MemberPlace
from shadowrelay.core.requests import Progress, Request
from shadowrelay.members.boundary import Boundary, Candidates
from shadowrelay.members.effective_policy import EffectivePolicy
from shadowrelay.members.record_replication import Spread
from shadowrelay.safety_net.resubmitting import Pace
from tests.simulation.checks import Invariants
from tests.simulation.clocks import NodesClock
from tests.simulation.memory_ledger import MemoryLedger
from tests.simulation.node import Node, Task
from tests.simulation.peers import Peers, Session
from tests.simulation.world import START, World

from .alone import Alone, Patient
from .stand_ins import Beyond, Elsewhere, Instant, Reply, cells, is_over

FAR = 5
"""Seconds: what lies further away than that is simply long ago, or far ahead."""

AGES = {
    "received_at",
    "created_at",
    "keep_until",
    "settled_at",
    "alive_at",
    "renewed_at",
    "found_at",
    "reckoning",
}
"""Moments on which only expiry depends, which is not explored, or nothing."""

WORDS = {"error", "last_reply", "reply"}
"""Texts for people."""

SESSIONS = {"session", "member"}
"""Variables of scripts that name a member with which there is a session."""

APART = {
    "world",
    "checks",
    "place",
    "policy",
    "others",
    "name",
    "sql",
    "machine",
    "time",
    "doubts",
    "commits",
    "ledger",
    "peers",
}
APART |= {"snapshots", "generation", "versions", "ticks"}
"""Of a node: what never changes, or says nothing about what it will do."""

LEAVES = (Policy, MemberPlace, Content, World, Invariants, MemoryLedger)


Rows = dict[int, tuple[Any, float | None, str]]
"""Values that never change, each with what a walk found in it, and when, if moments are part of that."""

ROWS = 20_000
"""So many are remembered."""


class Walk:
    """One walk; ``rows``: what earlier ones of the same member found in values that never change."""

    def __init__(self, world: Alone, rows: Rows | None = None) -> None:
        self.world = world
        self.now = float(world.now)
        self.out: list[str] = []
        self.rows: Rows = {} if rows is None else rows
        self.timeless = True  # no moment was come across
        if len(self.rows) > ROWS:
            self.rows.clear()
        self._node(world.node)
        for entry in sorted(world.todo, key=lambda entry: entry.at):
            self.out.append(str(entry.at - int(world.now)))
            self.see(entry.run)
            self.see(entry.arguments)
        self.see(world.calls)
        self.see(world.vain)
        self.see(world.blocked)
        self.see(world.page)
        self.see(world.stale)
        self.see(world.hit)
        self.see(world.node.checks.logged)

    def digest(self) -> bytes:
        return blake2b("\x1f".join(self.out).encode(), digest_size=12).digest()

    def moment(self, ahead: float) -> str:
        self.timeless = False
        return f"@{max(-FAR, min(FAR, ahead)):g}"

    def see(self, value: Any) -> None:
        kind = type(value)
        if kind is str:
            self.out.append(value)
        elif kind is Instant:
            self.out.append(self.moment(float(value) - self.now))
        else:
            rule = _RULES.get(kind)
            if rule is None:
                rule = _RULES[kind] = rule_for(kind)
            rule(self, value)

    def plain(self, value: Any) -> None:
        self.out.append(repr(value))

    def text(self, value: Any) -> None:
        self.out.append(str(value))

    def name(self, value: Any) -> None:
        self.out.append(value.name)

    def sequence(self, value: Any) -> None:
        self.out.append("(")
        for item in value:
            self.see(item)
        self.out.append(")")

    def mapping(self, value: Any) -> None:
        self.out.append("{")
        for key in sorted(value):
            self.see(key)
            self.see(value[key])
        self.out.append("}")

    def crowd(self, value: Any) -> None:
        self.out.append(repr(sorted(value)))

    def date(self, value: datetime) -> None:
        self.out.append(self.moment((value - START).total_seconds() - self.now))

    def method(self, value: MethodType) -> None:
        self.out.append(value.__func__.__qualname__)
        self.see(value.__self__)

    def partly(self, value: partial[Any]) -> None:
        self.see(value.func)
        self.see(value.args)
        self.see(value.keywords)

    def session(self, value: Session) -> None:
        self._session(value.theirs.name, value.number, value.theirs)

    def sessions(self, value: Peers) -> None:
        self.out.append(value.node.name)

    def task(self, value: Task) -> None:
        self.out.append(str(value.generation == value.node.generation))
        self.out.append(value.node.name)
        self.see(value.script)
        self.see(value.done)

    def leaf(self, _: Any) -> None:
        self.out.append("as ever")

    def title(self, value: Any) -> None:
        self.out.append(value.__qualname__)

    def iterator(self, value: Any) -> None:
        self.see(value.__reduce__()[1:])

    def row(self, value: Any) -> None:
        """A record that never changes: what is found in it depends on nothing but the time, if on that."""
        known = self.rows.get(id(value))
        if known is not None and (known[1] is None or known[1] == self.now):
            self.timeless = self.timeless and known[1] is None
            self.out.append(known[2])
            return
        out, timeless, self.out, self.timeless = self.out, self.timeless, [], True
        self.record(value)
        text = "\x1f".join(self.out)
        self.rows[id(value)] = (value, None if self.timeless else self.now, text)
        self.out, self.timeless = out, timeless and self.timeless
        self.out.append(text)

    def record(self, value: Any) -> None:
        kind = type(value)
        self.out.append(kind.__name__)
        for name in _names(kind):
            if name == "heard_at" and len(self.world.places) == 2:
                continue  # read only when a third member asks, see ``Watch.sighted``
            if name == "broken_at":  # what was asked for was settled before all of them
                self.out.append(str(value.broken_at is None))
            elif name == "failures":
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

    def script(self, value: CoroutineType[Any, Any, Any]) -> None:
        """Where it is, and what it knows there."""
        self.out.append(value.__qualname__)
        frame = value.cr_frame
        if frame is None:
            return
        self.out.append(str(frame.f_lasti))
        known = frame.f_locals
        for name in sorted(known):
            self.out.append(name)
            self._variable(name, known[name])
        if type(value.cr_await) is CoroutineType:  # a script within; of a step the place says enough
            self.see(value.cr_await)

    def _variable(self, name: str, value: Any) -> None:
        if name in SESSIONS and type(value) is Greeting:
            self._session(value.name, 0, value)
        else:
            self.see(value)

    def request(self, value: Request) -> None:
        self.out.append(f"{value.id} {value.state} {value.revision} {value.gone}")

    def progress(self, value: Progress) -> None:
        """How much was made is for people, and in what is told to members."""
        place = value.place.after
        self.out.append(f"{value.owner} {place} {value.made} {value.skipped} {value.done} {value.whole}")

    def spread(self, value: Spread) -> None:
        """The members that have the records, and of the others since when they are waited for."""
        for name, given in sorted(value.given.items()):
            self.out.append(f"{name} {sorted(given.news)} {given.at is None}")
            if given.at is None:
                self.see(given.since)

    def in_force(self, value: EffectivePolicy) -> None:
        """All nodes have one settings file: what was switched is the rest."""
        self.see(value.switches)

    def pace(self, value: Pace) -> None:
        rate = value.policy.resubmit_rate
        self.plain(min(rate, value._allowance + rate * (self.now - float(value.refilled))))

    def boundary(self, value: Boundary) -> None:
        self.see(value.watches)
        self.see(self._to_come(value._skipped))
        self.see(value._silences)
        self.see(value._turn % max(1, len(value.places)))

    def candidates(self, value: Candidates) -> None:
        """Of what its member has skipped, that what was so when it began or later."""
        boundary = value.boundary
        self.out.append(f"{value.turn % max(1, len(boundary.places))}")
        self.see(value.first)
        self.crowd({name for name, until in boundary._skipped.items() if until > value.began})

    def _to_come(self, moments: dict[Any, float]) -> dict[Any, float]:
        return {key: at for key, at in moments.items() if at > self.now}

    def _node(self, node: Node) -> None:
        state = node.ledger.state
        self.see(state)
        for request in state.requests.values():  # moments of settlement count for nothing else
            for copy in (*state.copies.values(), *state.rotten.values()):
                covered = [r.number for r in copy.recipients if request.selector.covers(r.settled_at)]
                self.out.append(f"{copy.id} {covered}")
        self.see(node.snapshots)
        if node.ledger.dirty:
            self.see(
                [(str(key), old if is_dataclass(old) else None) for key, old in node.ledger._undo.items()]
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
            self.see(self._to_come(value) if name == "promised" else value)
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

    def clock(self, clock: NodesClock) -> None:
        """No clock steps here. It is asked whether the node was away for long, and may not know it yet."""
        self.see(clock.reckoning.away is None)


def rule_for(kind: type) -> Callable[[Walk, Any], None]:
    """How values of that type are looked at."""
    for kinds, rule in EXACTLY.items():
        if kind in kinds:
            return rule
    if issubclass(kind, Enum):
        return Walk.name
    if issubclass(kind, LEAVES):
        return Walk.leaf
    if is_dataclass(kind):
        frozen = kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
        return Walk.row if frozen and kind is not Reply else Walk.record
    if issubclass(kind, BuiltinFunctionType | type):
        return Walk.title
    if kind.__name__.endswith("iterator"):
        return Walk.iterator
    if issubclass(kind, str):
        return Walk.text
    if issubclass(kind, tuple):
        return Walk.sequence
    raise TypeError(f"no rule for {kind}")


EXACTLY: dict[tuple[type, ...], Callable[[Walk, Any], None]] = {
    (type(None), int, bool, float, bytes): Walk.plain,
    (tuple, list): Walk.sequence,
    (dict,): Walk.mapping,
    (set, frozenset): Walk.crowd,
    (datetime,): Walk.date,
    (timedelta,): Walk.text,
    (FunctionType,): Walk.function,
    (MethodType,): Walk.method,
    (partial,): Walk.partly,
    (CoroutineType,): Walk.script,
    (Node, Patient, Elsewhere, Beyond): Walk.name,
    (Peers,): Walk.sessions,
    (Session,): Walk.session,
    (Task,): Walk.task,
    (Boundary,): Walk.boundary,
    (Request,): Walk.request,
    (Progress,): Walk.progress,
    (Pace,): Walk.pace,
    (Spread,): Walk.spread,
    (EffectivePolicy,): Walk.in_force,
    (Candidates,): Walk.candidates,
    (NodesClock,): Walk.clock,
}

_RULES: dict[type, Callable[[Walk, Any], None]] = {}
_FIELDS: dict[type, tuple[str, ...]] = {}


def _names(kind: type) -> tuple[str, ...]:
    if kind not in _FIELDS:
        _FIELDS[kind] = tuple(f.name for f in fields(kind) if f.name not in AGES and f.name not in WORDS)
    return _FIELDS[kind]
