"""What is read in one match in its usual form is what the grammar as a whole reads of it."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import example, given
from hypothesis import strategies as st

from shadowrelay.smtp.receiving.conversation import USUAL, any_words
from shadowrelay.wire.addresses import AddressError, read_any_path, read_path
from shadowrelay.wire.replies import parse_reply, usual
from shadowrelay.wire.xqdiscard import parse_any_line, parse_line
from shadowrelay.wire.xshadow import Malformed, parse_any_offer, parse_offer
from shadowrelay.wire.xtext import decode_xtext, encode_xtext

CODES = st.sampled_from(["250", "251", "354", "421", "550", "199", "2500", "25", "٢50"])
ENHANCED = st.sampled_from(["", "2.0.0", "2.1.5", "4.7.0", "5.1.1", "2.6.0000", "2.0", "3.0.0"])
PRINTED = st.text(st.sampled_from("abc 2.5-\t\r\x7f\x1fé"), max_size=12)
LINES = st.builds(
    lambda code, mark, enhanced, space, text: f"{code}{mark}{enhanced}{space}{text}",
    CODES, st.sampled_from([" ", "-", "", "  "]), ENHANCED, st.sampled_from(["", " ", "."]), PRINTED,
)  # fmt: skip

ATOMS = st.text(st.sampled_from('abZ9!#-_+=.%é"\\ '), max_size=70)
LABELS = st.text(st.sampled_from("abZ9-_é"), max_size=65)
PATHS = st.builds(
    lambda before, route, local, at, labels, *after: "".join(
        (before, route, local, at, ".".join(labels), *after)
    ),
    st.sampled_from(["<", "", " <", "<<"]),
    st.sampled_from(["", "", "", "@relay.test:"]),
    ATOMS | st.sampled_from(["a", "Postmaster", '"a b"', ""]),
    st.sampled_from(["@", "@", "@", "", "@@"]),
    st.lists(LABELS | st.sampled_from(["example", "test", "[192.0.2.1]"]), max_size=6),
    st.sampled_from([">", ">", ">", ""]),
    st.sampled_from(["", " SIZE=1", " BODY=8BITMIME X=>", "x", " é", "\x01", "\u2028"]),
)  # fmt: skip


@given(LINES)
@example("250 2.6.0")
@example("250 2.6.0 ")
@example("250 ")
@example("250 5.1.1 of another class")
def test_a_reply_in_its_usual_form_is_read_as_the_grammar_reads_it(line: str) -> None:
    octets = line.encode()
    if (found := usual(octets + b"\r\n")) is not None:
        assert found == parse_reply([octets])


def test_what_servers_and_members_say_has_the_usual_form() -> None:
    for line in ("250 2.1.0 Sender OK", "354 End data", "250 OK", "550 5.1.1 No such user", "250 2.0.0"):
        assert usual(line.encode() + b"\r\n") == parse_reply([line.encode()])


@given(PATHS, st.booleans())
@example("<a@b>", False)
@example("<" + "a" * 64 + "@" + ".".join(["b" * 63] * 2 + ["b" * 61]) + ">", False)
@example("<" + "a" * 64 + "@" + ".".join(["b" * 63] * 3) + ">", False)
@example("<" + "a" * 65 + "@b>", False)
@example("<a@" + "b" * 64 + ">", False)
def test_a_path_in_its_usual_form_is_read_as_the_grammar_reads_it(path: str, any_dots: bool) -> None:
    assert _read(read_path, path, any_dots) == _read(read_any_path, path, any_dots)


def _read(reader: object, path: str, any_dots: bool) -> object:
    try:
        return reader(path, any_dots=any_dots)  # type: ignore[operator]
    except AddressError as error:
        return str(error)


@given(
    st.text(st.sampled_from("MAILmail FROM:<@>\t\r\x01\xe9\u0131-9"), max_size=20),
    st.sampled_from(["\r\n", "\n"]),
)
@example("MAIL FROM:<a@b>", "\r\n")
@example("MAIL  FROM:<a@b> ", "\r\n")
@example("DATA ", "\r\n")
def test_a_command_in_its_usual_form_is_read_as_any_other(line: str, end: str) -> None:
    octets = (line + end).encode()
    if found := USUAL.fullmatch(octets):
        assert any_words(octets) == (str(found[1], "ascii").upper(), str(found[2] or b"", "ascii"))


@given(st.text(st.sampled_from("a~!+=; \t\xe9B2"), max_size=12))
def test_text_of_any_form_comes_back_from_xtext(text: str) -> None:
    spelt = encode_xtext(text)
    assert decode_xtext(spelt) == text
    assert not set(spelt) & set("= \t\xe9")


UUID = "01890a5d-ac96-774b-bcce-b302099a8057"
DIGEST = "xxh3-128:" + "0a" * 16
IDS = st.sampled_from([UUID, UUID, UUID[:-1], UUID.upper(), "-"])
NUMBERS = st.sampled_from(["0", "1", "7", "007", "9" * 13, "9" * 15, "9" * 18, "9" * 19, "", "-", "x"])
MARKS = st.sampled_from(["0123456789abcdef:7", "0123456789abcdef:", "0123456789abcdef", "123:7"])
LINE = st.tuples(
    NUMBERS, IDS, NUMBERS,
    st.sampled_from(["delivered", "delivered=", "pending=1", "taken=mx1"])
    | st.builds("delivered={}@{}".format, st.sampled_from(["", "relayed", "removed", "no"]), NUMBERS),
    st.sampled_from(["*", "*", "1-3,7", "0"]),
)  # fmt: skip
OFFER = st.tuples(
    IDS,
    NUMBERS,
    NUMBERS,
    MARKS,
    NUMBERS,
    st.sampled_from([DIGEST, DIGEST, "md5:00"]),
    st.sampled_from(["", ";mx1"]),
)


def _tried(reader: Callable[[str], object], text: str) -> object:
    try:
        return reader(text)
    except Malformed as error:
        return str(error)


@given(LINE)
@example(("7", UUID, "1", "delivered=@1700000000000", "*"))
def test_a_line_of_an_answer_in_its_usual_form_is_read_as_any_other(words: tuple[str, ...]) -> None:
    text = " ".join(words)
    assert _tried(parse_line, text) == _tried(parse_any_line, text)


@given(OFFER)
@example((UUID, "0", "1", "0123456789abcdef:7", "12", DIGEST, ""))
def test_an_offer_in_its_usual_form_is_read_as_any_other(words: tuple[str, ...]) -> None:
    text = ";".join(words[:-1]) + words[-1]
    assert _tried(parse_offer, text) == _tried(parse_any_offer, text)
