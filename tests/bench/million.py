"""Very many messages queued, their next hop down: what the queue costs a node, from its start to a promotion.

Two labs of two nodes: the queue of one is full, that of the other is empty. What is compared takes turns.
"""

from __future__ import annotations

import smtplib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from shadowlab import layout, processes, starting
from shadowlab.layout import Address, LabNode
from tests.full_queues import fill

from .client import letter
from .context import Bench
from .figures import Row, Spread, Target
from .proc import cpu_seconds, peak
from .smtp_tools import RECIPIENT, SENDER, Load, generate
from .subjects import Lab, in_turn, lab, wait_until
from .throughput import KIB, MB

QUEUED, SHORT_QUEUED = 1_000_000, 3_000
_TURN, _SHORT_TURN = Load(10, 800, 4 * KIB, True), Load(10, 200, 4 * KIB, True)
_TURNS, _SHORT_TURNS = 6, 2
_MINUTE, _CUT_SHORT, _SHORT = 60.0, 30.0, 3.0  # seconds
_EVERY = 0.05  # seconds between two questions of one client
_PATIENCE, _PATIENCE_EACH = 300.0, 0.004  # seconds, and so many more for each message
_POLL = 0.05
_OPTIONS = (
    "reject_message_on_shadow_failure=false",
    "receive.default.max_acknowledgement_delay=0s",
    "shadow_retry_interval=10ms",  # what a sender waits for is the node, and not a member that is down
    "shadow_resubmit_time_span=1h",  # a lost disk alone leads to a promotion
    "opening_timeout=1h",
)


def million(bench: Bench) -> list[Row]:
    bench.steps.expect(5)
    (hop,) = bench.ports(1)
    with (
        bench.room("million") as room,
        lab(room / "empty", next_hop=hop, options=_OPTIONS) as empty,
        lab(room / "full", next_hop=hop, options=_OPTIONS) as full,
    ):
        return list(_Measuring(bench, empty, full).rows())


