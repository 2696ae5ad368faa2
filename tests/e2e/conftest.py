from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from running_lab import RunningLab, processes_of

from shadowrelay.lab import layout


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[RunningLab]:
    """A lab of its own, not yet up; always brought down, and no process of it left behind."""
    running = RunningLab(tmp_path / "lab")
    yield running
    if layout.path_of(running.directory).exists():
        running.cluster.down()
    assert processes_of(running.directory) == []
