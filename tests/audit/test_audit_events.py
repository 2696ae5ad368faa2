"""The audit knows each event that the relay logs, and what it is compared by."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shadowaudit.core.events import COMPARED, Kind, kind_by, kind_of
from shadowaudit.core.reported import report_id as expected
from shadowaudit.core.resubmitted import resubmission_id
from shadowrelay.core.events.reports import ReportKind, report_id, resubmitted_id
from shadowrelay.core.identifiers import MessageId, RequestId
from shadowrelay.core.tracking import OfRows
from shadowrelay.core.tracking_row import TrackingEvent


def _kinds(of: type[TrackingEvent] = TrackingEvent) -> Iterator[type[TrackingEvent]]:
    for one in of.__subclasses__():
        yield one
        yield from _kinds(one)


EVENTS = {(one.event_id, one.source): one for one in _kinds() if one.__module__.startswith("shadowrelay.")}


@pytest.mark.parametrize("event", sorted({*(name for name, _ in EVENTS), *(one.value[0] for one in OfRows)}))
def test_the_audit_knows_each_event_of_the_relay(event: str) -> None:
    assert kind_of(event) is not Kind.OTHER, "docs/contributing.md: a tracking event that reaches the audit"


@pytest.mark.parametrize("event", EVENTS.values(), ids=lambda event: f"{event.event_id} {event.source}")
def test_rows_are_compared_if_they_have_digests(event: type[TrackingEvent]) -> None:
    kind = kind_by(kind_of(event.event_id), event.source, "a reference")
    assert (kind in COMPARED) == event.digested


def test_both_derive_the_same_id_for_a_report() -> None:
    for number in (1, 2, 200):
        message = f"01a1f0be-24e4-766c-be62-{number:012x}"
        assert expected(message, number) == report_id(MessageId(message), number, ReportKind.FAILED)


def test_both_derive_the_same_id_for_what_is_given_back() -> None:
    request, original = "5afe7e70-0000-4000-8000-000000000001", "01a1f0be-24e4-766c-be62-dc047c6895f0"
    assert resubmission_id(request, original) == resubmitted_id(RequestId(request), MessageId(original))
