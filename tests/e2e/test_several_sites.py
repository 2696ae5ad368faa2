"""Four sites in a line, as processes: mail for two of them leaves once, and a dead site is stepped back from.

Chicago, New York, London and Dublin are one node each; Paris, behind London too, is played by the test.
"""

from __future__ import annotations

import asyncio
import signal
import smtplib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from scripted_hop import ScriptedHop

from shadowlab.ports import free_ports
from shadowrelay.settings import to_toml
from shadowrelay.tracking.format import parse_row

pytestmark = [pytest.mark.lab, pytest.mark.slow]

LINE = ("chicago", "ny", "london", "dublin")
PATIENCE = 30.0


class Site:
    """The only node of a site."""

    def __init__(self, directory: Path, tree: dict[str, Any]) -> None:
        self.directory = directory / tree["site"]
        self.directory.mkdir()
        self.file = self.directory / "node.toml"
        self.port = int(tree["receive"]["default"]["listen"].rpartition(":")[2])
        self.file.write_text(to_toml(tree | {"data_dir": str(self.directory / "data")}), "utf-8")
        self.said = self.directory / "said"
        self.running: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        before = self.text().count("node_started")
        with self.said.open("ab") as said:
            command = [sys.executable, "-m", "shadowrelay", "run", str(self.file)]
            self.running = subprocess.Popen(command, stdout=said, stderr=said)
        wait_for(lambda: self.text().count("node_started") > before)

    def text(self) -> str:
        return self.said.read_text("utf-8") if self.said.exists() else ""

    def kill(self) -> None:
        if self.running and self.running.poll() is None:
            self.running.send_signal(signal.SIGKILL)
            self.running.wait()

    def events(self, *kinds: str) -> list[dict[str, str]]:
        """The rows of its tracking log of these kinds."""
        logs = sorted((self.directory / "data" / "tracking").glob("*"))
        lines = [line for log in logs for line in log.read_text("utf-8").splitlines()]
        rows = [parse_row(line) for line in lines if line and not line.lstrip("\ufeff").startswith("#")]
        return [row for row in rows if row["event-id"] in kinds]


def wait_for(condition: Callable[[], Any]) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, "it did not come to that in time"
        time.sleep(0.05)


def tree(site: str, ports: dict[str, int], stores: dict[str, int]) -> dict[str, Any]:
    """The settings of the node of a site: the same for all, but for its own name, site and ports."""
    admin, hops = ports[f"{site} admin"], [name for name in (*LINE, "paris") if name != "chicago"]
    return {
        "name": f"mx.{site}.example.net",
        "site": site,
        "relay_networks": ["127.0.0.0/8"],
        "minimum_free_disk": 0,
        "drain_timeout": "5s",
        "queue_glitch_retry_interval": "1s",
        "queue_glitch_retry_count": 15,
        "receive": {"default": {"listen": f"127.0.0.1:{ports[site]}", "tarpit_interval": "0s"}},
        "admin": {"listen": f"127.0.0.1:{admin}"},
        "log": {"format": "json"},
        "routes": {
            name: {
                "domains": [f"{name}.example.net"],
                "site": name,
                "host": "127.0.0.1",
                "port": stores.get(name, 9),
                "tls": "none",
            }
            for name in hops
        },
        "sites": {name: {"hosts": [f"127.0.0.1:{ports[name]}"], "tls": "none"} for name in (*LINE, "paris")},
        "site_links": [
            {"sites": ["chicago", "ny"], "cost": 10},
            {"sites": ["ny", "london"], "cost": 20},
            {"sites": ["london", "dublin"], "cost": 10},
            {"sites": ["london", "paris"], "cost": 10},
        ],
    }


@contextmanager
def line(directory: Path, paris: int, stores: dict[str, int]) -> Iterator[dict[str, Site]]:
    """The nodes of all sites but Paris, which listens at that port."""
    given = free_ports(2 * len(LINE))
    ports = dict(zip((*LINE, *(f"{name} admin" for name in LINE)), given, strict=True)) | {"paris": paris}
    with ExitStack() as stack:
        sites = {name: Site(directory, tree(name, ports, stores)) for name in LINE}
        for site in sites.values():
            stack.callback(site.kill)
            site.up()
        yield sites


def send(site: Site, *recipients: str) -> None:
    with smtplib.SMTP("127.0.0.1", site.port, timeout=10) as client:
        client.sendmail("a@chicago.example.net", recipients, b"Subject: hello\r\n\r\nbody\r\n")


def recipients_of(hop: ScriptedHop) -> list[str]:
    return [
        command.partition("<")[2].partition(">")[0] for command in hop.commands if command.startswith("RCPT")
    ]


DUBLIN, PARIS = "b@dublin.example.net", "c@paris.example.net"


async def test_what_goes_to_two_sites_leaves_once_and_forks_at_the_last_common_one(tmp_path: Path) -> None:
    async with ScriptedHop() as paris, ScriptedHop() as store:
        await asyncio.to_thread(_forks_at_london, tmp_path, paris, store)


def _forks_at_london(directory: Path, paris: ScriptedHop, store: ScriptedHop) -> None:
    with line(directory, paris.port, {"dublin": store.port}) as sites:
        send(sites["chicago"], DUBLIN, PARIS)
        wait_for(lambda: len(paris.contents) == len(store.contents) == 1)
        wait_for(
            lambda: (
                len(sites["london"].events("SENDEXTERNAL")) == 2 and sites["dublin"].events("SENDEXTERNAL")
            )
        )
        wait_for(lambda: sites["chicago"].events("SENDEXTERNAL"))  # it hears the 250 when London is done
        (sent,) = sites["chicago"].events("SENDEXTERNAL")
        assert sent["recipient-address"].split(";") == [DUBLIN, PARIS]
        assert sites["ny"].events("RECEIVE") == []

        sites["london"].kill()
        send(sites["chicago"], DUBLIN, PARIS)
        wait_for(lambda: sites["ny"].events("RECEIVE"))
        wait_for(lambda: sites["ny"].events("DEFER"))
        assert len(paris.contents) == len(store.contents) == 1
        sites["london"].up()
        wait_for(lambda: len(paris.contents) == len(store.contents) == 2)
        wait_for(lambda: sites["ny"].events("SENDEXTERNAL"))
        (to_ny,) = sites["chicago"].events("SENDEXTERNAL")[1:]
        (onward,) = sites["ny"].events("SENDEXTERNAL")
        assert to_ny["recipient-address"] == onward["recipient-address"] == f"{DUBLIN};{PARIS}"
    assert recipients_of(paris) == [PARIS, PARIS]
    assert recipients_of(store) == [DUBLIN, DUBLIN]
