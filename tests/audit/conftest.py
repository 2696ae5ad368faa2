"""Engines for the tests of the audit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from auditing import Auditor, auditor

import shadowaudit
from shadowaudit.engine.here import Here
from shadowaudit.engine.pool import Pool


@pytest.fixture
def here(tmp_path: Path) -> Auditor:
    return auditor(lambda scratch: Here(Pool(2), scratch), tmp_path)


@pytest.fixture(scope="session")
def spark_session() -> Iterator[Any]:
    # Queries of few rows: to compile them takes longer than to run them.
    java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    opened = shadowaudit.session(
        {
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.driver.extraJavaOptions": java,
        }
    )
    yield opened
    opened.stop()
