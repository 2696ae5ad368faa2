"""Runs the demonstration: a node and its disk are lost while mail is in transit, and no mail is lost."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.markup import escape

from shadowlab import layout, mail
from shadowlab.cluster import Cluster, refuse_used, up
from shadowlab.condition import ClusterReport, Condition, look
from shadowlab.errors import LabError
from shadowlab.layout import INSIDE_DOMAIN, OUTSIDE_DOMAIN
from shadowlab.mail import Count, Letter, token
from shadowlab.probing import database_of, listed, message
from shadowrelay.core.workers import label

MESSAGES = 12
OWNER = "mx1"
SENDER = f"sender@{OUTSIDE_DOMAIN}"

_SOON = 30.0  # seconds that a step may take on a slow machine; most take one second


def demonstrate(
    directory: Path | None, *, keep: bool, workers: int = 1, console: Console | None = None
) -> bool:
    """Run the demonstration on a new lab. Returns whether every acknowledged message arrived once.

    ``directory`` None means a temporary one, removed after success unless ``keep``. ``workers``: of each
    node. The lab is down on return, whatever happens. Raises LabError.
    """
    if directory is not None:
        refuse_used(directory, "the demonstration")
    story = Story(console)
    made = Path(tempfile.mkdtemp(prefix="shadowrelay-demo-")) if directory is None else None
    home = directory or made or Path()
    held = False
    try:
        held = _Demonstration(Cluster(home), story, workers).run()
    finally:
        began = layout.path_of(home).exists()
        if began:
            Cluster(home).down()
        if made and (not began or (held and not keep)):
            shutil.rmtree(made)
        elif began:
            story.tell(f"The lab is down. Logs, settings and mail are in {home}")
    return held


class _Demonstration:
    def __init__(self, cluster: Cluster, story: Story, workers: int) -> None:
        self.cluster, self.story, self.workers = cluster, story, workers
        self.letters: list[Letter] = []
        self.example = ""

    def run(self) -> bool:
        self._begin()
        self._send()
        self._show_both_copies()
        self._lose_the_owner()
        self._see_the_promotion()
        return self._deliver()

    def _begin(self) -> None:
        self.story.step("A cluster of three nodes in two sites, and a mailbox server")
        up(self.cluster.directory, workers=self.workers)
        for node in self.cluster.layout.nodes:
            each = f", {node.workers} workers" if node.workers > 1 else ""
            self.story.tell(f"{node.name} in {node.site}, SMTP on port {node.smtp[1]}{each}")
        self.story.step("The mailbox server refuses mail for now: what is sent stays in transit")
        self.cluster.refuse()

    def _send(self) -> None:
        swaks = mail.find_swaks()
        server = self.cluster.node(OWNER).smtp
        self.story.step(f"{MESSAGES} messages are sent to {OWNER} with {'swaks' if swaks else 'smtplib'}")
        self.letters = [one for one in map(_letter, range(MESSAGES)) if mail.send(server, one, swaks=swaks)]
        recipients = sum(len(letter.recipients) for letter in self.letters)
        self.story.tell(f"{OWNER} answered 250 to {len(self.letters)} of them, for {recipients} recipients")
        if not self.letters:
            raise LabError(f"nothing was accepted: see {self.cluster.layout.log(OWNER)}")

    def _show_both_copies(self) -> None:
        self.story.step("Before each 250 there were two copies: the owner's and a holder's")
        self.story.watch(
            lambda: look(self.cluster),
            lambda seen: (
                _queued(seen, OWNER) == len(self.letters) and _held_elsewhere(seen) == len(self.letters)
            ),
            _copies,
            within=_SOON,
        )
        self.example = next(iter(listed(self.cluster.node(OWNER), "queued")), "")
        self._tell_of_the_example()

    def _lose_the_owner(self) -> None:
        self.story.step(f"{OWNER} is killed (SIGKILL), and its disk is wiped")
        self.cluster.kill(OWNER)
        for lost in self.cluster.wipe(OWNER):
            self.story.tell(f"database {lost} is gone; audit: --lost {lost}")
        self.story.step(f"{OWNER} comes back, empty")
        self.cluster.start(OWNER)
        self.story.tell(f"{OWNER} has {self._databases()}")

    def _see_the_promotion(self) -> None:
        self.story.step(
            "Its holder meets another database than the one that it knew, and promotes its copies"
        )
        self.story.watch(
            lambda: look(self.cluster),
            lambda seen: (
                _total_queued(seen) == len(self.letters) and _held_elsewhere(seen) >= len(self.letters)
            ),
            _copies,
            within=_SOON,
        )
        self._tell_of_the_example()

    def _deliver(self) -> bool:
        self.story.step("The mailbox server accepts mail again")
        self.cluster.accept()
        try:
            self.story.watch(
                self._count,
                lambda seen: seen.lost == 0,
                lambda seen: f"{seen.delivered} of {seen.acknowledged} delivered",
                within=_SOON,
            )
            self.story.step("Queues and shadow queues run empty")
            self.story.watch(
                lambda: look(self.cluster),
                lambda seen: _total_queued(seen) == 0 and _held_elsewhere(seen) == 0,
                _copies,
                within=_SOON,
            )
        except LabError as problem:
            self.story.tell(str(problem))
        return self._judge(self._count())

    def _judge(self, found: Count) -> bool:
        held = found.lost == 0 and found.duplicates == 0 and len(self.letters) == MESSAGES
        self.story.verdict(f"Verdict, per recipient: {found}", held=held)
        if found.lost:
            arrived = mail.arrivals(self.cluster.layout.mailbox.dir)
            for letter in self.letters:
                missing = [to for to in letter.recipients if (letter.message_id, to) not in arrived]
                if missing:
                    self.story.tell(f"lost: {letter.message_id} for {', '.join(missing)}")
        return held

    def _tell_of_the_example(self) -> None:
        """Tell where one message is, as each node reports its own copy."""
        self.story.tell(f"for instance message {self.example}:")
        for node in self.cluster.layout.nodes:
            found = message(node, self.example)
            if found and found.get("state") in ("queued", "shadow"):
                owner = label(str(found["owner"]))
                role = "owns it" if found["state"] == "queued" else f"holds a copy for {owner}"
                self.story.tell(f"  {node.short} {role} (epoch {found['epoch']})")

    def _count(self) -> Count:
        return mail.count(self.cluster.layout, self.letters)

    def _databases(self) -> str:
        owner = self.cluster.node(OWNER)
        found = [database_of(owner, number) or "of an unknown name" for number in range(1, self.workers + 1)]
        return f"{'a new database' if self.workers == 1 else 'new databases'}, {', '.join(found)}"


def _letter(number: int) -> Letter:
    inside, outside = f"anna{number}@{INSIDE_DOMAIN}", f"otto{number}@{OUTSIDE_DOMAIN}"
    recipients = ((inside,), (outside,), (inside, outside))[number % 3]
    return Letter(token(f"demo-{number}"), SENDER, recipients)


def _queued(report: ClusterReport, name: str) -> int:
    return sum(one.status.queued for one in report.nodes if one.status and one.node.short == name)


def _total_queued(report: ClusterReport) -> int:
    return sum(one.status.queued for one in report.nodes if one.status)


def _held_elsewhere(report: ClusterReport) -> int:
    return sum(one.status.shadow_held for one in report.nodes if one.status)


def _copies(report: ClusterReport) -> str:
    """One line: the messages in each node's queue and shadow queue."""
    parts = []
    for one in report.nodes:
        if one.status:
            parts.append(f"{one.node.short}: {one.status.queued} queued, {one.status.shadow_held} held")
        else:
            parts.append(f"{one.node.short}: {Condition(one.condition).value}")
    return " | ".join(parts)


