"""Who is told of what, and the derived id of the report."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from shadowrelay.core.events.reports import ReportKind, is_due, report_id, returns_whole_message
from shadowrelay.core.identifiers import MessageId, NextHop
from shadowrelay.core.messages import Envelope, Recipient

FAILED, DELAYED, RELAYED, DELIVERED, EXPANDED = ReportKind
ENVELOPE = Envelope(sender="sender@example.org", size=10)
RECIPIENT = Recipient(1, "a@example.net", NextHop("hop"))
MESSAGE = MessageId("01936f5e-8a00-7000-8000-000000000001")


def told(*notify: str, envelope: Envelope = ENVELOPE) -> list[ReportKind]:
    return [kind for kind in ReportKind if is_due(kind, replace(RECIPIENT, notify=notify), envelope)]


def test_without_notify_failures_and_delays_are_told() -> None:
    assert told() == [FAILED, DELAYED]


@pytest.mark.parametrize(
    ("notify", "kinds"),
    [
        (("NEVER",), []),
        (("FAILURE",), [FAILED]),
        (("DELAY",), [DELAYED]),
        (("SUCCESS",), [RELAYED, DELIVERED, EXPANDED]),
        (("SUCCESS", "FAILURE", "DELAY"), [FAILED, DELAYED, RELAYED, DELIVERED, EXPANDED]),
    ],
)
def test_notify_says_what_is_told(notify: tuple[str, ...], kinds: list[ReportKind]) -> None:
    assert told(*notify) == kinds


@pytest.mark.parametrize("notify", [(), ("SUCCESS", "FAILURE", "DELAY")])
def test_nothing_is_ever_told_to_the_null_reverse_path(notify: tuple[str, ...]) -> None:
    assert told(*notify, envelope=replace(ENVELOPE, sender="")) == []


def test_the_whole_message_is_returned_for_failures_with_ret_full_only() -> None:
    full = replace(ENVELOPE, ret="FULL")
    assert [kind for kind in ReportKind if returns_whole_message(kind, full)] == [FAILED]
    assert not returns_whole_message(FAILED, replace(ENVELOPE, ret="HDRS"))
    assert not returns_whole_message(FAILED, ENVELOPE)


def test_a_report_id_is_the_same_wherever_it_is_made() -> None:
    # Written down: two versions of the software must not make two reports either.
    assert report_id(MESSAGE, 1, "failed") == report_id(MESSAGE, 1, FAILED)
    assert report_id(MESSAGE, 1, FAILED) == "a465dcf4-ced3-833b-bba2-bb4c8cead120"


def test_a_report_id_differs_by_message_recipient_and_kind() -> None:
    other = MessageId("01936f5e-8a00-7000-8000-000000000002")
    ids = {report_id(m, n, k) for m in (MESSAGE, other) for n in (1, 2, 11) for k in ReportKind}
    assert len(ids) == 30


def test_a_report_id_is_a_uuid_of_version_8() -> None:
    parsed = uuid.UUID(report_id(MESSAGE, 7, DELAYED))
    assert (parsed.version, parsed.variant) == (8, uuid.RFC_4122)
