"""``python -m tests.pages.operated PAGE``: an operator follows a how-to page on machines of a cluster.

The machines are directories, and the nodes real processes; ``ssh``, ``scp`` and ``systemctl`` are the ones of
tests/pages/stand-ins. To be run in namespaces of its own (``followed``): ports, /etc and names are then free.
"""

from __future__ import annotations

import os
import shutil
import smtplib
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from shadowrelay import authority
from shadowrelay.admin.client import AdminClient
from tests.apart import OWN_MACHINE, lacking
from tests.pages.commands import commands
from tests.pages.shell import Shell

ROOT = Path(__file__).parents[2]
STAND_INS = Path(__file__).parent / "stand-ins"
NODES = ("mx1", "mx2", "mx3")
SITES = {"mx1": ("north", "rack1"), "mx2": ("north", "rack2"), "mx3": ("south", "rack7")}
LETTERS = 5

BOOT = (
    OWN_MACHINE
    + """\
mkdir -p /etc/shadowrelay
mount -t tmpfs tmpfs /var/lib
mount -t tmpfs tmpfs /var/log
mkdir /var/lib/shadowrelay /var/log/shadowrelay
for n in 1 2 3 4 5; do echo "127.0.0.1$n mx$n.example.net" >>/etc/hosts; done
# Not exec: process 1 has to look after processes that nobody waits for, which bash does.
{python} -m tests.pages.operated {page} {directory}
exit
"""
)


@cache
def missing() -> str:
    """What this machine lacks for it; empty when nothing is."""
    if os.geteuid() != 0:
        return "namespaces take root"
    return lacking((), "-mpfn")


def followed(page: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    """Follow a page in namespaces of its own; nothing of it is left afterwards."""
    scratch = directory / "scratch"
    scratch.mkdir()
    boot = directory / "boot"
    boot.write_text(BOOT.format(scratch=scratch, python=sys.executable, page=page, directory=directory))
    return subprocess.run(
        ["unshare", "-mpfn", "--kill-child=KILL", "bash", boot],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )


class Machines:
    """Three machines with a node each, as deploy/systemd sets them, and an operator's desk."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "machines"
        self.desk = directory / "desk"
        self.desk.mkdir()
        self.environment = {
            "MACHINES": str(self.directory),
            "SHADOWRELAY_ADMIN": "http://127.0.0.11:8025",  # what a command at the desk looks at: mx1
            "PATH": f"{STAND_INS}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        now = datetime.now(UTC)
        ca = authority.init(self.desk / "ca", name="members", now=now)
        for node in NODES:
            etc = self.directory / f"{node}.example.net" / "etc"
            etc.mkdir(parents=True)
            pair = authority.issue(self.desk / "ca", f"{node}.example.net", out=etc, now=now)
            shutil.copy(ca.certificate, etc / "members-ca.pem")
            for name in ("member", "smtp"):
                shutil.copy(pair.certificate, etc / f"{name}.pem")
                shutil.copy(pair.key, etc / f"{name}.key")
            (etc / "settings.toml").write_text(_settings(node), "utf-8")

    def __iter__(self) -> Iterator[str]:
        """Names of those whose node runs."""
        for machine in sorted(self.directory.iterdir()):
            if (machine / "pid").exists():
                yield machine.name

    def ssh(self, node: str, *words: str) -> None:
        subprocess.run(
            [STAND_INS / "ssh", f"{node}.example.net", *words],
            check=True,
            env={**os.environ, **self.environment},
        )

    def send(self) -> None:
        with smtplib.SMTP("mx1.example.net", 25, local_hostname="client.example.org") as client:
            for number in range(LETTERS):
                client.sendmail(
                    "sender@example.org", ["anna@example.net"], f"Subject: {number}\r\n\r\nhello\r\n"
                )

    def settled(self) -> bool:
        """Each message that was acknowledged is in one queue, with a second copy; all reach one another."""
        seen = [_ask(name) for name in self]
        queued, exposed = (sum(status[key] for status in seen) for key in ("queued", "exposed"))
        members = [peer for status in seen for peer in status["peers"] if not peer["retired"]]
        reachable = all(peer["state"] == "reachable" for peer in members)
        return (queued, exposed) == (LETTERS, 0) and reachable

    def told(self) -> str:
        """What the nodes say, for a test that fails."""
        return "\n".join(f"{name}: {_ask(name)}" for name in self)


def _ask(name: str) -> dict[str, Any]:
    number = name.partition(".")[0].removeprefix("mx")
    answer: dict[str, Any] = AdminClient(f"http://127.0.0.1{number}:8025").get(dict[str, Any], "status")
    return answer


def _settings(node: str) -> str:
    """The example of deploy/systemd, with what differs from node to node."""
    text = (ROOT / "deploy/systemd/settings.toml").read_text("utf-8")
    head, members, rest = text.partition("# The same list on every node.")
    site, host = SITES[node]
    ours = {"mx1.example.net": f"{node}.example.net", '"north"': f'"{site}"', '"rack1"': f'"{host}"'}
    for theirs, own in ours.items():
        head = head.replace(theirs, own)
    return head + members + rest


def _settle(machines: Machines) -> None:
    end = time.monotonic() + 60
    while not machines.settled():
        if time.monotonic() > end:
            raise TimeoutError(f"not every message is in one queue with a second copy\n{machines.told()}")
        time.sleep(0.1)


def main(page: Path, directory: Path) -> None:
    machines = Machines(directory)
    for node in NODES:
        machines.ssh(node, "systemctl", "start", "shadowrelay")
    machines.send()
    _settle(machines)
    run = [command for command in commands(page) if not command.not_run]
    with Shell(machines.desk, machines.environment) as shell:
        shell.run("set -eu")  # a script that fails half-way ends the shell, and so the test
        for command in run:
            shell.follow(command, within=120)
    _settle(machines)
    print(f"{page.name}: {len(run)} commands, {LETTERS} messages, at {', '.join(machines)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
