"""What an audit leaves behind: verdict.json, messages, findings, violations, stats and copies as tables."""

from __future__ import annotations

import csv
import json
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import compute, parquet

from shadowaudit.core.findings import BROKEN, Class, Severity
from shadowaudit.core.verdict import Verdict
from shadowaudit.engine.port import Asked, Job

_CSV = ("severity", "class", "id", "detail", "addresses", "node", "subject", "exposed", "evidence")
_SHAPE = pa.schema(
    [pa.field(name, pa.string()) for name in ("severity", "class", "id", "detail", "recipients", "addresses")]
    + [pa.field("node", pa.string()), pa.field("subject", pa.string()), pa.field("exposed", pa.int64())]
    + [pa.field("evidence", pa.string())]
)
_STATS = pa.schema(
    [
        ("measure", pa.string()),
        ("node", pa.string()),
        ("hop", pa.string()),
        ("step", pa.int64()),
        ("count", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Tables:
    """The directory of results. Made anew by each audit; nothing else in it is touched."""

    out: Path
    token: str = field(default_factory=lambda: secrets.token_hex(4))

    @property
    def work(self) -> Path:
        return self.out / f".messages-{self.token}"

    @property
    def tallies(self) -> Path:
        return self.out / f".tallies-{self.token}"

    @property
    def judged(self) -> Path:
        return self.out / f".findings-{self.token}"

    def job(self, asked: Asked) -> Job:
        """Has its answer put here."""
        messages, tallies, findings = (str(one.absolute()) for one in (self.work, self.tallies, self.judged))
        return Job(asked=asked, messages=messages, tallies=tallies, findings=findings)

    def begin(self) -> None:
        """Remove what an earlier audit left. Raises OSError."""
        self.out.mkdir(parents=True, exist_ok=True)
        self.discard()
        self.work.mkdir()
        self.tallies.mkdir()
        self.judged.mkdir()

    def discard(self) -> None:
        """Leave no result behind: half of one would be taken for a whole one."""
        for path in (
            self.out / "messages.parquet",
            *self.out.glob(".messages-*"),
            *self.out.glob(".findings-*"),
            *self.out.glob(".tallies-*"),
        ):
            shutil.rmtree(path, ignore_errors=True)
        for name in (
            "verdict.json",
            *(f"{name}.{kind}" for name in ("findings", "violations") for kind in ("parquet", "csv")),
            "stats.parquet",
            "copies.parquet",
            "report.html",
        ):
            (self.out / name).unlink(missing_ok=True)

    def findings(self) -> Counter[str]:
        """Write all findings, worst first, and the violations among them; returns messages by class."""
        counts: Counter[str] = Counter()
        with ExitStack() as stack:
            everything, violations = (
                stack.enter_context(self._table(name)) for name in ("findings", "violations")
            )
            for severity in Severity:
                for batch in self._of(severity):
                    counts.update(batch.column("class").to_pylist())
                    everything(batch)
                    if severity is Severity.VIOLATION:
                        violations(batch)
        return counts

    @contextmanager
    def _table(self, name: str) -> Iterator[Callable[[Any], None]]:
        """A table as text and as Parquet, and what adds a batch to both."""
        with (
            (self.out / f"{name}.csv").open("w", encoding="utf-8", newline="") as text,
            parquet.ParquetWriter(self.out / f"{name}.parquet", _SHAPE) as binary,
        ):
            sheet = csv.writer(text)
            sheet.writerow(_CSV)

            def add(batch: Any) -> None:
                sheet.writerows([_safe(row[one]) for one in _CSV] for row in batch.to_pylist())
                binary.write_batch(batch)

            yield add

    def _of(self, severity: Severity) -> Iterator[Any]:
        for path in sorted(self.judged.glob("*.parquet")):
            for batch in parquet.ParquetFile(path).iter_batches(5000, columns=_SHAPE.names):
                some = batch.filter(compute.equal(batch.column("severity"), severity.value))
                if len(some):
                    yield pa.RecordBatch.from_arrays(
                        [some.column(one.name).cast(one.type) for one in _SHAPE], schema=_SHAPE
                    )

    def tally(self, others: Iterable[Path] = ()) -> Iterator[dict[str, Any]]:
        """What each bucket of messages adds to the counts, and each of the ``others``."""
        for path in (*sorted(self.tallies.glob("*.json")), *others):
            yield json.loads(path.read_text("utf-8"))

    def repeated(self) -> Counter[str]:
        """Of each violation, the messages of which a worse one was found, too."""
        worst = self._worst()
        each = parquet.read_table(self.out / "violations.parquet", columns=["id", "class"]).to_batches()
        rows = (row for batch in each for row in batch.to_pylist()) if worst else ()
        return Counter(row["class"] for row in rows if worst.get(row["id"], row["class"]) != row["class"])

    def examples(self, most: int) -> dict[Class, list[dict[str, Any]]]:
        """Some findings of each class, for the report. A violation is one of the worst of its message."""
        found: dict[Class, list[dict[str, Any]]] = {}
        if (self.out / "findings.parquet").exists():
            worst = self._worst()
            for batch in parquet.ParquetFile(self.out / "findings.parquet").iter_batches(5000):
                for row in batch.to_pylist():
                    chosen, what = found.setdefault(Class(row["class"]), []), row["class"]
                    told = row["severity"] == Severity.VIOLATION and worst.get(row["id"], what) != what
                    if len(chosen) < most and not told:
                        chosen.append(row)
        return found

    def _worst(self) -> dict[str, str]:
        """The worst violation of each message that has several."""
        ranks = pa.array([what.value for what in BROKEN])
        table = parquet.read_table(self.out / "violations.parquet", columns=["id", "class"])
        ranked = pa.table({"id": table["id"], "rank": compute.index_in(table["class"], ranks)})
        several = ranked.group_by("id").aggregate([("rank", "min"), ("rank", "count")])
        several = several.filter(compute.greater(several["rank_count"], 1))
        return dict(zip(several["id"].to_pylist(), ranks.take(several["rank_min"]).to_pylist(), strict=True))

    def stats(self, latencies: Sequence[dict[str, Any]], copies: Sequence[dict[str, int]]) -> None:
        """Distributions, and the curve of what was in transit."""
        parquet.write_table(pa.Table.from_pylist(list(latencies), schema=_STATS), self.out / "stats.parquet")
        shape = pa.schema([("at", pa.int64()), ("messages", pa.int64()), ("copies", pa.int64())])
        parquet.write_table(pa.Table.from_pylist(list(copies), schema=shape), self.out / "copies.parquet")

    def finish(self) -> None:
        """Let go of what was only in between; tables that nothing was found for are empty, not missing."""
        if not (self.out / "findings.csv").exists():
            self.findings()
        if not (self.out / "stats.parquet").exists():
            self.stats((), ())
        shutil.rmtree(self.judged, ignore_errors=True)
        shutil.rmtree(self.tallies, ignore_errors=True)
        self.work.rename(self.out / "messages.parquet")

    def verdict(self, verdict: Verdict) -> None:
        text = json.dumps(verdict.as_dict(), indent=2, ensure_ascii=False)
        (self.out / "verdict.json").write_text(text + "\n", "utf-8")


def _safe(value: object) -> str:
    """A cell that no spreadsheet takes for a formula."""
    text = "" if value is None else str(value)
    return "'" + text if text.lstrip()[:1] in ("=", "+", "-", "@", "\t", "\r") and text.strip() else text