class _Measuring:
    def __init__(self, bench: Bench, empty: Lab, full: Lab) -> None:
        self._bench, self._empty, self._full = bench, empty, full
        self._queued = bench.queued or (SHORT_QUEUED if bench.short else QUEUED)
        self._owner, self._holder = full.nodes
        self._highest = 0

    def rows(self) -> Iterator[Row]:
        for name, part in (
            ("filling", self._filling),
            ("start", self._start),
            ("mail beside it", self._accepting),
            ("an idle minute", self._idle),
            ("promotion", self._promotion),
        ):
            with self._bench.steps.during(f"{self._queued:,} messages queued: {name}"):
                yield from part()
        yield self._row("the highest memory of a node", "MB", self._highest / MB, 1 << 10)

    def _filling(self) -> Iterator[Row]:
        for node in self._full.nodes:
            self._full.cluster.kill(node.short)
        ours, theirs = (node.data_dir / "transport.db" for node in self._full.nodes)
        fill(ours, theirs, self._queued)
        yield from ()

    def _start(self) -> Iterator[Row]:
        """Both nodes were killed, as by a power cut; the holder comes back first."""
        self._begin(self._holder.short)
        self._wait("the holder is open", lambda: self._takes_mail(self._holder.smtp))
        self._wait("the holder misses the owner", lambda: self._state() == "unreachable")
        since = _stopwatch()
        self._begin(self._owner.short)
        self._wait("the holder has an answer", lambda: self._state() == "reachable")
        fate = "owner killed and started:"
        yield self._row(f"{fate} first answer to a member after", "s", since(), 1.5)
        self._wait("a sender has a 250", lambda: self._takes_mail(self._owner.smtp))
        yield self._row(f"{fate} the 250 of the next message after", "s", since(), 20)
        self._wait("all are asked about", lambda: self._count("asking") == 0)
        yield self._row(f"{fate} all asked about after", "s", since())
        self._note_memory()

    def _accepting(self) -> Iterator[Row]:
        load, turns = (_SHORT_TURN, _SHORT_TURNS) if self._bench.short else (_TURN, _TURNS)
        rates: dict[Lab, list[float]] = {self._empty: [], self._full: []}
        for number in range(turns + 1):  # the first one warms
            for subject in in_turn((self._empty, self._full), number):
                rates[self._of(subject)].append(load.messages / generate(load, subject.address))
        full, empty = (Spread(tuple(rates[one][1:])) for one in (self._full, self._empty))
        yield self._compared("acknowledged, and with an empty queue", "messages/s", full, empty, ">=", 0.9)

    def _of(self, subject: object) -> Lab:
        return self._full if subject is self._full else self._empty

    def _idle(self) -> Iterator[Row]:
        """Of both nodes, while nobody sends anything and the next hop is down."""
        span = _SHORT if self._bench.short else _CUT_SHORT
        labs = (self._full, self._empty)
        for one in labs:
            self._wait("nothing is asked", lambda one=one: _asking(one) == 0)  # type: ignore[misc]
        before = [cpu_seconds(one.pids()) for one in labs]
        time.sleep(span)
        full, empty = (
            Spread(((cpu_seconds(one.pids()) - began) * _MINUTE / span,))
            for one, began in zip(labs, before, strict=True)
        )
        what = "processor time of an idle minute, and with an empty queue"
        yield self._compared(what, "s", full, empty, "<=", 1.5)

    def _promotion(self) -> Iterator[Row]:
        """The owner's disk is lost: its holder promotes every copy, while senders and an operator ask it."""
        held = self._count("shadow_held", self._holder)
        self._full.cluster.kill(self._owner.short)
        self._full.cluster.wipe(self._owner.short)
        with (
            _asking_again(lambda: _send(self._holder.smtp)) as mail,
            _asking_again(lambda: self._count("queued", self._holder)) as operator,
        ):
            since = _stopwatch()
            self._begin(self._owner.short)
            self._wait("every copy is promoted", lambda: self._promoted(held), poll=1.0)
            took = since()
        self._note_memory()
        yield self._row("their owner's disk lost: all promoted after", "s", took)
        yield self._row(f"meanwhile the longest wait for a 250 ({mail.answers:,})", "s", mail.longest, 1)
        yield self._row(
            f"meanwhile the longest wait for a status ({operator.answers:,})", "s", operator.longest, 1
        )

    def _promoted(self, held: int) -> bool:
        found = self._full.status(self._holder)
        return found is not None and found.queued >= held and found.shadow_held == 0 and found.promoting == 0

    # NodeView.

    def _count(self, what: str, node: LabNode | None = None) -> int:
        """A count of its status; more than there are while the node does not answer."""
        found = self._full.status(node or self._owner)
        return self._queued + 1 if found is None else int(getattr(found, what))

    def _state(self) -> str:
        """How the holder finds the owner."""
        found = self._full.status(self._holder)
        return "" if found is None else str(found.peers[0].get("state"))

    def _takes_mail(self, address: Address) -> bool:
        try:
            return _send(address)
        except (OSError, smtplib.SMTPException):
            return False

    def _begin(self, name: str) -> None:
        """Start a node, and do not wait until it answers."""
        at = self._full.cluster.layout
        process = processes.start(starting.process_of(at, name).arguments, at.log(name))
        layout.save(at.with_pid(name, process.pid or 0))

    def _wait(self, what: str, condition: Callable[[], bool], poll: float = _POLL) -> None:
        patience = _PATIENCE + _PATIENCE_EACH * self._queued
        wait_until(condition, what, patience=patience, poll=poll)

    def _note_memory(self) -> None:
        self._highest = max([self._highest, *map(peak, self._full.pids())])

    # Telling.

    def _row(self, measure: str, unit: str, value: float, most: float | None = None) -> Row:
        judged = most is not None and not self._bench.short
        bound = Target("<=", most, of_ratio=False) if most is not None and judged else None
        return Row(
            "million", f"{self._queued:,} queued: {measure}", unit, ours=Spread((value,)), target=bound
        )

    def _compared(self, measure: str, unit: str, full: Spread, empty: Spread, sign: str, bound: float) -> Row:
        target = None if self._bench.short else Target(sign, bound)
        measure = f"{self._queued:,} queued: {measure}"
        return Row("million", measure, unit, ours=full, without=empty, target=target)


@dataclass(slots=True)
class Waits:
    """What a client saw that asks again and again; in seconds."""

    longest: float = 0.0
    answers: int = 0


@contextmanager
def _asking_again(ask: Callable[[], object]) -> Iterator[Waits]:
    """A client that asks every 50 ms, while the block runs. A failure is silence until the next answer."""
    seen, over = Waits(), threading.Event()

    def asking() -> None:
        began = time.perf_counter()
        while not over.is_set():
            try:
                ask()
            except (OSError, smtplib.SMTPException):
                pass
            else:
                seen.answers += 1
                seen.longest = max(seen.longest, time.perf_counter() - began)
                over.wait(_EVERY)
                began = time.perf_counter()
        seen.longest = max(seen.longest, time.perf_counter() - began)

    thread = threading.Thread(target=asking, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def _send(to: Address) -> bool:
    """Send a message; its 250 is a commit of the node. Raises OSError, SMTPException."""
    with smtplib.SMTP(*to, timeout=60) as client:
        client.sendmail(SENDER, [RECIPIENT], letter(KIB)[:-3])
    return True


def _asking(of: Lab) -> int:
    return sum(1 if found is None else found.asking for found in map(of.status, of.nodes))


def _stopwatch() -> Callable[[], float]:
    began = time.perf_counter()
    return lambda: time.perf_counter() - began
