"""Processes of the audit load nothing that they do not need, and what they need once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shadowaudit.generate.cluster import generate


def test_an_audit_does_not_load_pandas_and_leaves_it_to_others(tmp_path: Path) -> None:
    generate(tmp_path / "logs", messages=60, faults={}, seed=5)
    said = subprocess.run(
        [sys.executable, "-c",
         "import sys\n"
         "from shadowaudit.cli import main\n"
         f"main(['verify', {str(tmp_path / 'logs')!r}, '--out', {str(tmp_path / 'out')!r}, '--no-report'],"
         " standalone_mode=False)\n"],
        capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPROFILEIMPORTTIME": "1"},
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert "pyarrow.lib" in said.stderr
    assert "pandas._libs" not in said.stderr
    from shadowaudit.engine.lean import without_pandas

    without_pandas()
    import pandas as pd

    assert pd.__version__


@pytest.mark.slow
def test_sparks_workers_have_the_installed_pyspark_and_no_pandas(spark_session: Any) -> None:
    frame = spark_session.range(0, 1, 1, 1).mapInArrow(_looking(), "loaded string, path string")
    (told,) = frame.collect()
    assert "pandas" not in told["loaded"].split()
    assert {"numba", "shadowaudit.engine.merge"} <= set(told["loaded"].split())
    assert ".zip" not in told["path"]


def _looking() -> Callable[[Iterator[Any]], Iterator[Any]]:
    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        import pyspark

        loaded = " ".join(sorted(sys.modules))
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"loaded": [loaded], "path": [pyspark.__file__]})

    return look
