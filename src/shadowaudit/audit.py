"""An audit from beginning to end: find, read, merge, judge, write the tables, say the verdict."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from shadowaudit.core.copies import distinct
from shadowaudit.core.evidence import Evidence
from shadowaudit.core.facts import FileFacts
from shadowaudit.core.fingerprint import digest
from shadowaudit.core.verdict import Verdict
from shadowaudit.core.weighing import weigh
from shadowaudit.engine.blocks import Blocks
from shadowaudit.engine.ingest import ingest, passed
from shadowaudit.engine.merge import Job, buckets_of, judge, split
from shadowaudit.engine.totals import added, curve, latencies
from shadowaudit.logs.hashing import Hashed
from shadowaudit.logs.manifest import Found
from shadowaudit.logs.state import State
from shadowaudit.tables import Tables


class Progress(Protocol):
    """Is told of each step of an audit."""

    def step(self, text: str) -> AbstractContextManager[None]:
        """A step that goes on for as long as the context."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of the logs. Times in milliseconds; ``lost``: ids of databases whose disk was lost.

    ``open_from``: the first row of the log that a node still writes, as its name said before the others
    were read.
    """

    lost: Sequence[str] = ()
    allow_open: bool = False
    open_from: Mapping[str, int] = field(default_factory=dict)
    since: int | None = None
    until: int | None = None


@dataclass(slots=True)
class Audit:
    """Runs on an engine's session. ``state`` keeps what was read; ``out`` takes the tables."""

    session: Any
    state: State
    out: Path
    progress: Progress
    cores: int = 2
    timings: dict[str, float] = field(default_factory=dict)
    hashed: Mapping[str, Hashed] = field(default_factory=dict)  # made ahead
    _passed: Blocks | None = None

    def read(self, files: Sequence[Found]) -> list[FileFacts]:
        """Read what was not read before. Returns the facts of all these files."""
        with self._step("read", f"Reading {len(files)} files"):
            if not self.state.kept:
                facts, self._passed = passed(
                    self.session, self.state.directory, files, self.hashed, slices=self.cores
                )
                return facts
            return ingest(lambda: self.session, self.state, files, slices=self.cores)

    def verify(self, facts: Sequence[FileFacts], question: Question) -> Verdict:
        """Judge every message in these files, and write the tables."""
        # What was deleted or moved since it was read: its rows can no longer be shown.
        files, notes = distinct(facts, gone={one.path for one in facts if not Path(one.path).exists()})
        evidence = weigh(
            files,
            lost=question.lost,
            allow_open=question.allow_open,
            open_from=question.open_from,
            since=question.since,
            notes=notes,
        )
        tables = Tables(self.out)
        tables.begin()
        try:
            return self._verify(files, question, evidence, tables)
        except BaseException:
            tables.discard()
            raise

    def _verify(
        self, facts: Sequence[FileFacts], question: Question, evidence: Evidence, tables: Tables
    ) -> Verdict:
        counts: dict[str, int] = {}
        classes: Counter[str] = Counter()
        if any(one.messages for one in facts):
            job = _job(facts, evidence, question, tables)
            with self._step("judge", f"Judging what {len(facts)} files say of each message"):
                blocks = self._passed or self._split(facts, tables.states)
                judge(self.session, blocks, job, slices=self.cores)
                classes = tables.findings()
            with self._step("count", "Counting"):
                found = added(tables.tally())
                counts = found["totals"] if found["totals"].get("messages") else {}
                tables.stats(
                    latencies(found["latencies"], _names(facts)),
                    curve(found["changes"], job.first, job.last),
                )
        tables.finish()
        verdict = Verdict(
            totals=counts,
            classes=classes,
            evidence=evidence,
            files=len(facts),
            nodes=len({one.node for one in facts if one.node}),
            allow_open=question.allow_open,
            timings=self.timings,
        )
        tables.verdict(verdict)
        return verdict

    def _split(self, facts: Sequence[FileFacts], directory: Path) -> Blocks:
        states = self.state.tables(facts)
        return split(self.session, states, buckets_of(facts), directory.absolute(), slices=self.cores)

    @contextmanager
    def _step(self, name: str, text: str) -> Iterator[None]:
        began = time.monotonic()
        with self.progress.step(text):
            yield
        self.timings[name] = self.timings.get(name, 0.0) + time.monotonic() - began


def _job(facts: Sequence[FileFacts], evidence: Evidence, question: Question, tables: Tables) -> Job:
    return Job(
        files=tuple(
            FileFacts(
                path=one.path,
                node=one.node,
                database=one.database,
                boot=one.boot,
                flavour=one.flavour,
                messages=one.messages,
            )
            for one in facts
        ),
        evidence=evidence,
        messages=str(tables.work.absolute()),
        tallies=str(tables.tallies.absolute()),
        findings=str(tables.judged.absolute()),
        first=max(min((one.begins for one in facts if one.begins > 0), default=0), question.since or 0),
        last=min(max((one.ends for one in facts), default=0), question.until or sys.maxsize),
        since=question.since,
        until=question.until,
    )


def _names(facts: Sequence[FileFacts]) -> dict[int, str]:
    names = {int(number): name for one in facts for number, name in one.names.items()}
    return names | {digest(one.node): one.node for one in facts}
