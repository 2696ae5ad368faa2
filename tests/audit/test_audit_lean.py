"""Processes of the audit load nothing that they do not need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from shadowaudit.engine.pool import without_pandas
from shadowlab.generate.cluster import generate


def test_an_audit_does_not_load_pandas_or_spark_and_leaves_them_to_others(tmp_path: Path) -> None:
    generate(tmp_path / "logs", messages=60, faults={}, seed=5)
    typed = [sys.executable, "-m", "shadowaudit", "verify", tmp_path / "logs", "--out", tmp_path / "out"]
    said = subprocess.run(
        typed, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPROFILEIMPORTTIME": "1"}
    )
    assert said.returncode == 0, said.stderr
    assert "pyarrow.lib" in said.stderr
    assert "pandas._libs" not in said.stderr
    assert "pyspark" not in said.stderr

    without_pandas()
    import pandas as pd

    assert pd.__version__
