"""A lab under test: mail whose acknowledgements are remembered, and conditions that are waited for."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from shadowlab import mail
from shadowlab.cluster import Cluster, up
from shadowlab.mail import Count, Letter
from shadowlab.probing import NodeStatus, listed, message, status

T = TypeVar("T")

DEADLINE = 90.0  # seconds; only a failing test waits that long

INSIDE, OUTSIDE = "anna@inside.test", "otto@outside.test"


def text(token: str, *fields: str, body: str = "Whatever dies.") -> bytes:
    """A message with that token, in UTF-8."""
    head = [f"Message-ID: {mail.message_id(token)}", "Date: Sat, 21 Nov 2026 10:00:00 +0000", *fields]
    return ("\r\n".join([*head, "From: sender@outside.test", "Subject: test", "", body]) + "\r\n").encode()


def typed(lab: RunningLab, name: str, *words: str, columns: int = 80) -> subprocess.CompletedProcess[str]:
    """A command of ``shadowrelay`` for a node of the lab, in a terminal of so many columns."""
    return subprocess.run(
        [sys.executable, "-m", "shadowrelay", *words, "--admin", lab.cluster.node(name).admin],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"COLUMNS": str(columns)},
    )


def typed_json(lab: RunningLab, name: str, *words: str) -> tuple[int, dict[str, Any], str]:
    """Its exit status, its answer in JSON, and what it says beside that."""
    done = typed(lab, name, *words, "--json")
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def wait_until(
    condition: Callable[[], object],
    what: str,
    deadline: float = DEADLINE,
    explain: Callable[[], str] = str,
) -> None:
    """Look every 50 ms until it holds; ``explain`` is asked only when it fails."""
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end, f"not within {deadline:.0f} s: {what} {explain()}"
        time.sleep(0.05)


def answer(ask: Callable[[], T | None], what: str) -> T:
    """The first that is one: a busy node may not answer in time."""
    found: list[T | None] = [None]

    def answers() -> bool:
        found[0] = ask()
        return found[0] is not None

    wait_until(answers, what)
    assert found[0] is not None
    return found[0]


class RunningLab:
    """A cluster, and every message that it acknowledged."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cluster = Cluster(directory)
        self.acknowledged: list[Letter] = []
        self.mailboxes: Path | None = None  # Maildirs of a neighbour that mail ends at, instead of the lab's

    def up(
        self,
        *options: str,
        nodes: int | None = None,
        breakable: bool = False,
        clocks: bool = False,
        workers: int | None = None,
        environs: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ) -> list[str]:
        return up(
            self.directory,
            nodes=nodes,
            options=options,
            breakable=breakable,
            clocks=clocks,
            workers=workers,
            environs=environs,
        )

    def with_tls(self) -> tuple[str, str]:
        """Settings of all nodes: STARTTLS for senders, with the certificate of the first one."""
        pair = self.directory / "nodes" / "mx1" / "mx1.lab.test"
        return f"receive.default.tls_certificate={pair}.pem", f"receive.default.tls_key={pair}.key"

    def send(self, count: int = 1, *, to: str = "mx1", recipients: tuple[str, ...] = (INSIDE,)) -> None:
        """Send messages to a node, which must take them all, and have them on record."""
        for _ in range(count):
            assert self.offer(to=to, recipients=recipients)
        self.status(to)  # a look at the database comes behind the record of what was answered 250 before

    def offer(self, *, to: str, recipients: tuple[str, ...]) -> bool:
        """Send a message to a node that may refuse it, or be down."""
        return self.offer_at(self.cluster.node(to).smtp, recipients)

    def offer_at(self, server: tuple[str, int], recipients: tuple[str, ...]) -> bool:
        """The same with any server: what it takes is owed from then on."""
        letter = Letter(mail.token("e2e"), "sender@outside.test", recipients)
        taken = mail.send(server, letter)
        if taken:
            self.acknowledged.append(letter)
        return taken

    def sent_otherwise(self, token: str, *recipients: str) -> None:
        """Another client got a 250 for it."""
        self.acknowledged.append(Letter(token, "", recipients))

    def status(self, name: str) -> NodeStatus:
        return answer(lambda: status(self.cluster.node(name)), f"{name} answers")

    def queued(self, name: str) -> int:
        return self.status(name).queued

    def held(self, name: str) -> int:
        return self.status(name).shadow_held

    def peer(self, name: str, other: str) -> Mapping[str, Any]:
        """What a node says of another member."""
        full = self.cluster.node(other).name
        return next(peer for peer in self.status(name).peers if peer["name"] == full)

    def misses(self, name: str, other: str) -> float:
        """For how many seconds a node has failed to reach another member; 0 when it reaches it."""
        seen = self.peer(name, other)
        if seen["state"] != "unreachable":
            return 0.0
        return (datetime.now(UTC) - datetime.fromisoformat(seen["since"])).total_seconds()

    def ids(self, name: str) -> list[str]:
        """Of the messages in a node's queue. A list that breaks off is shorter than the queue was before."""

        def whole() -> list[str] | None:
            queued = self.queued(name)
            found = listed(self.cluster.node(name), "queued")
            return found if len(found) >= queued else None

        return answer(whole, f"{name} lists its queue")

    def unsettled(self, name: str, message_id: str) -> int:
        """Recipients that this node's copy still waits for. It must have, or have had, one."""
        found = answer(lambda: message(self.cluster.node(name), message_id), f"{name} has {message_id}")
        return int(found.get("unsettled", 0))

    def events(self, name: str, event: str) -> list[dict[str, str]]:
        """Rows of a node's tracking log, of all its workers."""
        places = self.cluster.node(name).places
        rows = [row for place in places for row in mail.tracked(place.tracking_dir)]
        return [row for row in rows if row["event-id"] == event]

    def said(self, name: str, event: str) -> list[dict[str, Any]]:
        """Lines of that event in what a node says on its standard error."""
        lines = self.cluster.layout.log(self.cluster.node(name).short).read_text("utf-8").splitlines()
        told = [json.loads(line) for line in lines if line.startswith("{")]
        return [line for line in told if line["event"] == event]

    def count(self) -> Count:
        at = self.cluster.layout
        if self.mailboxes:
            at = replace(at, mailbox=replace(at.mailbox, dir=self.mailboxes))
        return mail.count(at, self.acknowledged)

    def settle(self) -> None:
        """Wait until everything acknowledged has arrived, and queues and shadow queues are empty."""
        wait_until(lambda: self.count().lost == 0, "all delivered", 90)
        names = [node.short for node in self.cluster.layout.nodes if self.cluster.process(node.short).alive]
        wait_until(
            lambda: all(self.queued(name) == self.held(name) == 0 for name in names), "everything settled"
        )

    def verify(self) -> None:
        """Everything settles, everything acknowledged arrived, and nothing came twice."""
        self.settle()
        found = self.count()
        assert (found.lost, found.duplicates, found.unexpected) == (0, 0, 0), str(found)
        assert found.delivered == found.acknowledged > 0


def processes_of(directory: Path) -> list[int]:
    """Every process that was started with a path of this lab, recorded or not."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            programs = (b"\0shadowrelay\0", b"\0shadowmailbox\0", b"\0shadowlab\0links\0")
            ours = any(program in line for program in programs)
            if str(directory).encode() in line and ours:
                found.append(int(entry.name))
    return found


@contextmanager
def gate(port: int, target: tuple[str, int]) -> Iterator[None]:
    """While open, connections to a port that was closed before are passed on. Then they are closed."""

    def passing(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65_536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def accepting() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(target)
            except OSError:
                client.close()
                continue
            connections.extend((client, server))
            for pair in ((client, server), (server, client)):
                threading.Thread(target=passing, args=pair, daemon=True).start()

    connections: list[socket.socket] = []
    listener = socket.create_server(("127.0.0.1", port))
    threading.Thread(target=accepting, daemon=True).start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in connections:
            # Closing alone leaves it up while a thread reads from it, and both ends wait for a reply.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
