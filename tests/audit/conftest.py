"""An engine for the tests of the audit: Sail where it is installed, for it starts in a second."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from auditing import Auditor, auditor

from shadowaudit.engine.here import Here
from shadowaudit.engine.session import session


@pytest.fixture(scope="session")
def sail_session() -> Iterator[Any]:
    if os.environ.get("AUDIT_ENGINE") == "here":  # no engine: what was planted in the code shows all the same
        yield Here()
        return
    pytest.importorskip("pysail", reason="Sail is not installed: pip install pysail")
    with session("sail") as opened:
        yield opened


# One process talks to Sail by gRPC and starts Java by fork: gRPC's own care for forks closes what the child
# still needs, and now and then Java does not come up.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

CONNECTED = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE")
"""What PySpark looks at at each call, to know which kind of session it works for. Here both are, in turns."""


@pytest.fixture(autouse=True)
def _of_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an open session says of itself is not for the processes that a test starts."""
    for name in CONNECTED:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def spark_session() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        for name in CONNECTED:
            patch.delenv(name, raising=False)
        yield from _spark_session()


def _spark_session() -> Iterator[Any]:
    with session("spark", memory="1g", conf={"spark.sql.shuffle.partitions": "2"}) as opened:
        yield opened


@pytest.fixture
def sail(sail_session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Auditor:
    monkeypatch.setenv(CONNECTED[0], "1")
    return auditor(sail_session, tmp_path)


@pytest.fixture
def spark(spark_session: Any, tmp_path: Path) -> Auditor:
    return auditor(spark_session, tmp_path)


@pytest.fixture
def here(tmp_path: Path) -> Auditor:
    return auditor(Here(), tmp_path)
