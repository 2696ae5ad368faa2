"""``shadowrelay run``: runs a node."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import sys
from pathlib import Path

import click
import structlog

from shadowrelay.cli.loops import loop_factory

_SWITCH = 0.0005
"""Seconds that the event loop may keep the interpreter from a waiting commit; Python's default is 0.005."""


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def run(file: Path) -> None:
    """Run the node that FILE describes, until SIGTERM or Ctrl-C.

    Sessions under way are finished first; a second signal does not hurry it. At SIGHUP the node reads FILE
    again (shadowrelay reload). Other signals are logged, and change nothing. Exit codes: 0 stopped, 1 the
    node could not go on (the message says why), 2 the settings are wrong.
    """
    from shadowrelay import failpoints, logs
    from shadowrelay.admin.server import AdminCannotListen
    from shadowrelay.database.opening import CannotOpen
    from shadowrelay.service.node import NodeFailed
    from shadowrelay.service.running import run_node
    from shadowrelay.settings import load_settings, settings_warnings

    try:
        failpoint = failpoints.armed(os.environ)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    settings = load_settings(file, os.environ)
    logs.configure(level=settings.log.level.value, format=settings.log.format.value)
    for warning in settings_warnings(settings):
        click.echo(f"warning: {warning}", err=True)
    if failpoint is not None:
        structlog.get_logger(__name__).critical(
            "failpoint_armed",
            point=failpoint.point,
            passage=failpoint.left,
            consequence="this node will kill itself there; it is set for tests alone",
        )
    _allow_descriptors()
    sys.setswitchinterval(_SWITCH)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(run_node(settings, lambda: load_settings(file, os.environ)))
    except (CannotOpen, AdminCannotListen, NodeFailed, OSError) as error:
        raise click.ClickException(str(error)) from error
    except BaseExceptionGroup as errors:
        for text in dict.fromkeys(str(leaf) or type(leaf).__name__ for leaf in _leaves(errors)):
            click.echo(f"Error: {text}", err=True)
        sys.exit(1)


def _allow_descriptors() -> None:
    """Raise the limit of descriptors to the most allowed: the usual 1,024 are fewer than our connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
