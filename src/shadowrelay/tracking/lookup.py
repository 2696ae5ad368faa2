"""Looks up one message in the tracking log, when the transport database cannot tell what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.messages import Status
from shadowrelay.tracking.format import custom_entries, parse_row

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
