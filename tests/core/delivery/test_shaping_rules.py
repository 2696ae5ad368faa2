"""What shaping makes of the answers of next hops: which lane, which pattern, and how fast it goes on."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowrelay.core.delivery.shaping import (
    LaneLimits,
    LanePace,
    Pattern,
    after_message,
    after_refusal,
    at_first,
    lane_of,
    named_by,
)
from shadowrelay.core.identifiers import NextHop

NOW = datetime(2026, 11, 30, 5, 0, tzinfo=UTC)


def shape(name: str, *match: str, **limits: Any) -> LaneLimits:
    return LaneLimits(
        name=name, match=match, **{"connections": 8, "first_connections": 2, "growth": 3, **limits}
    )


def pattern(**given: Any) -> Pattern:
    whole = {"name": "one", "match": ("*",), "code": 421, "enhanced": "", "text": (), "pause": timedelta(60)}
    return Pattern(**{**whole, **given})


SHAPES = (
    shape("rest", "*"),
    shape("google", "*.google.com", "gmail.com"),
    shape("one", "one.example"),
    shape("aspmx", "aspmx.l.google.com"),
    shape("smart", "relay"),
)


@pytest.mark.parametrize(
    ("next_hop", "host", "key"),
    [
        ("world/gmail.com", "", "google"),
        ("world/GMAIL.com", "gmail-smtp-in.l.google.com", "google"),
        ("world/firm.example", "alt1.aspmx.l.google.com", "google"),
        ("world/firm.example", "ASPMX.L.GOOGLE.COM", "aspmx"),
        ("world/one.example", "aspmx.l.google.com", "one"),  # the domain counts before the host
        ("world/other.example", "mx.other.example", "rest world/other.example"),
        ("world/other.example", "", "rest world/other.example"),
        ("relay", "192.0.2.1", "smart"),
        ("site/paris", "mx.paris.example", "rest site/paris"),
    ],
)
def test_the_domain_names_the_lane_then_the_host_then_the_star(next_hop: str, host: str, key: str) -> None:
    lane = lane_of(NextHop(next_hop), host, SHAPES)
    assert lane is not None
    assert lane.key == key


def test_without_a_name_and_a_star_there_is_no_lane() -> None:
    assert lane_of(NextHop("world/other.example"), "mx.other.example", SHAPES[1:]) is None
    assert lane_of(NextHop("world/other.example"), "", ()) is None


@pytest.mark.parametrize(
    ("reply", "named"),
    [
        ("421 4.7.28 Gmail has detected an unusual rate", True),
        ("421 4.7.28", True),
        ("421 4.7.2 unusual rate", False),
        ("421 4.7.28x unusual", False),
        ("421 unusual rate 4.7.28", False),
        ("451 4.7.28 unusual rate", False),
        ("", False),
        ("connect: timed out", False),
    ],
)
def test_a_pattern_wants_its_codes(reply: str, named: bool) -> None:
    assert bool(named_by(reply, ("gmail.com",), [pattern(enhanced="4.7.28")])) is named


def test_the_first_pattern_that_names_a_reply_of_that_host_counts() -> None:
    patterns = [
        pattern(name="theirs", match=("*.yahoodns.net",), text=("[tss04]",)),
        pattern(name="ours", match=("example.net", "*.example.net"), text=("tss",)),
        pattern(name="all", text=("nothing", "deferred")),
    ]
    reply = "421 4.7.0 [TSS04] Messages temporarily deferred"
    found = [
        named_by(reply, names, patterns)
        for names in [("yahoo.com", "mta5.am0.yahoodns.net"), ("example.net", "mx"), ("example.org",)]
    ]
    assert [one and one.name for one in found] == ["theirs", "ours", "all"]


@pytest.mark.parametrize(
    ("phrase", "found"),
    [
        ("too many", True),
        ("many connections", False),
        ("many*connections", True),
        ("*too*from*", True),
        ("connections*many", False),
        ("tow many", False),
        ("open**connections", True),
        ("from from", False),
        ("from*from", False),  # there is one
    ],
)
def test_a_phrase_is_found_with_anything_where_its_stars_are(phrase: str, found: bool) -> None:
    reply = "421 4.7.0 Too MANY open connections from 192.0.2.1"
    assert bool(named_by(reply, ("a.test",), [pattern(text=(phrase,))])) is found


def test_no_reply_takes_long_whatever_the_phrase() -> None:
    began = time.process_time()
    text = "421 " + "a" * 100_000
    assert named_by(text, ("a.test",), [pattern(text=("a*" * 50 + "b",))]) is None
    assert time.process_time() - began < 5.0, "each part is looked for once"


def test_it_grows_by_one_after_each_so_many_messages_and_no_further_than_the_limit() -> None:
    one = shape("a", "*", connections=4)
    pace, seen = at_first(one), []
    for _ in range(12):
        pace = after_message(pace, one, NOW)
        seen.append(pace.connections)
    assert seen == [2, 2, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4]


def test_it_is_halved_once_however_many_connections_hear_it() -> None:
    pace = LanePace(8)
    for number in range(8):
        at = NOW + timedelta(seconds=number)
        pace = after_refusal(pace, pattern(pause=timedelta(minutes=5)), "421 no", 8, at)
    assert (pace.connections, pace.paused_until) == (4, NOW + timedelta(minutes=5))
    later = NOW + timedelta(minutes=5)
    assert not pace.paused(later)
    assert after_refusal(pace, pattern(), "421 no", 4, later).connections == 2


def test_of_what_is_not_used_nothing_is_left() -> None:
    assert after_refusal(LanePace(40), pattern(), "421 no", 4, NOW).connections == 2
    assert after_refusal(LanePace(40), pattern(), "421 no", 0, NOW).connections == 1


def test_during_a_pause_a_longer_one_counts_and_messages_do_not() -> None:
    short, long = pattern(pause=timedelta(minutes=1)), pattern(pause=timedelta(hours=2))
    pace = after_refusal(LanePace(4), short, "421 short", 4, NOW)
    pace = after_refusal(pace, long, "421 long", 4, NOW)
    pace = after_refusal(pace, short, "421 short", 4, NOW)
    assert (pace.connections, pace.paused_until, pace.reply) == (2, NOW + timedelta(hours=2), "421 long")
    assert after_message(pace, shape("a", "*"), NOW) is pace


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("message"), st.integers(0, 120), st.integers(0, 60)),
        st.tuples(st.just("refusal"), st.integers(0, 120), st.integers(0, 60)),
    ),
    max_size=60,
)


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 9), _STEPS)
def test_in_any_order_it_stays_between_one_and_the_limit_and_a_pause_never_gets_shorter(
    most: int, first: int, growth: int, steps: list[tuple[str, int, int]]
) -> None:
    one = shape("a", "*", connections=most, first_connections=first, growth=growth)
    pace, now = at_first(one), NOW
    for what, passed, number in steps:
        now += timedelta(seconds=passed)
        if what == "message":
            after = after_message(pace, one, now)
            assert after.connections - pace.connections in (0, 1)
        else:
            after = after_refusal(pace, pattern(pause=timedelta(seconds=1 + number)), "421 no", number, now)
            assert after.connections <= pace.connections
            assert after.paused(now)
        if pace.paused(now):
            assert after.connections == pace.connections
            assert pace.paused_until is not None
            assert after.paused_until is not None
            assert after.paused_until >= pace.paused_until
        assert 1 <= after.connections <= most
        pace = after
