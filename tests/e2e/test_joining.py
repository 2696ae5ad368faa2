"""A member joins three running nodes by an announcement of the authority, and stays in the boundary."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shadowlab.ports import free_ports
from shadowrelay import authority
from shadowrelay.settings import to_toml
from shadowrelay.wire.announcements import Announcement, format_signed, parse_signed, signed_octets
from tests.service.test_service import Process, wait_for

pytestmark = [pytest.mark.lab, pytest.mark.slow]

NAMES = ("mx1", "mx2", "mx3")
QUICK = {"shadow_heartbeat_frequency": "1s", "member_skip_interval": "1s"}


def full(name: str) -> str:
    return f"{name}.example.org"


class Cluster:
    """Three nodes with TLS between them, and the directory of their authority."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.ca = directory, directory / "ca"
        authority.init(self.ca, name="test", now=datetime.now(UTC))
        self.peers = {name: f"127.0.0.1:{port}" for name, port in zip(NAMES, free_ports(3), strict=True)}
        members = [
            {"name": full(name), "address": address, "host": name} for name, address in self.peers.items()
        ]
        self.nodes = {name: self.made(name, members) for name in NAMES}

    def made(self, name: str, members: list[dict[str, Any]]) -> Process:
        pair = authority.issue(self.ca, full(name), now=datetime.now(UTC))
        (self.directory / name).mkdir()
        return Process(
            self.directory / name,
            name=full(name),
            host=name,
            peer={"listen": self.peers[name], **self.secured(pair)},
            members=members,
            reject_message_on_shadow_failure=True,
            **QUICK,
        )

    def secured(self, pair: authority.Pair) -> dict[str, str]:
        ca = authority.authority_pair(self.ca).certificate
        return {"certificate": str(pair.certificate), "key": str(pair.key), "ca": str(ca)}

    def up(self) -> None:
        for node in self.nodes.values():
            started(node)

    def fourth(self) -> Process:
        """Made with ``shadowrelay member add``; its paths and ports are those of this machine."""
        (port,) = free_ports(1)
        self.peers["mx4"] = f"127.0.0.1:{port}"
        out = self.directory / "made"
        typed = [sys.executable, "-m", "shadowrelay", "member", "add", full("mx4")]
        typed += ["--address", self.peers["mx4"], "--dir", str(self.ca), "--out", str(out), "--host", "mx4"]
        typed += ["--like", str(self.nodes["mx1"].file)]
        subprocess.run(typed, check=True, capture_output=True)
        tree = tomllib.loads((out / "settings.toml").read_text())
        assert tree["name"] == full("mx4")
        (self.directory / "mx4").mkdir()
        own = Process(self.directory / "mx4")
        at = tomllib.loads(own.file.read_text())
        pair = authority.Pair(out / f"{full('mx4')}.pem", out / f"{full('mx4')}.key")
        peer = {"listen": self.peers["mx4"], **self.secured(pair)}
        own.file.write_text(
            to_toml(tree | {key: at[key] for key in ("data_dir", "receive", "admin")} | {"peer": peer})
        )
        self.nodes["mx4"] = own
        return own

    @property
    def announcement(self) -> Path:
        return self.directory / "made" / f"{full('mx4')}.announcement.json"

    def member(self, name: str, *typed: str) -> tuple[dict[str, Any], str]:
        """``shadowrelay member`` at a node: its answer as JSON, or what it says is wrong."""
        return self.command(name, "member", *typed)

    def command(self, name: str, *typed: str) -> tuple[dict[str, Any], str]:
        admin = f"http://127.0.0.1:{self.nodes[name].admin}"
        done = subprocess.run(
            [sys.executable, "-m", "shadowrelay", *typed, "--json", "--admin", admin],
            capture_output=True,
            text=True,
            check=False,
        )
        return (json.loads(done.stdout) if done.stdout else {}), done.stderr

    def sources(self, name: str) -> dict[str, str]:
        return {one["name"]: one["from"] for one in self.member(name, "list")[0]["members"]}

    def reaches(self, name: str, other: str) -> bool:
        peers = self.command(name, "peer", "list")[0]["peers"]
        return any(peer["name"] == full(other) and peer["state"] == "reachable" for peer in peers)

    def retire(self, name: str, other: str) -> None:
        self.command(name, "peer", "retire", full(other), "--yes")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    try:
        yield made
    finally:
        for node in made.nodes.values():
            if node.running and node.running.poll() is None:
                node.running.kill()
                node.running.wait()


