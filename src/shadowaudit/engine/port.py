"""The seam: what an audit asks of the engine that does its work. Both engines run the same pure functions.

    logs ─▶ read: facts, and states in blocks ─▶ weigh the facts ─▶ judge: merge each bucket, judge suspects

Pure: ``logs.file.digest`` (one log), ``engine.blocks`` (states as octets, by bucket), ``engine.merge.merge``
(a bucket), ``engine.exact.judged`` (suspects, by their rows).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from shadowaudit.core.evidence import Evidence
from shadowaudit.core.facts import FileFacts
from shadowaudit.logs.manifest import Log

__all__ = ["HERE", "Asked", "Engine", "EngineError", "Held", "Job", "Log"]

HERE = "here"
"""The engine of one machine."""


class EngineError(Exception):
    """The engine cannot be used, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a task has to know to merge and judge. Times in milliseconds.

    ``files``: those that count, by number, each with no more than its rows' readers need (``merge.plain``).
    ``width``: of the points of the curves.
    """

    files: tuple[FileFacts, ...]
    evidence: Evidence
    width: int
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is asked, and the directories of this machine that take the answer (``engine.answers``)."""

    asked: Asked
    messages: str  # a table a bucket
    tallies: str  # a JSON a bucket
    findings: str  # tables of ``exact.SCHEMA``


class Waiting(Protocol):
    """States of messages, which wait for a question."""

    def judge(self, job: Job) -> None:
        """Fill the job's directories. States of logs that are not among ``asked.files`` do not count.

        Raises EngineError, OSError.
        """
        ...


class Held(Waiting, Protocol):
    """What was read: facts of the logs, and the states of their messages."""

    @property
    def facts(self) -> Sequence[FileFacts]:
        """One for each log that was asked for, in that order."""
        ...

    def octets(self, name: str, begin: int, end: int) -> bytes:
        """What the log of that name has from one place to another. Raises OSError."""
        ...


class Engine(Protocol):
    """Reads logs. Somebody else starts and ends it."""

    @property
    def name(self) -> str:
        """For the verdict: ``here``, ``spark``."""
        ...

    def read(self, logs: Sequence[Log]) -> Held:
        """Read these logs. Whatever a log holds is told by its facts. Raises EngineError, OSError."""
        ...

    def tasks(self) -> tuple[int, int]:
        """How many tasks of what is going on are done, and of how many; (0, 0) if that is not known.

        Another thread may call it.
        """
        ...
