"""The nodes of a proof: planned and configured as a lab is, started by a fork instead of an exec."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shadowlab import layout, node_settings
from shadowlab.ports import free_ports
from shadowlab.probing import node_answers
from shadowrelay import authority
from shadowrelay.admin.client import AdminClient, ApiError

QUICK = (
    "shadow_resubmit_time_span=1h",  # promotions come from what is known, never from waiting
    "discard_poll_interval=0.1s",
    "member_skip_interval=0.1s",
    "shadow_attempt_timeout=5s",
    "revoke_timeout=1s",
    "reconcile_timeout=10s",
    "drain_timeout=1s",
    "minimum_free_disk=1MiB",
)
"""On top of the lab's settings: what has to be waited for comes soon."""

PATIENCE = 240.0
"""Seconds until what has to happen counts as never happening: the machine may do other things too."""


class Stuck(Exception):
    """Something did not happen in time; the text says what."""


def wait_until(condition: Callable[[], object], what: str, deadline: float = PATIENCE) -> None:
    """Look often until it holds. Raises Stuck."""
    end = time.monotonic() + deadline
    while not condition():
        if time.monotonic() > end:
            raise Stuck(f"not within {deadline:.0f} s: {what}")
        time.sleep(0.05)


@dataclass(frozen=True, slots=True)
class State:
    """What a node says of itself, as far as a proof waits for it."""

    database_id: str
    queued: int
    held: int
    exposed: int
    unclear: int  # asking, in doubt or set aside
    events: int  # discard events that nobody asked for
    peers_reached: bool

    @property
    def whole(self) -> bool:
        """Everything that it owns has a second copy, and members were met."""
        return self.peers_reached and not self.exposed

    @property
    def empty(self) -> bool:
        return not (self.queued or self.held or self.unclear)


