"""Every event of the core fits the log, and stands in its reference."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shadowrelay.core import tracking
from shadowrelay.core.identifiers import DatabaseId, Digest, Incarnation, Mark, MessageId, NextHop, ServerName
from shadowrelay.core.messages import Copy, Digests, Envelope, Holder, HolderState, Recipient, Role
from shadowrelay.core.operating import By
from shadowrelay.core.pressure import PressureLevel, Resource
from shadowrelay.core.tracking import OfRows, RowsDamaged
from shadowrelay.core.tracking_row import OutboxRow, TrackingEvent
from shadowrelay.tracking.format import COLUMNS, custom_entries, parse_row, render

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "tracking-log.md"
HOSTILE = "=cmd|' /C calc'!A0,\"x\"\r\n\t\x00"
NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


def event_classes() -> Iterator[type[Any]]:
    """Every dataclass of core.tracking with columns, without the abstract base."""
    for thing in vars(tracking).values():
        is_event = isinstance(thing, type) and dataclasses.is_dataclass(thing) and hasattr(thing, "columns")
        if is_event and thing not in {TrackingEvent, OutboxRow}:
            yield thing


EVENTS = sorted(event_classes(), key=lambda kind: kind.__name__)


def a_copy() -> Copy:
    recipients = tuple(Recipient(number, f"+r{number}@example.org", NextHop("out")) for number in (1, 2))
    return Copy(
        id=MessageId("019aa5d0-0000-7000-8000-000000000001"),
        epoch=1,
        rank=1,
        role=Role.SHADOW,
        owner=ServerName("mx2.example.net"),
        owner_database=DatabaseId("db-2"),
        offered_in=Incarnation("00aa"),
        envelope=Envelope(sender="s@example.com", size=10, message_id=f"<{HOSTILE}>", subject=HOSTILE),
        recipients=recipients,
        digests=Digests(Digest("xxh3-128:0"), Digest("xxh3-128:1")),
        received_at=NOW,
    )


A_HOLDER = Holder(
    ServerName("mx3.example.net"), DatabaseId("db-3"), Mark(Incarnation("00bb"), 7), 1, HolderState.HOLDING
)


def example(kind: type[Any]) -> Any:
    """An event of that kind, each text field filled with hostile text."""
    known = {
        "at": NOW,
        "copy": a_copy(),
        "count": 2,
        "recipients": (),
        "attempts": (HOSTILE, HOSTILE),
        "holder": A_HOLDER,
        "mark": A_HOLDER.mark,
        "machines": ("rack1", "rack2"),
        "told": OfRows.DAMAGED,
        "by": By(HOSTILE, HOSTILE, HOSTILE),
        "until": NOW,
        "event_id": "RESUME",
        "resource": Resource.MEMORY,
        "before": PressureLevel.LOW,
        "level": PressureLevel.HIGH,
        "reading": 76.25,
    }
    names = [field.name for field in dataclasses.fields(kind) if field.init]
    return kind(**{name: known.get(name, HOSTILE) for name in names})


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_every_event_fills_columns_of_the_log_and_its_row_parses_back(kind: type[Any]) -> None:
    columns = example(kind).columns()
    assert columns.keys() <= set(COLUMNS)
    line = render(columns, sequence=9, incarnation="00aa", database_id="db-1", server="mx1.example.net")
    assert len(line.splitlines()) == 1
    parsed = parse_row(line)
    assert parsed["event-id"] == columns["event-id"]
    assert custom_entries(parsed["custom-data"])["Seq"] == "9"


OF_ROWS = [
    RowsDamaged(at=NOW, message_id=a_copy().id, reason="" if one is OfRows.RESUMED else "why", told=one)
    for one in OfRows
]


@pytest.mark.parametrize(
    "event",
    [*map(example, EVENTS), *OF_ROWS],
    ids=lambda event: f"{type(event).__name__} {getattr(event, 'told', '')}",
)
def test_every_event_and_its_custom_data_stand_in_the_reference(event: Any) -> None:
    reference = REFERENCE.read_text(encoding="utf-8")
    columns = event.columns()
    sections = re.split(r"^### ", reference, flags=re.MULTILINE)[1:]
    described = [
        text for text in sections if columns["event-id"] in re.findall(r"`([A-Z]+)`", text.split("\n")[0])
    ]
    assert described, f"{columns['event-id']} has no section"
    section = "".join(described)
    assert f"({columns['source']})" in section
    everywhere = {"Epoch", "Fork", "Recipients", "Content", "Envelope"}
    for name in custom_entries(columns["custom-data"]).keys() - everywhere:
        assert f"`S:{name}=" in section, f"custom-data {name} of {columns['event-id']}"
    for column in columns.keys() & {"source-context", "recipient-status", "reference", "client-hostname"}:
        assert f"`{column}`" in section, f"{column} of {columns['event-id']}"


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_what_was_promised_held_and_done_can_be_compared(kind: type[Any]) -> None:
    """Both digests stand last, so that whoever does not compare them finds the rest where it was."""
    event = example(kind)
    columns = event.columns()
    compared = {"RECEIVE", "HARECEIVE", "HADISCARD", "SEND", "SENDEXTERNAL", "DELIVER", "DUPLICATEDELIVER"}
    compared |= {"FAIL", "DSN", "HARESTORE", "EXPAND", "REMOVE"}
    told = columns.get("custom-data", "").endswith(";S:Content=xxh3-128:0;S:Envelope=xxh3-128:1")
    assert told is (columns["event-id"] in compared or kind in (tracking.Resubmit, tracking.SentAgain))


@pytest.mark.parametrize("column", COLUMNS)
def test_every_column_stands_in_the_reference(column: str) -> None:
    assert f"| `{column}` |" in REFERENCE.read_text(encoding="utf-8")


def test_a_copy_without_the_settled_recipients_names_the_numbers_of_the_others() -> None:
    whole = a_copy()
    rest = dataclasses.replace(whole, recipients=whole.recipients[1:])
    held = tracking.HaReceive(at=NOW, copy=rest, primary=ServerName("mx2.example.net"))
    assert custom_entries(held.columns()["custom-data"])["Recipients"] == "2"
    of_all = tracking.HaReceive(at=NOW, copy=whole, primary=ServerName("mx2.example.net"))
    assert "Recipients" not in custom_entries(of_all.columns()["custom-data"])


def test_a_redirect_is_a_witness_of_how_far_the_holders_log_reaches() -> None:
    columns = tracking.HaRedirect(at=NOW, copy=a_copy(), holder=A_HOLDER).columns()
    assert columns["reference"] == "00bb:7"
    assert custom_entries(columns["custom-data"])["ShadowDb"] == "db-3"
