"""``shadowrelay run``: runs a node."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import structlog

from shadowrelay.cli.loops import loop_factory

if TYPE_CHECKING:
    from shadowrelay.settings import Settings
    from shadowrelay.workers.worker import WorkerPlace

_SWITCH = 0.0005
"""Seconds that the event loop may keep the interpreter from a waiting commit; Python's default is 0.005."""


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--worker", type=click.IntRange(min=1), hidden=True, help="The supervisor starts this worker.")
@click.option("--of", type=click.IntRange(min=1), default=1, hidden=True, help="How many workers there are.")
@click.option("--counts", type=int, hidden=True, help="Descriptor of the memory that workers share.")
@click.option("--admin-socket", type=int, hidden=True, help="Descriptor where the worker serves its API.")
@click.option("--lifeline", type=int, hidden=True, help="Descriptor of the line to the supervisor.")
def run(
    file: Path,
    worker: int | None,
    of: int,
    counts: int | None,
    admin_socket: int | None,
    lifeline: int | None,
) -> None:
    """Run the node that FILE describes, until SIGTERM or Ctrl-C.

    A node of several workers is one process for each, and one that supervises them. Sessions under way are
    finished first; a second signal does not hurry it. At SIGHUP the node reads FILE again (shadowrelay
    reload). Other signals are logged, and change nothing. Exit codes: 0 stopped, 1 the node could not go on
    (the message says why), 2 the settings are wrong.
    """
    from shadowrelay import failpoints, logs
    from shadowrelay.settings import load_settings, settings_warnings
    from shadowrelay.workers.supervisor import Supervisor, command, supervised
    from shadowrelay.workers.worker import Lifeline, WorkerPlace

    try:
        failpoint = failpoints.armed(os.environ)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    settings = load_settings(file, os.environ)
    logs.configure(level=settings.log.level.value, format=settings.log.format.value)
    if worker is None:  # else the supervisor said it already
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
    if worker is not None:
        structlog.contextvars.bind_contextvars(worker=worker)
        line = None if lifeline is None else Lifeline(lifeline, of)
        place = WorkerPlace(number=worker, of=of, counts=counts, admin=admin_socket, lifeline=line)
        _run_worker(file, settings, place)
    elif supervised(settings):
        supervisor = Supervisor(settings, lambda: load_settings(file, os.environ), command(file))
        _until_ended(_validated_first(settings, supervisor.run), None)
    else:
        _run_worker(file, settings, None)


def _run_worker(file: Path, settings: Settings, place: WorkerPlace | None) -> None:
    from shadowrelay.service.running import run_node
    from shadowrelay.settings import load_settings
    from shadowrelay.workers.worker import settings_of

    def read() -> Settings:
        return settings_of(load_settings(file, os.environ), place)

    async def run() -> None:
        await run_node(settings_of(settings, place), read, worker=place)

    _until_ended(_validated_first(settings, run) if place is None else run(), loop_factory())


async def _validated_first(settings: Settings, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    if any(route.dane for route in settings.routes.values()):
        from shadowrelay.service.validating import validated

        await validated(settings)
    await run()


def _until_ended(
    running: Coroutine[Any, Any, None], loop: Callable[[], asyncio.AbstractEventLoop] | None
) -> None:
    from shadowrelay.database.opening import CannotOpen
    from shadowrelay.errors import NodeFailed

    try:
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(running)
    except (CannotOpen, NodeFailed, OSError) as error:
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
