"""What an audit found, as tables among the others. Knows no Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from shadowaudit.spark.tables.data import write
from shadowaudit.spark.tables.publishing import Run
from shadowaudit.spark.tables.schemas import FINDINGS, TABLES, VERDICT
from shadowaudit.spark.tables.store import current


def publish_findings(uri: str, out: Path, now: datetime) -> int:
    """Publish findings.parquet and verdict.json of ``out`` with the tables; returns their new version.

    They take the place of those of an earlier audit. Raises NoTablesError if there are no tables, TakenError,
    TablesError, OSError.
    """
    place = current(uri).place
    run = Run.begun(place, now)
    verdict = json.loads((out / "verdict.json").read_text("utf-8"))
    verdict["made_at"] = now.astimezone(UTC).isoformat(timespec="seconds")
    row = {"made_at": now, "verdict": json.dumps(verdict, ensure_ascii=False)}
    told = pa.Table.from_pylist([row], schema=TABLES[VERDICT].arrow)
    with parquet.ParquetFile(out / "findings.parquet") as file:
        run.commit(FINDINGS, write(place, FINDINGS, file.iter_batches(5000)), run.base.files(FINDINGS))
    run.commit(VERDICT, write(place, VERDICT, told.to_batches()), run.base.files(VERDICT))
    return run.publish()
