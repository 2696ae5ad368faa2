"""XSHADOW is read as it was written; whatever else comes is refused, and only that."""

from __future__ import annotations

import string
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from spelling import forks, greetings, offers, origins

from shadowrelay.core.identifiers import (
    Beginning,
    DatabaseId,
    Digest,
    Incarnation,
    Lineage,
    Mark,
    MessageId,
    NextHop,
    RequestId,
    ServerName,
)
from shadowrelay.core.members.conversation import Greeting
from shadowrelay.core.messages import Status
from shadowrelay.core.reception.by_reference import MadeOf
from shadowrelay.core.values import replace
from shadowrelay.wire.esmtp import (
    RCPT_KEYWORDS,
    MailFrom,
    RcptTo,
    format_mail,
    format_rcpt,
    parse_mail,
    parse_rcpt,
)
from shadowrelay.wire.xshadow import (
    MAX_LINE,
    VERSIONS,
    Fork,
    Malformed,
    OfferParameter,
    format_fork,
    format_greeting,
    format_offer,
    format_origin,
    milliseconds,
    parse_fork,
    parse_greeting,
    parse_offer,
    parse_origin,
)

NAME = "mx1.example.org"
DATABASE = "6f0d7a3e-0000-4000-8000-000000000001"
ONE, TWO = "00112233445566aa", "00112233445566bb"
MESSAGE = "01900000-0000-7000-8000-000000000001"
GREETING = f"{NAME} {DATABASE} {TWO}:9 {ONE}@0,{TWO}@7 KNOWN={ONE}"
DIGEST = "xxh3-128:00112233445566778899aabbccddeeff"
OFFER = f"{MESSAGE};1;2;{TWO}:9;1795255200123;{DIGEST}"
OFFER_1 = OFFER.rpartition(";")[0]  # of version 1

PARSERS = [parse_greeting, parse_offer, parse_origin, parse_fork]
anything = st.one_of(
    st.text(),
    st.text(alphabet=string.hexdigits + " ;:,@=-+.KNOW"),
    st.builds(
        lambda text, at, new: text[:at] + new + text[at + len(new) :],
        st.sampled_from([GREETING, OFFER, "1;inside"]),
        st.integers(0, 130),
        st.text(max_size=3),
    ),
)


@given(greetings)
def test_a_greeting_is_read_as_it_was_written(greeting: Greeting) -> None:
    assert parse_greeting(format_greeting(greeting)) == greeting


@given(offers)
def test_an_offer_is_read_as_it_was_written(offer: OfferParameter) -> None:
    assert parse_offer(format_offer(offer)) == offer


@given(origins)
def test_an_origin_is_read_as_it_was_written(origin: MadeOf) -> None:
    assert parse_origin(format_origin(origin)) == origin


@given(forks)
def test_a_fork_is_read_as_it_was_written(fork: Fork) -> None:
    assert parse_fork(format_fork(*fork)) == fork


@given(anything)
@example("")
@example("1;+C3")
@example(" ".join(["x"] * 5))
@pytest.mark.parametrize("parse", PARSERS)
def test_any_text_is_read_or_refused(parse, text: str) -> None:  # type: ignore[no-untyped-def]
    with suppress(Malformed):
        parse(text)


def test_what_a_greeting_says() -> None:
    lineage = Lineage(
        DatabaseId(DATABASE), (Beginning(Incarnation(ONE), 0), Beginning(Incarnation(TWO), 7)), 9
    )
    assert parse_greeting(GREETING) == Greeting(ServerName(NAME), lineage, Incarnation(ONE), version=1)
    assert parse_greeting(f"{GREETING} VERSION=2").version == 2
    assert parse_greeting(f"{GREETING} VERSION=6").version == 6
    assert parse_greeting(GREETING.rpartition(" ")[0]).known is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_greeting_tells_the_time_from_version_5_on(version: int) -> None:
    told = f"{GREETING} VERSION=5 TIME=1795255200123"
    greeting = parse_greeting(told)
    assert greeting.time is not None
    assert milliseconds(greeting.time) == 1795255200123
    assert format_greeting(greeting) == told
    again = parse_greeting(format_greeting(replace(greeting, version=version)))
    assert again.time == (greeting.time if version > 4 else None)


@pytest.mark.parametrize(
    "text",
    [
        GREETING + " MORE=1",
        GREETING + " VERSION=7",
        GREETING + " VERSION=4 TIME=1795255200123",
        GREETING + " VERSION=5 TIME=",
        GREETING + " VERSION=5 TIME=253402300799001",
        GREETING + " TIME=1795255200123 VERSION=5",
        GREETING + " VERSION=2 VERSION=2",
        GREETING.replace("KNOWN=", "known="),
        GREETING.replace(NAME, "MX1.example.org"),
        GREETING.replace(NAME, "-mx1"),
        GREETING.replace(DATABASE, DATABASE.upper()),
        GREETING.replace(f"{TWO}:9", f"{ONE}:9"),  # not the incarnation that the lineage ends with
        GREETING.replace(":9", ":6"),  # before the incarnation began
        GREETING.replace("@0", "@8"),  # beginnings run from old to new
        GREETING.replace("@0", ""),
        GREETING.replace(":9", ":"),
        GREETING.replace(":9", ":-9"),
        GREETING.replace(":9", ":" + "9" * 19),
        GREETING.replace(":9", ":\u0669"),  # a digit, but not an ASCII one
        GREETING.replace(" ", "  ", 1),
        GREETING + "\n",
    ],
)
def test_a_greeting_that_is_not_of_the_grammar_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        parse_greeting(text)


