"""Reports through hops of every set of extensions: the sender learns, whatever its server takes."""

from __future__ import annotations

import email
import email.policy
import re
from contextlib import AsyncExitStack
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from scripted_hop import ScriptedHop, original
from sending import sender
from stations import eventually, station

EXTENSIONS = ("8BITMIME", "SMTPUTF8", "DSN", "CHUNKING", "SIZE 65536")
SETS = [
    tuple(one for one, there in zip(EXTENSIONS, chosen, strict=True) if there)
    for chosen in product([False, True], repeat=len(EXTENSIONS))
]

ORIGINALS = {
    "ascii": b"Subject: hello\r\n\r\nText.\r\n",
    "utf-8": "Subject: Grüße 例え\r\n\r\nText ä.\r\n".encode(),
    "garbage": b"Subject: \xe4\xff\xfe\r\nX: \x00\x80\r\n\r\n\xe4\r\n",
    "long": b"Subject: " + b"x" * 950 + b"\r\nX: \xe4" + b"y" * 900 + b"\r\n" * 2 + b"z" * 900 + b"\r\n",
    "large": b"".join(b"X-%d: \xe4 %s\r\n" % (n, b"y" * 80) for n in range(1200)) + b"\r\nText.\r\n",
}
WORDS = [
    "BODY=8BITMIME",
    "BODY=8BITMIME SMTPUTF8",
    "BODY=8BITMIME RET=FULL",
    "BODY=8BITMIME SMTPUTF8 RET=HDRS",
]
RECIPIENTS = ["b@example.net", "b@bücher.example", "ä@bücher.example"]


def unfit(hop: ScriptedHop, mail: str, content: bytes) -> list[str]:
    """What the hop was sent, and did not say that it takes."""
    offered = {one.partition(" ")[0] for one in hop.offers}
    wrong = [word for word in ("SMTPUTF8", "SIZE", "RET", "ENVID") if re.search(rf" {word}\b", mail)]
    found = [word for word in wrong if {"RET": "DSN", "ENVID": "DSN"}.get(word, word) not in offered]
    if "BODY=8BITMIME" in mail and "8BITMIME" not in offered:
        found.append("BODY")
    if not content.isascii():
        found.append("8-bit content")
    if max(map(len, content.split(b"\r\n"))) > 998:
        found.append("long line")
    if not mail.isascii() and "SMTPUTF8" not in offered:
        found.append("address")
    whole = re.search(rb"\r\nContent-Type: message/(rfc822|global)\r\n", content)
    if len(content) > 65536 and ("SIZE" in offered or not whole):
        found.append("size")
    return found


def about(content: bytes, recipient: str) -> bool:
    """Does the report say which message and which recipient it is about?"""
    message: Any = email.message_from_bytes(content, policy=email.policy.SMTP)
    text, status, returned = message.iter_parts()
    told = status.get_payload()[1]["Final-Recipient"]
    plain = {
        "b@bücher.example": "b@xn--bcher-kva.example",
        "ä@bücher.example": r"\x{E4}@xn--bcher-kva.example",
    }
    assert not message.defects
    assert returned.get_content_maintype() in {"text", "message"}
    return recipient in text.get_content() and told.endswith(f"; {plain.get(recipient, recipient)}")


@pytest.mark.parametrize("whom", [("s@{domain}", "s@bücher.{domain}"), ("ä@{domain}", "ä@bücher.{domain}")])
@pytest.mark.slow
async def test_the_sender_gets_a_report_through_a_hop_of_whatever_extensions(
    tmp_path: Path, whom: tuple[str, str]
) -> None:
    """A sender whose local part is not ASCII has a server with SMTPUTF8."""
    sets = [one for one in SETS if whom[0].startswith("s") or "SMTPUTF8" in one]
    sent: list[tuple[int, str, str]] = []
    async with AsyncExitStack() as stack:
        refusing = await stack.enter_async_context(
            ScriptedHop(offers=("8BITMIME", "SMTPUTF8", "DSN", "PIPELINING"), RCPT=b"550 5.1.1 unknown\r\n")
        )
        hops = [
            await stack.enter_async_context(ScriptedHop(offers=(*one, "PIPELINING") if number % 2 else one))
            for number, one in enumerate(sets)
        ]
        routes: dict[str, Any] = {
            f"s{number}": {
                "domains": [f"d{number}.test", f"*.d{number}.test"],
                "host": "127.0.0.1",
                "port": hop.port,
                "tls": "none",
            }
            for number, hop in enumerate(hops)
        }
        routes["out"] = {"domains": ["*"], "host": "127.0.0.1", "port": refusing.port, "tls": "none"}
        found = await station(tmp_path, "mx1", [], routes=routes)
        stack.push_async_callback(found.stop)
        found.run_queue()
        async with sender(found) as client:
            assert (await client.say("EHLO client.example")).startswith("250")
            for number in range(len(hops)):
                for at, (name, content) in enumerate(ORIGINALS.items()):
                    address = whom[at % 2].format(domain=f"d{number}.test")
                    words, recipient = WORDS[(number // 2 + at) % len(WORDS)], RECIPIENTS[(number + at) % 3]
                    if not (address + recipient).isascii() and "SMTPUTF8" not in words:
                        words += " SMTPUTF8"
                    assert (await client.say(f"MAIL FROM:<{address}> {words}")).startswith("250")
                    assert (await client.say(f"RCPT TO:<{recipient}>")).startswith("250")
                    assert (await client.content(content)).startswith("250")
                    sent.append((number, name, recipient))

        async def told() -> bool:
            return sum(len(hop.contents) for hop in hops) == len(sent)

        try:
            await eventually(told, within=60)
        finally:
            failed = [
                row["recipient-status"]
                for row in await found.tracked()
                if row["event-id"] == "FAIL" and row["sender-address"] == "<>"
            ]
            assert not failed
        for number, hop in enumerate(hops):
            mails = [command for command in hop.commands if command.startswith("MAIL")]
            for mail, content in zip(mails, map(original, hop.contents), strict=True):
                assert not unfit(hop, mail, content)
            expected = [recipient for at, _, recipient in sent if at == number]
            for recipient in expected:
                assert any(about(original(content), recipient) for content in hop.contents)
