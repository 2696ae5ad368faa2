"""What is shown, as lines that all runs of the same lab share, and how they are recorded and compared.

A recording is text in sections, one for each thing that was asked. Its lines are a set: order and repetition
do not count. What no two runs share (times, ids, places) has a placeholder. A number stands as 0, a worker
as its node. A line that some run of the recording did not have begins with ``?`` and may be absent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html.parser import HTMLParser
from typing import Any

Said = Mapping[str, frozenset[str]]
"""The lines of each section."""

_PLACEHOLDERS = (
    (r'"[0-9a-f]{12}"', '"<digest>"'),  # of a section of the settings: a lab's ports are in it
    (r"\b\d\.\d+e[+-]\d+\b", "0"),  # its digits would be taken for an id
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?( ?(Z|UTC|[+-]\d\d:?\d\d))?", "<time>"),
    (r"\d+:\d\d:\d\d(\.\d+)?( UTC)?", "<time>"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<message>"),
    (r"\b([0-9a-f]{16,64}|[0-9A-F]{16})\b", "<id>"),
    (r"127\.0\.0\.1:\d+|\[?::1\]?:\d+", "<address>"),
    (r"/tmp/[^\s\"',;)]*", "<path>"),
    (r"\b\d+(\.\d+)? ?(µs|ms|s|min|h|d|days?|hours?|minutes?|seconds?)\b", "<span>"),
    (r"\b(w\d+\.)?mx\d", "mx0"),
    (r"-?\d+(\.\d+)?([eE][+-]\d+)?", "0"),
)
_REPLACED = tuple((re.compile(pattern), by) for pattern, by in _PLACEHOLDERS)
_SPACE = re.compile(r"\s+")


def lines(text: str) -> frozenset[str]:
    return frozenset(filter(None, map(shared, text.splitlines())))


def shared(line: str) -> str:
    """The line with placeholders, and single spaces."""
    for pattern, by in _REPLACED:
        line = pattern.sub(by, line)
    return _SPACE.sub(" ", line).strip(" │┃")


def of_json(text: str) -> frozenset[str]:
    """One line for each value: where it is, and what."""
    return frozenset(shared(line) for value in values(text) for line in _values("", value))


def values(text: str) -> list[Any]:
    """The values of a text of JSON: one, or one a line."""
    try:
        return [json.loads(text)]
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def _values(at: str, value: Any) -> Iterator[str]:
    match value:
        case dict() if value:
            for key, each in value.items():
                yield from _values(f"{at}.{key}", each)
        case list() if value:
            for each in value:
                yield from _values(f"{at}[]", each)
        case _:
            yield f"{at}: {json.dumps(value, ensure_ascii=False)}"


class _Text(HTMLParser):
    """The text of a page, a line for each block; what a person can press or fill in is named."""

    _INLINE = frozenset({"a", "abbr", "b", "code", "em", "i", "small", "span", "strong", "time"})

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in {"script", "style", "svg"}
        said = dict(attrs)
        if tag not in self._INLINE:
            self.text.append("\n")
        if (
            tag in {"input", "select", "textarea", "button"}
            and said.get("name")
            and said.get("type") != "hidden"
        ):
            self.text.append(f"<{tag} {said['name']}>\n")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in {"script", "style", "svg"}
        if tag not in self._INLINE:
            self.text.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.text.append(_SPACE.sub(" ", data))


def of_page(html: str) -> frozenset[str]:
    reader = _Text()
    reader.feed(html)
    return lines("".join(reader.text))


def recorded(runs: Sequence[Said]) -> str:
    """What several runs of one lab have in common, to be kept."""
    return "\n".join(
        f"== {section}\n"
        + "".join(f"{line}\n" for line in _common([run.get(section, frozenset()) for run in runs]))
        for section in sorted({section for run in runs for section in run})
    )


def _common(runs: Sequence[frozenset[str]]) -> Iterator[str]:
    always = frozenset.intersection(*runs)
    yield from (f"  {line}" for line in sorted(always))
    yield from (f"? {line}" for line in sorted(frozenset.union(*runs) - always))


def differences(kept: str, said: Said) -> list[str]:
    """Lines that are missing or new, as in a patch, each with its section; none when nothing changed."""
    known = dict(_sections(kept.splitlines()))
    return [
        f"{section} {line}"
        for section in sorted({*known, *said})
        for line in _wrong(known.get(section, []), said.get(section, frozenset()))
    ]


def _sections(text: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    section: list[str] = []
    for line in text:
        if line.startswith("== "):
            section = []
            yield line[3:], section
        elif line:
            section.append(line)


def _wrong(known: Sequence[str], said: frozenset[str]) -> Iterator[str]:
    always = {line[2:] for line in known if line[0] == " "}
    yield from (f"- {line}" for line in sorted(always - said))
    yield from (f"+ {line}" for line in sorted(said - {line[2:] for line in known}))