@pytest.mark.parametrize(
    "text",
    [
        OFFER + ";",
        OFFER_1 + ";",
        OFFER.upper(),
        OFFER.replace("xxh3-128", "md5"),
        OFFER.replace("eeff", "eef"),
        OFFER.replace(MESSAGE, MESSAGE[:-1]),
        OFFER.replace(";1;", ";;"),
        OFFER.replace(";1;", ";+1;"),
        OFFER.replace(f"{TWO}:9", TWO),
        OFFER.replace("1795255200123", "253402300799001"),
    ],
)
def test_an_offer_that_is_not_of_the_grammar_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        parse_offer(text)


@pytest.mark.parametrize(
    "more",
    [
        "x",
        ";",
        ";x",
        ";-1",
        ";5;6",
        f";5;{MESSAGE}",
        f";{MESSAGE};",
        f";{MESSAGE};5;",
        f";{MESSAGE.upper()}x",
    ],
)
def test_an_origin_that_is_not_of_the_grammar_is_refused(more: str) -> None:
    with pytest.raises(Malformed):
        parse_origin(MESSAGE + more)


@pytest.mark.parametrize(
    "text", ["", "1", ";inside", "0;inside", "1000001;inside", "1;in side", "1;a+", "1;+FF"]
)
def test_a_fork_that_is_not_of_the_grammar_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        parse_fork(text)


@given(offers, forks)
def test_the_parameters_fit_into_mail_and_rcpt(offer: OfferParameter, fork: Fork) -> None:
    mail = MailFrom("a@example.org", extra={"XSHADOW": format_offer(offer)})
    command = format_mail(mail, ()).decode().removesuffix("\r\n")
    found = parse_mail(command.removeprefix("MAIL "), keywords={"XSHADOW"})
    assert parse_offer(found.extra["XSHADOW"]) == offer
    rcpt = RcptTo("b@example.net", extra={"XFORK": format_fork(*fork)})
    command = format_rcpt(rcpt, ()).decode().removesuffix("\r\n")
    received = parse_rcpt(command.removeprefix("RCPT "), smtputf8=False, keywords=RCPT_KEYWORDS | {"XFORK"})
    assert parse_fork(received.extra["XFORK"]) == fork


def test_the_age_of_a_message_travels_to_the_millisecond() -> None:
    mark = Mark(Incarnation(TWO), 9)
    age = timedelta(milliseconds=1795255200123, microseconds=999)
    assert format_offer(OfferParameter(MessageId(MESSAGE), 1, 2, mark, age, Digest(DIGEST))) == OFFER
    received = datetime(2026, 11, 21, 10, 0, 0, 123_999, tzinfo=UTC)
    assert format_offer(OfferParameter(MessageId(MESSAGE), 1, 2, mark, received_at=received)) == OFFER_1


def test_a_next_hop_may_be_called_as_an_outcome_is() -> None:
    for name in ("failed", "a;failed", ";"):
        assert parse_fork(format_fork(1, NextHop(name))) == Fork(1, NextHop(name))
        relayed = Fork(1, NextHop(name), Status.RELAYED)
        assert parse_fork(format_fork(*relayed)) == relayed


def test_the_longest_greeting_fits_into_a_line() -> None:
    largest = 10**15
    beginnings = tuple(Beginning(Incarnation(f"{number:016x}"), largest) for number in range(100))
    lineage = Lineage(DatabaseId(DATABASE), beginnings, largest).since(None)
    assert len(lineage.beginnings) == 64
    greeting = format_greeting(Greeting(ServerName("m" * 253), lineage, Incarnation(ONE), version=6))
    assert greeting.endswith(" VERSION=6")
    reply = f"250 2.0.0 {greeting} {TWO}:{largest}\r\n"
    assert len(reply) <= MAX_LINE


def test_the_longest_mail_and_rcpt_fit_into_a_line() -> None:
    offer = OfferParameter(
        MessageId(MESSAGE),
        10**6,
        10**6,
        Mark(Incarnation(TWO), 10**15),
        timedelta(days=90),
        Digest(DIGEST),
        ServerName("m" * 253),
    )
    mail = MailFrom(
        "a" * 64 + "@" + "b" * 255,
        body="8BITMIME",
        smtputf8=True,
        ret="HDRS",
        envid="e" * 100,
        extra={
            "XSHADOW": format_offer(offer),
            "XMADEOF": format_origin(MadeOf(MessageId(MESSAGE), RequestId(MESSAGE), 10**18 - 1)),
        },
    )
    offered = {"8BITMIME", "SMTPUTF8", "DSN"}
    assert len(format_mail(mail, offered)) <= MAX_LINE
    longest_hop = NextHop("\u00fc" * 255)
    rcpt = RcptTo("ü" * 64 + "@" + "b" * 255, ("SUCCESS", "FAILURE", "DELAY"), "rfc822;" + "o" * 493)
    rcpt = RcptTo(
        rcpt.address,
        rcpt.notify,
        rcpt.orcpt,
        {"XFORK": format_fork(1_000_000, longest_hop, Status.DELIVERED)},
    )
    assert len(format_rcpt(rcpt, offered)) <= MAX_LINE
