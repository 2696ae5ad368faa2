"""What a domain says by MTA-STS (RFC 8461): its record, its policy, its hosts, and what counts when."""

from __future__ import annotations

import string
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowrelay.core.delivery.mta_sts import (
    LONGEST_AGE,
    MOST_PATTERNS,
    REFRESH,
    InvalidPolicy,
    StsMode,
    StsPolicy,
    announced,
    counts,
    host_of,
    parsed,
    record_of,
    to_be_fetched,
)
from shadowrelay.core.reckoning import Endings

NOW = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)
DAY = timedelta(days=1)

labels = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=8)
names = st.lists(labels, min_size=2, max_size=4).map(".".join)
patterns = st.tuples(st.sampled_from(["", "*."]), names).map("".join)
ids = st.text(string.ascii_letters + string.digits, min_size=1, max_size=32)
unknown = st.tuples(
    labels.filter(lambda key: key not in {"version", "mode", "mx"}), st.text(string.printable, max_size=20)
).map(lambda one: f"{one[0]}: {one[1]}".replace("\n", " ").replace("\r", " "))


def policy(mode: StsMode = StsMode.ENFORCE, *mx: str, max_age: timedelta = 7 * DAY) -> StsPolicy:
    return StsPolicy(mode, mx, max_age, "1", NOW)


@given(
    st.sampled_from(StsMode),
    st.lists(patterns, min_size=1, max_size=5),
    st.integers(0, LONGEST_AGE),
    st.lists(unknown, max_size=4),
    st.sampled_from(["\n", "\r\n"]),
    st.randoms(use_true_random=False),
)
def test_lines_come_in_any_order_and_among_unknown_ones(mode, mx, max_age, others, end, random):
    fixed = ["version: STSv1", f"mode: {mode}", f"max_age:{max_age}"]
    lines = [*fixed, *others]
    random.shuffle(lines)
    for pattern in reversed(mx):  # their order stays
        lines.insert(0, f"mx: {pattern}")
    found = parsed(end.join(lines) + end, "x", NOW)
    assert found == StsPolicy(mode, tuple(mx), timedelta(seconds=max_age), "x", NOW)


@given(st.text())
def test_any_text_is_a_policy_or_says_why_not(text):
    try:
        found = parsed(text, "x", NOW)
    except InvalidPolicy:
        return
    assert found.mx or found.mode is StsMode.NONE


GOOD = "version: STSv1\r\nmode: enforce\r\nmx: mail.example.com\r\nmx: *.example.net\r\nmax_age: 604800\r\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("version: STSv1\r\n", ""),
        ("STSv1", "STSv2"),
        ("STSv1", "stsv1"),
        ("mode: enforce\r\n", ""),
        ("enforce", "Enforce"),
        ("604800", "-1"),
        ("604800", "12345678901"),
        ("604800", "٣"),
        ("max_age: 604800\r\n", ""),
        ("*.example.net", "*.*.example.net"),
        ("*.example.net", "mx*.example.net"),
        ("*.example.net", "*"),
        ("*.example.net", ".example.net"),
        ("*.example.net", "192.0.2.1:25"),
        ("*.example.net", ""),
        ("mx: *.example.net", "no key"),
        ("mx: mail.example.com\r\nmx: *.example.net\r\n", ""),
        ("mx: *.example.net", "\r\n".join(f"mx: {n}.example.net" for n in range(MOST_PATTERNS))),
    ],
)
def test_what_is_no_policy_is_refused(old, new):
    assert parsed(GOOD, "x", NOW)
    with pytest.raises(InvalidPolicy):
        parsed(GOOD.replace(old, new, 1), "x", NOW)


def test_the_first_of_two_counts_and_a_longer_age_is_the_longest():
    text = GOOD.replace("604800", "9999999999") + "mode: none\r\nmax_age: 1\r\nversion: STSv9\r\n"
    found = parsed(text, "x", NOW)
    assert (found.mode, found.max_age) == (StsMode.ENFORCE, timedelta(seconds=LONGEST_AGE))


