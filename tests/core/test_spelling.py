"""What strangers wrote is read by people, and compared: encoded words, domains, control characters."""

from __future__ import annotations

import base64
import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shadowrelay.core.requests import address_matches
from shadowrelay.core.spelling import (
    compared,
    decoded,
    in_unicode,
    logged,
    read_without_case,
    readable,
    without_case,
)
from shadowrelay.wire.header import HeaderScan

TEXTS = {
    "utf-8": "Grüße aus 東京 – Привет 👩‍👩‍👧",
    "UTF-8*de": "Viele Grüße, Straße",
    "iso-8859-1": "Viele Grüße = Q? _x_",
    "iso-8859-15": "100 € für Œuvres",
    "windows-1252": "“Grüße” – 5 €",
    "koi8-r": "Привет, мир",
    "windows-1251": "Счёт № 7",
    "gb2312": "你好世界",
    "gb18030": "你好，世界！",
    "big5": "郵件主旨",
    "shift_jis": "こんにちは、世界",
    "euc-kr": "안녕하세요",
    "iso-2022-jp": "会議のお知らせ",
    "utf-16-be": "Grüße",
    "us-ascii": "plain text",
}


def b(octets: bytes, charset: str) -> str:
    return f"=?{charset}?B?{base64.b64encode(octets).decode()}?="


def q(octets: bytes, charset: str) -> str:
    shown = (chr(one) if chr(one).isalnum() and one < 128 else f"={one:02X}" for one in octets)
    return f"=?{charset}?q?{''.join(shown).replace('=20', '_')}?="


def whole(text: str, charset: str) -> list[bytes]:
    return [text.encode(charset.partition("*")[0])]


def by_letters(text: str, charset: str) -> list[bytes]:
    return [text[at : at + 4].encode(charset.partition("*")[0]) for at in range(0, len(text), 4)]


def anywhere(text: str, charset: str) -> list[bytes]:
    """A letter may begin in one word and end in the next: forbidden, and common."""
    octets = text.encode(charset.partition("*")[0])
    return [octets[at : at + 7] for at in range(0, len(octets), 7)]


def header(field: str) -> str:
    """A Subject field as a node keeps it."""
    scan = HeaderScan()
    scan.feed(f"Subject: {field}\r\nTo: bob@example.net\r\n\r\n".encode())
    return scan.subject


CASES = list(
    itertools.product(TEXTS, (b, q), (whole, by_letters, anywhere), (" ", "\r\n ", "\r\n\t", " \r\n   "))
)


@pytest.mark.parametrize("around", [("", ""), ("Re: ", ""), ("Re: ", " (5 €)")])
def test_a_subject_is_read_whatever_its_charset_encoding_and_folding(around):
    before, behind = around
    for charset, encode, cut, fold in CASES:
        words = fold.join(encode(one, charset) for one in cut(TEXTS[charset], charset))
        found = decoded(header(before + words + behind))
        assert found == before + TEXTS[charset] + behind, (charset, encode, cut, fold)


@pytest.mark.parametrize(
    "field",
    [
        "=?nosuch?Q?gr=C3=BC?=",
        "=?utf-8?B?a?=",
        "=?utf-8?Q?=FF?=",
        "=?utf-8?X?abc?=",
        "=?utf-8?Q?abc",
        "=?=?=?=",
        "=?rot13?Q?abc?=",
        "=?base64?Q?abc?=",
        "=?undefined?Q?a?=",
        "=?unicode_escape?q?\\ud800?=",
        "=?\0?q?a?=",
        "no words = ? ?=",
    ],
)
def test_a_malformed_word_is_shown_as_it_came_and_the_others_are_read(field):
    assert decoded(field) == field
    assert decoded(f"{field} =?utf-8?Q?Gr=C3=BC=C3=9Fe?=").endswith(("Grüße", "=?utf-8?Q?Gr=C3=BC=C3=9Fe?="))
    assert decoded(f"=?utf-8?Q?Gr=C3=BC=C3=9Fe?= and {field}") == f"Grüße and {field}"


PIECES = st.sampled_from(
    [
        "=?",
        "?=",
        "utf-8",
        "?B?",
        "?q?",
        "R3I=",
        "=C3",
        "=BC",
        " ",
        "\r\n\t",
        "\x1b[2J",
        "ü",
        "?",
        "=",
        "utf-7",
        "x",
    ]
)


@settings(max_examples=2_000)
@given(st.lists(PIECES, max_size=14).map("".join) | st.text(max_size=60))
@example("=?utf-8?q?=0A=1B[2J?=")
def test_whatever_a_field_is_it_is_read_without_an_error_and_printed_without_an_effect(field):
    text = decoded(field)
    text.encode("utf-8", "surrogatepass" if any(0xD800 <= ord(one) < 0xE000 for one in field) else "strict")
    shown = readable(text)
    assert not any(ord(one) < 32 or 127 <= ord(one) < 160 for one in shown)
    assert without_case(without_case(text)) == without_case(text)
    if "=?" not in field:
        assert text == field


def test_words_are_found_whatever_their_case_and_however_their_letters_are_composed():
    field = "=?utf-8?Q?Viele_Gr=C3=BC=C3=9Fe?="
    for word in ("Grüße", "GRÜSSE", "grüsse", "Gru\u0308ße", "viele"):
        assert without_case(word) in read_without_case(field), word
    assert without_case("grusse") not in read_without_case(field)


def test_a_long_subject_keeps_whole_words():
    words = " ".join(b(f"{number:>9}会".encode(), "utf-8") for number in range(60))
    kept = header(words)
    assert 900 < len(kept) <= 1_000
    assert decoded(kept).endswith("会")
    assert len(header("x" * 2_000)) == 255


@pytest.mark.parametrize(
    ("came", "shown"),
    [
        ("anna@xn--mnchen-3ya.de", "anna@münchen.de"),
        ("anna@a.xn--MNCHEN-3YA.DE", "anna@a.münchen.DE"),
        ("anna@xn--zzzz--.de", "anna@xn--zzzz--.de"),
        ("anna@xn--n3h.example", "anna@xn--n3h.example"),  # ☃ is no letter of IDNA 2008
        ("xn--a@example.net", "xn--a@example.net"),
        ("anna@example.net", "anna@example.net"),
    ],
)
def test_the_domain_of_an_address_is_shown_in_unicode_if_it_is_the_one_spelling(came, shown):
    assert in_unicode(came) == shown
    assert compared(in_unicode(came)) == compared(came)
    assert readable(f"550 <{came}>: no") == f"550 <{shown}>: no"


def test_a_subject_in_a_tracking_log_is_read_without_the_apostrophe_before_it():
    assert logged("'=?utf-8?Q?Gr=C3=BC=C3=9Fe?=") == "Grüße"
    assert (logged("'quoted'"), logged("plain")) == ("'quoted'", "plain")


def test_control_characters_are_shown_as_such():
    assert readable("a\x1b[31mb\r\n\x9b\u202ec\xa0d\u200de") == "a\\x1b[31mb\\r\\n\\x9b\\u202ec d\u200de"
    assert readable("250-a\n250 b", kept="\n") == "250-a\n250 b"


@pytest.mark.parametrize(
    "pattern", ["ann@münchen.de", "ANN@MÜNCHEN.DE", "*@münchen.de", "*@xn--mnchen-3ya.de"]
)
def test_a_filter_means_a_domain_in_either_spelling(pattern):
    assert address_matches(pattern.lower(), "Ann@München.de")
    assert address_matches(pattern.lower(), "ann@xn--mnchen-3ya.de")
    assert not address_matches(pattern.lower(), "ann@munchen.de")
