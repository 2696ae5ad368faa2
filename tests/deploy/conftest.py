"""Labs for these tests: the fixture of tests/e2e."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from running_lab import RunningLab, processes_of

from shadowlab import layout


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """A lab for the tests of a module, not yet up; brought down at the end."""
    running = RunningLab(tmp_path_factory.mktemp("lab") / "lab")
    try:
        yield running
    finally:
        if layout.path_of(running.directory).exists():
            running.cluster.down()
    assert processes_of(Path(running.directory)) == []
