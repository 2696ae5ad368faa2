"""Processes of this machine that share the parts of a job.

They are forked from one that has loaded what a task needs, and end with this process however it ends. Ctrl-C
does not reach them: this process closes the pool.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from multiprocessing import connection, context, forkserver, get_context, parent_process, resource_tracker
from types import TracebackType
from typing import Any, Self

from shadowaudit.engine.port import EngineError
from shadowaudit.interruption import put_off

Task = Callable[[Any, Any], Any]
"""A function of a module: takes what all parts of a job have in common, and a part."""

MUCH = 128 << 20
"""Octets of logs: fewer are read in this process before others have started."""

_LOADED = "shadowaudit.engine.loaded"


@dataclass(slots=True)
class Pool:
    """``size`` processes, once they are started. Without them a job is done in this process.

    ``done``, ``total``: how many parts of the job under way are done, and of how many.
    """

    size: int
    done: int = 0
    total: int = 0
    _workers: dict[connection.Connection, context.ForkServerProcess] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def load(self) -> None:
        """Have what they need loaded, and do not wait for that. Again changes nothing."""
        if self.size > 1:
            resource_tracker.ensure_running()  # it lets Ctrl-C through at its end
            get_context("forkserver").set_forkserver_preload([_LOADED])
            with _uninterrupted():
                forkserver.ensure_running()

    def start(self) -> None:
        """Start them, unless it is one. Again changes nothing."""
        if self._workers or self.size < 2:
            return
        self.load()
        processes = get_context("forkserver")
        with _uninterrupted():
            for _ in range(self.size):
                ours, theirs = processes.Pipe()
                worker = processes.Process(target=_work, args=(theirs,), daemon=True)
                worker.start()
                theirs.close()
                self._workers[ours] = worker

    def close(self) -> None:
        """End the processes, whatever they do."""
        for ours, worker in self._workers.items():
            worker.kill()
            worker.join()
            ours.close()
        self._workers.clear()

    def each(self, task: Task, common: Any, parts: Iterable[Any]) -> Iterator[Any]:
        """What the task returns for each part, as soon as it is done. A part that fails ends the job.

        Raises what the task raises, and EngineError when a process ends.
        """
        waiting = list(parts)
        self.done, self.total = 0, len(waiting)
        try:
            for result in (
                self._each(task, common, iter(waiting))
                if self._workers
                else (task(common, part) for part in waiting)
            ):
                self.done += 1
                yield result
        finally:
            self.done = self.total = 0

    def _each(self, task: Task, common: Any, parts: Iterator[Any]) -> Iterator[Any]:
        busy: set[connection.Connection] = set()
        try:
            for ours, part in zip(self._workers, parts, strict=False):
                _send(ours, (task, common))
                _send(ours, part)
                busy.add(ours)
            while busy:
                for ours in [one for one in busy if one in connection.wait(list(busy))]:
                    found = _received(ours)
                    try:
                        _send(ours, next(parts))
                    except StopIteration:
                        busy.remove(ours)
                    yield found
        except BaseException:
            self.close()  # others are in the middle of parts that nobody asks for any more
            raise


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C comes at the end; processes that start meanwhile never see it."""
    with put_off():  # another thread may take what this one blocks
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _send(ours: connection.Connection, told: Any) -> None:
    try:
        ours.send(told)
    except OSError:
        raise EngineError(_ENDED) from None


def _received(ours: connection.Connection) -> Any:
    try:
        found, problem = ours.recv()
    except (OSError, EOFError):
        raise EngineError(_ENDED) from None
    if problem is not None:
        raise problem
    return found


_ENDED = (
    "a process of the audit was ended by somebody else: has this machine too little memory? (dmesg tells.) "
    "--engine spark needs less on each of several machines"
)


def _work(ours: connection.Connection) -> None:
    """What a process does: jobs, and parts of them. A tuple begins a job."""
    threading.Thread(target=_outlive_nobody, daemon=True).start()
    task, common = None, None
    while True:
        try:
            told = ours.recv()
        except EOFError:
            return
        if isinstance(told, tuple) and callable(told[0]):
            task, common = told
            continue
        try:
            assert task is not None
            answer: tuple[Any, Exception | None] = (task(common, told), None)
        except Exception as problem:
            problem.add_note(traceback.format_exc())
            answer = (None, problem)
        ours.send(answer)


def _outlive_nobody() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
    os._exit(1)


class _Missing(MetaPathFinder):
    """As if pandas were not installed."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        del path, target
        if fullname == "pandas":
            raise ModuleNotFoundError(name=fullname)


def without_pandas() -> None:
    """Arrow looks for pandas at its first array, to ask of all that it is given whether it is a data frame.

    To load it takes 0.4 s, and nobody here has one. Whoever imports pandas afterwards gets it.
    """
    import pyarrow as pa

    missing = _Missing()
    sys.meta_path.insert(0, missing)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(missing)
