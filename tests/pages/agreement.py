"""Does what a command printed agree with what its page shows?

``…`` alone on a line stands for any lines, within a line for any text. What differs from run to run (ids,
times, ports) agrees with anything of its kind, and spaces are not counted: tables are as wide as what is in
them. Everything else has to be there, in this order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

ANY = "…"

VOLATILE = (
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",  # message and database ids
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)",
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d? [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}",  # RFC 5322
    r"\d+:\d\d:\d\d",  # how long something is up
    r"(?<=Message-I[dD]: )<[\w.+-]+@[\w.-]+>",
    r"\b[0-9a-f]{12,64}\b",  # incarnations, containers
    r"(?<=:)\d{4,5}\b",  # ports
    r"\b\d+(?:\.\d+)? (?:s|MB|octets)(?!\w)",
    r"\b\d+\.[0-9a-f]+\.[\w.-]+",  # a file in a Maildir
)
"""Regular expressions: what is shown and what was printed may both be anything of the same kind."""


def disagreement(shown: Sequence[str], printed: Sequence[str], volatile: Iterable[str] = VOLATILE) -> str:
    """Empty if they agree; else a sentence that names the first line that was shown and not printed."""
    kinds = [re.compile(kind) for kind in volatile]
    wanted = [line for line in shown if line.strip()]
    have = [" ".join(line.split()) for line in printed if line.strip()]
    return _unmet(wanted, have, kinds) if wanted else ""


def _unmet(wanted: list[str], have: list[str], kinds: list[re.Pattern[str]]) -> str:
    position, free = 0, False
    for line in wanted:
        if line.strip() == ANY:
            free = True
            continue
        pattern = _pattern(line, kinds)
        places = range(position, len(have)) if free else range(position, min(position + 1, len(have)))
        match = next((place for place in places if pattern.fullmatch(have[place])), None)
        if match is None:
            there = have[position] if position < len(have) else "the end"
            return f"shown is {line.strip()!r}; printed is {there!r}"
        position, free = match + 1, False
    if not free and position < len(have):
        return f"the page shows nothing more; printed is {have[position]!r}"
    return ""


def _pattern(line: str, kinds: list[re.Pattern[str]]) -> re.Pattern[str]:
    """What agrees with a line that the page shows."""
    text, parts = " ".join(line.split()), []
    while text:
        spans = [
            (found.start(), -found.end(), kind.pattern) for kind in kinds if (found := kind.search(text))
        ]
        if (at := text.find(ANY)) >= 0:
            spans.append((at, -(at + len(ANY)), ".*"))
        if not spans:
            break
        start, end, pattern = min(spans)
        parts += [re.escape(text[:start]), f"(?:{pattern})"]
        text = text[-end:]
    return re.compile("".join([*parts, re.escape(text)]))
