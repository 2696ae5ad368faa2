"""Runs chaos: sends mail, makes and undoes faults, drains everything, and counts."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from shadowlab import layout, node_settings
from shadowlab.chaos.catalogue import CATALOGUE
from shadowlab.chaos.causes import explain, read
from shadowlab.chaos.clients import ChaosClient
from shadowlab.chaos.equipment import Equipment, equipped
from shadowlab.chaos.faults import Hands
from shadowlab.chaos.history import History, MailboxArrival, SendOutcome, Struck, now
from shadowlab.chaos.letters import intact
from shadowlab.chaos.plan import Plan, Planned, schedule
from shadowlab.chaos.result import ChaosResult
from shadowlab.chaos.verdict import weigh
from shadowlab.cluster import Cluster, refuse_used, up
from shadowlab.errors import LabError
from shadowlab.guard import undisturbed
from shadowlab.layout import MAILBOX, LabNode
from shadowlab.mail import dropped_by
from shadowlab.probing import NodeStatus, message, status
from shadowlab.processes import ProcessState
from shadowmailbox.maildir import messages
from shadowrelay.cli.progress import Bar, bar

OPTIONS = ("safety_net_hold_time=1m",)
"""Settings of a run. Settled mail is kept for a minute only: a long run would fill the disk."""

_REPAIRED = 120.0  # seconds until all mail must have two copies again
_DRAINED = 180.0  # seconds until everything must have arrived
_LOOK = 0.1
_CLIENTS_END = 130.0  # seconds; a client may wait for an answer


def unleash(plan: Plan, directory: Path | None, *, keep: bool) -> ChaosResult:
    """Run ``plan`` in a new lab, which is down on return, whatever happens. Raises LabError.

    ``directory`` None means a temporary one, removed if the promise held, unless ``keep``.
    """
    if directory is not None:
        refuse_used(directory, "chaos")
    made = Path(tempfile.mkdtemp(prefix="shadowrelay-chaos-")) if directory is None else None
    home = (directory or made or Path()).absolute()
    try:
        result = _Run(plan, Cluster(home)).run()
    except BaseException:
        if made and not layout.path_of(home).exists():
            shutil.rmtree(made)
        raise
    if made and result.held and not keep:
        shutil.rmtree(made)
        return result
    return replace(result, directory=home)


class _Run:
    def __init__(self, plan: Plan, cluster: Cluster) -> None:
        self._plan, self._cluster = plan, cluster
        self._aside = cluster.directory / "chaos"
        self._problems: list[str] = []
        self._interrupted = False
        self._equipment = Equipment()
        self._history = History(self._aside / "history.jsonl")
        self._seconds: float | None = None  # time in which mail was sent; None before it begins
        self._cut_short: Callable[[float], Struck] | None = (
            None  # makes the record of an interrupted fault, given when it healed
        )

    def run(self) -> ChaosResult:
        needs = {need for name in self._plan.faults if (need := CATALOGUE[name].needs)}
        names = layout.names(self._plan.nodes)
        try:
            with equipped(self._cluster.directory, names, needs) as self._equipment:
                try:
                    with watching(self._history, self._plan.seconds) as watch:
                        self._mail_and_faults(watch)
                finally:
                    if layout.path_of(self._cluster.directory).exists():
                        self._down()
        except (KeyboardInterrupt, LabError, OSError) as problem:  # while tidying up
            if self._seconds is None:
                raise
            self._note(problem)
        return self._judged()

    def _down(self) -> None:
        with undisturbed():
            for node in self._cluster.layout.nodes:
                self._guarded(partial(self._equipment.mend, self._cluster, node.short))
            late = self._cluster.down()
        self._problems += [f"{name} did not stop in time and was killed" for name in late]

    def _mail_and_faults(self, watch: Watching) -> None:
        watch.doing("starting")
        up(
            self._cluster.directory,
            nodes=self._plan.nodes,
            options=(*OPTIONS, *self._plan.options),
            breakable=True,
            clocks=self._equipment.clocks,
        )
        self._equipment.sync()
        at, over, drained = self._cluster.layout, threading.Event(), threading.Event()
        clients = [
            ChaosClient(
                number,
                self._plan.seed,
                {node.short: node.smtp for node in at.nodes},
                self._history,
                over,
                self._plan.clients / self._plan.rate,
            )
            for number in range(self._plan.clients)
        ]
        collector = Collector(at.mailbox.dir, self._history, drained)
        began, self._seconds = time.monotonic(), 0.0
        for thread in (*clients, collector):
            thread.start()
        try:
            self._guarded(lambda: self._strike_until(began + self._plan.seconds, watch))
            over.set()
            self._seconds = time.monotonic() - began
            self._guarded(lambda: self._drain(clients, watch))
        finally:
            with undisturbed():
                over.set()
                drained.set()
                collector.join()

    def _guarded(self, phase: Callable[[], None]) -> None:
        """Run a phase. A problem or Ctrl-C ends only that phase: mail is counted all the same."""
        try:
            phase()
        except (KeyboardInterrupt, LabError, OSError) as problem:
            self._note(problem)

    def _note(self, problem: BaseException) -> None:
        if isinstance(problem, KeyboardInterrupt):
            self._interrupted = True
        else:
            self._problems.append(str(problem))

    def _strike_until(self, deadline: float, watch: Watching) -> None:
        names = [node.short for node in self._cluster.layout.nodes]
        for planned in schedule(self._plan.seed, self._plan.faults, names, self._span):
            watch.doing("mail")
            self._pause(min(planned.calm, max(0.0, deadline - time.monotonic())), watch)
            if time.monotonic() >= deadline:
                return
            if not self._strike(planned, watch):
                return

    def _strike(self, planned: Planned, watch: Watching) -> bool:
        """Make one fault and wait for the repair. Returns False if the cluster did not become whole again."""
        fault = planned.fault
        text = f"{planned.number}: {fault.node} {planned.name}"
        watch.doing(text)
        hands = self._hands(watch)
        if planned.refusing:
            self._cluster.refuse()
        struck = partial(
            Struck,
            planned.number,
            planned.name,
            fault.node,
            fault.touched,
            fault.silences,
            fault.loses,
            now(),
        )
        broken = 0.0  # not yet
        try:
            fault.do(hands)
            broken = now()
            self._pause(planned.lasting, watch)
            fault.undo(hands)
        except BaseException:
            stopped = broken or now()
            self._cut_short = lambda healed: struck(stopped, healed, healed)
            raise
        healed = now()
        self._cluster.accept()
        watch.doing(f"{text}, repair")
        try:
            lacking = self._repaired(healed, hands.spoilt, watch)
        finally:
            self._history.tell(struck(broken, healed, now(), tuple(sorted(hands.spoilt))))
        if lacking:
            self._problems.append(f"not whole {_REPAIRED:.0f} s after fault {text}: {lacking}")
        return not lacking

    def _repaired(self, since: float, spoilt: Collection[str], watch: Watching) -> str:
        """Wait until the cluster is whole. Returns what is still missing if that takes too long."""
        deadline = time.monotonic() + _REPAIRED
        while (lacking := self._missing(since, spoilt)) and time.monotonic() <= deadline:
            self._pause(_LOOK, watch)
        return lacking

    def _missing(self, since: float, spoilt: Collection[str]) -> str:
        nodes = self._cluster.layout.nodes
        if gone := ended(self._cluster, [MAILBOX, *(node.short for node in nodes)]):
            return f"{', '.join(gone)} ended by itself"
        if lacking := missing(nodes, since):
            return lacking
        waiting = unsettled(nodes, spoilt)
        return f"still in transit with a damaged copy: {', '.join(sorted(waiting))}" if waiting else ""

    def _drain(self, clients: list[ChaosClient], watch: Watching) -> None:
        """Heal everything, and wait until all mail has arrived and no copy is held."""
        watch.doing("heal")
        try:
            self._heal(self._hands(watch))
        finally:
            if self._cut_short is not None:
                self._history.tell(self._cut_short(now()))
        watch.doing("the last clients")
        deadline = time.monotonic() + _CLIENTS_END
        while any(client.is_alive() for client in clients) and time.monotonic() < deadline:
            self._pause(_LOOK, watch)
        watch.doing("drain")
        nodes = self._cluster.layout.nodes
        deadline = time.monotonic() + _DRAINED
        while (left := backlog(nodes)) != (0, 0):
            if time.monotonic() > deadline:
                told = f"queued {left[0]}, held {left[1]}" if left else "a node does not answer"
                self._problems.append(f"not drained after {_DRAINED:.0f} s: {told}")
                return
            self._pause(_LOOK, watch)

    def _heal(self, hands: Hands) -> None:
        """Undo faults that were interrupted in the middle."""
        self._cluster.heal()
        self._cluster.accept()
        for node in self._cluster.layout.nodes:
            if self._cluster.process(node.short).state is ProcessState.FROZEN:
                self._cluster.thaw(node.short)
            hands.bring_back(node.short)

    def _hands(self, watch: Watching) -> Hands:
        return Hands(self._cluster, lambda seconds: self._pause(seconds, watch), self._aside, self._equipment)

    def _pause(self, seconds: float, watch: Watching) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK))
            watch.refresh()

    @property
    def _span(self) -> float:
        """Seconds of silence after which an owner's messages are promoted."""
        policy = node_settings.settings(self._cluster.layout.nodes[0]).policy()
        return policy.shadow_resubmit_time_span.total_seconds()

    def _judged(self) -> ChaosResult:
        at, history = self._cluster.layout, self._history
        Collector(at.mailbox.dir, history, threading.Event()).collect()
        for arrival in dropped(at.log(MAILBOX)):
            history.tell(arrival)
        verdict = weigh(
            history.acknowledged(),
            history.attempted(),
            history.arrived(),
            history.arrived(damaged=True),
            history.addressed(),
        )
        ids = {message_id for message_id, _ in verdict.duplicated}
        sent = {one.message_id: one.at for one in history.attempts if one.message_id in ids}
        rows = read(at, self._aside / "lost-logs", sent)
        causes = explain(verdict.duplicated, history, rows, nodes=len(at.nodes), span=self._span)
        history.close()
        seconds, problems = self._seconds or 0.0, tuple(self._problems)
        return ChaosResult(self._plan, history, verdict, causes, problems, seconds, self._interrupted)


