"""What an operator sees of damage, and can do about it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from admin_node import (
    MX2,
    MX3,
    NOW,
    FakeNode,
    Got,
    a_node,
    ask,
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

from shadowrelay.core.decisions import Decision, SaveCopy
from shadowrelay.core.members.damage import dropped
from shadowrelay.core.messages import Damage, Stage
from shadowrelay.core.values import replace as changed
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.opening import Salvaged
from shadowrelay.database.queue import claim, damaged_messages, due_hops
from shadowrelay.members.scrub import Scrub

SOUND, BAD, HELD, ASIDE, ROWS, ROWS_ASIDE, OTHER = map(message_id, range(1, 8))
SEEN = "2026-11-21T10:00:00.000Z"


def of_another_maker(ledger: SqlLedger) -> None:
    copy = ledger.copy(OTHER)
    assert copy
    after = changed(copy, damage=Damage.OTHER_MAKER)
    ledger.apply(Decision(None, (SaveCopy(copy, after),)))


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[FakeNode]:
    async with a_node(tmp_path) as made:
        await fill(made, meet(MX2), meet(MX3), *(received(number, MX2) for number in (1, 2, 4, 5, 6)))
        await fill(made, held(3, MX2), held(7, MX3), of_another_maker)
        await fill(made, damaged(2), damaged(3), damaged(4, aside=True))
        await fill(made, unbelievable(5), unbelievable(6, aside=True))
        yield made


async def get(node: FakeNode, target: str) -> Any:
    async with serving(node) as port:
        got = await ask(port, f"/api/v1/{target}")
    assert got.status == 200
    return got.json


async def change(node: FakeNode, target: str, method: str = "POST") -> Got:
    async with serving(node) as port:
        return await ask(port, f"/api/v1/{target}", method, content_type="application/json")


async def ids(node: FakeNode, query: str) -> list[str]:
    return [item["id"] for item in (await get(node, f"messages?{query}"))["messages"]]


async def test_status_counts_what_waits_for_a_good_copy_and_what_nobody_has_one_of(node):
    status = await get(node, "status")
    assert (status["damaged"], status["damaged_aside"], status["set_aside"]) == (3, 2, 2)


async def test_damaged_messages_are_listed_whatever_is_damaged_of_them(node):
    assert await ids(node, "state=damaged") == [BAD, HELD, ASIDE, ROWS, ROWS_ASIDE]
    first = await get(node, "messages?state=damaged&limit=4")
    assert first["next"] == ROWS
    assert await ids(node, f"state=damaged&after={ROWS}") == [ROWS_ASIDE]


async def test_they_are_marked_in_their_ordinary_lists_too(node):
    queued = (await get(node, "messages?state=queued"))["messages"]
    assert [(item["id"], item["damage"]) for item in queued] == [(SOUND, None), (BAD, "content")]
    aside = (await get(node, "messages?state=set_aside"))["messages"]
    assert [(item["id"], item["damage"]) for item in aside] == [(ASIDE, "content"), (ROWS_ASIDE, "rows")]


async def test_rows_that_cannot_be_believed_show_what_is_known_of_the_message(node):
    waiting, aside = (await get(node, "messages?state=damaged"))["messages"][3:]
    assert (waiting["state"], aside["state"]) == ("damaged", "set_aside")
    assert waiting["found_at"] == SEEN
    assert waiting["why"] == "the sum of a row differs"
    assert waiting["settled"] == [{"number": 2, "status": "delivered"}]
    assert waiting["sender"] is waiting["recipients"] is None


async def test_a_damaged_message_shows_what_was_found_and_whom_it_waits_for(node):
    node.unasked, node.logged = [MX3], ("2026-11-20T00:00:00.000Z", "it is short")
    content, rows = await get(node, f"messages/{BAD}"), await get(node, f"messages/{ROWS}")
    assert (content["found_at"], content["why"]) == ("2026-11-20T00:00:00.000Z", "it is short")
    assert content["waits_for"] == rows["waits_for"] == [MX3]
    assert {item["doing"] for item in content["recipients"]} == {"waits for a good copy"}
    for nobody_has_one in (ASIDE, ROWS_ASIDE):
        assert (await get(node, f"messages/{nobody_has_one}"))["waits_for"] == []
    assert "why" not in await get(node, f"messages/{SOUND}")


async def test_it_is_found_by_the_beginning_of_its_id_like_any_other(node):
    assert (await get(node, f"messages/{ROWS[:-1]}5"))["id"] == ROWS
    async with serving(node) as port:
        several = await ask(port, f"/api/v1/messages/{ROWS[:-1]}")
    assert (several.status, ROWS in several.json["error"]) == (400, True)


async def test_resume_of_a_damaged_message_sends_nothing_and_looks_for_a_good_copy_again(node):
    done = await change(node, f"messages/{ASIDE}/resume")
    assert done.status == 200
    assert "it is damaged: a good copy is looked for again" in done.json["did"]
    copy = await node.database.transact(lambda ledger: ledger.copy(ASIDE))
    assert (copy.stage, copy.damage) == (Stage.QUEUED, Damage.CONTENT)
    assert ASIDE in await node.database.transact(lambda ledger: damaged_messages(ledger, "", 9))
    for hop, _ in await node.database.transact(due_hops):
        claims = await node.database.transact(lambda ledger, hop=hop: claim(ledger, hop, NOW, 9))
        assert ASIDE not in {one.copy.id for one in claims}


async def test_resume_of_rows_that_cannot_be_believed_does_the_same(node):
    assert (await change(node, f"messages/{ROWS}/resume")).status == 409
    assert (await change(node, f"messages/{ROWS_ASIDE}/resume")).status == 200
    rows = await node.database.transact(lambda ledger: ledger.damaged(ROWS_ASIDE))
    assert (rows.set_aside, rows.settled[0][0]) == (False, 2)
    assert ROWS_ASIDE in await node.database.transact(lambda ledger: damaged_messages(ledger, "", 9))
    assert node.database.ledger.tracked["RESUME"] == 1


async def test_nobody_can_be_told_of_rows_that_cannot_be_believed(node):
    done = await change(node, f"messages/{ROWS_ASIDE}/bounce")
    assert done.status == 409
    assert "its sender is unknown" in done.json["error"]


async def test_only_what_nobody_has_a_good_copy_of_is_dropped_and_leaves_a_row_in_the_log(node):
    refused = [(await change(node, f"messages/{one}/drop")).status for one in (SOUND, BAD, ASIDE, ROWS)]
    assert refused == [409] * 4
    assert "still asked" in (await change(node, f"messages/{ROWS}/drop")).json["error"]
    assert (await change(node, f"messages/{ROWS_ASIDE}/drop")).status == 200
    assert ROWS_ASIDE not in await ids(node, "state=damaged")
    assert await node.database.transact(lambda ledger: ledger.knows(ROWS_ASIDE)) is False
    assert node.database.ledger.tracked["DROP"] == 1
    assert (await change(node, f"messages/{ROWS_ASIDE}/drop")).status == 409
    assert await node.database.transact(lambda ledger: dropped(ledger, ROWS_ASIDE, NOW).then) is False


async def test_a_corrupt_database_is_shown_until_the_next_start(node):
    assert (await get(node, "status"))["corrupt_database"] is None
    found = Salvaged(Path("/srv/transport.db.corrupt-x"), {"message": 3})
    node.database.opened = replace(node.database.opened, salvaged=found)
    assert (await get(node, "status"))["corrupt_database"] == {
        "outcome": "salvaged",
        "kept_as": "/srv/transport.db.corrupt-x",
        "lost": {"message": 3},
        "messages_missing": True,
    }
    aside = replace(node.database.opened, salvaged=None, set_aside=Path("/srv/transport.db.corrupt-y"))
    node.database.opened = aside
    shown = (await get(node, "status"))["corrupt_database"]
    assert (shown["outcome"], shown["kept_as"]) == ("set_aside", "/srv/transport.db.corrupt-y")


async def test_a_scrub_that_is_begun_tells_what_it_finds(node):
    scrubbing = asyncio.create_task(node.scrub.run())
    await fill(node, spoilt(1))
    before = await get(node, "scrub")
    assert (before["round"], before["progress"], before["last"]) == (0, None, None)
    begun = (await change(node, "scrub")).json["begun"]
    while (last := (await get(node, "scrub"))["last"]) is None or last["round"] < begun:
        pass
    scrubbing.cancel()
    assert (last["damaged_content"], last["damaged_rows"], last["messages"]) == (4, 2, 7)
    assert last["complete_at"] == (await get(node, "scrub"))["complete_at"] == SEEN


async def test_nobody_waits_for_a_scrub_any_more_and_it_rests(node):
    node.scrub = Scrub(
        node.scrub._examiner,
        node.scrub._inquiry,
        frozenset,
        timedelta(days=1),
        node.scrub._clock,
        node.scrub._indexes,
    )
    node.scrub.begin_at_once()
    scrubbing = asyncio.create_task(node.scrub.run())
    while not node.scrub.now.at_once:  # noqa: ASYNC110
        await asyncio.sleep(0)
    left = (await change(node, "scrub", "DELETE")).json
    assert (left["at_once"], left["interval"], left["last"]) == (False, 86_400, None)
    again = (await change(node, "scrub")).json
    assert again["begun"] == left["round"] + 1
    scrubbing.cancel()
