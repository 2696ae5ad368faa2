"""What surrounds a single node: stand-ins for other members, next hops, chance; and looks into closures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from shadowrelay.core.identifiers import MessageId, NextHop, ServerName
from shadowrelay.core.messages import Copy
from shadowrelay.core.policy import Policy
from shadowrelay.wire.xshadow import milliseconds
from tests.simulation.checks import Invariants, describe
from tests.simulation.node import Node
from tests.simulation.peers import Peers
from tests.simulation.world import START

if TYPE_CHECKING:
    from .alone import Alone


class Instant(float):
    """A moment of the world's clock. A class of its own, so that moments and durations are told apart."""

    __slots__ = ()

    def __add__(self, other: float) -> Instant:
        return Instant(float(self) + other)

    __radd__ = __add__

    def __sub__(self, other: float) -> float:  # type: ignore[override]
        gap = float(self) - float(other)
        return gap if isinstance(other, Instant) else Instant(gap)


EXCHANGE = Peers.exchange.__qualname__


class OpenPolicy(Policy):
    """Policy that leaves it open whether an exposed message is rejected. It notes that it was asked."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(**{name: getattr(policy, name) for name in policy.__dataclass_fields__})
        self.answer(reject=False)

    def answer(self, *, reject: bool) -> None:
        """What it says from now on."""
        object.__setattr__(self, "_answer", reject)
        object.__setattr__(self, "asked", False)

    @property
    def reject_message_on_shadow_failure(self) -> bool:  # type: ignore[override]
        object.__setattr__(self, "asked", True)
        return bool(self._answer)

    @reject_message_on_shadow_failure.setter
    def reject_message_on_shadow_failure(self, _: bool) -> None:
        """Left open."""


class Midway:
    """Stands in for chance: always the same, in the middle."""

    def random(self) -> float:
        return 0.5

    def randrange(self, _: int) -> int:
        return 0


@dataclass(slots=True, eq=False)
class Due:
    """One thing that this process will do."""

    run: Callable[..., None]
    arguments: tuple[Any, ...]
    at: int


_AGE = re.compile(rb"( XSHADOW=(?:[^;]+;){4})[0-9]+;")


def ageless(line: bytes) -> bytes:
    """MAIL of an offer with an age of nothing: on its age depends only when a message expires, which is not
    explored. With it the same packet would be another one every second, and would say more than that: members
    count seconds from when their states were first come across, which is not the same for all of them.
    """
    return _AGE.sub(rb"\g<1>0;", line, count=1) if line.startswith(b"MAIL ") else line


_WHEN = re.compile(r"@([0-9]{12,15})\b")
BEFORE = milliseconds(START)
AFTER = milliseconds(START + timedelta(hours=1))


def timeless(line: str) -> str:
    """Of when recipients were settled a line says only: before the exploration began, or in it. What is asked
    of Safety Net was settled before.
    """
    if "@" not in line:
        return line
    return _WHEN.sub(lambda found: found[0] if int(found[1]) == BEFORE else f"@{AFTER}", line)


def constant(line: str | bytes) -> str | bytes:
    """The line, without what differs from second to second."""
    if isinstance(line, str):
        return timeless(line)
    if line.startswith(b"RCPT "):
        return timeless(line.decode()).encode()
    return ageless(line)


@dataclass(slots=True)
class Elsewhere:
    """Another member, as far as this node can tell: whatever is said to it leaves as a packet."""

    world: Alone
    name: ServerName
    up: bool = True
    generation: int = 0

    @property
    def peers(self) -> Elsewhere:
        return self

    def serve(self) -> None:
        """Never run here."""

    def reset_from(self) -> None:
        """Never run here: a killed node's packets and resets are the explorer's."""

    def attend(self, _: Any, session: int, lines: tuple[Any, ...], reply: Callable[..., None]) -> None:
        world = self.world
        number = world.call(reply, session)
        said = tuple(constant(line) for line in lines)
        world.put("request", world.me, world.node.generation, number, self.name, session, said)


@dataclass(slots=True)
class Beyond:
    """A next hop: the same."""

    world: Alone
    name: NextHop
    delay: tuple[float, float] = (0.01, 0.01)

    def hangs(self) -> float:
        """An attempt that has begun has begun its content: what takes time is the next hop's answer."""
        return 0.0

    def take(self) -> None:
        """Never run here."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Takes the answer to a request of another member."""

    world: Alone
    to: ServerName
    generation: int
    number: int

    def __call__(self, answer: tuple[str, ...]) -> None:
        world = self.world
        if (world.me, self.to) in world.blocked:
            world.put("unanswered", self.to, self.generation, self.number)
        else:
            world.put(
                "answer",
                world.me,
                world.node.generation,
                self.to,
                self.generation,
                self.number,
                tuple(timeless(line) for line in answer),
            )


class Rules(Invariants):
    """The rules that concern one node; those of the whole boundary are the explorer's."""

    world: Alone

    def available(self, message_id: MessageId) -> None:
        """Asked of the whole boundary, after every step."""

    def _same_as_the_owners(self, node: Node, copy: Copy | None) -> None:
        """What others have is not here; no scenario has a message that two make."""

    def _gives_back(self, node: Node, touched: dict[MessageId, Copy | None], told: tuple[Any, ...]) -> None:
        """Whose it was to make is asked of the whole boundary."""

    def committed(self, node: Node, touched: dict[MessageId, Copy | None], told: tuple[Any, ...]) -> None:
        for event in told:
            if getattr(event, "copy", None) is not None:
                self.world.put("told", node.name, describe(event))
        super().committed(node, touched, told)

    def decided(self, node: Node, message_id: MessageId, answer: str) -> None:
        copy = node.ledger.durable_copy(message_id)
        redundant = node.ledger.durably_arriving(message_id) or (copy is not None and not copy.exposed)
        self.world.put("decided", message_id, answer, redundant)


def runs(entry: Due, method: Callable[..., None]) -> bool:
    """Is it that method of the node, called in this process?"""
    if not isinstance(entry.run, MethodType) or entry.run.__func__ is not Node._due:
        return False
    inner = entry.arguments[1]
    return isinstance(inner, MethodType) and inner.__func__ is method


def cells(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The names and values that a closure carries along."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue


def is_over(function: Any) -> bool:
    """An answer to an exchange that has ended, or its timeout, or of a process that has."""
    if type(function) is not FunctionType or not function.__closure__:
        return False
    known = dict(cells(function))
    if known.get("open_") == [] and function.__qualname__.startswith(EXCHANGE):
        return True
    if "generation" in known and isinstance(known.get("node"), Node):
        return bool(known["node"].generation != known["generation"]) or is_over(known.get("finish"))
    return is_over(known.get("answered")) or is_over(known.get("finish"))
