"""An audit from beginning to end: find, read, merge, judge, write the tables, say the verdict."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from shadowaudit.core.evidence import Evidence
from shadowaudit.core.facts import FileFacts
from shadowaudit.core.fingerprint import digest
from shadowaudit.core.verdict import Verdict
from shadowaudit.core.weighing import weigh
from shadowaudit.engine.exact import judged
from shadowaudit.engine.ingest import ingest
from shadowaudit.engine.merge import merged, pieces
from shadowaudit.engine.totals import curve, latencies, totals
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
    """What is asked of the logs. Times in milliseconds; ``lost``: ids of databases whose disk was lost."""

    lost: Sequence[str] = ()
    allow_open: bool = False
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

    def read(self, files: Sequence[Found]) -> list[FileFacts]:
        """Read what was not read before. Returns the facts of all these files."""
        with self._step("read", f"Reading {len(files)} files"):
            return ingest(lambda: self.session, self.state, files, slices=self.cores)

    def verify(self, facts: Sequence[FileFacts], question: Question) -> Verdict:
        """Judge every message in these files, and write the tables."""
        evidence = weigh(facts, lost=question.lost, allow_open=question.allow_open, since=question.since)
        tables = Tables(self.out)
        tables.begin()
        try:
            return self._verify(facts, question, evidence, tables)
        except BaseException:
            tables.discard()
            raise

    def _verify(
        self, facts: Sequence[FileFacts], question: Question, evidence: Evidence, tables: Tables
    ) -> Verdict:
        states = self.state.tables(facts)
        counts: dict[str, int] = {}
        classes: Counter[str] = Counter()
        if states:
            with self._step("merge", "Merging what is known of each message"):
                tables.messages(_within(merged(self.session, states), question))
        if tables.any:
            with self._step("count", "Counting"):
                frame = self.session.read.parquet(str(tables.work))
                counts = totals(frame)
            if counts["suspects"]:
                with self._step("judge", f"Judging {counts['suspects']} messages by their rows"):
                    classes = self._judge(frame, states, facts, evidence, tables)
            with self._step("stats", "Distributions"):
                tables.stats(
                    latencies(frame, _names(facts)), curve(frame, counts["first_at"], counts["last_at"])
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

    def _judge(
        self,
        frame: Any,
        states: Sequence[str],
        facts: Sequence[FileFacts],
        evidence: Evidence,
        tables: Tables,
    ) -> Counter[str]:
        suspects = frame.where("suspect")
        findings = judged(pieces(self.session, states, suspects), facts, evidence)
        findings.write.mode("overwrite").parquet(str(tables.judged))
        return tables.findings()

    @contextmanager
    def _step(self, name: str, text: str) -> Iterator[None]:
        began = time.monotonic()
        with self.progress.step(text):
            yield
        self.timings[name] = self.timings.get(name, 0.0) + time.monotonic() - began


def _within(frame: Any, question: Question) -> Any:
    from pyspark.sql import functions as f

    moment = f.coalesce("accepted_at", "held_at", "final_at", "discard_at")
    if question.since is not None:
        frame = frame.where(moment >= question.since)
    if question.until is not None:
        frame = frame.where(moment < question.until)
    return frame


def _names(facts: Sequence[FileFacts]) -> dict[int, str]:
    names = {int(number): name for one in facts for number, name in one.names.items()}
    return names | {digest(one.node): one.node for one in facts}
