"""An engine for the tests of the audit: Sail where it is installed, for it starts in a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shadowaudit.audit import Audit, Question
from shadowaudit.core.verdict import Verdict
from shadowaudit.engine.session import session
from shadowaudit.logs.manifest import find
from shadowaudit.logs.state import State


class Silent:
    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        yield


Auditor = Callable[..., Verdict]


def auditor(opened: Any, base: Path) -> Auditor:
    def audit(
        directory: Path, *, out: Path | None = None, state: Path | None = None, **question: Any
    ) -> Verdict:
        asked = Question(**question)
        target = out or base / f"out-{directory.name}-{abs(hash(str(directory)))}"
        one = Audit(opened, State(state or target / ".state"), target, Silent())
        return one.verify(one.read(find([directory])), asked)

    return audit


@pytest.fixture(scope="session")
def sail_session() -> Iterator[Any]:
    pytest.importorskip("pysail", reason="Sail is not installed: pip install pysail")
    with session("sail") as opened:
        yield opened


@pytest.fixture(scope="session")
def spark_session() -> Iterator[Any]:
    with session("spark", memory="1g", conf={"spark.sql.shuffle.partitions": "2"}) as opened:
        yield opened


@pytest.fixture
def sail(sail_session: Any, tmp_path: Path) -> Auditor:
    return auditor(sail_session, tmp_path)


@pytest.fixture
def spark(spark_session: Any, tmp_path: Path) -> Auditor:
    return auditor(spark_session, tmp_path)