def test_a_policy_of_none_needs_no_host():
    assert parsed("version: STSv1\nmode: none\nmax_age: 86400\n", "x", NOW).mx == ()


@given(ids, st.lists(st.tuples(labels.filter(lambda one: one != "id"), ids), max_size=3), st.booleans())
def test_the_id_is_found_among_other_fields(identifier, others, ends):
    fields = ["v=STSv1", *(f"{name}={value}" for name, value in others), f"id={identifier}"]
    assert announced(["v=spf1 -all", "v=STSv1", "; ".join(fields) + ";" * ends]) == identifier


@given(st.lists(st.text(), max_size=3))
def test_any_records_are_read(records):
    assert announced(records) is None


@pytest.mark.parametrize(
    "records",
    [
        [],
        ["v=STSv1"],
        ["v=STSv1;"],
        ["v=STSv1; id=;"],
        ["v=STSv1; id=a-b;"],
        [f"v=STSv1; id={'a' * 33};"],
        ["v=STSv1; id=a; no field"],
        ["v=STSv2; id=a"],
        ["v=STSv1x; id=a"],
        [" v=STSv1; id=a"],
        ["v=STSv1; id=a;", "v=STSv1; id=a;"],
    ],
)
def test_records_that_announce_nothing(records):
    assert announced(records) is None


@given(names, labels, labels)
def test_a_wildcard_is_one_label(name, first, second):
    found = policy(StsMode.ENFORCE, f"*.{name}")
    assert found.matches(f"{first}.{name}")
    assert found.matches(f"{first}.{name}.".upper())
    assert not found.matches(name)
    assert not found.matches(f"{second}.{first}.{name}")
    assert not found.matches(f"{first}{name}")
    assert not found.matches(f".{name}")


@given(names, names)
def test_a_name_matches_itself_alone(name, other):
    assert policy(StsMode.ENFORCE, name).matches(other) == (name == other)


@given(st.integers(0, LONGEST_AGE), st.integers(0, 2 * LONGEST_AGE))
def test_a_policy_counts_until_its_age_has_passed_for_certain(max_age, passed):
    found = policy(StsMode.ENFORCE, "a.test", max_age=timedelta(seconds=max_age))
    now = NOW + timedelta(seconds=passed)
    assert (counts(found, Endings(now)) is None) == (passed >= max_age)
    assert counts(found, Endings(now, doubt=True)) is found
    assert counts(found, Endings(now, ((NOW, now),))) is (found if max_age else None)


def test_none_is_no_policy():
    assert counts(policy(StsMode.NONE), Endings(NOW)) is None
    assert counts(None, Endings(NOW)) is None


def test_silence_takes_nothing_away_and_another_id_is_looked_at():
    now, later = Endings(NOW), Endings(NOW + 7 * DAY)
    assert not to_be_fetched(policy(), None, now)
    assert not to_be_fetched(policy(), None, later)
    assert not to_be_fetched(None, None, now)
    assert not to_be_fetched(policy(), "1", now)
    assert to_be_fetched(policy(), "2", now)
    assert to_be_fetched(policy(), "1", later)
    assert to_be_fetched(None, "1", now)


@given(st.integers(1, LONGEST_AGE))
def test_it_is_fetched_again_before_it_ends(max_age):
    found = policy(StsMode.ENFORCE, "a.test", max_age=timedelta(seconds=max_age))
    first = min(REFRESH, found.max_age / 2)
    assert not found.due(NOW + first - timedelta(microseconds=1))
    assert found.due(NOW + first)
    assert not found.ended(Endings(NOW + first))


def test_names_of_record_and_host():
    assert record_of("Exämple.org") == "_mta-sts.xn--exmple-cua.org"
    assert host_of("Exämple.org.") == "mta-sts.xn--exmple-cua.org"
