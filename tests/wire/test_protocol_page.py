"""docs/reference/protocol.md: its dialogues are golden ones, its grammar is the one that is spoken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from golden_dialogues import FILES, Exchange, read

from shadowrelay.core.decisions import VerdictKind
from shadowrelay.core.members.conversation import MAX_LINES, MAX_QUESTIONS
from shadowrelay.wire.esmtp import parse_mail, parse_rcpt
from shadowrelay.wire.xoperate import format_act, parse_act
from shadowrelay.wire.xqdiscard import format_line, format_query, parse_line, parse_query
from shadowrelay.wire.xshadow import (
    MAX_LINE,
    VERSION,
    Malformed,
    format_fork,
    format_greeting,
    format_mark,
    format_offer,
    format_origin,
    parse_fork,
    parse_greeting,
    parse_mark,
    parse_offer,
    parse_origin,
)

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "protocol.md").read_text("utf-8")
BLOCKS = re.findall(r"^```dialogue\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_page_shows_golden_dialogues_and_names_the_others() -> None:
    golden = {file.name: file.read_text("utf-8") for file in FILES}
    assert BLOCKS
    assert set(BLOCKS) <= set(golden.values())
    assert [name for name, text in golden.items() if text not in BLOCKS and f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_line_of_a_dialogue_is_read_and_written_the_same(file: Path) -> None:
    _, exchanges = read(file.read_text("utf-8"))
    greeted = False
    for exchange in exchanges:
        verb = exchange.command.partition(" ")[0]
        if exchange.reply[-1].startswith("501 5.5.4 ") and "Age and digest" not in exchange.reply[-1]:
            with pytest.raises(Malformed):
                written(verb, exchange.arguments)
        elif verb in {"XSHADOW", "XQDISCARD", "XOPERATE"} or exchange.reply[-1].startswith("250 "):
            assert written(verb, exchange.arguments) in {None, exchange.arguments}
        greeted = greeted or (verb == "XSHADOW" and exchange.reply[-1].startswith("250 "))
        if greeted:
            mark = exchange.reply[-1].rpartition(" ")[2]
            assert format_mark(parse_mark(mark)) == mark
        answered(verb, exchange)


def written(verb: str, arguments: str) -> str | None:
    """What is written again of what was read; None for verbs that are not ours. Raises Malformed."""
    match verb:
        case "XSHADOW":
            return format_greeting(parse_greeting(arguments))
        case "XQDISCARD":
            return format_query(parse_query(arguments))
        case "XOPERATE":
            return format_act(parse_act(arguments))
        case "MAIL":
            extra = parse_mail(arguments, keywords={"XSHADOW", "XMADEOF", "RET", "ENVID"}).extra
            offer, origin = extra.get("XSHADOW", ""), extra.get("XMADEOF")
            assert format_offer(parse_offer(offer)) == offer
            assert origin is None or format_origin(parse_origin(origin)) == origin
        case "RCPT":
            keywords = {"XFORK", "XUNREAD", "NOTIFY", "ORCPT"}
            fork = parse_rcpt(arguments, smtputf8=False, keywords=keywords).extra.get("XFORK", "")
            assert format_fork(*parse_fork(fork)) == fork
    return None


def answered(verb: str, exchange: Exchange) -> None:
    """The answers to our verbs are of the grammar too."""
    if exchange.reply[-1].startswith("250 ") and verb in {"XSHADOW", "XQDISCARD"}:
        for line in exchange.lines(marked=True):
            if verb == "XSHADOW":
                assert format_greeting(parse_greeting(line)) == line
            else:
                assert format_line(parse_line(line)) == line


def test_the_dialogues_show_every_kind_of_answer() -> None:
    golden = "".join(file.read_text("utf-8") for file in FILES)
    shown = set(re.findall(r"^S: 250[ -]2\.0\.0 \S+ \S{36} \d+ ([a-z]+)", golden, re.MULTILINE))
    assert shown == {kind.value for kind in VerdictKind}
    assert {kind.value for kind in VerdictKind} <= set(re.findall(r"^\| `([a-z]+)", PAGE, re.MULTILINE))


def test_the_limits_of_the_page_are_those_of_the_code() -> None:
    assert f"version {VERSION}" in PAGE
    for limit in (MAX_LINE, MAX_LINES, MAX_QUESTIONS):
        assert f"{limit:,}" in PAGE
