"""What a proof needs of its machine; without it the proof is skipped, and says why."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import click

P = ParamSpec("P")
T = TypeVar("T")

SKIPPED = 77
"""Exit status of a proof that could not be run: neither kept nor broken."""


class Skip(Exception):
    """The machine lacks something; the text says what."""


def need(*programs: str) -> None:
    """Raises Skip."""
    for program in programs:
        if shutil.which(program) is None:
            raise Skip(f"there is no {program} on this machine")


def skipping(command: Callable[P, T]) -> Callable[P, T]:
    """Turn Skip into a sentence and the exit status 77."""

    @wraps(command)
    def run(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return command(*arguments, **options)
        except Skip as reason:
            click.echo(f"skipped: {reason}", err=True)
            raise SystemExit(SKIPPED) from None

    return run
