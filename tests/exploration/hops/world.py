"""Two lone nodes, a client before them and a sink behind them: what there is between two steps."""

from __future__ import annotations

from typing import Any, NamedTuple

from shadowrelay.core.delivery.settling import AttemptResult, Ending, Hop
from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.steps import Sent

from .causes import Delivery
from .sides import NO_PAUSE, POLICY, Told

GIVEN_UP = POLICY.shadow_heartbeat_retry_count
ATTEMPTS = 2
"""Attempts at a hop out of reach, with no other host: more of them change nothing but their number."""

FAULTS = (
    "client's reply",
    "session",
    "cut off",
    "sink's reply",
    *(f"{what} {node}" for what in ("kill", "disk", "put back") for node in "AB"),
)

Request = tuple[str, str, str]
"""What A says on a session: the verb, its text, and as whom A introduced itself there."""


class Process(NamedTuple):
    """A task of a node: ``kind`` send (an attempt), idle (a session that owes a
    question) or ask (a session of its own). ``sub``: the talk inside it. ``wire``: what is under way on its
    session. ``hop``: B's name and database, as it introduced itself there, and as whom A did.
    """

    kind: str
    script: int
    phase: str = ""
    about: MessageId = MessageId("")
    sub: int = -1
    wire: tuple[str, Any] | None = None
    hop: tuple[str, str, str] | None = None


class Node(NamedTuple):
    disk: int
    up: bool = True
    run: int = 0
    tasks: tuple[Process, ...] = ()
    failures: int = 0  # heartbeats that failed in a row, as A's process knows
    past: tuple[MessageId, ...] = ()  # go past the hop while it is given up

    def put(self, former: Process | None, now: Process | None) -> Node:
        tasks = list(self.tasks)
        if former is not None:
            tasks.remove(former)
        return self._replace(tasks=tuple(sorted([*tasks, now] if now else tasks, key=repr)))


class World(NamedTuple):
    nodes: tuple[Node, Node]
    client: str = "has it"
    offers: int = 0
    minted: int = 0
    sink: tuple[Delivery, ...] = ()
    fault: str = ""  # the one that has happened
    cut: bool = False
    backup: int = -1
    orphans: tuple[Request, ...] = ()  # of sessions that A has lost, and that B may still read
    exposed: bool = False  # the only copy was on the disk that was lost
    again: tuple[Told, ...] = ()

    def with_node(self, number: int, node: Node) -> World:
        nodes = list(self.nodes)
        nodes[number] = node
        return self._replace(nodes=(nodes[0], nodes[1]))

    @property
    def linked(self) -> bool:
        return self.nodes[1].up and not self.cut


class Step(NamedTuple):
    """``needed``: it comes in the end, if nothing else does. Others may come."""

    what: str
    after: World
    needed: bool = True


def is_open(task: Process) -> bool:
    """Has the task a session with B?"""
    if task.kind in {"idle", "ask"}:
        return True
    return task.kind == "send" and task.phase in {"met", "sent"}


def results_of(reply: str, ending: Ending) -> Sent:
    return Sent((AttemptResult(1, ending, reply, NO_PAUSE),), Hop("sink:25", inside=False, mailbox=False))


def short(message_id: MessageId) -> str:
    """A short name: by whom the message was made, and its number there."""
    side, number = message_id[-12:-6], message_id[-6:]
    if message_id.startswith("01900000") and side in {"000000", "000001"}:
        return f"{'ab'[int(side)]}{int(number, 16)}"
    return f"again-{message_id[:4]}"
