"""Nodes of 1, 2 and 4 workers, each process with a tenth of a core: what workers add, what a kill costs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL

import click

from shadowlab import mail
from shadowlab.cluster import Cluster, up
from shadowlab.layout import Address
from shadowlab.mail import Letter

from .client import Session, session
from .context import Bench
from .figures import Row, Spread, Target
from .proc import cpu_seconds
from .quotas import Quotas, missing, quotas
from .smtp_tools import CONNECTIONS, RECIPIENT, SENDER, BenchError, Load, Sink, generate, sink
from .subjects import Lab, wait_until
from .throughput import KIB

SHARE = 0.1
"""Of a core, for each process: generator, sink and all workers have room on two cores."""

_COUNTS = (1, 2, 4)
_HOSTS = 2
_FASTER = {2: 1.8, 4: 3.4}
_DEARER = 1.05
_SESSIONS = 32  # at a time, for each worker of a host: the load of one worker is the same in all
_EACH, _WARM, _SHORT_EACH = 1_200, 300, 60  # messages for each worker
_POLL = 0.25  # seconds: an answer costs a worker some of its share
_BEFORE, _AFTER = 5.0, 1.0  # seconds of accepting that are compared
_KILL_CLIENTS = 48
_LEFT = 0.6

# What takes hours elsewhere and seconds in a lab is not to be measured: as it ships.
_AS_SHIPPED = ("shadow_heartbeat_frequency=2m", "shadow_resubmit_time_span=3h")


# A message costs more processor time where other processes use the same caches and cores: every run has as
# many busy processes as the one with the most workers.
_NEIGHBOUR = """
import json
tree = {str(number): {"a": [number] * 8, "b": "x" * 40} for number in range(2000)}
while True:
    json.loads(json.dumps(tree))
