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
    opened = shadowaudit.session({"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"})
    yield opened
    opened.stop()
