"""Real nodes with TLS: the number of workers of one is raised and lowered, and the other hears it."""

from __future__ import annotations

import json
import signal
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shadowlab.ports import free_ports
from shadowrelay import authority
from shadowrelay.settings import to_toml
from tests.service.test_service import MESSAGE, Process, wait_for

pytestmark = [pytest.mark.lab, pytest.mark.slow]

QUICK = {"shadow_heartbeat_frequency": "1s", "member_skip_interval": "1s", "minimum_free_disk": 0}
ONE, TWO = "mx1.example.org", "mx2.example.org"


class Pair:
    """Two nodes; the file of the second one names the first once, without a word on its workers."""

    def __init__(self, directory: Path) -> None:
        authority.init(directory / "ca", name="test", now=datetime.now(UTC))
        ports = free_ports(32)
        self.peers = {ONE: ports[0], TWO: ports[16]}
        self.one = self._made(directory, ONE, workers=2)
        self.two = self._made(directory, TWO)

    def _made(self, directory: Path, name: str, **changes: Any) -> Process:
        pair = authority.issue(directory / "ca", name, now=datetime.now(UTC))
        (directory / name).mkdir()
        return Process(
            directory / name,
            name=name,
            peer={
                "listen": f"127.0.0.1:{self.peers[name]}",
                "certificate": str(pair.certificate),
                "key": str(pair.key),
                "ca": str(authority.authority_pair(directory / "ca").certificate),
            },
            members=[{"name": other, "address": f"127.0.0.1:{port}"} for other, port in self.peers.items()],
            reject_message_on_shadow_failure=True,
            **QUICK,
            **changes,
        )

    def started(self) -> None:
        for node in (self.one, self.two):
            node.start()
        wait_for(lambda: self.one.log().count("node_started") == 2, 60)
        wait_for(lambda: "node_started" in self.two.log(), 60)

    def workers(self, number: int) -> None:
        """The settings file of the first node has another number, and the node reads it."""
        tree = tomllib.loads(self.one.file.read_text())
        self.one.file.write_text(to_toml(tree | {"workers": number}))
        self.one.signal(signal.SIGHUP)

    def heard(self, event: str, member: str) -> bool:
        """Does the log of the second node say so of a member?"""
        lines = [json.loads(line) for line in self.two.text().splitlines() if line.startswith("{")]
        return any(line["event"] == event and line.get("member") == member for line in lines)

    def held_by(self, member: str) -> bool:
        """Send mail to the second node; has that member a copy of some of it?"""
        try:
            with self.two.client() as client:
                client.sendmail("a@example.org", ["b@example.net"], MESSAGE)
        except OSError:  # smtplib's errors are: no member took the copy in time
            return False
        rows = self.two.tracked().splitlines()
        return any(f",{member}," in row and "HAREDIRECT" in row for row in rows)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    try:
        yield made
    finally:
        for node in (made.one, made.two):
            if node.running and node.running.poll() is None:
                node.signal(signal.SIGTERM)
                node.ended(60)


def test_workers_join_and_leave_a_node_and_the_other_one_needs_no_change(pair: Pair) -> None:
    pair.started()
    wait_for(lambda: pair.held_by(f"w2.{ONE}"), 60)
    pair.workers(3)
    wait_for(lambda: pair.held_by(f"w3.{ONE}"), 60)
    pair.workers(1)
    for gone in (f"w3.{ONE}", f"w2.{ONE}"):
        wait_for(lambda gone=gone: pair.heard("member_left", gone), 90)
    assert not pair.held_by("nobody")
    assert not pair.heard("promotion_pending", f"w3.{ONE}")
