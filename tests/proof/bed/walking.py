"""One message's life on a victim, with a fault at one of its system calls; then all comes to rest."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from .hop import Hop
from .nodes import Nodes, Stuck
from .post import Post
from .strace import Call, Fault, Trace, attached
from .verdict import Told

_LIFE = 20.0  # seconds a life may take that no fault has met
_AFTERMATH = 0.7  # seconds in which a fault shows what it does
_END = 30.0  # seconds until a node ends that was told to, or has to


class Role(StrEnum):
    """Of the victim."""

    OWNER = "owner"
    HOLDER = "holder"


class Thread(StrEnum):
    """The threads of a node that write, in the order in which they are made."""

    LOOP = "event loop"
    DATABASE = "database"
    FILES = "files"


@dataclass(frozen=True, slots=True)
class Boundary:
    """The ``n``-th call of one thread in the life of a message of that many octets."""

    size: int
    thread: Thread
    n: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one fault did. ``call`` is None when the life was over before it; ``problem`` is empty if all is
    well. ``status``: how the victim ended, None if it lived on."""

    boundary: Boundary
    fault: Fault
    call: str | None
    token: str
    told: Told
    status: int | None
    wiped: bool
    problem: str = ""


class Walk:
    """A victim, the node beside it, and mail between them. Everything is at rest between two calls."""

    def __init__(self, nodes: Nodes, hop: Hop, role: Role, log: Path) -> None:
        self.victim, self.other = nodes.members
        self.nodes, self.hop, self.role = nodes, hop, role
        self.post = Post()
        self._log = log
        self._server = (self.victim if role is Role.OWNER else self.other).at.smtp

    def measure(self, size: int, thread: Thread) -> list[Call]:
        """One thread's calls in an undisturbed life, from the client's connection to the graceful stop."""
        with attached([self._id(thread)], self._log) as trace:
            token, _ = self.post.send(self._server, size)
            self._live(token, trace)
            self.victim.signal(signal.SIGTERM)
            if self.victim.ended(_END) is None:
                raise Stuck("an undisturbed victim does not stop")
        self.victim.started()
        self.nodes.wait_idle()
        return trace.calls()

    def disturb(self, boundary: Boundary, fault: Fault, *, wipe: bool) -> Outcome:
        """One life with one fault in it. ``wipe``: if the victim ends by it, its disk is lost too.

        Raises Stuck when the nodes do not come to rest any more.
        """
        with attached([self._id(boundary.thread)], self._log, fault=fault, n=boundary.n) as trace:
            token, told = self.post.send(self._server, boundary.size)
            status = self._live(token, trace)
            if status is None and trace.hit() is None:  # the rest of the life: a graceful stop
                self.victim.signal(signal.SIGTERM)
                status = self.victim.ended(_END)
        call = trace.hit() or (trace.calls()[-1] if status == -signal.SIGKILL else None)
        problem = ""
        if status is None and call is not None and has_to_end(call, fault):
            status = self.victim.ended(_END)
            problem = f"went on after {call.label} failed" if status is None else ""
        elif status is None and call is None:
            status = self.victim.ended(_END)
            problem = "did not stop" if status is None else ""
        wiped = wipe and call is not None and self.victim.pid is None
        if wiped:
            self.victim.wipe()
        status = self._come_to_rest() or status
        label = call.label if call else None
        problem = problem or self._verdict(token, told)
        return Outcome(boundary, fault, label, token, told, status, wiped, problem)

    def _come_to_rest(self) -> int | None:
        """With the victim started again if it has ended. Its status, if that was only seen now: a thread that
        could not wake another one ends a busy node some time after its fault.
        """
        late = self.victim.ended(0.0)
        if self.victim.pid is None:
            self.victim.started()
        try:
            self.nodes.wait_idle()
        except Stuck:
            if (late := self.victim.ended(0.0)) is None:
                raise
            self.victim.started()
            self.nodes.wait_idle()
        return late

    def _id(self, thread: Thread) -> int:
        return self.victim.threads()[list(Thread).index(thread)]

    def _verdict(self, token: str, told: Told) -> str:
        times = self.hop.times(token)
        if told is Told.ACCEPTED and not times:
            return "accepted and not delivered"
        if told in (Told.REFUSED, Told.NOTHING_SENT) and times:
            return f"{told} and delivered"
        return ""

    def _live(self, token: str, trace: Trace) -> int | None:
        """Until the life is over or the fault has shown itself; the status of a victim that ended."""
        deadline = time.monotonic() + _LIFE
        over = self._owner_is_done if self.role is Role.OWNER else self._holder_is_done
        while time.monotonic() < deadline:
            if (status := self.victim.ended(0.05)) is not None:
                return status
            if trace.hit() is not None:
                deadline = min(deadline, time.monotonic() + _AFTERMATH)
            if self.hop.times(token) and over():
                return self.victim.ended(0.05)
        return None

    # Only the other node is asked: an answer of the victim would be among the calls that are counted.

    def _owner_is_done(self) -> bool:
        state = self.other.state()
        return state is not None and state.held == 0

    def _holder_is_done(self) -> bool:
        state = self.other.state()
        return state is not None and state.queued == 0 and state.events == 0


def has_to_end(call: Call, fault: Fault) -> bool:
    """Must the node give up after this failure? After a write or fsync of what it promises by, always.

    Content that finds no room is a 452. SQLite repeats a checkpoint into the database file from its log.
    """
    if fault is Fault.KILL or call.name.startswith(("unlink", "ftruncate")):
        return False
    if call.target in {"content", "directory"}:
        return fault in (Fault.EIO, Fault.EIO_ON)
    return call.target in {"database log", "tracking log"}
