"""The commands that show damage and look for it, against a real API and a real scrub."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from admin.admin_node import (
    MX2,
    MX3,
    FakeNode,
    a_node,
    damaged,
    fill,
    held,
    meet,
    message_id,
    received,
    serving,
    spoilt,
    unbelievable,
)
from click.testing import CliRunner, Result

from shadowrelay.cli import main, progress
from shadowrelay.cli import scrub as command
from shadowrelay.database.opening import Salvaged

FOUND = "the octets differ from the digest"


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[FakeNode]:
    async with a_node(tmp_path) as made:
        await fill(made, meet(MX2), meet(MX3), received(1, MX2), received(2, MX2), held(3, MX2))
        yield made


async def run(node: FakeNode, *arguments: str, answer: str = "") -> Result:
    """The command in a thread of its own: it waits for the node, which lives in our loop."""
    async with serving(node) as port:
        runner = CliRunner(env={"SHADOWRELAY_ADMIN": f"http://127.0.0.1:{port}"})
        return await asyncio.to_thread(runner.invoke, main, list(arguments), answer)


async def scrubbed(node: FakeNode, *arguments: str) -> Result:
    scrubbing = asyncio.create_task(node.scrub.run())
    try:
        return await run(node, "scrub", *arguments)
    finally:
        scrubbing.cancel()


async def test_status_says_what_no_member_can_send_before_what_waits(node):
    await fill(node, damaged(1, aside=True), damaged(2), damaged(3))
    text = (await run(node, "status")).stdout
    everywhere = text.index("DAMAGED EVERYWHERE: no member has a good copy of 1 message, which waits for you")
    assert everywhere < text.index("DAMAGED: 2 messages wait for a good copy") < text.index("\nBacklog")
    assert "At risk: 0" not in text  # there may be one good copy of them


async def test_what_is_damaged_everywhere_has_no_second_copy(node):
    await fill(node, damaged(1, aside=True))
    text = (await run(node, "status")).stdout
    assert "DAMAGED EVERYWHERE" in text
    assert "has a second copy" not in text


async def test_status_without_damage_tells_of_the_scrub_alone(node):
    text = (await run(node, "status")).stdout
    assert "DAMAGED" not in text
    assert "Damaged: 0" in text
    assert "CORRUPT" not in text
    assert "Scrub: not complete yet; only when asked for (scrub_interval is 0)" in text
    node.scrub.interval = timedelta(days=1)
    await scrubbed(node)
    text = (await run(node, "status")).stdout
    assert "Scrub: complete at 2026-11-21T10:00:00.000Z; the present round has read " in text
    assert text.partition("the present round")[2].splitlines()[0].endswith(", and takes 1d")


async def test_status_tells_of_a_corrupt_database_until_the_next_start(node):
    kept = Path("/srv/transport.db.corrupt-20261121")
    for lost, did in (
        ({}, "no message is missing"),
        ({"message": 2}, "messages are missing, and members promote"),
    ):
        node.database.opened = replace(node.database.opened, salvaged=Salvaged(kept, lost))
        text = (await run(node, "status")).stdout
        assert "CORRUPT DATABASE at this start: its readable part was saved" in text
        assert did in text
        assert str(kept) in text


async def test_the_list_of_damaged_messages_has_those_whose_rows_cannot_be_believed(node):
    assert (
        "No message is damaged at this node: "
        in (await run(node, "message", "list", "--state", "damaged")).stdout
    )
    await fill(node, damaged(1), received(5, MX2), unbelievable(5, aside=True))
    lines = (await run(node, "message", "list", "--state", "damaged")).stdout.splitlines()
    assert lines[1].split()[:4] == [message_id(1), "queued", "content", "1/1"]
    assert "bob@example.net" in lines[1]
    assert lines[2].startswith(f"{message_id(5)}  set_aside  rows")
    assert "settled: 2" in lines[2]
    assert "2026-11-21T10:00:00.000Z  the sum of a row differs" in lines[2]
    assert "queued, damaged" in (await run(node, "message", "list")).stdout
    aside = (await run(node, "message", "list", "--state", "set_aside")).stdout
    assert f"{message_id(5)}  set_aside, damaged" in aside


async def test_a_damaged_message_shows_what_was_found_and_whom_it_waits_for(node):
    await fill(node, damaged(1), damaged(2, aside=True))
    node.unasked, node.logged = [MX3], ("2026-11-20T00:00:00.000Z", FOUND)
    waiting = (await run(node, "message", "show", message_id(1))).stdout
    assert "content: the octets here differ from the digest" in waiting
    assert "2026-11-20T00:00:00.000Z" in waiting
    assert f"not yet asked: {MX3}" in waiting
    assert "waits for a good copy" in waiting
    aside = (await run(node, "message", "show", message_id(2))).stdout
    assert "no member has one: resume asks them again, bounce gives the message up" in aside
    sound = (await run(node, "message", "show", message_id(3))).stdout
    assert "good copy" not in sound
    await fill(node, damaged(3))
    held_here = (await run(node, "message", "show", message_id(3))).stdout
    assert "its owner makes another one" in held_here
    assert "not yet asked" not in held_here


async def test_a_message_whose_rows_cannot_be_believed_shows_what_is_known(node):
    await fill(node, unbelievable(1, aside=True))
    shown = (await run(node, "message", "show", message_id(1))).stdout
    assert "settled recipients  2: delivered" in shown
    assert "the sum of a row differs" in shown
    assert "drop gives the message up" in shown
    answer = json.loads((await run(node, "message", "show", message_id(1), "--json")).stdout)
    assert (answer["damage"], answer["state"]) == ("rows", "set_aside")


async def test_resume_of_a_damaged_message_says_that_it_does_not_go_out(node):
    await fill(node, damaged(1, aside=True))
    said = (await run(node, "message", "resume", message_id(1))).stdout
    assert "it is damaged: a good copy is looked for again, here and at every member" in said


async def test_drop_asks_first_and_says_that_nobody_was_told(node):
    await fill(node, unbelievable(1, aside=True))
    refused = await run(node, "message", "drop", message_id(1), answer="n\n")
    assert refused.exit_code == 1
    assert "nobody is told" in refused.stderr
    assert await node.database.transact(lambda ledger: ledger.damaged(message_id(1)))
    done = await run(node, "message", "drop", message_id(1), "--yes")
    assert "it is forgotten, and nobody was told" in done.stdout
    assert await node.database.transact(lambda ledger: ledger.damaged(message_id(1))) is None
    again = await run(node, "message", "drop", message_id(1), "--yes")
    assert again.exit_code == 1


async def test_a_scrub_of_what_is_sound_ends_with_status_0(node):
    done = await scrubbed(node)
    assert done.exit_code == 0, done.output
    assert ["messages", "3", "in"] in [line.split()[:3] for line in done.stdout.splitlines()]


async def test_a_scrub_that_finds_damage_ends_with_status_1_and_says_how_much(node):
    await fill(node, spoilt(1), spoilt(3))
    done = await scrubbed(node)
    assert done.exit_code == 1
    counts = {line.split("  ")[0].strip(): line.split() for line in done.stdout.splitlines()}
    assert counts["damaged content"][2] == "2"
    assert counts["damaged rows"][2] == "0"
    again = await scrubbed(node, "--json")
    assert again.exit_code == 1, "no good copy has come yet"
    answer = again.stdout[again.stdout.index("{") :]  # behind what the node says in this process
    assert json.loads(answer)["damaged_content"] == 2


async def test_a_scrub_counts_rows_that_were_found_damaged_before_it(node):
    await fill(node, unbelievable(1))
    done = await scrubbed(node)
    assert done.exit_code == 1
    counts = {line.split("  ")[0].strip(): line.split() for line in done.stdout.splitlines()}
    assert counts["damaged rows"][2] == "1"


async def test_a_scrub_shows_how_far_it_is(node, monkeypatch):
    await fill(node, *(received(number, MX2) for number in range(10, 1200)))
    monkeypatch.setattr(progress, "EVERY", 0.0)
    monkeypatch.setattr(command, "_POLL", 0.001)
    done = await scrubbed(node)
    told = [line for line in done.stderr.splitlines() if line.startswith("scrub: ")]
    assert any("of 1193 messages" in line for line in told)
    assert len({line.split(" of ")[0] for line in told}) > 2


async def test_ctrl_c_leaves_the_round_to_go_on_at_its_usual_pace(node, monkeypatch):
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupt)
    for interval, told in (
        (timedelta(days=1), "The round goes on at its usual pace"),
        (timedelta(0), "ends"),
    ):
        node.scrub.interval = interval
        done = await run(node, "scrub")
        assert done.exit_code == 130
        assert told in done.stderr
        assert not node.scrub._hurry.is_set()
