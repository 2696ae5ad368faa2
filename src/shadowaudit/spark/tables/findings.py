"""What an audit found, as a table among the others. Knows no Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from pyarrow import parquet

from shadowaudit.spark.tables import parts
from shadowaudit.spark.tables.publishing import Run
from shadowaudit.spark.tables.schemas import FINDINGS
from shadowaudit.spark.tables.store import current


def publish_findings(uri: str, out: Path, now: datetime) -> int:
    """Publish findings.parquet and verdict.json of ``out`` with the tables; returns their new version.

    They take the place of those of an earlier audit. Raises NoTablesError if there are no tables, TakenError,
    TablesError, OSError.
    """
    tables = current(uri)
    place, base = tables.place, tables.manifest
    verdict = json.loads((out / "verdict.json").read_text("utf-8"))
    verdict["made_at"] = now.astimezone(UTC).isoformat(timespec="seconds")
    run = Run(place, base, now)
    with parquet.ParquetFile(out / "findings.parquet") as file:
        files = [one.file for one in parts.write(place, FINDINGS, run.prefix, file.iter_batches(5000))]
    try:
        return run.publish(base.following({FINDINGS: files}, now, verdict=verdict)).version
    except BaseException:
        run.discard(one.path for one in files)
        raise
