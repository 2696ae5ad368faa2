"""Finds the rows about one message in this node's tracking log: who has it, and its life, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeAlias

from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.messages import Status
from shadowrelay.core.values import dataclass
from shadowrelay.tracking.format import custom_entries, parse_row, row_identity

_STATUS = {
    "SEND": Status.DELIVERED,
    "DELIVER": Status.DELIVERED,
    "DUPLICATEDELIVER": Status.DELIVERED,
    "SENDEXTERNAL": Status.RELAYED,
    "EXPAND": Status.RELAYED,
    "FAIL": Status.FAILED,
    "REMOVE": Status.REMOVED,
}
_ELSEWHERE = ("ExplicitlyDiscarded;", "DeliveredElsewhere;")

LogRows = Sequence[Mapping[str, str]]


async def about(directory: Path, message_id: MessageId, unwritten: Iterable[Mapping[str, str]]) -> LogRows:
    """The rows about a message in all files of the directory, also the one being written, and in
    ``unwritten``, which the caller read before.
    """
    found = await asyncio.to_thread(lambda: tuple(_rows(directory, message_id.encode())))
    return [row for row in (*found, *unwritten) if row.get("network-message-id") == message_id]


def settled(rows: LogRows) -> Mapping[int, Status]:
    """The recipients that these rows settle."""
    found: dict[int, Status] = {}
    for row in rows:
        status = _STATUS.get(row.get("event-id", ""))
        if status is not None:
            found |= dict.fromkeys(_numbers(row), status)
        elif row.get("event-id") == "HADISCARD" and row.get("source-context", "").startswith(_ELSEWHERE):
            # A row of our own tells more: a copy that we kept for a hop is discarded after we relayed it.
            found = dict.fromkeys(_numbers(row), Status.DELIVERED) | found
    return found


def damage(rows: LogRows) -> tuple[str, str] | None:
    """When the message was last found damaged, and what was damaged."""
    told = [row for row in rows if row.get("event-id") == "HADAMAGE"]
    return max(((row["date-time"], row.get("source-context", "")) for row in told), default=None)


def _numbers(row: Mapping[str, str]) -> tuple[int, ...]:
    """The numbers of the recipients that a row is about."""
    some = custom_entries(row.get("custom-data", "")).get("Recipients", "")
    with suppress(ValueError):  # a damaged row says nothing
        if some:
            return tuple(map(int, some.split("+")))
        return tuple(range(1, int(row.get("recipient-count", "")) + 1))
    return ()


def _rows(directory: Path, wanted: bytes) -> Iterator[Mapping[str, str]]:
    """Open the growing file first: if it is renamed meanwhile, it is still the same file."""
    with ExitStack() as held:
        found = []
        for pattern in (".MSGTRK-*.LOG.open", "MSGTRK-*.LOG"):
            for path in directory.glob(pattern):
                with suppress(FileNotFoundError):  # renamed or deleted since it was listed
                    found.append(held.enter_context(path.open("rb")))
        for file in found:
            for line in file:
                if wanted in line and not line.startswith(b"#") and line.endswith(b"\n"):
                    with suppress(ValueError):
                        yield parse_row(line.decode("utf-8", "replace"))


Row: TypeAlias = Mapping[str, str]

LONGEST = 1.0
"""Seconds after which no further file is begun."""

_BLOCK = 1 << 20
_GROWING, _CLOSED = ".MSGTRK-*.LOG.open", "MSGTRK-*.LOG"


@dataclass(frozen=True, slots=True)
class Traced:
    """Rows, in the order of their files. ``older``: files below this name's place are not read yet; '' if all
    are.
    """

    rows: tuple[Row, ...]
    older: str


def trace(directory: Path, wanted: str, older: str, most: int, seconds: Callable[[], float]) -> Traced:
    """The rows about a message. ``older``: go on there. No file is begun once ``most`` rows are found."""
    rows: list[Row] = []
    began, last = seconds(), ""
    for place, path in _files(directory, older):
        if last and (len(rows) >= most or seconds() - began > LONGEST):
            return Traced(tuple(rows), last)
        with suppress(FileNotFoundError):
            rows += _rows_of(path, wanted)
        last = place
    return Traced(tuple(rows), "")


def _files(directory: Path, older: str) -> list[tuple[str, Path]]:
    """The files of the log with their places, the newest first; only those older than that place.

    A place is the time of the last write, then the name. The file that grows comes before all others. It may
    be renamed meanwhile: then it is looked for by its new name.
    """
    found = []
    for pattern in (_GROWING, _CLOSED):
        for path in directory.glob(pattern):
            with suppress(FileNotFoundError):
                name = path.name.removeprefix(".").removesuffix(".open")
                at = path.stat().st_mtime_ns if pattern == _CLOSED else 1 << 63
                found.append((f"{at:020d} {name}", path))
    found.sort(reverse=True)
    return [(place, path) for place, path in found if not older or place < older]


def _rows_of(path: Path, wanted: str) -> Iterator[Row]:
    try:
        file = path.open("rb")
    except FileNotFoundError:  # it was closed and renamed since it was listed, or deleted
        file = path.with_name(path.name.removeprefix(".").removesuffix(".open")).open("rb")
    text = wanted.encode()
    with file:
        rest = b""
        while block := file.read(_BLOCK):
            block = rest + block
            end = block.rfind(b"\n") + 1
            rest = block[end:]
            yield from _in_block(block[:end], text, wanted)


def _in_block(block: bytes, text: bytes, wanted: str) -> Iterator[Row]:
    at = block.find(text)
    while at >= 0:
        begin, end = block.rfind(b"\n", 0, at) + 1, block.find(b"\n", at) + 1
        with suppress(ValueError):  # a comment, or a damaged row
            row = parse_row(block[begin:end].decode("utf-8", "replace"))
            row_identity(row)
            if row["network-message-id"] == wanted:
                yield row
        at = block.find(text, end)
