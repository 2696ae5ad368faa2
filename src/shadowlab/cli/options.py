"""What the commands of ``shadowlab`` have in common."""

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
    """A number in a range, which ``nan`` is in none of."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is no number in the range {self._describe_range()}.", param, ctx)
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
    """What a lab cannot do becomes the command's error. Ctrl-C, SIGTERM and SIGHUP end it with that word."""
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
    """Do it, then say so."""
    with problems():
        act(Cluster(directory))
    click.echo(text)
