"""report.html"""

from __future__ import annotations

from pathlib import Path

from shadowaudit.core.verdict import Verdict


def write_report(out: Path, verdict: Verdict) -> Path:
    """Write report.html beside the tables."""
    path = out / "report.html"
    path.write_text(verdict.sentence, "utf-8")
    return path
