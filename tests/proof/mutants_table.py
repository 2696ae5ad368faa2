"""The table of planted faults: one row each, whatever kind it is; on the terminal and in docs/mutants.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .fault import ROOT, Fault

PAGE = ROOT / "docs" / "mutants.md"
BEGIN = "<!-- The table is written by scripts/prove mutants --docs -->"
END = "<!-- End of the table -->"
HEAD = ("| fault | where | what it breaks | caught by |", "|---|---|---|---|")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A planted fault. ``test`` stands below ``tests``; ``said`` is what came of it, after ``tries``."""

    kind: str
    name: str
    where: str
    rule: str
    test: str
    caught: bool = False
    said: str = ""
    tries: int = 0
    seconds: float = 0.0

    @property
    def line(self) -> str:
        return f"| {self.name} | `{self.where}` | {self.rule} | `{self.test}` |"


def row_of(fault: Fault) -> Row:
    return Row(kind=fault.kind, name=fault.name, where=fault.where, rule=fault.rule, test=fault.test)


def written(rows: Sequence[Row], page: Path = PAGE) -> None:
    """Put the table into the page, between its markers."""
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{table(rows)}\n{END}{after}", "utf-8")


def table(rows: Sequence[Row]) -> str:
    caught = sum(row.caught for row in rows)
    return "\n".join(("", f"{caught} of {len(rows)} are caught.", "", *HEAD, *(row.line for row in rows), ""))
