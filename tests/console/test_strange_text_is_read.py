"""What strangers wrote is shown by console and commands as people read it, and does nothing to them."""

from __future__ import annotations

import asyncio
import json
from html import unescape
from pathlib import Path

import pytest
from admin.admin_node import MX2, NOW, a_node, ask, fill, meet, message_id, received, serving
from click.testing import CliRunner

from shadowrelay.admin.access import Access
from shadowrelay.cli import main
from shadowrelay.console.app import Console

CAME = "=?utf-8?Q?Viele_Gr=C3=BC=C3=9Fe=1B[2J?="
READ = "Viele Grüße\\x1b[2J"
TO, TO_READ = "ann@xn--mnchen-3ya.example", "ann@münchen.example"


@pytest.mark.parametrize(
    "where",
    [
        "/messages",
        "/messages?q=GR%C3%9CSSE",
        "/messages?q=M%C3%9CNCHEN",
        f"/messages/{message_id(1)}",
        "message list",
        "message find grüsse",
        "message find ann@münchen.example",
        f"message show {message_id(1)}",
    ],
)
async def test_a_subject_is_read_and_a_domain_is_in_unicode(where: str, tmp_path: Path) -> None:
    async with a_node(tmp_path) as node:
        await fill(node, meet(MX2), received(1, MX2, TO, subject=CAME))
        access = Access(())
        pages = Console(node=node, access=access, clock=lambda: NOW)
        async with serving(node, access=access, console=pages) as port:
            if where.startswith("/"):
                got = await ask(port, where, accept="text/html")
                found, told = unescape(got.text), {}
            else:
                runner = CliRunner(env={"SHADOWRELAY_ADMIN": f"http://127.0.0.1:{port}"})
                done = await asyncio.to_thread(runner.invoke, main, where.split())
                found = done.output
                as_json = await asyncio.to_thread(runner.invoke, main, [*where.split(), "--json"])
                told = json.loads(as_json.output.splitlines()[0] if "find" in where else as_json.output)
    assert READ in found, found
    assert "\x1b" not in found
    assert TO not in found
    assert TO_READ in found or where == "message list"
    if told:
        one = told["messages"][0] if "messages" in told else told
        assert (one["subject"], one["subject_header"]) == ("Viele Grüße\x1b[2J", CAME)
