"""``shadowlab links``: carries the links of a lab; ``up --breakable`` starts it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from shadowlab import layout
from shadowlab.cli.options import in_directory, problems
from shadowlab.errors import LabError


@click.command(short_help="Carry the links of a lab whose links can be cut.")
@in_directory
def links(directory: Path) -> None:
    """Carry what the nodes of a lab say to one another; started by up --breakable."""
    from shadowlab.forwarding import run

    with problems():
        at = layout.load(directory)
        if at.links is None:
            raise LabError(f"the lab in {directory} was made without --breakable")
        try:
            asyncio.run(run(at, at.links.control))
        except OSError as problem:
            raise LabError(str(problem)) from problem
