"""What the tracking log says became of one message, when the transport database cannot say it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.messages import Status
from shadowrelay.tracking.format import custom_entries, parse_row

_STATUS = {
    "SEND": Status.DELIVERED,
    "DELIVER": Status.DELIVERED,
    "DUPLICATEDELIVER": Status.DELIVERED,
    "SENDEXTERNAL": Status.RELAYED,
    "FAIL": Status.FAILED,
}
_ELSEWHERE = ("ExplicitlyDiscarded;", "DeliveredElsewhere;")


async def settled(
    directory: Path, message_id: MessageId, unwritten: Iterable[Mapping[str, str]]
) -> Mapping[int, Status]:
    """Recipients that are settled by any file of the directory, the one that is being written included, or by
    rows that were ``unwritten`` before those files were looked at.
    """
    found = await asyncio.to_thread(lambda: tuple(_rows(directory, message_id.encode())))
    return _settled((*unwritten, *found), message_id)


def _settled(rows: Iterable[Mapping[str, str]], message_id: MessageId) -> dict[int, Status]:
    found: dict[int, Status] = {}
    for row in rows:
        status = _STATUS.get(row["event-id"])
        if row["event-id"] == "HADISCARD" and row["source-context"].startswith(_ELSEWHERE):
            status = Status.DELIVERED
        if row["network-message-id"] == message_id and status is not None:
            found |= dict.fromkeys(_numbers(row), status)
    return found


def _numbers(row: Mapping[str, str]) -> tuple[int, ...]:
    """The numbers of the recipients that a row is about."""
    some = custom_entries(row.get("custom-data", "")).get("Recipients", "")
    if some:
        return tuple(map(int, some.split("+")))
    return tuple(range(1, int(row["recipient-count"] or 0) + 1))


def _rows(directory: Path, wanted: bytes) -> Iterator[Mapping[str, str]]:
    for path in sorted((*directory.glob("MSGTRK-*.LOG"), *directory.glob(".MSGTRK-*.LOG.open"))):
        with path.open("rb") as file:
            for line in file:
                if wanted in line and not line.startswith(b"#") and line.endswith(b"\n"):
                    yield parse_row(line.decode("utf-8", "replace"))
