"""What a sender wants of TLS is shown where the envelope of its message is."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from admin.admin_node import MX2, NOW, a_node, ask, fill, meet, message_id, received, serving
from click.testing import CliRunner

from shadowrelay.admin.access import Access
from shadowrelay.cli import main
from shadowrelay.console.app import Console
from shadowrelay.core.messages import TlsWish

WISHES = (TlsWish.REQUIRED, TlsWish.WAIVED, None)


@pytest.mark.parametrize("where", ["/messages/{}", "message show {}", "message show {} --json"])
async def test_the_envelope_shows_what_its_sender_wants_of_tls(where: str, tmp_path: Path) -> None:
    shown = []
    async with a_node(tmp_path) as node:
        await fill(node, meet(MX2), *(received(number, MX2, tls=one) for number, one in enumerate(WISHES)))
        access = Access(())
        async with serving(
            node, access=access, console=Console(node=node, access=access, clock=lambda: NOW)
        ) as port:
            for number in range(len(WISHES)):
                words = where.format(message_id(number))
                if words.startswith("/"):
                    shown.append((await ask(port, words, accept="text/html")).text)
                    continue
                runner = CliRunner(env={"SHADOWRELAY_ADMIN": f"http://127.0.0.1:{port}"})
                done = await asyncio.to_thread(runner.invoke, main, words.split())
                shown.append(done.output)
    if where.endswith("--json"):
        assert [json.loads(one)["envelope"]["tls"] for one in shown] == ["required", "waived", None]
    else:
        told = [re.findall(r"\bTLS\b\W+(?:\w+>\W*)*(\w+) by its sender", one) for one in shown]
        assert told == [["required"], ["waived"], []], shown
