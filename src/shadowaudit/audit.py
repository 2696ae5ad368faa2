"""An audit from beginning to end: find, read, merge, judge, write the tables, say the verdict."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from shadowaudit.core.evidence import Evidence
from shadowaudit.core.facts import FileFacts, Opened
from shadowaudit.core.fingerprint import digest
from shadowaudit.core.verdict import Verdict, counted
from shadowaudit.core.weighing import weigh
from shadowaudit.core.workers import nodes_of
from shadowaudit.engine.here import Here
from shadowaudit.engine.merge import plain
from shadowaudit.engine.port import Asked, Engine, Held, Log, Waiting
from shadowaudit.engine.settle import Finished, Merged, ingest, settle, whole
from shadowaudit.engine.totals import added, curve, latencies, span, width_of
from shadowaudit.logs.extract import in_file
from shadowaudit.logs.grown import without_copies
from shadowaudit.logs.settled import linked
from shadowaudit.logs.state import State
from shadowaudit.results import Tables


class Progress(Protocol):
    """Is told of each step of an audit."""

    def step(self, text: str) -> AbstractContextManager[None]:
        """A step that goes on for as long as the context."""
        ...

    def tell(self, sentence: str) -> None:
        """Something to know besides."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of the logs. Times in milliseconds; ``lost``: ids of databases whose disk was lost, or
    names of nodes that lost theirs.

    ``opened``: logs that nodes still wrote, as it was before the others were read.
    """

    lost: Sequence[str] = ()
    allow_open: bool = False
    opened: Sequence[Opened] = ()
    passed_over: Sequence[str] = ()  # files that look like logs, and are not read
    since: int | None = None
    until: int | None = None


@dataclass(slots=True)
class Audit:
    """Runs on an engine. ``out`` takes the tables. ``state`` keeps what ``Here`` read and settled."""

    engine: Engine
    out: Path
    progress: Progress
    state: State | None = None
    timings: dict[str, float] = field(default_factory=dict)
    _held: Held | None = None

    def read(self, files: Sequence[Log]) -> list[FileFacts]:
        """Read what was not read before. Returns the facts of all these files."""
        if self.state is None:
            with self._step("read", f"Reading {counted(len(files), 'file')}"):
                self._held = self.engine.read(files)
            return list(self._held.facts)
        self.state.create()
        facts = {file.name: known for file in files if (known := self.state.known(file))}
        fresh = [file for file in files if file.name not in facts]
        if fresh:
            with self._step("read", f"Reading {counted(len(fresh), 'file')}"):
                facts |= {one.path: one for one in ingest(self._here, self.state, fresh)}
        return [facts[file.name] for file in files]

    def settle(self) -> None:
        """Settle all that was ever read: the next verdict is about the rest."""
        assert self.state is not None
        files, _ = without_copies(self.state.all())
        self.state.check(files)
        with self.state.settlement.held():
            self._settled(self.state, files)

    def verify(self, facts: Sequence[FileFacts], question: Question) -> Verdict:
        """Judge every message in these files, and write the tables."""
        files, notes = without_copies(facts, self._held.octets if self._held else in_file)
        if self.state is not None:
            self._check(self.state, facts, files)
        evidence = weigh(
            files,
            lost=question.lost,
            allow_open=question.allow_open,
            opened=question.opened,
            since=question.since,
            notes=(*notes, *_passed_over(question.passed_over)),
        )
        tables = Tables(self.out)
        tables.begin()
        try:
            return self._verify(files, question, evidence, tables)
        except BaseException:
            tables.discard()
            raise

    def _check(self, state: State, facts: Sequence[FileFacts], files: Sequence[FileFacts]) -> None:
        if many := state.outdated():
            self.progress.tell(
                f"{many} logs in the state were read by another version of shadowaudit, and do not count "
                "before they are read again: name their directories"
            )
        for path in state.unreadable(facts):
            self.progress.tell(
                f"{path} cannot be read, and the log that it tells of does not count before it is read "
                "again: name its directory. Or delete that file, if that log shall count no more"
            )
        state.check(files)

    def _verify(
        self, facts: Sequence[FileFacts], question: Question, evidence: Evidence, tables: Tables
    ) -> Verdict:
        shown = span(facts, question.since, question.until)
        nodes = nodes_of(one.node for one in facts if one.node)
        asked = Asked(
            files=plain(facts),
            evidence=evidence,
            width=width_of(*shown),
            since=question.since,
            until=question.until,
        )
        with self._states(facts, question) as (held, settled):
            what = "what is open" if settled.messages else f"each message by {counted(len(facts), 'file')}"
            with self._step("judge", f"Judging {what}"):
                held.judge(tables.job(asked))
                classes = tables.findings()
            with self._step("count", "Counting"):
                found = added(tables.tally(settled.tallies), *shown)
                linked(settled.messages, tables.work)
                tables.stats(
                    latencies(found["latencies"], _names(facts), nodes), curve(found["changes"], asked.width)
                )
        tables.finish()
        verdict = Verdict(
            totals=found["totals"] if found["totals"].get("messages") else {},
            classes=classes,
            repeated=tables.repeated(),
            evidence=evidence,
            files=len(facts),
            rows=sum(one.rows + one.unreadable for one in facts),
            nodes=len({*nodes.values()}),
            workers=len(nodes),
            allow_open=question.allow_open,
            selected=question.since is not None or question.until is not None,
            engine=self.engine.name,
            timings=self.timings,
        )
        tables.verdict(verdict)
        return verdict

    @contextmanager
    def _states(self, facts: Sequence[FileFacts], question: Question) -> Iterator[tuple[Waiting, Finished]]:
        """What is to be judged, and what is settled.

        Settled is so whatever is declared lost, or open; of a part of the time it says nothing.
        """
        if self.state is None:
            assert self._held is not None
            yield self._held, Finished()
        elif question.since is not None or question.until is not None:
            self.progress.tell("of a part of the time only: everything is merged again")
            yield whole(self._here, self.state, facts), Finished()
        else:
            with self.state.settlement.held():
                merged = self._settled(self.state, facts)
                yield merged.open, merged.finished

    def _settled(self, state: State, facts: Sequence[FileFacts]) -> Merged:
        return settle(
            self._here,
            state,
            facts,
            step=lambda: self._step("settle", "Merging what is new"),
            tell=self.progress.tell,
        )

    @property
    def _here(self) -> Here:
        assert isinstance(self.engine, Here)
        return self.engine

    @contextmanager
    def _step(self, name: str, text: str) -> Iterator[None]:
        began = time.monotonic()
        with self.progress.step(text):
            yield
        self.timings[name] = self.timings.get(name, 0.0) + time.monotonic() - began


def _names(facts: Sequence[FileFacts]) -> dict[int, str]:
    names = {int(number): name for one in facts for number, name in one.names.items()}
    return names | {digest(one.node): one.node for one in facts}


def _passed_over(paths: Sequence[str]) -> tuple[str, ...]:
    if not paths:
        return ()
    more = f" and {len(paths) - 10:,} more" if len(paths) > 10 else ""
    return (f"Passed over, as it is no closed log as it stands: {', '.join(paths[:10])}{more}.",)
