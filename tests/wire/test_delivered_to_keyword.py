from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from shadowrelay.wire.delivered_to import KEYWORD, delivered_to_since, format_delivered_to

NOON = datetime(2026, 11, 26, 12, 0, 0, 5000, tzinfo=UTC)
EVERYTHING = datetime(1, 1, 1, tzinfo=UTC)


def read(line: str) -> datetime | None:
    keyword, _, arguments = line.partition(" ")
    return delivered_to_since({keyword: arguments})


@pytest.mark.parametrize("since", [None, NOON, NOON.replace(microsecond=0)])
def test_what_is_written_is_read_again(since: datetime | None):
    assert read(format_delivered_to(since)) == since


def test_the_time_is_in_utc_and_to_the_millisecond():
    there = NOON.astimezone(timezone(timedelta(hours=2)))
    assert format_delivered_to(there) == "XDELIVEREDTO 2026-11-26T12:00:00.005Z"
    assert format_delivered_to(None) == "XDELIVEREDTO -"


def test_a_server_without_the_keyword_says_nothing():
    assert delivered_to_since({"SIZE": "100"}) is None


@pytest.mark.parametrize("text", ["", "yes", "2026-02-31T00:00:00Z", "2026-11-26T12:00:00", "\u0662026"])
def test_a_time_that_cannot_be_read_warns_of_everything(text: str):
    assert delivered_to_since({KEYWORD: text}) == EVERYTHING
