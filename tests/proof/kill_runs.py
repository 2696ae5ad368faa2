"""Runs one case on a lab of real processes: mail, a kill at the point, a restart, until all is quiet."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from shadowlab import layout, processes, starting
from shadowlab.cluster import Cluster, up
from shadowlab.errors import LabError
from shadowlab.probing import status
from shadowrelay.failpoints import VARIABLE

from .kill_cases import Case, Course, Role
from .kill_mail import Sending, Stream, poll, sendings
from .kill_verdict import RESENT, Kill, Mailboxes, Verdict, judge, torn_logs, untold

OWNER, OTHER, HOLDER = "mx1", "mx2", "mx3"

OPTIONS = ("tracking.max_file_size=10000", "member_skip_interval=200ms")
_AT_LEISURE = ("shadow_resubmit_time_span=1h",)
_IN_HASTE = ("shadow_resubmit_time_span=2s",)
_ALONE = ("reject_message_on_shadow_failure=false",)

_CLIENTS = 4
_AT_EASE = 0.2  # seconds between two messages of a client while a node is down
_SOON = 60.0  # seconds for anything that has to happen; a busy machine
_LOGGED = 10.0  # seconds until rows of the outbox are in a file


@dataclass(frozen=True, slots=True)
class Result:
    """One case: what was sent, how many kills were planned, who died when, what became of it."""

    case: Case
    messages: int
    planned: int
    kills: tuple[Kill, ...]
    verdict: Verdict
    seconds: float


class Lab(Enum):
    """The labs that cases run on, with the settings of each."""

    PATIENT = _AT_LEISURE
    HASTY = _IN_HASTE
    ALONE = _ALONE

    @classmethod
    def of(cls, case: Case) -> Lab:
        if case.course is Course.ALONE:
            return cls.ALONE
        return cls.HASTY if case.course in (Course.SILENCE, Course.RETURN) else cls.PATIENT


class Ground:
    """A lab on which several cases are run, one after the other."""

    def __init__(self, directory: Path) -> None:
        self.cluster = Cluster(directory)
        self._boxes: Mailboxes | None = None
        self._read: dict[str, int] = {}  # octets of each node's log that were looked through
        self._wiped: set[str] = set()

    def up(self, lab: Lab) -> None:
        nodes = 1 if lab is Lab.ALONE else None
        up(self.cluster.directory, nodes=nodes, options=(*OPTIONS, *lab.value))

    def down(self) -> None:
        if layout.path_of(self.cluster.directory).exists():
            self.cluster.down()

    def run(self, case: Case, messages: int, kills: int, rng: random.Random) -> Result:
        """Raises LabError when the lab itself fails; what the relay does wrong is in the verdict."""
        began = time.monotonic()
        streams = case.course in (Course.STREAM, Course.ALONE)
        run = _Stream(self, case, rng) if streams else _Rounds(self, case, rng)
        run.go(messages, kills)
        at = self.cluster.layout
        self._boxes = self._boxes or Mailboxes(at)
        verdict = judge(at, self._boxes, run.mail, run.killed)
        verdict.problems += known_again(case, verdict)
        verdict.problems += shortcomings(len(run.killed), kills, run.unsettled)
        logs: list[str] = []

        def logs_are_whole() -> bool:
            found = torn_logs(at, self._wiped)
            if not self._wiped:
                found += untold(at, run.mail)
            logs[:] = found
            return not logs

        poll(logs_are_whole, _LOGGED, every=0.5)
        verdict.problems += logs
        return Result(case, len(run.mail), kills, tuple(run.killed), verdict, time.monotonic() - began)

    # Nodes

    def start(self, node: str, failpoint: str = "") -> None:
        """Start it; it may reach its failpoint while it starts."""
        try:
            self.cluster.start(node, {VARIABLE: failpoint} if failpoint else {})
        except LabError:
            if self.cluster.process(node).alive or "failpoint_reached" not in self._news(node):
                raise

    def restart(self, node: str, failpoint: str) -> None:
        """In a quiet moment; all members have met again on return, unless it died."""
        self.kill(node)
        self.start(node, failpoint)
        starting.see_one_another(self.cluster.layout.nodes)

    def kill(self, node: str) -> None:
        if self.cluster.process(node).alive:
            self.cluster.kill(node)

    def fallen(self, case: Case, node: str) -> Kill | None:
        """The kill, if it died at its point since this was asked last; with its disk, if the case says so."""
        process = self.cluster.process(node)
        if process.alive:
            return None
        process.wait(0)
        news = self._news(node)
        self._read[node] = self._read.get(node, 0) + len(news.encode())
        told = [json.loads(line) for line in news.splitlines() if "failpoint_reached" in line]
        if not told and "node_stopped" in news:
            return None
        if not told:
            raise LabError(f"{node} ended, and not at its failpoint:\n{news[-2000:]}")
        if case.disk_lost:
            self.cluster.wipe(node)
            self._wiped.add(self.cluster.node(node).name)
        name = self.cluster.node(node).name
        return Kill(name, told[-1]["point"], told[-1]["at"] / 1e9, case.disk_lost)

    def lose_disk(self, node: str) -> None:
        self.kill(node)
        self.cluster.wipe(node)
        self._wiped.add(self.cluster.node(node).name)

    def look_at_logs_from_here(self, node: str) -> None:
        self._read[node] = processes.size(self.cluster.layout.log(node))

    def _news(self, node: str) -> str:
        log = self.cluster.layout.log(node)
        with log.open("rb") as file:
            file.seek(self._read.get(node, 0))
            return file.read().decode("utf-8", "replace")

    # Mail

    def queued(self, *nodes: str) -> int:
        """In their queues; -1 when one does not answer."""
        found = [status(self.cluster.node(node)) for node in nodes]
        return sum(one.queued for one in found if one) if all(found) else -1

    def exposed(self, node: str) -> int:
        """Of its messages; -1 when it does not answer."""
        found = status(self.cluster.node(node))
        return found.exposed if found else -1

    def settled(self, mail: Sequence[Sending]) -> bool:
        """Everything acknowledged has arrived, and no node has anything in its queues."""
        nodes = [status(node) for node in self.cluster.layout.nodes]
        if not all(one and one.queued == one.shadow_held == 0 for one in nodes):
            return False
        self._boxes = self._boxes or Mailboxes(self.cluster.layout)
        arrived = {key for key, _, _ in self._boxes.first()}
        return all(
            (one.letter.message_id, to) in arrived
            for one in mail
            if one.taken
            for to in one.letter.recipients
        )


def known_again(case: Case, verdict: Verdict) -> list[str]:
    """What is wrong if a node alone that has its disk did not know what a client repeated."""
    again = verdict.duplicates[RESENT] if case.course is Course.ALONE and not case.disk_lost else 0
    return [f"{again} deliveries of what was sent again, and was known"] if again else []


def shortcomings(killed: int, planned: int, unsettled: str) -> list[str]:
    """Why a run shows less than it was to show: each passage at which the node was to die has to come."""
    found = [] if killed >= planned else [f"only {killed} of {planned} kills happened"]
    return [*found, unsettled] if unsettled else found


class _Run:
    """What the two kinds of run have in common."""

    def __init__(self, ground: Ground, case: Case, rng: random.Random) -> None:
        self.ground, self.case, self.rng = ground, case, rng
        self.target = OWNER if case.role is Role.OWNER else HOLDER
        self.mail: list[Sending] = []
        self.killed: list[Kill] = []
        self.unsettled = ""

    def failpoint(self, messages: float) -> str:
        """At a passage that so many messages are sure to bring."""
        return f"{self.case.point}:{self.rng.randint(1, max(1, int(messages * self.case.passages)))}"

    def fell(self) -> bool:
        kill = self.ground.fallen(self.case, self.target)
        if kill is not None:
            self.killed.append(kill)
        return kill is not None

    def settle(self) -> None:
        if not poll(lambda: self.ground.settled(self.mail), _SOON, every=0.3):
            self.unsettled = f"not settled within {_SOON:.0f} s"


class _Stream(_Run):
    """Mail flows all the time, and the node is killed again and again.

    Much of it passes the point in one commit, or while the node is down: for each kill that is still to come
    then, as much is sent again as a kill needs.
    """

    def go(self, messages: int, kills: int) -> None:
        share = 0.6 * messages / kills
        ground = self.ground
        ground.look_at_logs_from_here(self.target)
        ground.restart(self.target, self.failpoint(share))
        for more in (messages, *[messages // kills] * kills):
            self._flow(sendings(more), kills, share)
            if self.unsettled or len(self.killed) >= kills:
                break
        if len(self.killed) < kills and not self.fell():
            ground.cluster.stop(self.target)  # which closes its log file: the last passage of some points
            self.fell()
        if not ground.cluster.process(self.target).alive:
            ground.start(self.target)
            self.settle()

    def _flow(self, mail: list[Sending], kills: int, share: float) -> None:
        ground, down = self.ground, threading.Event()
        self.mail += mail
        server = ground.cluster.node(OWNER).smtp
        stream = Stream(server, mail, _CLIENTS, lambda: _AT_EASE if down.is_set() else 0.0)
        quiet_by = time.monotonic() + _SOON + 2 * len(mail)
        try:
            while stream.flowing or not ground.settled(self.mail):
                if self.fell():
                    down.set()
                    ground.start(self.target, self.failpoint(share) if len(self.killed) < kills else "")
                    down.clear()
                if not stream.flowing:
                    quiet_by = min(quiet_by, time.monotonic() + _SOON)
                if time.monotonic() > quiet_by:
                    self.unsettled = "not settled in time"
                    return
                time.sleep(0.02)
        finally:
            stream.close()


class _Rounds(_Run):
    """Mail waits in transit, the owner dies, and what follows is cut short: once per round."""

    def go(self, messages: int, kills: int) -> None:
        each = max(1, messages // kills)
        for _ in range(kills):
            self.ground.look_at_logs_from_here(self.target)
            self._wait_in_transit(each)
            match self.case.course:
                case Course.DISK_LOST:
                    self._disk_lost()
                case Course.SILENCE:
                    self._silence(each)
                case _:
                    self._return(each)
            self.ground.cluster.accept()
            self.settle()
            if self.unsettled:
                return

    def _wait_in_transit(self, count: int) -> None:
        self.ground.cluster.refuse()
        if self.target == HOLDER and self.case.course is not Course.RETURN:
            self.ground.restart(HOLDER, self.failpoint(count))
        mail = sendings(count)
        stream = Stream(self.ground.cluster.node(OWNER).smtp, mail, _CLIENTS, lambda: 0.0)
        try:
            poll(lambda: not stream.flowing, _SOON)
        finally:
            stream.close()
        self.mail += mail

    def _disk_lost(self) -> None:
        self.ground.lose_disk(OWNER)
        self.ground.cluster.accept()
        self.ground.start(OWNER)
        if poll(self.fell, _SOON):
            self.ground.start(HOLDER)

    def _silence(self, count: int) -> None:
        self.ground.kill(OWNER)
        if poll(self.fell, _SOON):
            self.ground.start(HOLDER)
        poll(lambda: self.ground.queued(OTHER, HOLDER) == count, _SOON)
        self.ground.start(OWNER)

    def _return(self, count: int) -> None:
        self.ground.kill(OWNER)
        poll(lambda: self.ground.queued(OTHER, HOLDER) == count, _SOON)
        failpoint = self.failpoint(count)
        if self.target == HOLDER:  # the new owner, once all that it took over has a second copy again
            poll(lambda: self.ground.exposed(HOLDER) == 0, _SOON)
            self.ground.restart(HOLDER, failpoint)
        self.ground.start(OWNER, failpoint if self.target == OWNER else "")
        if poll(self.fell, _SOON):
            self.ground.start(self.target)
        poll(lambda: self.ground.queued(OWNER) == 0, _SOON)
