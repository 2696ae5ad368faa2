from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from namespaces import HUB, Network, NetworkLab, missing
from running_lab import RunningLab, processes_of

from shadowlab import layout

BEFORE = "c3d0b5f"  # the last program that speaks version 1 of the protocol alone, and keeps no digests
LAST = "dea1217a"  # the program before 0.2.0


@contextmanager
def brought_down(running: RunningLab) -> Iterator[None]:
    try:
        yield
    finally:
        if layout.path_of(running.directory).exists():
            running.cluster.down()
    assert processes_of(running.directory) == []


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[RunningLab]:
    """A lab of its own, not yet up; always brought down, and no process of it left behind."""
    running = RunningLab(tmp_path / "lab")
    with brought_down(running):
        yield running


@pytest.fixture
def network_lab(tmp_path: Path) -> Iterator[NetworkLab]:
    """The same, on a network of its own with room for three nodes. The test lives at its hub."""
    if lacking := missing():
        pytest.skip(lacking)
    network = Network(["mx1", "mx2", "mx3"])
    running = NetworkLab(tmp_path / "lab", network)
    try:
        with network.inside(HUB), brought_down(running):
            yield running
    finally:
        network.close()


@pytest.fixture(scope="session")
def program_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of the program that is upgraded."""
    return _program(BEFORE, tmp_path_factory.mktemp("before"))


@pytest.fixture(scope="session")
def last_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of a program that does not say what is at risk."""
    return _program(LAST, tmp_path_factory.mktemp("last"))


def _program(commit: str, at: Path) -> Path:
    root = Path(__file__).parents[2]
    archive = subprocess.run(
        ["git", "-C", str(root), "archive", commit, "src/shadowrelay"], capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip(f"no history with {commit} in it: {archive.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", str(at)], input=archive.stdout, check=True)
    return at / "src"
