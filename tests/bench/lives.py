"""Lives of two nodes whose calls are counted: what one message costs its owner and its holder.

One message is under way at a time: it is delivered before the next one is sent, so that no commit is shared.
What nodes do without mail is measured in the same life,
and is subtracted.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.lmtp import LMTP

from shadowlab.cluster import Cluster, up
from shadowlab.layout import INSIDE_DOMAIN, LOOPBACK
from shadowlab.ports import free_ports

from .budget import Cost, by_room
from .client import Session, letter, session
from .smtp_tools import BenchError
from .subjects import wait_until
from .tracing import Counts, system_calls

HOOK = Path(__file__).parent / "counting"
SIDES = ("owner", "holder")

_WARM = 40  # messages before the first count: connections are made, caches are full
_PATIENCE = 60.0
_IDLE = 10.0  # seconds that count what a node does without mail: its timers are of a second
_QUIET = 1.5  # seconds without a new tracking row, after which nothing is left to do: holders ask each second
_OPTIONS = (
    "shadow_heartbeat_frequency=2m",  # what takes hours elsewhere is not to be counted: as it ships
    "shadow_resubmit_time_span=3h",
    "tracking.max_file_age=1h",
    "queue_glitch_retry_interval=10s",  # no second attempt while others make their first
)


@dataclass(frozen=True, slots=True)
class Shape:
    """One way in which mail comes, and how many messages are counted."""

    label: str
    messages: int
    octets: int = 4096
    recipients: int = 1
    reused: bool = True
    workers: int = 1
    deferred: bool = False
    resubmitted: bool = False


SHAPES: Mapping[str, Shape] = {
    "reused": Shape("a reused session", 200),
    "one-each": Shape("one session each", 200, reused=False),
    "two-recipients": Shape("two recipients", 200, recipients=2),
    "large": Shape("a message of 1 MB", 60, octets=1_000_000),
    "workers": Shape("nodes of four workers", 200, reused=False, workers=4),
    "deferred": Shape("a deferred attempt", 100, deferred=True),
    "resubmitted": Shape("a resubmission", 100, resubmitted=True),
}


class _Hop:
    """The next hop. With ``deferring`` it puts each recipient off once."""

    def __init__(self, *, deferring: bool) -> None:
        self.deferring, self.put_off, self.took = deferring, set[str](), 0

    @property
    def met(self) -> int:
        """How many recipients it has had an attempt for."""
        return max(self.took, len(self.put_off))

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if self.deferring and address not in self.put_off:
            self.put_off.add(address)
            return "451 4.2.0 Not now"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.took += len(envelope.rcpt_tos)
        return "\r\n".join(["250 2.0.0 OK"] * len(envelope.rcpt_tos))  # LMTP: one for each


class _Lmtp(Controller):
    def factory(self) -> LMTP:
        return LMTP(self.handler, enable_SMTPUTF8=True, data_size_limit=None)


class Life:
    """Two nodes that count, and the hop that they deliver to."""

    def __init__(self, shape: Shape, cluster: Cluster, counting: Path, hop: _Hop) -> None:
        self.shape, self._counting, self._hop = shape, counting, hop
        self._sent = 0
        self._nodes = cluster.layout.nodes
        self._pids = [_workers(cluster, node.short) for node in self._nodes]

    def costs(self, name: str) -> list[Cost]:
        """Of both sides. Raises BenchError."""
        shape = self.shape
        self._run(_WARM)
        if shape.resubmitted:
            self._run(shape.messages)
        before, began = self._counted(), time.monotonic()
        if shape.resubmitted:
            messages = self._resubmit()
        else:
            messages = shape.messages
            self._run(messages)
        after, ended = self._counted(), time.monotonic()
        time.sleep(_IDLE)
        idle, woke = self._counted(), time.monotonic()
        share = (ended - began) / (woke - ended)
        traced = self._traced()
        found = []
        for number, side in enumerate(SIDES):
            own = {
                key: (count - before[number][key] - (idle[number][key] - count) * share) / messages
                for key, count in after[number].items()
            }
            statements, commits = own.pop("statements"), own.pop("commits")
            extra = traced[number] if traced else Counts(None, None)
            found.append(Cost(name, side, by_room(own), statements, commits, *extra, own))
        return found

    def _run(self, messages: int) -> None:
        """So many messages, one after the other; returns when nothing is left to do."""
        asyncio.run(self._send(messages))
        self._settle()

    async def _send(self, messages: int) -> None:
        if self.shape.reused:
            async with session(self._nodes[0].smtp) as opened:
                for _ in range(messages):
                    await self._one(opened)
        else:
            for _ in range(messages):
                async with session(self._nodes[0].smtp) as opened:
                    await self._one(opened)
                    await opened.command("QUIT", "221")

    async def _one(self, opened: Session) -> None:
        to = [f"b{self._sent + number}@{INSIDE_DOMAIN}" for number in range(self.shape.recipients)]
        self._sent += len(to)
        named = f"Message-ID: <{self._sent:08d}.count@client.lab.test>\r\n".encode("ascii")
        await opened.send(named + letter(self.shape.octets), to)
        deadline = time.monotonic() + _PATIENCE
        while self._hop.met < self._sent:
            if time.monotonic() > deadline:
                raise BenchError(f"{self.shape.label}: no attempt to deliver within {_PATIENCE:.0f} s")
            await asyncio.sleep(0.001)

    def _resubmit(self) -> int:
        """All that was sent, once more; returns how many messages."""
        command = [sys.executable, "-m", "shadowrelay", "resubmit", "add", "--admin", self._nodes[0].admin]
        asked = [*command, "--since", "1h", "--until", "1s", "--all", "--reason", "counting", "--yes"]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise BenchError(f"nothing is resubmitted: {done.stdout}{done.stderr}")
        messages, self._sent = self._sent, 2 * self._sent
        self._settle()
        return messages

    def _settle(self) -> None:
        """Until all is delivered, and both nodes have written no more tracking rows for a while."""
        wait_until(lambda: self._hop.took >= self._sent, "all is delivered", poll=0.02)
        size, since = self._tracked(), time.monotonic()
        while time.monotonic() < since + _QUIET:
            time.sleep(0.1)
            if (now := self._tracked()) != size:
                size, since = now, time.monotonic()

    def _tracked(self) -> int:
        """Octets of all tracking logs: to ask the nodes would cost them calls."""
        places = (place.tracking_dir for node in self._nodes for place in node.places)
        return sum(file.stat().st_size for place in places for file in place.iterdir() if file.is_file())

    def _counted(self) -> list[Counter[str]]:
        """What each side has counted until now."""
        return [sum((asked(self._counting / str(pid)) for pid in side), Counter()) for side in self._pids]

    def _traced(self) -> list[Counts] | None:
        """System calls and turns, by side; None where there is no strace."""
        few = max(10, self.shape.messages // 5)
        if self.shape.resubmitted:
            return None  # a second request would find no more
        with system_calls(self._pids, self._counting) as found:
            self._run(few)
        return [one.each(few) for one in found] if found else None


def asked(socket_of: Path) -> Counter[str]:
    """What a process has counted: each function's calls, ``statements`` and ``commits``."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(_PATIENCE)
        asking.connect(str(socket_of))
        tree = json.loads(b"".join(iter(lambda: asking.recv(1 << 16), b"")))
    return Counter({**tree.pop("calls"), **tree})


def _workers(cluster: Cluster, node: str) -> list[int | None]:
    """The processes that have mail: a supervisor has none, and asks its workers how they are."""
    return [one.pid for one in cluster.workers(node).values() or [cluster.process(node)]]


@contextmanager
def lives(shape: Shape) -> Iterator[Life]:
    """A lab of the shape, gone at exit. Raises BenchError, LabError."""
    with tempfile.TemporaryDirectory(prefix="calls-") as path:
        base = Path(path)
        hop = _Hop(deferring=shape.deferred)
        (port,) = free_ports(1)
        end = _Lmtp(hop, hostname=LOOPBACK, port=port, ready_timeout=30)
        end.start()
        counting = {"PYTHONPATH": str(HOOK), "COUNT_INTO": str(base)}
        try:
            up(
                base / "lab",
                nodes=2,
                workers=shape.workers,
                options=[*_OPTIONS, f"routes.inside.port={port}"],
                environs={"mx1": counting, "mx2": counting},
            )
            yield Life(shape, Cluster(base / "lab"), base, hop)
        finally:
            if (base / "lab" / "lab.json").exists():
                Cluster(base / "lab").down()
            end.stop()