_INTERVAL = 0.5


class Collector(threading.Thread):
    """Notes every message that arrived, and removes its file, until ``over`` is set."""

    def __init__(self, mailboxes: Path, history: History, over: threading.Event) -> None:
        super().__init__(name="collector", daemon=True)
        self._mailboxes, self._history, self._over = mailboxes, history, over

    def run(self) -> None:
        while not self._over.wait(_INTERVAL):
            self.collect()

    def collect(self) -> None:
        for recipient, file in messages(self._mailboxes):
            message_id, unchanged = intact(file.read_bytes())
            at = int(file.name.partition(".")[0]) / 1e9
            self._history.tell(MailboxArrival(at, message_id, recipient, damaged=not unchanged))
            if unchanged:
                file.unlink()
            else:
                file.rename(self._mailboxes.parent / f"changed-{file.name}")


def dropped(log: Path) -> Iterator[MailboxArrival]:
    """Second copies that the mailbox server dropped, from its log."""
    for row in dropped_by(log):
        yield MailboxArrival(row.at, row.message_id, row.recipient, dropped=True)


class Watching:
    """Shows what is being done. ``refresh`` is cheap: call it often."""

    def __init__(self, shown: Bar, history: History) -> None:
        self._shown, self._history = shown, history
        self._began = time.monotonic()
        self._doing = ""
        self._counted = self._acknowledged = 0

    def doing(self, text: str) -> None:
        self._doing = text
        self.refresh()

    def refresh(self) -> None:
        attempts = self._history.attempts
        while self._counted < len(attempts):
            self._acknowledged += attempts[self._counted].outcome is SendOutcome.ACKNOWLEDGED
            self._counted += 1
        text = (
            f"{self._acknowledged} acknowledged, {len(self._history.arrivals)} delivered, "
            f"{len(self._history.faults)} faults | {self._doing}"
        )
        self._shown.tell(text, time.monotonic() - self._began)