class Node:
    """One node, and the process that forks it. ``environ`` goes to both."""

    def __init__(self, at: layout.LabNode, log: Path, environ: Mapping[str, str]) -> None:
        self.at = at
        self.log = log
        self.pid: int | None = None
        self.starts = 0
        self.ends: list[float] = []  # when it was seen to have ended, on the monotonic clock
        environment = {key: value for key, value in os.environ.items() if not key.startswith("SHADOWRELAY_")}
        self._zygote = subprocess.Popen(
            [sys.executable, "-m", "tests.proof.bed.zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment, **environ},
            cwd=Path(__file__).parents[3],
            process_group=0,  # Ctrl-C is for us: we end it
        )
        self._said = b""

    def started(self) -> Node:
        """Fork it; it answers on return. Raises Stuck."""
        self.launch()
        wait_until(lambda: self.ended(0.0) is not None or node_answers(self.at), f"{self.at.short} answers")
        if self.pid is None:
            raise Stuck(f"{self.at.short} did not start: see {self.log}")
        return self

    def launch(self) -> None:
        """Fork it, and wait for nothing else. Raises Stuck."""
        if not self.starts:
            self._hear("ready", 60.0)
        assert self._zygote.stdin is not None
        task = {"config": str(self.at.config), "log": str(self.log)}
        self._zygote.stdin.write(json.dumps(task).encode() + b"\n")
        self._zygote.stdin.flush()
        self.pid = int(self._hear("started", PATIENCE))
        self.starts += 1

    def signal(self, number: signal.Signals) -> None:
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(
                    self.pid, number
                )  # our zygote reaps it and tells us: its pid is not used again before

    def ended(self, timeout: float) -> int | None:
        """Its exit status once it has ended; None if it has not in that time (or never ran)."""
        if self.pid is None:
            return None
        with suppress(Stuck):
            status = int(self._hear("ended", timeout))
            self.pid = None
            self.ends.append(time.monotonic())
            return status
        return None

    def killed(self) -> None:
        self.signal(signal.SIGKILL)
        if self.pid is not None and self.ended(PATIENCE) is None:
            raise Stuck(f"{self.at.short} (pid {self.pid}) does not die")

    def wipe(self) -> None:
        """Lose its disk: its data, and the tracking file that was open."""
        for path in self.at.data_dir.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for unsealed in self.at.tracking_dir.glob(".*"):
            unsealed.unlink()

    def threads(self) -> list[int]:
        """Thread ids in the order of their making: event loop, database, files."""
        return sorted(int(entry) for entry in os.listdir(f"/proc/{self.pid}/task"))

    def state(self) -> State | None:
        """None when it does not answer."""
        try:
            tree: dict[str, Any] = AdminClient(self.at.admin, None, 5.0).get(dict[str, Any], "status")
        except ApiError:
            return None
        return State(
            database_id=tree["database_id"],
            queued=tree["queued"],
            held=tree["shadow_held"],
            exposed=tree["exposed"],
            unclear=tree["asking"] + tree["in_doubt"] + tree["set_aside"],
            events=tree["discard_events"],
            peers_reached=all(peer["state"] == "reachable" for peer in tree["peers"]),
        )

    def close(self) -> None:
        """End it and its zygote, at once. Repeatable."""
        self._zygote.kill()  # the node goes with it
        self._zygote.wait()

    def _hear(self, word: str, timeout: float) -> str:
        """The rest of the next line, which must begin with ``word``."""
        assert self._zygote.stdout is not None
        end = time.monotonic() + timeout
        while b"\n" not in self._said:
            ready, _, _ = select.select([self._zygote.stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise Stuck(f"{self.at.short}: no {word!r} within {timeout:.0f} s")
            data = os.read(self._zygote.stdout.fileno(), 4096)
            if not data:
                raise Stuck(f"{self.at.short}: the process that forks it has ended")
            self._said += data
        line, _, self._said = self._said.partition(b"\n")
        found, _, rest = line.decode().partition(" ")
        if found != word:
            raise Stuck(f"{self.at.short}: {found!r} where {word!r} was awaited")
        return rest


class Nodes:
    """All of them: asked together."""

    def __init__(self, members: Sequence[Node]) -> None:
        self.members = tuple(members)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.members)

    def ends(self) -> list[float]:
        """When one of them ended."""
        return [at for node in self for at in node.ends]

    def wait_whole(self, deadline: float = PATIENCE) -> None:
        """Until nothing is exposed anywhere (a single node has to answer, no more). Raises Stuck."""
        alone = len(self.members) == 1
        self._wait(lambda state: alone or state.whole, "nothing exposed, all members met", deadline)

    def wait_idle(self, deadline: float = PATIENCE) -> None:
        """Until every queue and shadow queue is empty, and all members met. Raises Stuck."""
        self._wait(lambda state: state.whole and state.empty, "queues and shadow queues empty", deadline)

    def _wait(self, wanted: Callable[[State], bool], what: str, deadline: float) -> None:
        seen: list[State | None] = []

        def all_so() -> bool:
            seen[:] = [node.state() for node in self]
            return all(state is not None and wanted(state) for state in seen)

        try:
            wait_until(all_so, what, deadline)
        except Stuck as stuck:
            raise Stuck(f"{stuck}: {seen}") from None


@contextmanager
def running(
    directory: Path,
    *,
    count: int,
    next_hop: int,
    options: Iterable[str] = (),
    data: Mapping[int, Path] | None = None,
    environ: Mapping[int, Mapping[str, str]] | None = None,
) -> Iterator[Nodes]:
    """``count`` nodes that answer, their mail for outside.test going to the port ``next_hop``; gone at exit.

    ``data`` puts the data and the tracking log of a node (by its index) elsewhere, ``environ`` adds to its
    environment.
    """
    at = layout.plan(directory, nodes=count, ports=free_ports(layout.PORTS_PER_NODE * count + 2))
    moved = [
        replace(node, data_dir=place / "data", tracking_dir=place / "tracking")
        if (place := (data or {}).get(index))
        else node
        for index, node in enumerate(at.nodes)
    ]
    at = replace(at, nodes=tuple(moved))
    now = datetime.now(UTC)
    authority.init(at.authority, name="shadowrelay proof", now=now)
    for node in at.nodes:
        authority.issue(at.authority, node.name, now=now, out=node.config.parent)
    node_settings.write(at, [*QUICK, f"routes.outside.port={next_hop}", *options])
    (directory / "logs").mkdir()
    with ExitStack() as stack:
        nodes = []
        for index, node in enumerate(at.nodes):
            nodes.append(Node(node, at.log(node.short), (environ or {}).get(index, {})))
            stack.callback(nodes[-1].close)
        for one in nodes:
            one.started()
        everybody = Nodes(nodes)
        everybody.wait_whole()
        yield everybody
