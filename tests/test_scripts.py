"""The project's scripts: they parse, they are executable, and they build the environment once."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RUNNABLE = [ROOT / "scripts" / name for name in ("bench", "check", "test", "demo", "simulate")] + [
    ROOT / ".ci" / "run"
]
PIP = """#!/bin/sh
case "$*" in
  *version_info*) exit 0 ;;
  *--version*) echo "Python 3.12.0" ;;
  "-m pip install"*) echo "Collecting everything"; echo "$*" >>installed ;;
  "-m pytest"*) echo "$*" ;;
esac
"""


def run(*command: object, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose .venv was made by hand, with an interpreter that only notes what it is asked."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PIP)
    python.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("script", [*RUNNABLE, ROOT / "scripts" / "_venv.sh"], ids=lambda path: path.name)
def test_a_script_parses_and_can_be_run(script: Path):
    assert run("bash", "-n", script).returncode == 0
    assert script.name == "_venv.sh" or os.access(script, os.X_OK)


def test_the_environment_is_built_once_and_again_when_the_dependencies_change(checkout: Path):
    first = run(checkout / "scripts" / "test", "-k", "one thing")
    assert first.returncode == 0, first.stderr
    assert first.stdout.strip().endswith("-k one thing")
    assert "venv:   Collecting everything" in first.stderr
    second = run(checkout / "scripts" / "test")
    assert second.stderr == ""
    with (checkout / "constraints.txt").open("a") as constraints:
        constraints.write("another==1.0\n")
    run(checkout / "scripts" / "test")
    assert len((checkout / "installed").read_text().splitlines()) == 2


def test_a_failed_installation_stops_the_script_and_is_tried_again(checkout: Path):
    python = checkout / ".venv" / "bin" / "python"
    python.write_text(PIP.replace('echo "$*" >>installed', "exit 1"))
    for _ in range(2):
        failed = run(checkout / "scripts" / "test")
        assert failed.returncode == 1
        assert "could not be installed" in failed.stderr
        assert failed.stdout == ""


def test_a_python_that_is_too_old_is_named(checkout: Path, tmp_path: Path):
    old = tmp_path / "old-python"
    old.write_text('#!/bin/sh\ncase "$*" in *version_info*) exit 1 ;; *) echo "Python 3.9.2" ;; esac\n')
    old.chmod(0o755)
    shutil.rmtree(checkout / ".venv")
    failed = run(checkout / "scripts" / "test", PYTHON=str(old))
    assert failed.returncode == 1
    assert "Python 3.11 or newer is needed; found: Python 3.9.2" in failed.stderr


def test_without_ensurepip_the_command_that_installs_it_is_printed(checkout: Path, tmp_path: Path):
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "apt-get").write_text("#!/bin/sh\nexit 100\n")
    python = tools / "python3"
    python.write_text(
        '#!/bin/sh\ncase "$*" in *ensurepip*) exit 1 ;; *venv*) echo python3.12-venv ;; *) exit 0 ;; esac\n'
    )
    for tool in tools.iterdir():
        tool.chmod(0o755)
    shutil.rmtree(checkout / ".venv")
    failed = run(checkout / "scripts" / "test", PYTHON=str(python), PATH=f"{tools}:{os.environ['PATH']}")
    assert failed.returncode == 1
    assert "sudo apt-get install -y --no-install-recommends python3.12-venv" in failed.stderr


def test_constraints_are_exact_versions_and_nothing_else():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.!+]+", line) for line in lines)


def test_every_dependency_is_constrained():
    constrained = {
        re.sub("[-_.]+", "-", line.split("==")[0]).lower()
        for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    needed = re.findall(r'^    "([A-Za-z0-9-]+)[><=]=', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert needed
    assert set(needed) <= constrained


def test_a_demonstration_that_is_interrupted_is_not_audited_and_leaves_nothing(
    checkout: Path, tmp_path: Path
):
    for name, text in (("shadowlab", "exit 130"), ("shadowaudit", "echo audited")):
        command = checkout / ".venv" / "bin" / name
        command.write_text(f"#!/bin/sh\n{text}\n")
        command.chmod(0o755)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    ended = run(checkout / "scripts" / "demo", TMPDIR=str(scratch))
    assert (ended.returncode, list(scratch.iterdir())) == (130, [])
    assert "audited" not in ended.stdout
