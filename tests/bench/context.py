"""What every section of the relay's bench gets."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shadowlab.ports import free_ports
from shadowrelay.cli.progress import Bar


@dataclass(frozen=True, slots=True)
class Bench:
    """``short``: little of everything, to see that it runs; then nothing is judged by it."""

    directory: Path
    rounds: int
    short: bool
    steps: Bar
    with_postfix: bool
    queued: int | None = None  # messages of a queue that is full from the start

    @contextmanager
    def room(self, name: str) -> Iterator[Path]:
        """A directory for one section, removed behind it: its queues may be gigabytes."""
        path = self.directory / name
        path.mkdir(mode=0o711)  # Postfix is another user below it
        try:
            yield path
        finally:
            shutil.rmtree(path)

    def ports(self, count: int) -> list[int]:
        return free_ports(count)
