"""``shadowlab audit``: was any acknowledged message lost or doubled in this lab?"""

from __future__ import annotations

from pathlib import Path

import click

from shadowlab.cli.options import in_directory, problems
from shadowlab.cluster import Cluster


@click.command("audit", context_settings={"ignore_unknown_options": True})
@in_directory
@click.argument("more", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTIONS OF VERIFY]")
@click.pass_context
def audit(ctx: click.Context, directory: Path, more: tuple[str, ...]) -> None:
    """Prove from the tracking logs of all nodes that no acknowledged message was lost or doubled.

    It waits until running nodes have closed their logs, 15 seconds at most, and declares each database whose
    disk was lost. The verdict is a sentence, with what it does not cover below it; the report is
    DIR/audit/report.html. Exit status, as of shadowaudit verify: 0 proven, 1 the promise was broken, 2 usage,
    3 not provable.
    """
    from shadowlab import auditing

    with problems("interrupted: no verdict"):
        status = auditing.audit(Cluster(directory), more, lambda told: click.echo(told, err=True))
    ctx.exit(status)