_PIPE_WIDTH = 120
_POLL = 0.1

T = TypeVar("T")


class Story:
    """Prints numbered steps, each with its result and the seconds since the start."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        if not self._console.is_terminal:
            self._console.width = _PIPE_WIDTH
        self._began = time.monotonic()
        self._steps = 0

    def step(self, text: str) -> None:
        """Print the next step."""
        self._steps += 1
        elapsed = time.monotonic() - self._began
        self._console.print(f"[bold]{self._steps}. {escape(text)}[/] [dim]({elapsed:.0f} s)[/]")

    def tell(self, text: str) -> None:
        """Print a result of the step, as one line."""
        self._console.print(f"   {escape(text)}", soft_wrap=True)

    def verdict(self, text: str, *, held: bool) -> None:
        self._console.print(f"[bold {'green' if held else 'red'}]{escape(text)}[/]", soft_wrap=True)

    def watch(
        self, look: Callable[[], T], until: Callable[[T], bool], tell: Callable[[T], str], *, within: float
    ) -> T:
        """Look until ``until`` is true, telling each change; at most ``within`` seconds.

        Raises LabError with the last text told.
        """
        deadline = time.monotonic() + within
        told = ""
        while True:
            seen = look()
            if (text := tell(seen)) and text != told:
                self.tell(text)
                told = text
            if until(seen):
                return seen
            if time.monotonic() > deadline:
                raise LabError(f"this did not end well within {within:.0f} s; last seen: {told or 'nothing'}")
            time.sleep(_POLL)
