"""The nodes as the tour sees them: up or not, cut off or not, and what each has."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import engine
from engine import NODES, EngineError

T = TypeVar("T")

_PATIENCE = 120.0  # seconds until a lab answers


@dataclass(frozen=True)
class Node:
    """``told``: its own status, None when it does not answer."""

    name: str
    running: bool
    connected: bool
    told: dict[str, Any] | None

    @property
    def condition(self) -> str:
        if not self.running:
            return "down"
        if not self.connected:
            return "cut off"
        if self.told is None:
            return "does not answer"
        return "up" if self.told["ready"] else self.told["not_ready_because"]

    def number(self, key: str) -> int:
        return int(self.told[key]) if self.told else 0


def look(name: str) -> Node:
    seen = engine.state(name)
    return Node(name, seen["running"], seen["connected"], _told(name) if seen["running"] else None)


def look_at_all() -> list[Node]:
    with ThreadPoolExecutor() as pool:
        return list(pool.map(look, NODES))


def _told(name: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(engine.execute(name, "shadowrelay", "status", "--json"))
    except (EngineError, ValueError):
        return None
    return found


def settled() -> list[Node]:
    """Wait until all nodes see each other, and nothing is asked about or exposed. Raises EngineError."""

    def calm() -> list[Node] | None:
        nodes = look_at_all()
        return nodes if all(map(_calm, nodes)) else None

    try:
        return wait_for(calm, "the nodes to see each other, with two copies of everything")
    except EngineError as error:
        seen = ", ".join(f"{node.name} is {node.condition}" for node in look_at_all())
        raise EngineError(f"{error}: {seen}") from None


def _calm(node: Node) -> bool:
    if node.condition != "up" or node.told is None or node.told["exposed"] or node.told["asking"]:
        return False
    return all(peer["state"] == "reachable" for peer in node.told["peers"])


def _healthy(service: str) -> bool | None:
    """None while it starts. Raises EngineError for one that has ended: waiting would not help."""
    seen = engine.state(service)
    if not seen["running"]:
        raise EngineError(f"{service} has ended")
    return seen["healthy"] or None


def wait_until_healthy(services: tuple[str, ...]) -> None:
    """Raises EngineError, with the end of its log, for one that does not come up."""
    for service in services:
        healthy = partial(_healthy, service)
        try:
            wait_for(healthy, f"{service} to answer")
        except EngineError as error:
            raise EngineError("\n".join([str(error), *engine.logs(service)[-15:]])) from None


def wait_for(look: Callable[[], T | None], what: str, patience: float = _PATIENCE) -> T:
    """Poll until it is something else than None. Raises EngineError after ``patience`` seconds."""
    deadline = time.monotonic() + patience
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise EngineError(f"waited {patience:.0f} s in vain for {what}")
        time.sleep(0.5)
    return found