@contextmanager
def watching(history: History, seconds: float) -> Iterator[Watching]:
    with bar("chaos", seconds) as shown:
        yield Watching(shown, history)


_OPEN = frozenset({"queued", "shadow", "set_aside"})


def ended(cluster: Cluster, names: Sequence[str]) -> list[str]:
    """The names of processes that do not run any more."""
    return [name for name in names if cluster.process(name).state is ProcessState.GONE]


def missing(nodes: Sequence[LabNode], since: float) -> str:
    """What the cluster lacks to be whole; empty if nothing.

    A contact counts if it is later than ``since``: before that, a node may count copies that are gone.
    """
    seen = {node.name: status(node) for node in nodes}
    for name, found in seen.items():
        short = name.partition(".")[0]
        if found is None:
            return f"{short} does not answer"
        for peer in found.peers:
            if not _met(peer, seen.get(str(peer["name"])), since):
                return f"{short} has not met {str(peer['name']).partition('.')[0]}"
        if found.exposed:
            return f"{short} has {found.exposed} exposed messages"
        if found.asking:
            return f"{short} still asks about {found.asking} messages"
        if found.promoting:
            return f"{short} has yet to promote {found.promoting} messages"
    return ""


def unsettled(nodes: Sequence[LabNode], ids: Collection[str]) -> set[str]:
    """The messages that some node has in transit or set aside."""
    return {
        one for one in ids if any((found := message(node, one)) and found["state"] in _OPEN for node in nodes)
    }


def backlog(nodes: Sequence[LabNode]) -> tuple[int, int] | None:
    """Messages in all queues, and copies held; None if a node does not answer."""
    seen = [status(node) for node in nodes]
    found = [one for one in seen if one is not None]
    if len(found) < len(seen):
        return None
    return sum(one.queued for one in found), sum(one.shadow_held for one in found)


def _met(peer: Mapping[str, Any], itself: NodeStatus | None, since: float) -> bool:
    if itself is None or peer["state"] != "reachable" or not peer["last_contact"]:
        return False
    known = peer["database_id"], peer["incarnation"]
    contact = datetime.fromisoformat(str(peer["last_contact"])).timestamp()
    return known == (itself.database_id, itself.incarnation) and contact >= since
