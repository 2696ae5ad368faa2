"""README is short and its example complete; the tour by hand (the lab's page) is typed as it stands there."""

from __future__ import annotations

import re
import shutil
import time
import tomllib
from pathlib import Path

import pytest

from tests.pages.agreement import disagreement
from tests.pages.commands import Command, commands
from tests.pages.shell import Shell

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
LAB = ROOT / "docs" / "operations" / "lab.md"
LOOKS = ("shadowlab status", "shadowrelay message list", "find ")
PATIENCE = 20.0  # seconds for what a reader looks at to be as it is shown
PORT = re.compile(r"(?<=127\.0\.0\.1:)\d+")


def test_readme_has_at_most_150_lines_and_the_picture_at_its_top() -> None:
    lines = README.read_text("utf-8").splitlines()
    assert len(lines) <= 150
    assert "docs/pictures/flow.svg" in "".join(lines[:5])
    assert "It is not for you" in "".join(lines[:30])


def test_readme_has_a_complete_example_that_sends_to_the_internet() -> None:
    """That its settings are right is shown for every page with settings (test_docs_links)."""
    (example,) = re.findall(r"^```toml\n(.*?)^```$", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    world = tomllib.loads(example)["routes"]["world"]
    assert world == {"domains": ["*"], "mx": True}


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("swaks") is None, reason="swaks is missing")
def test_the_tour_by_hand_goes_as_it_is_shown(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    to_run = [command for command in commands(LAB) if not command.not_run]
    ports: dict[str, str] = {}
    with Shell(tmp_path) as shell:
        try:
            for command in to_run:
                text = with_ports(command.text, ports)
                printed = looked_at(shell, text, command)
                if command.text == "shadowlab up":
                    shown = PORT.findall("\n".join(command.shown))
                    ports = dict(zip(shown, PORT.findall(printed), strict=False))
        finally:
            shell.run("shadowlab down")
    assert len(to_run) > 10


def with_ports(text: str, ports: dict[str, str]) -> str:
    """The command, with the ports of this lab in place of those that the page shows."""
    return PORT.sub(lambda port: ports.get(port[0], port[0]), text)


def looked_at(shell: Shell, text: str, command: Command) -> str:
    """Run it; a look is repeated until it shows what the page shows."""
    deadline = time.monotonic() + PATIENCE
    while True:
        status, printed = shell.run(text)
        problem = disagreement(command.shown, printed.splitlines())
        if not text.startswith(LOOKS) or not problem or time.monotonic() > deadline:
            assert (status, problem) == (0, ""), f"{command}\n{printed}"
            return printed
