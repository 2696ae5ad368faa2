"""``scripts/lab`` where something is missing or wrong: it says what to do. No engine is needed for these."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def lab(tmp_path: Path, *words: str, docker: str | None) -> subprocess.CompletedProcess[str]:
    """Run it with a docker that is this shell script, or none at all."""
    commands = tmp_path / "commands"
    commands.mkdir()
    for name in ("bash", "cat", "dirname", "env", "sh"):
        (commands / name).symlink_to(str(shutil.which(name)))
    (commands / "python3").symlink_to(Path(sys.executable).resolve())
    if docker is not None:
        (commands / "docker").write_text(f"#!/bin/sh\n{docker}\n")
        (commands / "docker").chmod(0o755)
    environment = {**os.environ, "PATH": str(commands), "LAB_OUT": str(tmp_path / "out")}
    return subprocess.run(
        [ROOT / "scripts" / "lab", *words], env=environment, capture_output=True, text=True, check=False
    )


def test_without_docker_it_says_what_it_needs(tmp_path: Path):
    done = lab(tmp_path, "up", docker=None)
    assert done.returncode == 1
    assert done.stderr == (
        "lab: docker is not installed; the lab needs it, and compose (plugin or docker-compose)\n"
    )


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", "start it"),
        ("failed to connect to the docker API at unix:///var/run/docker.sock", "start it"),
        ("permission denied while trying to connect to the Docker daemon socket", "usermod -aG docker"),
    ],
)
@pytest.mark.parametrize("words", [["up"], ["status"], ["kill", "node-a"], ["down"]], ids=" ".join)
def test_without_an_engine_it_says_how_to_come_by_one(
    words: list[str], said: str, advice: str, tmp_path: Path
):
    done = lab(tmp_path, *words, docker=f"echo '{said}' >&2; exit 1")
    assert done.returncode == 1
    assert said in done.stderr
    assert advice in done.stderr.splitlines()[-1]


def test_without_compose_it_says_so(tmp_path: Path):
    done = lab(tmp_path, "up", docker='[ "$1" = version ]')
    assert done.returncode == 1
    assert "neither the compose plugin of docker nor docker-compose is installed" in done.stderr


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("listen tcp4 127.0.0.1:2522: bind: address already in use", "export NODE_A_SMTP=2621"),
        ("Bind for 127.0.0.1:2522 failed: port is already allocated", "export NODE_A_SMTP=2621"),
        ('service "certs" didn\'t complete successfully: exit 2', "docker compose logs certs"),
        ("failed to resolve source metadata for docker.io/library/python", "scripts/docker-base --help"),
    ],
)
def test_what_compose_refuses_comes_with_advice(said: str, advice: str, tmp_path: Path):
    engine = (
        f'case "$1 $2" in "version "|"compose version") exit 0;; esac; cat >&2 <<END\n{said}\nEND\nexit 1'
    )
    done = lab(tmp_path, "up", docker=engine)
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stderr.splitlines()[-1].endswith(advice)


@pytest.mark.parametrize(
    "words",
    [[], ["frob"], ["kill"], ["kill", "node-x"], ["send"], ["send", "0"], ["send", "-3"], ["send", "some"]],
    ids=" ".join,
)
def test_a_wrong_command_line_is_answered_with_what_is_possible(words: list[str], tmp_path: Path):
    done = lab(tmp_path, *words, docker="exit 1")
    assert done.returncode == 2
    assert done.stderr.startswith("usage: scripts/lab")
