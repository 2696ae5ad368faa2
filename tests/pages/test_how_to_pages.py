"""The how-to pages: their commands are run as they stand there, on three nodes with mail in transit."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.pages import operated
from tests.pages.commands import Command, commands
from tests.pages.shell import Shell

DOCS = operated.ROOT / "docs"
HOW_TO = DOCS / "how-to"
OPERATED = ("add-a-node", "replace-a-dead-node", "upgrade", "change-the-boundary")
NIGHT = "night-shift"  # tests/e2e/test_night_shift.py
ELSEWHERE = ("operations/certificates", "recovery")
TOOLS = {"kubernetes": "kubectl", "monitor": "promtool"}


def to_run(page: str) -> list[Command]:
    return [command for command in commands(HOW_TO / f"{page}.md") if not command.not_run]


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.skipif(operated.missing() != "", reason=operated.missing())
@pytest.mark.parametrize("page", [*(f"how-to/{page}" for page in OPERATED), *ELSEWHERE])
def test_an_operator_who_follows_the_page_loses_nothing(page: str, tmp_path: Path):
    done = operated.followed(DOCS / f"{page}.md", tmp_path)
    logs = "".join(
        f"\n== {log.parts[-3]}\n{log.read_text()[-1500:]}" for log in tmp_path.glob("machines/*/log/said")
    )
    assert done.returncode == 0, done.stdout + done.stderr + logs
    print(done.stdout)


@pytest.mark.parametrize(("page", "tool"), TOOLS.items())
def test_commands_that_need_no_cluster_are_run(page: str, tool: str, tmp_path: Path):
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is missing")
    with Shell(operated.ROOT) as shell:
        for command in to_run(page):
            shell.follow(command)


def test_every_page_is_followed_by_a_test_or_says_why_not():
    pages = {page.stem for page in HOW_TO.glob("*.md")}
    assert {page for page in pages if to_run(page)} == {*OPERATED, *TOOLS, NIGHT}


def test_stand_ins_are_programs():
    assert sorted(os.listdir(operated.STAND_INS)) == ["scp", "ssh", "systemctl"]
    assert all(os.access(path, os.X_OK) for path in operated.STAND_INS.iterdir())
