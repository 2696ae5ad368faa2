from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from namespaces import HUB, Network, NetworkLab, missing
from running_lab import RunningLab, processes_of

from shadowrelay.lab import layout


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
