"""An audit on an engine, as tests ask for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shadowaudit.audit import Audit, Question
from shadowaudit.core.verdict import Verdict
from shadowaudit.engine.port import Engine
from shadowaudit.logs.manifest import find
from shadowaudit.logs.state import State


class Silent:
    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        yield

    def tell(self, sentence: str) -> None:
        pass


Auditor = Callable[..., Verdict]


def auditor(engine: Callable[[Path], Engine], base: Path) -> Auditor:
    """``engine``: made for a scratch directory."""

    def audit(
        directory: Path,
        *,
        out: Path | None = None,
        state: Path | None = None,
        progress: Any = None,
        **question: Any,
    ) -> Verdict:
        asked = Question(**question)
        target = out or base / f"out-{directory.name}-{abs(hash(str(directory)))}"
        one = Audit(
            engine(base / f"scratch-{target.name}"),
            target,
            progress or Silent(),
            State(state) if state else None,
        )
        return one.verify(one.read(find([directory])), asked)

    return audit
