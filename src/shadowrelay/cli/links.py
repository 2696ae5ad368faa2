"""``shadowrelay links``: what a lab with ``--breakable`` starts for itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from shadowrelay.cli.lab_options import in_directory, problems
from shadowrelay.lab import layout
from shadowrelay.lab.errors import LabError


@click.command(short_help="Carry the links of a lab whose links can be cut.")
@in_directory
def links(directory: Path) -> None:
    """Carry what the nodes of a lab say to one another; started by lab up --breakable."""
    from shadowrelay.lab.forwarding import run

    with problems():
        at = layout.load(directory)
        if at.links is None:
            raise LabError(f"the lab in {directory} was made without --breakable")
        try:
            asyncio.run(run(at, at.links.control))
        except OSError as problem:
            raise LabError(str(problem)) from problem
