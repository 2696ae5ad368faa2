"""The configuration that docs/neighbours.md recommends: what the tests run with."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "neighbours.md"


def block(heading: str, kind: str) -> str:
    """The text of the first code block of that kind in a section."""
    section = PAGE.read_text("utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = re.search(rf"^```{kind}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert found, f"no {kind} block below '{heading}' in {PAGE.name}"
    return found[1]


def postfix_settings(heading: str) -> dict[str, object]:
    """What a block of Postfix's settings sets."""
    lines = (line.partition("=") for line in block(heading, "ini").splitlines() if line)
    return {name.strip(): value.strip() for name, _, value in lines}
