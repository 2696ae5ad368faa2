"""The night shift (docs/how-to/night-shift.md): the page's commands, on a lab of three nodes."""

from __future__ import annotations

import json
import os
import re
import smtplib
import subprocess
import sys
from pathlib import Path

import pytest
from running_lab import INSIDE, RunningLab, wait_until

from shadowrelay.cli import COMMANDS

pytestmark = [pytest.mark.lab, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from tests.pages.commands import Command, commands  # noqa: E402
from tests.pages.shell import Shell  # noqa: E402

PAGE = ROOT / "docs" / "how-to" / "night-shift.md"
SPAM = 2_000
"""Instead of the ten thousand of the page, so that the test takes a minute."""


def tasks() -> dict[str, list[Command]]:
    """Each task's title and its commands."""
    lines = PAGE.read_text("utf-8").splitlines()
    heads = {number: line[3:] for number, line in enumerate(lines, 1) if re.match(r"## \d+\. ", line)}
    found: dict[str, list[Command]] = {title: [] for title in heads.values()}
    for one in commands(PAGE):
        found[heads[max(number for number in heads if number < one.line)]].append(one)
    return found


def test_there_are_ten_tasks_and_none_has_more_than_two_steps():
    found = tasks()
    assert [int(title.partition(".")[0]) for title in found] == list(range(1, 11))
    text = PAGE.read_text("utf-8")
    for title, steps in found.items():
        assert 1 <= len(steps) <= 2, title
        section = text.partition(f"## {title}")[2].partition("\n## ")[0]
        for other in ("- Console, ", "- Exchange: ", "- Postfix: "):
            assert section.count(other) == 1, (title, other)


class Night:
    """An operator with the page, at a lab."""

    def __init__(self, lab: RunningLab, shell: Shell) -> None:
        self.lab, self.shell, self.tasks = lab, shell, tasks()

    def do(self, number: int, step: int | None = None) -> list[str]:
        """Follow that task, or one step of it; what each step printed."""
        steps = next(some for title, some in self.tasks.items() if title.startswith(f"{number}. "))
        return [self.shell.follow(one, within=90) for one in (steps if step is None else [steps[step]])]

    def queued(self) -> int:
        return sum(self.lab.queued(node.short) for node in self.lab.cluster.layout.nodes)

    def send(self, count: int, sender: str) -> None:
        host, port = self.lab.cluster.node("mx1").smtp
        with smtplib.SMTP(host, port) as server:
            for number in range(count):
                text = f"Subject: offer {number}\r\nMessage-ID: <{number}.{sender}>\r\n\r\nbuy\r\n"
                server.sendmail(sender, [INSIDE], text)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_operator_does_the_ten_tasks_of_the_page(lab: RunningLab, tmp_path: Path, workers: int):
    lacking = [name for name in ("job", "member", "reload") if name not in COMMANDS]
    if lacking:
        pytest.skip(f"not there yet: {', '.join(lacking)}")
    lab.up(workers=workers)
    lab.cluster.refuse()
    lab.send(2)
    node = lab.cluster.node("mx1")
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SHADOWRELAY_ADMIN": lab.cluster.node("mx2").admin,
        "MX3": lab.cluster.node("mx3").admin,
        "ID": lab.ids("mx1")[0],
        "AUTHORITY": str(lab.cluster.layout.authority),
        "CERTIFICATES": str(node.config.parent),
        "SETTINGS": str(node.config),
        "PEER": f"{node.peer[0]}:{node.peer[1]}",
        "NEW": str(tmp_path / "new"),
    }
    with Shell(tmp_path, environment) as shell:
        night = Night(lab, shell)
        (found,) = night.do(1)
        assert environment["ID"][:8] in found
        why, life = night.do(2)
        assert "4" in why
        assert "RECEIVE" in life

        night.do(4, 0)  # held while its hop is back: nothing is delivered
        lab.cluster.accept()
        night.do(3)
        assert night.queued() == 2
        night.do(4, 1)
        night.do(3)
        wait_until(lambda: night.queued() == 0, "what was held is delivered")

        lab.cluster.refuse()
        night.send(SPAM, "win@spam.test")
        lab.send(1)
        counted, removed = night.do(5)
        assert re.search(rf"({SPAM:,}|{SPAM}) messages", counted)
        assert re.search(rf"({SPAM:,}|{SPAM}) messages", removed)
        wait_until(lambda: night.queued() == 1, "the spam is gone, and nothing else")
        lab.cluster.accept()

        night.do(6)
        night.do(3)
        wait_until(lambda: night.queued() == 0, "all is delivered")
        night.do(7)
        wait_until(lambda: lab.events("mx1", "RESUBMIT") or lab.events("mx2", "RESUBMIT"), "mail is back")

        night.do(8)
        night.do(9)
        night.do(10)
        listed = shell.run("shadowrelay member list --json")[1]
        assert "mx4.lab.test" in json.dumps(listed)
    lab.cluster.down()
    verdict = subprocess.run(
        [sys.executable, "-m", "shadowlab", "audit", "--dir", str(lab.directory), "--", "--no-report"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr
    assert f"an operator removed {SPAM:,}" in verdict.stdout