def started(node: Process) -> None:
    """Start it, and wait until it takes mail: on a busy machine that may take a while."""
    node.start()
    wait_for(lambda: "node_started" in node.text(), 60)


def send(node: Process, subject: str) -> None:
    with node.client() as client:
        client.sendmail("a@example.org", ["b@example.net"], f"Subject: {subject}\r\n\r\nbody\r\n".encode())


def eventually_sent(node: Process, subject: str) -> None:
    """Until a member takes the copy: a node refuses mail of which there is no second one."""
    end = time.monotonic() + 60
    while True:
        try:
            return send(node, subject)
        except OSError:  # smtplib's errors are
            assert time.monotonic() < end
            time.sleep(0.1)


def test_a_fourth_node_joins_by_an_announcement_to_one_gets_copies_and_stays_after_a_restart(
    cluster: Cluster,
) -> None:
    cluster.up()
    fourth = cluster.fourth()
    started(fourth)
    said, _ = cluster.member("mx1", "announce", str(cluster.announcement))
    assert said == {"name": full("mx4"), "new": True}
    for name in NAMES:  # it was announced to mx1 alone
        wait_for(lambda name=name: cluster.sources(name).get(full("mx4")) == "announcement", 60)
        wait_for(lambda name=name: cluster.reaches(name, "mx4"), 60)
        wait_for(lambda name=name: cluster.reaches("mx4", name), 60)
    assert cluster.member("mx1", "announce", str(cluster.announcement))[0]["new"] is False
    asked = cluster.command("mx2", "reload", "--cluster")[0]["nodes"]
    assert {one["node"]: (one["answers"], one["taken"]) for one in asked} == {
        full(name): (True, True) for name in (*NAMES, "mx4")
    }
    assert full("mx4") in cluster.sources("mx2"), "a settings file that does not name it lets it stay"
    for name in ("mx2", "mx3"):
        cluster.nodes[name].signal(signal.SIGKILL)
        cluster.nodes[name].ended()
    eventually_sent(cluster.nodes["mx1"], "only mx4 can have the copy")
    wait_for(lambda: "HAREDIRECT" in cluster.nodes["mx1"].tracked() or "HARECEIVE" in fourth.tracked())
    cluster.nodes["mx1"].signal(signal.SIGTERM)
    cluster.nodes["mx1"].ended(30)
    cluster.nodes["mx1"].said.unlink()
    started(cluster.nodes["mx1"])
    assert cluster.sources("mx1")[full("mx4")] == "announcement"
    wait_for(lambda: cluster.reaches("mx1", "mx4"), 60)


def test_a_forged_announcement_an_older_one_and_one_of_a_retired_member_are_refused(
    cluster: Cluster,
) -> None:
    cluster.up()
    cluster.fourth()
    genuine, signature = parse_signed(cluster.announcement.read_text().strip())
    stranger = cluster.directory / "stranger"
    authority.init(stranger, name="stranger", now=datetime.now(UTC))

    def announced(serial: int, by: Path, address: str = genuine.address) -> str:
        made = Announcement(
            serial=serial, name=genuine.name, address=address, site=genuine.site, host=genuine.host
        )
        file = cluster.directory / "announcement"
        file.write_text(format_signed(made, authority.sign(by, signed_octets(made))))
        return str(file)

    changed = cluster.directory / "changed"
    changed.write_text(cluster.announcement.read_text().replace(genuine.address, "127.0.0.1:9"))
    for forged in (announced(genuine.serial, stranger), str(changed)):
        assert "not signed by the authority" in cluster.member("mx1", "announce", forged)[1]
    assert full("mx4") not in cluster.sources("mx1")
    assert cluster.member("mx1", "announce", str(cluster.announcement))[0]["new"]
    older = announced(genuine.serial - 1, cluster.ca, "127.0.0.1:9")
    assert "a later announcement" in cluster.member("mx1", "announce", older)[1]
    ahead = announced(genuine.serial + 3 * 86_400_000, cluster.ca)
    assert "in the future" in cluster.member("mx1", "announce", ahead)[1]
    wait_for(lambda: "heartbeat_failed" in cluster.nodes["mx1"].log(), 60)
    cluster.retire("mx1", "mx4")
    wait_for(lambda: full("mx4") not in cluster.sources("mx1"))
    again = announced(genuine.serial + 1, cluster.ca)
    assert "was retired here" in cluster.member("mx1", "announce", again)[1]
    assert full("mx4") not in cluster.sources("mx1")
    assert signature