"""


class Workers(Lab):
    """A lab whose nodes have several workers, each process with its share."""

    def __init__(self, directory: Path, count: int) -> None:
        super().__init__(directory, f"{count} worker{'s' if count > 1 else ''} a host")
        self.count = count

    def processes(self) -> dict[str, list[int]]:
        """The pids that do the work of each node."""
        found = {}
        for node in self.nodes:
            of = self.cluster.workers(node.short).values() or [self.cluster.process(node.short)]
            found[node.short] = [one.pid for one in of if one.pid is not None]
        return found

    def pids(self) -> list[int]:
        """With supervisors."""
        workers = {pid for found in self.processes().values() for pid in found}
        return sorted(workers | set(super().pids()))


@dataclass(frozen=True, slots=True)
class _Run:
    rate: float
    cpu: float


def workers(bench: Bench) -> list[Row]:
    if problem := missing():
        click.echo(f"bench: without workers: {problem}", err=True)
        return []
    bench.steps.expect(len(_COUNTS) * (bench.rounds + 1) + bench.rounds)
    return [*_throughput(bench), *_kills(bench)]


@contextmanager
def _lab(directory: Path, count: int, limits: Quotas, *options: str) -> Iterator[Workers]:
    settings = [
        f"receive.default.max_inbound_connection={CONNECTIONS}",
        f"receive.default.max_inbound_connection_per_source={CONNECTIONS}",
        *options,
    ]
    try:
        up(directory, nodes=_HOSTS, workers=count, options=settings)
        made = Workers(directory, count)
        for pids in made.processes().values():
            for pid in pids:
                limits.limit(pid, SHARE)
        yield made
    finally:
        limits.remove()  # an orderly end is not to be measured
        if (directory / "lab.json").exists():
            Cluster(directory).down()


@contextmanager
def _neighbours(count: int) -> Iterator[None]:
    """So many processes that use up the share of a worker each."""
    with ExitStack() as stack:
        limits = stack.enter_context(quotas())
        for _ in range(count):
            one = stack.enter_context(subprocess.Popen([sys.executable, "-c", _NEIGHBOUR]))
            stack.callback(one.kill)
            limits.limit(one.pid, SHARE)
        yield


def _throughput(bench: Bench) -> list[Row]:
    found: dict[int, list[_Run]] = {count: [] for count in _COUNTS}
    with bench.room("workers") as room, ExitStack() as stack:
        (hop,) = bench.ports(1)
        end = stack.enter_context(sink(room, hop))
        to_sink = (f"routes.inside.port={hop}", "routes.inside.protocol=smtp")
        labs = []
        for count in _COUNTS:
            limits = stack.enter_context(quotas())
            labs.append(
                stack.enter_context(_lab(room / f"lab-{count}", count, limits, *_AS_SHIPPED, *to_sink))
            )
        for one in labs:
            with bench.steps.during(f"workers: warming up {one.label}"):
                _run(one, end, _SHORT_EACH if bench.short else _WARM)
        for number in range(1, bench.rounds + 1):
            for one in labs if number % 2 else labs[::-1]:
                with (
                    bench.steps.during(f"workers: {one.label}, round {number}"),
                    _neighbours(_HOSTS * (max(_COUNTS) - one.count)),
                ):
                    found[one.count].append(_run(one, end, _SHORT_EACH if bench.short else _EACH))
    return list(_rows(found, judged=not bench.short))


def _run(subject: Workers, end: Sink, each: int) -> _Run:
    """Every message has a connection of its own, so that the port deals them out."""
    load = Load(_SESSIONS * subject.count, each * subject.count, 4 * KIB, reused=False)
    expected = end.messages() + load.messages
    before = cpu_seconds(subject.pids())
    began = time.perf_counter()
    generate(load, subject.address)
    wait_until(lambda: end.messages() >= expected, f"{subject.label}: all is delivered")
    took, cpu = time.perf_counter() - began, cpu_seconds(subject.pids()) - before
    wait_until(subject.is_quiet, f"{subject.label} is quiet", poll=_POLL)
    if (arrived := end.messages()) != expected:
        raise BenchError(f"{subject.label}: {arrived - expected} messages more than were sent arrived")
    return _Run(load.messages / took, 1000 * cpu / load.messages)


def _rows(found: dict[int, list[_Run]], *, judged: bool) -> Iterator[Row]:
    rates = {count: Spread(tuple(one.rate for one in runs)) for count, runs in found.items()}
    cpu = {count: Spread(tuple(one.cpu for one in runs)) for count, runs in found.items()}
    for count in _COUNTS:
        name = f"{count} worker{'s' if count > 1 else ''} a host"
        yield Row("workers", f"{name}: delivered", "messages/s", ours=rates[count])
        yield Row("workers", f"{name}: processor time", "ms/message", ours=cpu[count])
        if count > 1:
            for measure, spread, target in (
                ("delivered", rates[count] / rates[1], Target(">=", _FASTER[count], of_ratio=False)),
                ("processor time", cpu[count] / cpu[1], Target("<=", _DEARER, of_ratio=False)),
            ):
                told = f"{name}: {measure}, of that of 1 worker"
                yield Row("workers", told, "×", ours=spread, target=target if judged else None)


# A worker is killed


class _Clients:
    """Clients that send one message on each connection, and begin again whatever happens."""

    def __init__(self, to: Address) -> None:
        self._to = to
        self.taken: list[tuple[float, Letter]] = []

    async def send(self) -> None:
        while True:
            letter = Letter(mail.token("bench"), SENDER, (RECIPIENT,))
            with suppress(OSError, BenchError, TimeoutError):
                async with session(self._to) as opened:
                    await self._one(opened, letter)
            await asyncio.sleep(0.005)  # a port that nobody serves is not asked without a pause

    async def _one(self, opened: Session, letter: Letter) -> None:
        await opened.send(mail.written(letter).as_bytes() + b".\r\n")
        self.taken.append((time.monotonic(), letter))

    def between(self, begin: float, end: float) -> int:
        return sum(begin <= at < end for at, _ in self.taken)


def _kills(bench: Bench) -> Iterator[Row]:
    kept, lost = [], []
    for number in range(1, bench.rounds + 1):
        with (
            bench.steps.during(f"workers: one of four is killed, round {number}"),
            bench.room(f"workers-killed-{number}") as room,
            quotas() as limits,
            _lab(room / "lab", 4, limits, *_AS_SHIPPED) as subject,
        ):
            clients = _Clients(subject.address)
            kept.append(asyncio.run(_killed(subject, clients)))
            limits.remove()
            letters = [letter for _, letter in clients.taken]
            at = subject.cluster.layout
            with suppress(BenchError):  # what is lost does not come: it is counted below
                wait_until(lambda: not mail.count(at, letters).lost, "all arrived", patience=60, poll=1.0)  # noqa: B023
            lost.append(float(mail.count(at, letters).lost))
    target = Target(">=", _LEFT, of_ratio=False)
    judged = not bench.short
    told = "4 workers a host, one is killed"
    yield Row(
        "workers",
        f"{told}: accepted in the second after, of that before",
        "×",
        ours=Spread(tuple(kept)),
        target=target if judged else None,
    )
    yield Row(
        "workers",
        f"{told}: lost of what was acknowledged",
        "messages",
        ours=Spread(tuple(lost)),
        target=Target("<=", 0.0, of_ratio=False) if judged else None,
    )


async def _killed(subject: Workers, clients: _Clients) -> float:
    """The rate of accepting in the second after the kill, of that before."""
    tasks = [asyncio.create_task(clients.send()) for _ in range(_KILL_CLIENTS)]
    try:
        await asyncio.sleep(_BEFORE + 2.0)
        victim = subject.cluster.workers(subject.nodes[0].short)[3]
        at = time.monotonic()
        victim.signal(SIGKILL)
        await asyncio.sleep(_AFTER + 0.5)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    before = clients.between(at - _BEFORE, at) / _BEFORE
    if not before:
        raise BenchError("no message was accepted before the kill")
    return clients.between(at, at + _AFTER) / _AFTER / before
