"""Three boundaries of one node each, in a row, as real processes: a hands on to b, b to c, c to the end."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import smtplib
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Any
from urllib.request import urlopen

from receiving import QUICK, MemoryReceiver
from running_lab import gate, wait_until

from shadowlab import mail
from shadowlab.ports import free_ports
from shadowrelay import authority
from shadowrelay.core.values import replace
from shadowrelay.smtp.receiving.connector import Connector

NAMES = ("a", "b", "c")
TO = "anna@inside.test"
PATIENCE = 30.0  # seconds; only a failing test waits that long


class End:
    """The last next hop, which tracks nothing. It can be shut, and remembers all that it took."""

    def __init__(self, port: int) -> None:
        self.receiver = MemoryReceiver()
        self._connector = Connector(replace(QUICK, port=port, max_inbound_connections=None), self.receiver)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._open = False

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    def open(self) -> None:
        self._do(self._connector.start())
        self._do(self._connector.admit())
        self._open = True

    def shut(self) -> None:
        if self._open:
            self._do(self._connector.stop(0))
        self._open = False

    def close(self) -> None:
        self.shut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)

    def counts(self) -> Counter[str]:
        """How often each message came, by its Message-ID."""
        return Counter(_message_id(kept.content) for kept in tuple(self.receiver.kept))


def _message_id(content: bytes) -> str:
    lines = content.split(b"\r\n")
    return next(line[12:].strip().decode() for line in lines if line.lower().startswith(b"message-id: "))


@dataclass
class ChainNode:
    name: str
    directory: Path
    smtp: int
    admin: int
    process: subprocess.Popen[bytes] | None = None
    lost: list[str] = field(default_factory=list)  # databases

    @property
    def full(self) -> str:
        return f"{self.name}.chain.test"

    @property
    def tracking(self) -> Path:
        return self.directory.parent / "tracking" / self.name / "log"

    def get(self, path: str) -> Any:
        """What its admin API answers; None if it does not, or not 200."""
        with suppress(OSError, ValueError), urlopen(f"http://127.0.0.1:{self.admin}{path}", timeout=5) as got:
            return json.loads(got.read())
        return None

    def start(self) -> None:
        self.begin()
        self.awaited()

    def begin(self) -> None:
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "shadowrelay", "run", str(self.directory / "node.toml")],
                stdout=log,
                stderr=log,
            )

    def awaited(self) -> None:
        """Until it answers."""
        ready = "/healthz/ready"
        wait_until(lambda: self.get(ready) is not None, f"{self.name} answers", PATIENCE, self.said)

    def said(self) -> str:
        return (self.directory / "log").read_text("utf-8")[-3000:]

    def kill(self) -> None:
        if self.process is not None:
            os.kill(self.process.pid, SIGKILL)
            self.process.wait(PATIENCE)
            self.process = None

    def wipe(self) -> None:
        """Its disk is lost, but for the tracking log, which was collected elsewhere."""
        self.lost.append(self.get("/api/v1/status")["database_id"])
        self.kill()
        shutil.rmtree(self.directory / "data")

    def stop(self) -> None:
        if self.process is not None:
            os.kill(self.process.pid, SIGTERM)
            self.process.wait(PATIENCE)
            self.process = None


class Chain:
    def __init__(self, directory: Path) -> None:
        made = directory / "ca"
        authority.init(made, name="Chain", now=datetime.now(UTC))
        *ports, self._end_port = free_ports(9)
        self.nodes = {
            name: ChainNode(name, directory / name, ports[2 * at], ports[2 * at + 1])
            for at, name in enumerate(NAMES)
        }
        self._links = dict(zip(("a", "b"), ports[6:], strict=True))  # gates in front of the next node
        self.end = End(self._end_port)
        self.directory = directory
        self.sent: list[str] = []
        self._gates: dict[str, Any] = {}
        for node in self.nodes.values():
            node.directory.mkdir()
            authority.issue(made, node.full, now=datetime.now(UTC))
        for node in self.nodes.values():
            (node.directory / "node.toml").write_text(self._settings(node, made), "utf-8")

    def _settings(self, node: ChainNode, made: Path) -> str:
        at = NAMES.index(node.name)
        onward = self._links.get(node.name, self._end_port)
        lines = [
            f'name = "{node.full}"',
            f'data_dir = "{node.directory / "data"}"',
            'relay_networks = ["127.0.0.0/8"]',
            "minimum_free_disk = 0",
            "reject_message_on_shadow_failure = false",
            'shadow_heartbeat_timeout_interval = "1s"',
            "shadow_heartbeat_retry_count = 3",
            'queue_glitch_retry_interval = "1s"',
            'transient_failure_retry_interval = "1s"',
            'outbound_connection_failure_retry_interval = "1s"',
            'drain_timeout = "0s"',
            "[tracking]",
            f'directory = "{node.tracking}"',
            "[admin]",
            f'listen = "127.0.0.1:{node.admin}"',
            "[receive.default]",
            f'listen = "127.0.0.1:{node.smtp}"',
            f'tls_certificate = "{made / (node.full + ".pem")}"',
            f'tls_key = "{made / (node.full + ".key")}"',
            'tarpit_interval = "0s"',
            'max_acknowledgement_delay = "0s"',
        ]
        if at:
            lines.append(f"accept_xshadow = [{_pin(made, self.nodes[NAMES[at - 1]])}]")
        lines += ["[routes.onward]", 'domains = ["*"]', 'host = "127.0.0.1"', f"port = {onward}"]
        if at < 2:
            lines += [
                f"send_xshadow = [{_pin(made, self.nodes[NAMES[at + 1]])}]",
                f'xshadow_certificate = "{made / (node.full + ".pem")}"',
                f'xshadow_key = "{made / (node.full + ".key")}"',
            ]
        else:
            lines.append('tls = "none"')
        return "\n".join(lines) + "\n"

    def __getitem__(self, name: str) -> ChainNode:
        return self.nodes[name]

    def up(self) -> None:
        self.end.open()
        for name in ("a", "b"):
            self.join(name)
        for node in self.nodes.values():
            node.begin()
        for node in self.nodes.values():
            node.awaited()

    def join(self, name: str) -> None:
        """The link from that node to the next one works."""
        following = NAMES[NAMES.index(name) + 1]
        passing = gate(self._links[name], ("127.0.0.1", self.nodes[following].smtp))
        passing.__enter__()
        self._gates[name] = passing

    def cut(self, name: str) -> None:
        """The link from that node to the next one is cut."""
        if passing := self._gates.pop(name, None):
            passing.__exit__(None, None, None)

    def send(self, count: int) -> None:
        for _ in range(count):
            token = mail.token("hop")
            with smtplib.SMTP("127.0.0.1", self["a"].smtp, timeout=PATIENCE) as client:
                client.sendmail("sender@outside.test", [TO], _text(token))
            self.sent.append(mail.message_id(token))

    def waiting(self, name: str) -> int:
        """How many messages a node's queue has; -1 if it does not answer."""
        found = self[name].get("/api/v1/status")
        return -1 if found is None else int(found["queued"])

    def kept(self, name: str) -> int:
        """How many messages a node keeps for the next hop, which has not said that it delivered them."""
        found: set[str] = set()
        for row in mail.tracked(self[name].tracking):
            match row["source"], row["event-id"]:
                case "SMTP", "SENDEXTERNAL":
                    found.add(row["network-message-id"])
                case "REDUNDANCY", "HADISCARD":
                    found.discard(row["network-message-id"])
                case "REDUNDANCY", "RESUBMIT":
                    found.discard(row["reference"].partition("/")[0])
        return len(found)

    def discarded(self, name: str) -> int:
        """Of how many messages a node heard that the next hop has delivered them."""
        rows = mail.tracked(self[name].tracking)
        return sum((row["source"], row["event-id"]) == ("REDUNDANCY", "HADISCARD") for row in rows)

    def handed(self, name: str) -> int:
        """How many messages a node took that somebody waits to hear of."""
        rows = mail.tracked(self[name].tracking)
        return sum(row["event-id"] == "RECEIVE" and "S:HandedBy=" in row["custom-data"] for row in rows)

    def arrived(self) -> bool:
        return self.end.counts().keys() >= set(self.sent)

    def done(self) -> bool:
        """Everything has arrived, and the nodes that kept it for the next hop have heard of that."""
        if not self.arrived() or any(self.waiting(name) for name in NAMES):
            return False
        return self.discarded("a") == self.discarded("b") == len(self.sent)

    def explained(self) -> str:
        said = {name: self[name].said() for name in NAMES}
        kept = {name: self.kept(name) for name in NAMES}
        return f"{self.end.counts()} of {self.sent}; kept: {kept}; {said}"

    def settle(self) -> None:
        wait_until(self.done, "everything has arrived, and is discarded", PATIENCE, self.explained)

    def down(self) -> None:
        for node in self.nodes.values():
            node.stop()

    def close(self) -> None:
        for name in tuple(self._gates):
            self.cut(name)
        for node in self.nodes.values():
            node.kill()
        self.end.close()


def _pin(made: Path, node: ChainNode) -> str:
    return f'{{name = "{node.full}", certificate = "{made / (node.full + ".pem")}"}}'


def _text(token: str) -> bytes:
    head = [f"Message-ID: {mail.message_id(token)}", "Date: Sat, 21 Nov 2026 10:00:00 +0000"]
    return "\r\n".join(
        [*head, "From: sender@outside.test", "Subject: hop", "", "From hop to hop.", ""]
    ).encode()


@contextmanager
def chain(directory: Path) -> Iterator[Chain]:
    made = Chain(directory)
    try:
        yield made
    finally:
        made.close()
