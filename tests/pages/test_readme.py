"""README's tour by hand, typed as it stands there, with the ports that the lab chose."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest

from tests.pages.agreement import disagreement
from tests.pages.commands import Command, commands
from tests.pages.shell import Shell

pytestmark = [pytest.mark.lab, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
LOOKS = ("shadowlab status", "shadowrelay message list", "find ")
PATIENCE = 20.0  # seconds for what a reader looks at to be as it is shown
PORT = re.compile(r"(?<=127\.0\.0\.1:)\d+")


@pytest.mark.skipif(shutil.which("swaks") is None, reason="swaks is missing")
def test_the_tour_by_hand_goes_as_it_is_shown(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    to_run = [command for command in commands(ROOT / "README.md") if not command.not_run]
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
