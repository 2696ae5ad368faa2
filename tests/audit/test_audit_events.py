"""The audit knows each event that the relay logs, and what it is compared by."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from shadowaudit.core.events import COMPARED, Kind, kind_by, kind_of
from shadowaudit.core.facts import Flavour
from shadowaudit.core.reported import report_id as expected
from shadowaudit.core.resubmitted import contradictory, resubmission_id
from shadowaudit.logs.extract import Source, event_of
from shadowrelay.core.events.reports import ReportKind, report_id, resubmitted_id
from shadowrelay.core.identifiers import (
    DatabaseId,
    Digest,
    Incarnation,
    MessageId,
    NextHop,
    RequestId,
    ServerName,
)
from shadowrelay.core.messages import Copy, Digests, Envelope, Recipient, Role
from shadowrelay.core.tracking import OfRows, Resubmit, SentAgain
from shadowrelay.core.tracking_row import TrackingEvent
from shadowrelay.tracking.format import COLUMNS, render


def _kinds(of: type[TrackingEvent] = TrackingEvent) -> Iterator[type[TrackingEvent]]:
    for one in of.__subclasses__():
        yield one
        yield from _kinds(one)


EVENTS = {
    (one.event_id, one.source, one.__name__): one
    for one in _kinds()
    if one.__module__.startswith("shadowrelay.")
}


@pytest.mark.parametrize("event", sorted({*(name for name, *_ in EVENTS), *(one.value[0] for one in OfRows)}))
def test_the_audit_knows_each_event_of_the_relay(event: str) -> None:
    assert kind_of(event) is not Kind.OTHER, "docs/contributing.md: a tracking event that reaches the audit"


@pytest.mark.parametrize("event", EVENTS.values(), ids=lambda event: f"{event.event_id} {event.source}")
def test_rows_are_compared_if_they_have_digests(event: type[TrackingEvent]) -> None:
    reference = "message/database" if event is SentAgain else "a reference"
    kind = kind_by(kind_of(event.event_id), event.source, reference)
    assert (kind in COMPARED) == event.digested


def test_both_derive_the_same_id_for_a_report() -> None:
    for number in (1, 2, 200):
        message = f"01a1f0be-24e4-766c-be62-{number:012x}"
        assert expected(message, number) == report_id(MessageId(message), number, ReportKind.FAILED)


def test_both_derive_the_same_id_for_what_is_given_back_and_its_row_says_so() -> None:
    request, original = "5afe7e70-0000-4000-8000-000000000001", "01a1f0be-24e4-766c-be62-dc047c6895f0"
    new = resubmitted_id(RequestId(request), MessageId(original))
    assert resubmission_id(request, original) == new
    copy = Copy(
        id=new,
        epoch=1,
        rank=0,
        role=Role.PRIMARY,
        owner=ServerName("mx1.example.net"),
        owner_database=DatabaseId("db"),
        offered_in=Incarnation("00aa"),
        envelope=Envelope(sender="s@example.com", size=10),
        recipients=(Recipient(2, "anna@example.com", NextHop("out")),),
        digests=Digests(Digest("xxh3-128:0"), Digest("xxh3-128:1")),
        received_at=datetime(2026, 11, 21, tzinfo=UTC),
    )
    row = Resubmit(
        at=copy.received_at,
        copy=copy,
        original=MessageId(original),
        request=RequestId(request),
        owner=copy.owner,
    )
    line = render(row.columns(), sequence=9, incarnation="00aa", database_id="db", server=copy.owner)
    source = Source("", copy.owner, "db", "00aa", Flavour.RELAY, COLUMNS)
    found = event_of(line.encode(), source, 0)
    assert found is not None
    _, event = found
    assert (event.kind, event.recipients, event.entries["Content"]) == (Kind.RESUBMITTED, (2,), "xxh3-128:0")
    assert list(contradictory({0: event})) == []
