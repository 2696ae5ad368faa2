"""The engine that does the work: what was asked for; else this process for little, and Spark for much."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self

from shadowaudit.engine.here import Here
from shadowaudit.engine.lean import without_pandas
from shadowaudit.engine.session import SPARK, session, submitted
from shadowaudit.interruption import insisting

AUTO, HERE = "auto", "here"

_TEXT = 1 << 30  # octets of logs, and
_STATES = 1_500_000  # partial states, for which this process is done before Spark has started


class Engine(Protocol):
    """Gives sessions for work, and has a name."""

    @property
    def name(self) -> str: ...

    def session(self, *, octets: int = 0, states: int = 0) -> Any:
        """For so much work. Raises EngineError."""
        ...


@dataclass(slots=True)
class Ready:
    """A session that is open already."""

    opened: Any
    name: str

    def session(self, *, octets: int = 0, states: int = 0) -> Any:
        del octets, states
        return self.opened


@dataclass(slots=True)
class Chosen:
    """What ``--engine`` says: auto, here, or what ``session`` knows. Starts it when it is needed.

    ``starting`` is shown while it starts. ``meanwhile`` begins what can be done while this machine's Spark
    starts. ``much``: as of ``session``.
    """

    asked: str
    starting: Callable[[str], AbstractContextManager[None]]
    master: str | None = None
    memory: str = "2g"
    meanwhile: Callable[[], None] | None = None
    much: bool = False
    name: str = HERE
    _opened: Any = None
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        with insisting():  # pyarrow's first look for pandas takes any exception for its absence
            without_pandas()
        if self.asked not in (AUTO, HERE):
            try:
                self._start(self.asked)
            except BaseException:  # nobody exits what was not entered
                self._stack.close()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, value, trace)

    @property
    def opened(self) -> Any:
        """The session of an engine that was started, if one was."""
        return self._opened

    def session(self, *, octets: int = 0, states: int = 0) -> Any:
        """One that was started does the rest as well."""
        if self._opened is None and not self._here(octets, states):
            self._start(SPARK)
        if self._opened is not None:
            return self._opened
        self.name = HERE
        return Here()

    def _here(self, octets: int, states: int) -> bool:
        if self.asked == HERE:
            return True
        # Whoever names a cluster wants the work done there.
        elsewhere = self.master is not None or submitted()
        return not elsewhere and octets <= _TEXT and states <= _STATES

    def _start(self, engine: str) -> None:
        handler = signal.getsignal(signal.SIGINT)
        if self.meanwhile is not None and engine == SPARK and not self.master and not submitted():
            self.meanwhile()
        with self.starting(f"Starting {engine}"), insisting():
            opened = session(engine, master=self.master, memory=self.memory, much=self.much)
            self._opened = self._stack.enter_context(opened)
        if handler is not signal.default_int_handler:  # Spark takes it for itself
            signal.signal(signal.SIGINT, handler)
        self.name = engine
