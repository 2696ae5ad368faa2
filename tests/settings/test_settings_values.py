"""Durations, sizes and addresses: what is read, what is written back, what is refused."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowrelay.settings import HostPort, format_duration, format_size, parse_duration, parse_size
from shadowrelay.settings.values import (
    parse_domain_pattern,
    parse_flag,
    parse_host_name,
    parse_host_port,
    parse_integer,
    parse_network,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("15s", 15),
        ("2m", 120),
        ("3h", 10800),
        ("2d", 172800),
        ("1h30m", 5400),
        ("0s", 0),
        ("1.5s", 1.5),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text, seconds):
    assert parse_duration(text).total_seconds() == seconds


@pytest.mark.parametrize(
    "text", ["", "15", 15, "s", "2 m", "30m1h", "1h1h", "-1s", "1w", "1.2.3s", "P2D", True, "9" * 20 + "d"]
)
def test_anything_else_is_not_a_duration(text):
    with pytest.raises(ValueError, match=r"."):
        parse_duration(text)


def test_a_duration_is_as_exact_as_it_is_shown():
    assert parse_duration("4.9999s") == timedelta(seconds=5)
    assert parse_duration("1.4ms") == timedelta(milliseconds=1)


@given(st.integers(0, 10**12))
def test_a_duration_reads_back_as_it_was_written(milliseconds):
    duration = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize(
    ("text", "octets"),
    [
        ("64MiB", 64 * 2**20),
        ("10MB", 10**7),
        ("512KiB", 2**19),
        ("1000", 1000),
        (1000, 1000),
        ("1 gib", 2**30),
    ],
)
def test_a_size_counts_octets(text, octets):
    assert parse_size(text) == octets


@pytest.mark.parametrize("text", ["", "MB", "1.5MB", "-1", "1XB", True, 1.5, None])
def test_anything_else_is_not_a_size(text):
    with pytest.raises(ValueError, match="not a size"):
        parse_size(text)


@given(st.integers(0, 2**50))
def test_a_size_reads_back_as_it_was_written(octets):
    assert parse_size(format_size(octets)) == octets


@pytest.mark.parametrize("text", ["127.0.0.1:25", "[::1]:25", "mx1.example.net:0"])
def test_an_address_reads_back_as_it_was_written(text):
    assert str(parse_host_port(text)) == text


def test_a_host_of_an_address_is_bare_and_in_lower_case():
    assert parse_host_port("[2001:DB8::1]:25") == HostPort("2001:db8::1", 25)
    assert parse_host_port("MX1.Example.NET:25").host == "mx1.example.net"


@pytest.mark.parametrize(
    "text", ["", ":25", "::1:25", "a:b:25", "host", "host:", "host:65536", "1.2.3:25", "a b:25", 25]
)
def test_anything_else_is_not_an_address(text):
    with pytest.raises(ValueError, match=r"."):
        parse_host_port(text)


@pytest.mark.parametrize(
    "text", ["a..b", "-a.b", "a" * 64, "a.b\n", "a/b", "é.test", ("a" * 60 + ".") * 5 + "b"]
)
def test_names_that_no_host_can_have_are_refused(text):
    with pytest.raises(ValueError, match="not a host name"):
        parse_host_name(text.replace("\n", "\n.b"))


@pytest.mark.parametrize("text", ["**", "*x", "x.*", "", "@x", "*."])
def test_a_star_stands_alone_or_for_the_first_label(text):
    with pytest.raises(ValueError, match="not a domain"):
        parse_domain_pattern(text)
    assert parse_domain_pattern("*.Inside.Test.") == "*.inside.test"
    assert parse_domain_pattern("*") == "*"


def test_true_is_not_one_and_yes_is_not_true():
    with pytest.raises(ValueError, match="not an integer"):
        parse_integer(True)
    for text in ("yes", "on", "1", 1):
        with pytest.raises(ValueError, match="not true or false"):
            parse_flag(text)


def test_a_network_with_host_bits_is_refused():
    with pytest.raises(ValueError, match="host bits"):
        parse_network("10.0.0.1/8")
