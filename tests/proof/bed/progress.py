"""How far a long run is: a bar on a terminal, a line every ten seconds elsewhere. On standard error."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_EVERY = 10.0  # seconds


class Step(Protocol):
    def __call__(self, note: str = "") -> None:
        """One more is done."""


@contextmanager
def progress(label: str, total: int) -> Iterator[Step]:
    """Call what is yielded once for each of ``total`` steps."""
    console = Console(stderr=True)
    if console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(label, total=total)

            def advance(note: str = "") -> None:
                bar.update(task, advance=1, description=f"{label} {note}".strip())

            yield advance
        return
    done, told, began = 0, time.monotonic(), time.monotonic()

    def count(note: str = "") -> None:
        nonlocal done, told
        done += 1
        now = time.monotonic()
        if now - told >= _EVERY or done == total:
            told = now
            click.echo(f"{label}: {done} of {total} in {now - began:.0f} s {note}".rstrip(), err=True)

    yield count
