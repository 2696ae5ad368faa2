"""An audit from beginning to end: find, read, merge, judge, write the tables, say the verdict."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from shadowaudit.core.copies import distinct
from shadowaudit.core.evidence import Evidence
from shadowaudit.core.facts import FileFacts, Opened
from shadowaudit.core.fingerprint import digest
from shadowaudit.core.verdict import Verdict
from shadowaudit.core.weighing import weigh
from shadowaudit.engine.ahead import Ahead
from shadowaudit.engine.blocks import Blocks
from shadowaudit.engine.choice import Engine
from shadowaudit.engine.exact import HEAVIER
from shadowaudit.engine.ingest import ingest, passed
from shadowaudit.engine.merge import Job, States, judge, plain, split, states_of
from shadowaudit.engine.settle import Merged, settle
from shadowaudit.engine.totals import added, curve, latencies, span, width_of
from shadowaudit.logs.grown import without_beginnings
from shadowaudit.logs.manifest import Found
from shadowaudit.logs.settled import MESSAGES, TALLY, Piece, linked
from shadowaudit.logs.state import State
from shadowaudit.tables import Tables


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
    """What is asked of the logs. Times in milliseconds; ``lost``: ids of databases whose disk was lost.

    ``opened``: logs that nodes still wrote, as it was before the others were read.
    """

    lost: Sequence[str] = ()
    allow_open: bool = False
    opened: Sequence[Opened] = ()
    passed_over: Sequence[str] = ()  # files that look like logs, and are not read
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True)
class _Work:
    """What is to be judged now, and the pieces of what is settled."""

    files: tuple[FileFacts, ...]  # by number
    states: Sequence[States] = ()
    settled: tuple[Piece, ...] = ()
    passed: Blocks | None = None  # the states, if they are on their way already

    @property
    def many(self) -> int:
        """How many states."""
        if self.passed:
            return sum(one.messages for one in self.files)
        return sum(one.rows for one in self.states)


@dataclass(slots=True)
class Audit:
    """Runs on an engine. ``state`` keeps what was read and settled; ``out`` takes the tables."""

    engine: Engine
    state: State
    out: Path
    progress: Progress
    cores: int = 2
    timings: dict[str, float] = field(default_factory=dict)
    ahead: Ahead | None = None  # reads already
    _passed: Blocks | None = None

    def read(self, files: Sequence[Found]) -> list[FileFacts]:
        """Read what was not read before. Returns the facts of all these files."""
        if not self.state.kept:
            session = self.engine.session(octets=sum(file.size for file in files))
            with self._step("read", f"Reading {len(files)} files"):
                ahead = self.ahead or Ahead(self.state.directory, files)
                found, self._passed = passed(session, ahead, files, slices=self.cores)
            return found
        self.state.create()
        facts = {str(file.path): known for file in files if (known := self.state.known(file))}
        fresh = [file for file in files if str(file.path) not in facts]
        if fresh:
            session = self.engine.session(octets=sum(file.size for file in fresh))
            with self._step("read", f"Reading {len(fresh)} files"):
                facts |= {one.path: one for one in ingest(session, self.state, fresh, slices=self.cores)}
        return [facts[str(file.path)] for file in files]

    def settle(self) -> None:
        """Settle all that was ever read: the next verdict is about the rest."""
        files, _ = counted(self.state.all())
        self.state.check(files)
        with self.state.settlement.held():
            self._settled(files)

    def verify(self, facts: Sequence[FileFacts], question: Question) -> Verdict:
        """Judge every message in these files, and write the tables."""
        if self.state.kept and (many := self.state.outdated()):
            self.progress.tell(
                f"{many} logs in the state were read by another version of shadowaudit, and do not count "
                "before they are read again: name their directories"
            )
        files, notes = counted(facts)
        if self.state.kept:
            for path in self.state.unreadable(facts):
                self.progress.tell(
                    f"{path} cannot be read, and the log that it tells of does not count before it is read "
                    "again: name its directory. Or delete that file, if that log shall count no more"
                )
            self.state.check(files)
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

    def _verify(
        self, facts: Sequence[FileFacts], question: Question, evidence: Evidence, tables: Tables
    ) -> Verdict:
        counts: dict[str, int] = {}
        classes: Counter[str] = Counter()
        shown = span(facts, question.since, question.until)
        with self._work(facts, question) as work:
            if work.many:
                classes = self._judge(work, question, evidence, tables, width_of(*shown))
            if work.many or work.settled:
                with self._step("count", "Counting"):
                    store = self.state.settlement
                    linked([store.path(one.name, MESSAGES) for one in work.settled], tables.work)
                    settled = (store.path(one.name, TALLY) for one in work.settled)
                    found = added(tables.tally(settled), *shown)
                    counts = found["totals"] if found["totals"].get("messages") else {}
                    tables.stats(
                        latencies(found["latencies"], _names(facts)),
                        curve(found["changes"], width_of(*shown)),
                    )
        tables.finish()
        verdict = Verdict(
            totals=counts,
            classes=classes,
            evidence=evidence,
            files=len(facts),
            nodes=len({one.node for one in facts if one.node}),
            allow_open=question.allow_open,
            selected=question.since is not None or question.until is not None,
            engine=self.engine.name,
            timings=self.timings,
        )
        tables.verdict(verdict)
        return verdict

    @contextmanager
    def _work(self, facts: Sequence[FileFacts], question: Question) -> Iterator[_Work]:
        """What is settled is so whatever is declared lost, or open; of a part of the time it says nothing."""
        if not self.state.kept:
            yield _Work(tuple(facts), passed=self._passed)
        elif question.since is not None or question.until is not None:
            self.progress.tell("of a part of the time only: everything is merged again")
            yield _Work(tuple(facts), states_of(self.state, facts))
        else:
            with self.state.settlement.held():
                merged = self._settled(facts)
                yield _Work(merged.files, merged.open, merged.finished)

    def _settled(self, facts: Sequence[FileFacts]) -> Merged:
        return settle(
            lambda states: self.engine.session(states=states),
            self.state,
            facts,
            slices=self.cores,
            step=lambda: self._step("settle", "Merging what is new"),
            tell=self.progress.tell,
        )

    def _judge(
        self, work: _Work, question: Question, evidence: Evidence, tables: Tables, width: int
    ) -> Counter[str]:
        job = Job(
            files=plain(work.files),
            evidence=evidence,
            messages=str(tables.work.absolute()),
            tallies=str(tables.tallies.absolute()),
            findings=str(tables.judged.absolute()),
            width=width,
            since=question.since,
            until=question.until,
        )
        heavier = HEAVIER if self.state.kept else 1  # what is open is suspect
        session = self.engine.session(states=work.many * heavier)
        what = "is open" if self.state.kept else f"{len(work.files)} files say of each message"
        with self._step("judge", f"Judging what {what}"):
            blocks = work.passed or split(session, work.states, tables.states.absolute(), slices=self.cores)
            judge(session, blocks, job, slices=self.cores)
            return tables.findings()

    @contextmanager
    def _step(self, name: str, text: str) -> Iterator[None]:
        began = time.monotonic()
        with self.progress.step(text):
            yield
        self.timings[name] = self.timings.get(name, 0.0) + time.monotonic() - began


def counted(facts: Sequence[FileFacts]) -> tuple[list[FileFacts], tuple[str, ...]]:
    """The files that count, and notes. What was deleted or moved since it was read can no longer be shown."""
    files, copies = distinct(facts, gone={one.path for one in facts if not Path(one.path).exists()})
    files, beginnings = without_beginnings(files)
    return files, (*copies, *beginnings)


def _names(facts: Sequence[FileFacts]) -> dict[int, str]:
    names = {int(number): name for one in facts for number, name in one.names.items()}
    return names | {digest(one.node): one.node for one in facts}


def _passed_over(paths: Sequence[str]) -> tuple[str, ...]:
    if not paths:
        return ()
    more = f" and {len(paths) - 10} more" if len(paths) > 10 else ""
    return (f"Passed over, as it is no closed log as it stands: {', '.join(paths[:10])}{more}.",)
