"""A process that has the relay imported already, and forks a node whenever it is asked to.

Started as ``python -m``. For each line ``{"config": …, "log": …}`` on standard input it forks a node, says
``started PID`` and, when that one has ended, ``ended STATUS`` (negative: by that signal). Nothing else is
special about such a node but that its pool for file work has one thread: so each thread has a role, and makes
its system calls in the same order in every run.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import uvloop

from shadowrelay import logs
from shadowrelay.database.opening import CannotOpen
from shadowrelay.errors import NodeFailed
from shadowrelay.service.running import run_node
from shadowrelay.settings import Settings, load_settings

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends, however that ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


async def _run(settings: Settings) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    await run_node(settings)


def _node(config: Path, log: Path) -> int:
    """What ``shadowrelay run`` does; returns its exit status."""
    die_with_parent()
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(handle, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    settings = load_settings(config, {})
    logs.configure(level=settings.log.level.value, format=settings.log.format.value)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(settings))
    except (CannotOpen, NodeFailed, OSError, BaseExceptionGroup) as error:
        click.echo(f"Error: {error!r}", err=True)
        return 1
    return 0


def main() -> None:
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("ready", flush=True)
    while line := sys.stdin.readline():  # not ``for line in``: that reads ahead
        task = json.loads(line)
        pid = os.fork()
        if pid == 0:
            status = 70
            try:
                status = _node(Path(task["config"]), Path(task["log"]))
            finally:
                sys.stderr.flush()
                os._exit(status)
        print(f"started {pid}", flush=True)
        _, status = os.waitpid(pid, 0)
        print(f"ended {os.waitstatus_to_exitcode(status)}", flush=True)


if __name__ == "__main__":
    main()
