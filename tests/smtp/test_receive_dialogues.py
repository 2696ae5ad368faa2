"""The dialogues in tests/dialogues, spoken with a real port.

``%`` sets options of the connector. ``C:`` is sent, several in a row as one write; ``\\r``, ``\\n`` and
``\\xNN`` are escapes, and ``\\c`` at the end leaves the CRLF out. ``S:`` is the exact reply line expected,
``...`` at its end standing for any text. ``K:`` is the content of the next message kept. ``closed`` means
that the server has closed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from receiving import QUEUED, MemoryReceiver, conversation

from shadowrelay.wire.replies import Reply

DIALOGUES = sorted((Path(__file__).parents[1] / "dialogues").glob("*.txt"))


def octets(text: str) -> bytes:
    whole = text.removesuffix("\\c")
    ends = b"" if whole != text else b"\r\n"
    return (
        re.sub(rb"\\x([0-9a-f]{2})", lambda found: bytes([int(found[1], 16)]), whole.encode())
        .replace(rb"\r", b"\r")
        .replace(rb"\n", b"\n")
        + ends
    )


def option(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    return name, {"yes": True, "no": False}.get(value) if value in {"yes", "no"} else int(value)


def read(path: Path) -> list[str]:
    return [line for line in path.read_text("utf-8").splitlines() if line and not line.startswith("#")]


def matches(expected: str, line: str) -> bool:
    start = expected.removesuffix("...")
    return line.startswith(start) if start != expected else line == expected


@pytest.mark.parametrize("path", DIALOGUES, ids=lambda path: path.stem)
async def test_the_connector_answers_as_the_dialogue_says(path: Path) -> None:
    lines = read(path)
    options = dict(option(word) for line in lines if line.startswith("%") for word in line[1:].split())
    receiver = MemoryReceiver(
        refusals={
            "nobody@example.net": Reply(550, "5.1.1", "No such recipient"),
            "later@example.net": Reply(451, "4.3.0", "Try again later"),
        },
        outcome=(lambda to: [QUEUED] * len(to)) if options.get("lmtp") else (QUEUED,),
    )
    unread = 0
    batch = b""
    async with conversation(receiver, **options) as client:
        for number, line in enumerate(lines, 1):
            kind, text = line.partition(":")[0], line.partition(":")[2].removeprefix(" ")
            if kind != "C" and batch:
                client.send(batch)
                batch = b""
            match kind:
                case "C":
                    batch += octets(text)
                case "S":
                    got = await client.line()
                    assert matches(text, got), f"{path.name}: {number}: {got!r} is not {text!r}"
                case "K":
                    assert receiver.kept[unread].content == octets(text + "\\c"), f"{path.name}: {number}"
                    unread += 1
                case "closed":
                    assert await client.closed()
                case _:
                    assert line.startswith("%"), f"{path.name}: {number}: what is this?"
    assert unread == len(receiver.kept), "a message was kept that the dialogue does not tell of"


def test_there_are_dialogues() -> None:
    assert len(DIALOGUES) >= 10
