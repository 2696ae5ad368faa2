"""Holds what the commands of ``shadowlab`` share: options and errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from shadowlab.cluster import Cluster
from shadowlab.errors import LabError, NoSuchNode
from shadowlab.guard import terminable
from shadowrelay.signals import INTERRUPTED


class Number(click.FloatRange):
    """A number in a range; ``nan`` is in no range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not a number in the range {self._describe_range()}.", param, ctx)
        return number


in_directory = click.option(
    "--dir",
    "directory",
    default="./lab",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the lab.",
)

in_new_directory = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of a new lab. Default: a temporary one, removed after success.",
)

keeping = click.option("--keep", is_flag=True, help="Keep the directory after success too.")


@contextmanager
def problems(interrupted: str = "interrupted") -> Iterator[None]:
    """Turn a LabError into the command's error. On Ctrl-C, SIGTERM and SIGHUP print ``interrupted``."""
    try:
        with terminable():
            yield
    except NoSuchNode as problem:
        raise click.UsageError(str(problem)) from problem
    except LabError as problem:
        raise click.ClickException(str(problem)) from problem
    except KeyboardInterrupt:
        click.echo(interrupted, err=True)
        raise SystemExit(INTERRUPTED) from None


def done(directory: Path, act: Callable[[Cluster], None], text: str) -> None:
    """Act on the lab, then print ``text``."""
    with problems():
        act(Cluster(directory))
    click.echo(text)
