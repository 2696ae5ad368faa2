"""The routes of redirects and of the switch of shadow redundancy, and what the commands print of them."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from admin_node import MX2, NOW, OURS, POLICY, FakeNode, a_node, ask, fill, message_id, received, serving
from click.testing import CliRunner
from stations import eventually
from structlog.testing import capture_logs

from shadowrelay.cli import main
from shadowrelay.core.reception.shadow_servers import MemberPlace
from shadowrelay.core.switches import Switch
from shadowrelay.members.boundary import Boundary
from shadowrelay.members.effective_policy import EffectivePolicy
from shadowrelay.members.giving import Giving
from shadowrelay.operator import redirect
from shadowrelay.operator.redirect import Redirecting
from shadowrelay.operator.redundancy import RedundancySwitch
from shadowrelay.operator.resubmit import Having

JSON: dict[str, Any] = {"method": "POST", "content_type": "application/json"}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The node is in the process of the command, and what it logs is no output of the command."""
    with capture_logs():
        yield


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[FakeNode]:
    async with a_node(tmp_path) as made:
        in_force = EffectivePolicy(POLICY)
        place = MemberPlace(OURS, "here", "rack1")
        boundary = Boundary(place, (MemberPlace(MX2, "here", "rack2"),), POLICY)

        async def share() -> None:
            in_force.take(await made.database.transact(lambda ledger: ledger.records(Switch)))

        made.redundancy = RedundancySwitch(
            name=OURS,
            database=made.database,
            in_force=in_force,
            having=lambda switch: [Having(member=MX2, has=False, why="this node knows no action switch")],
            share=share,
            mint=lambda now: message_id(7),
            clock=lambda: NOW,
        )

        made.full = True  # type: ignore[attr-defined]

        async def full(member: Any, patience: float) -> str:
            del patience
            if made.redirecting.running:
                await asyncio.Event().wait()  # it never gets on
            return f"{member} takes no mail now: the disk is full" if made.full else ""  # type: ignore[attr-defined]

        giving = Giving(
            members=None,  # type: ignore[arg-type]
            database=made.database,
            examiner=None,  # type: ignore[arg-type]
            unwilling=full,
            enabled=lambda: in_force.redundancy,
            changed=lambda: None,
            clock=lambda: NOW,
        )
        made.redirecting = Redirecting(giving, boundary, draining=lambda: False)
        yield made


async def typed(port: int, *words: str) -> tuple[int, str]:
    """A command, as an operator types it."""
    arguments = [*words, "--admin", f"http://127.0.0.1:{port}"]
    result = await asyncio.to_thread(CliRunner().invoke, main, arguments)
    return result.exit_code, result.output


async def test_redundancy_is_switched_with_a_reason_and_shows_who_did_it(node: FakeNode) -> None:
    async with serving(node) as port:
        before = (await ask(port, "/api/v1/redundancy")).json
        assert (before["on"], before["switch"], before["members"]) == (True, None, [])
        for body in (b'{"value": "perhaps", "reason": "x"}', b'{"value": "off"}', b'{"valu": "off"}'):
            assert (await ask(port, "/api/v1/redundancy", body=body, **JSON)).status == 400
        body = b'{"value": "off", "reason": "the link is down", "operator": "ann"}'
        after = (await ask(port, "/api/v1/redundancy", body=body, **JSON)).json
        assert (after["on"], after["settings_file"], after["overruled"]) == (False, True, False)
        assert after["switch"] == {
            "on": False,
            "revision": 1795255200000,  # milliseconds: the time of the change
            "operator": "ann",
            "reason": "the link is down",
            "changed_by": OURS,
            "changed_at": "2026-11-21T10:00:00.000Z",
        }
        code, text = await typed(port, "redundancy", "show")
        assert code == 0
        assert f"Shadow redundancy is off on {OURS}" in text
        assert "Switched off at 2026-11-21T10:00:00.000Z" in text
        assert "by ann: the link is down" in text
        assert "it is of an older version, and goes by its settings file" in text
        assert (await typed(port, "redundancy", "on"))[0] == 2, "a reason is needed"
        code, text = await typed(port, "redundancy", "on", "--reason", "it is up")
        assert (code, f"Shadow redundancy is on on {OURS}" in text) == (0, True)


async def test_a_redirect_that_is_not_begun_says_why(node: FakeNode) -> None:
    async with serving(node) as port:
        assert (await ask(port, "/api/v1/redirect")).json == {"name": OURS, "running": False, "to": None}
        got = await ask(port, f"/api/v1/redirect/{MX2}", **JSON)
        assert (got.status, got.json["error"]) == (409, f"{MX2} takes no mail now: the disk is full")
        code, text = await typed(port, "redirect", "--to", "mx2")
        assert (code, "the disk is full" in text) == (1, True)
        code, text = await typed(port, "redirect", "--stop")
        assert (code, text) == (0, f"{OURS} redirects nothing\n")
        assert (await typed(port, "redirect"))[0] == 2


@pytest.mark.slow
async def test_after_ctrl_c_the_redirect_is_stopped_and_what_is_left_is_told(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redirect, "GOODBYE", 0.1)
    node.full = False  # type: ignore[attr-defined]
    await fill(node, received(1, None), received(2, MX2))
    async with serving(node) as port:
        command = [sys.executable, "-m", "shadowrelay", "redirect", "--to", "mx2"]
        running = await asyncio.create_subprocess_exec(
            *command, "--admin", f"http://127.0.0.1:{port}", stdout=asyncio.subprocess.PIPE
        )

        async def begun() -> bool:
            return node.redirecting.running

        await eventually(begun)
        running.send_signal(signal.SIGINT)
        out, _ = await running.communicate()
        assert running.returncode == 130
        assert f"The redirect to {MX2} was stopped" in out.decode()
        assert f"2 messages from before the redirect still in the queue of {OURS}" in out.decode()
        assert not node.redirecting.running


async def test_a_redirect_while_redundancy_is_off_is_refused(node: FakeNode) -> None:
    await node.redundancy.turn(on=False, operator="ann", reason="x")
    async with serving(node) as port:
        got = await ask(port, f"/api/v1/redirect/{MX2}", **JSON)
        assert (got.status, "shadow redundancy is off" in got.json["error"]) == (409, True)


async def test_a_status_says_that_redundancy_is_off(node: FakeNode) -> None:
    async with serving(node) as port:
        assert "REDUNDANCY IS OFF" not in (await typed(port, "status"))[1]
        node.redundant = False
        assert "SHADOW REDUNDANCY IS OFF" in (await typed(port, "status"))[1]


async def test_text_that_is_no_unicode_is_refused_before_anything_is_done(node: FakeNode) -> None:
    body = b'{"operator": "ann", "reason": "\\udc80", "value": false}'
    async with serving(node) as port:
        answer = await ask(port, "/api/v1/redundancy", body=body, **JSON)
    assert (answer.status, "no Unicode" in answer.text) == (400, True)
