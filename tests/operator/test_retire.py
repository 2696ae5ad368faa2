"""``POST /api/v1/peers/NAME/retire``: an operator says that a member is gone for good."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from admin_node import (
    MX2,
    MX3,
    FakeNode,
    Got,
    a_node,
    ask,
    attempted,
    fill,
    held,
    meet,
    message_id,
    peer,
    received,
    serving,
)

from shadowrelay.admin.node import MemberState
from shadowrelay.core.delivery.settling import Ending

ASKED: dict[str, Any] = {"method": "POST", "body": b"{}", "content_type": "application/json"}
TARGET = f"/api/v1/peers/{MX2}/retire"


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[FakeNode]:
    async with a_node(tmp_path) as made:
        await fill(made, meet(MX2), meet(MX3))
        made.statuses = [peer(MX2, MemberState.UNREACHABLE, failures=3), peer(MX3)]
        yield made


async def retire(port: int, **headers: str) -> Got:
    return await ask(port, TARGET, **(ASKED | headers))


async def test_what_is_held_for_it_is_to_be_promoted_and_its_copies_no_longer_count(node):
    await fill(node, received(1, MX2), received(2, MX3), held(3, MX2), held(4, MX3))
    await fill(node, received(5, MX2), attempted(5, Ending.ACCEPTED, "250 ok"))
    async with serving(node) as port:
        got = await retire(port)
        status = (await ask(port, "/api/v1/status")).json
        taken = (await ask(port, f"/api/v1/messages/{message_id(3)}")).json
    assert got.status == 200
    assert (got.json["promoted"], got.json["copies_lost"], got.json["already"]) == (1, 1, False)
    assert got.json["did"][0].startswith(f"{MX2} was marked retired on this node:")
    assert (taken["role"], taken["pending"], taken["epoch"]) == ("shadow", "owner-retired", 1)
    assert (status["queued"], status["shadow_held"], status["exposed"]) == (2, 2, 1)
    retired = {found["name"]: found["retired"] for found in status["peers"]}
    assert retired == {MX2: True, MX3: False}
    assert node.told_of == [MX2]


async def test_no_discard_event_waits_for_it_any_more(node):
    await fill(node, received(5, MX2), attempted(5, Ending.ACCEPTED, "250 ok"), held(3, MX2))
    async with serving(node) as port:
        assert (await ask(port, "/api/v1/peers")).json["peers"][0]["events_waiting"] == 1
        assert (await retire(port)).json["events_dropped"] == 1
        assert (await ask(port, "/api/v1/status")).json["discard_events"] == 0


async def test_it_is_durable_and_repeating_it_changes_nothing(node):
    async with serving(node) as port:
        await retire(port)
        again = (await retire(port)).json
    assert (again["already"], again["promoted"], again["copies_lost"]) == (True, 0, 0)
    member = await node.database.transact(lambda ledger: ledger.member(MX2))
    assert member.retired


@pytest.mark.parametrize("state", [MemberState.REACHABLE, MemberState.UNTRIED])
async def test_a_member_that_answers_or_was_not_tried_cannot_be_retired(node, state):
    node.statuses[0] = peer(MX2, state)
    async with serving(node) as port:
        got = await retire(port)
    assert got.status == 409
    assert not (await node.database.transact(lambda ledger: ledger.member(MX2))).retired
    assert node.told_of == []


async def test_a_member_that_only_the_database_knows_can_be_retired(node):
    node.statuses = [peer(MX3)]
    async with serving(node) as port:
        before = (await ask(port, "/api/v1/peers")).json["peers"]
        assert (await retire(port)).status == 200
    assert before[1]["state"] == "not_configured"
    assert f"shadowrelay peer retire {MX2}" in before[1]["next"]


async def test_an_unknown_member_is_404(node):
    async with serving(node) as port:
        got = await ask(port, "/api/v1/peers/mx9.example.net/retire", **ASKED)
    assert got.status == 404
    assert MX2 in got.json["error"]


async def test_a_page_of_another_site_cannot_retire_a_member(node):
    forged = [
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"origin": "http://evil.test"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://[broken"}, 403),
        ({"origin": "http://[broken", "host": "[broken"}, 403),
        ({"origin": "http://rebound.test:1", "host": "rebound.test:1"}, 403),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/x-www-form-urlencoded"}, 415),
    ]
    async with serving(node) as port:
        for headers, status in forged:
            assert (await retire(port, **headers)).status == status, headers
    assert not (await node.database.transact(lambda ledger: ledger.member(MX2))).retired


async def test_a_page_of_the_node_itself_may(node):
    async with serving(node) as port:
        got = await retire(port, origin=f"http://127.0.0.1:{port}", sec_fetch_site="same-origin")
    assert got.status == 200
