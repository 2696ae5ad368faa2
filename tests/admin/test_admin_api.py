"""The admin API over HTTP, on a database that core's decisions filled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from admin_node import (
    MX2,
    MX3,
    NOW,
    OURS,
    FakeNode,
    a_node,
    ask,
    attempted,
    damaged,
    fill,
    gone,
    held,
    kept_for_hop,
    meet,
    message_id,
    peer,
    received,
    serving,
    unbelievable,
    without_digests,
)
from starlette.routing import Route

from shadowrelay.admin import server
from shadowrelay.admin.api import build_app
from shadowrelay.admin.node import HopStatus, MemberState, RefusalView
from shadowrelay.core.decisions import Decision, Outcome
from shadowrelay.core.delivery.operated import suspend
from shadowrelay.core.delivery.settling import Ending
from shadowrelay.core.digests import of_content
from shadowrelay.core.hops import Handed
from shadowrelay.core.identifiers import DatabaseId, NextHop, RequestId, ServerName
from shadowrelay.core.members.damage import digested
from shadowrelay.core.messages import FOREVER
from shadowrelay.core.operating import By
from shadowrelay.core.ownership.heartbeat import cut_off
from shadowrelay.core.suspensions import Suspension
from shadowrelay.core.tracking_row import timestamp
from shadowrelay.database import queue_views
from shadowrelay.database.queue import claim

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"
REFUSAL = RefusalView(MX3, "550 5.7.1 no", NOW)
UNREACHABLE = peer(
    MX2,
    MemberState.UNREACHABLE,
    since=NOW - timedelta(minutes=12),
    step="connect",
    error="connection refused",
    failures=1,
    losing_in=2,
    promoting_in=timedelta(hours=2, minutes=48),
)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[FakeNode]:
    async with a_node(tmp_path) as made:
        await fill(made, meet(MX2), meet(MX3))
        yield made


async def test_status_counts_shadow_copies_apart_from_the_backlog(node):
    await fill(node, received(1, MX2), received(2, None), held(3, MX2), held(4, MX3), held(5, MX3))
    await fill(node, received(6, MX3), attempted(6, Ending.ACCEPTED, "250 2.0.0 ok"))
    async with serving(node) as port:
        got = await ask(port, "/api/v1/status")
    assert got.status == 200
    assert got.headers["content-type"] == "application/json"
    status = got.json
    assert (status["queued"], status["exposed"], status["shadow_held"], status["safety_net"]) == (2, 1, 3, 1)
    assert (status["in_doubt"], status["asking"], status["set_aside"]) == (0, 0, 0)
    assert status["name"] == OURS
    assert status["database_id"] == "our-database"
    assert status["incarnation"] == "1" * 16
    assert status["sequence"] == node.database.lineage.sequence > 0
    assert status["uptime"] == 3 * 3600
    assert status["oldest_queued"] == "2026-11-21T09:58:00.000Z"
    assert [item["name"] for item in status["peers"]] == [MX2, MX3]


@pytest.mark.parametrize(
    ("statuses", "risks", "listed"),
    [
        pytest.param([peer(MX2), peer(MX3)], [("exposed", "", 1)], [2], id="all are reached"),
        pytest.param(
            [UNREACHABLE, peer(MX3)],
            [("exposed", "", 1), ("owner_away", MX2, 1), ("holder_away", MX2, 2)],
            [1, 2, 3, 7],
            id="one is away",
        ),
        pytest.param(
            [replace(UNREACHABLE, seen_by=MX3), peer(MX3)],
            [("exposed", "", 1), ("holder_away", MX2, 2)],
            [1, 2, 7],
            id="another member has contact with the owner",
        ),
        pytest.param(
            [UNREACHABLE, replace(UNREACHABLE, name=MX3)],
            [
                ("exposed", "", 1),
                ("owner_away", MX2, 1),
                ("owner_away", MX3, 2),
                ("holder_away", MX2, 2),
                ("holder_away", MX3, 1),
            ],
            [1, 2, 3, 4, 5, 6, 7],
            id="two are away",
        ),
    ],
)
async def test_a_message_is_at_risk_while_one_copy_can_be_reached(node, statuses, risks, listed):
    await fill(node, received(1, MX2), received(2, None), held(3, MX2), held(4, MX3), held(5, MX3))
    await fill(node, received(6, MX3), received(7, MX2))
    node.statuses = statuses
    async with serving(node) as port:
        status = (await ask(port, "/api/v1/status")).json
        page = (await ask(port, "/api/v1/messages?state=at_risk")).json["messages"]
        first = (await ask(port, "/api/v1/messages?state=at_risk&limit=1")).json
        metrics = (await ask(port, "/metrics")).text
    assert [(one["cause"], one["member"], one["messages"]) for one in status["risks"]] == risks
    assert [one["id"] for one in page] == [message_id(number) for number in listed]
    assert status["at_risk"] == len(listed)
    assert f"shadowrelay_at_risk_messages {len(listed)}.0\n" in metrics
    assert bool(first["next"]) == (len(listed) > 1)


async def test_copies_that_are_about_to_be_promoted_are_at_risk_though_their_owner_is_back(node):
    await fill(node, held(3, MX2), held(4, MX3), held(5, MX3))
    await fill(node, gone(MX3))
    node.statuses = [peer(MX2), peer(MX3)]
    async with serving(node) as port:
        status = (await ask(port, "/api/v1/status")).json
        page = (await ask(port, "/api/v1/messages?state=at_risk")).json["messages"]
    assert [(one["cause"], one["member"], one["messages"]) for one in status["risks"]] == [
        ("promoting", MX3, 2)
    ]
    assert [one["id"] for one in page] == [message_id(4), message_id(5)]


async def test_copies_that_are_about_to_be_promoted_are_counted_for_there_may_be_no_others(node):
    await fill(node, held(3, MX2), held(4, MX3), held(5, MX3))
    await fill(node, gone(MX3))
    async with serving(node) as port:
        status = (await ask(port, "/api/v1/status")).json
    assert (status["promoting"], status["shadow_held"], status["exposed"]) == (2, 3, 0)


async def test_a_message_shows_its_digests_and_whether_they_are_late(node):
    await fill(node, received(1, MX2), received(2, MX2), without_digests(2))
    async with serving(node) as port:
        known, old = (await ask(port, "/api/v1/messages")).json["messages"]
        assert old["digests"] is None
        await fill(node, lambda ledger: ledger.apply(digested(ledger, message_id(2), of_content(b"body"))))
        late = (await ask(port, f"/api/v1/messages/{message_id(2)}")).json
    assert known["digests"]["content"] == late["digests"]["content"] == of_content(b"body")
    assert (known["digests"]["late"], late["digests"]["late"]) == (False, True)
    assert (known["damage"], late["damage"]) == (None, None)


async def test_status_of_an_empty_node_is_all_zero(node):
    async with serving(node) as port:
        status = (await ask(port, "/api/v1/status")).json
    assert [status[key] for key in ("queued", "exposed", "shadow_held", "safety_net")] == [0, 0, 0, 0]
    assert status["oldest_queued"] is None


async def test_a_peer_tells_since_when_why_and_what_happens_next(node):
    node.statuses = [UNREACHABLE, peer(MX3)]
    await fill(node, received(1, MX2), held(3, MX2), held(4, MX2))
    async with serving(node) as port:
        gone, fine = (await ask(port, "/api/v1/peers")).json["peers"]
    assert gone["state"] == "unreachable"
    assert gone["since"] == "2026-11-21T09:48:00.000Z"
    assert (gone["step"], gone["error"], gone["failures"]) == ("connect", "connection refused", 1)
    assert gone["next"] == (
        "its copies for us no longer count after 2 more failures; its messages are promoted in 2 h 48 min"
    )
    assert (gone["database_id"], gone["incarnation"], gone["sequence"]) == ("d2", "2" * 16, 5)
    assert (gone["shadow_held"], gone["holds_ours"]) == (2, 1)
    assert fine["next"] == ""


async def test_a_queue_shows_its_identity_oldest_next_attempt_and_last_error(node):
    await fill(
        node,
        received(9, MX2),
        attempted(9, Ending.DEFERRED, "451 4.7.1 try later"),
        received(3, MX2, "a@inside.test", "b@inside.test", "c@outside.test"),
        received(4, None, "d@inside.test"),
    )
    await fill(node, attempted(3, Ending.DEFERRED, "421 4.3.2 closing", 3))
    async with serving(node) as port:
        inside, outside = (await ask(port, "/api/v1/queues")).json["queues"]
    assert inside["identity"] == f"{OURS}\\inside"
    assert (inside["messages"], inside["recipients"], inside["exposed"]) == (2, 3, 1)
    assert inside["status"] == "ready"
    assert outside["status"] == "retry"
    assert outside["next_attempt"] == "2026-11-21T10:05:00.000Z"
    assert outside["oldest"] == "2026-11-21T09:51:00.000Z"
    assert outside["last_error"] in {"451 4.7.1 try later", "421 4.3.2 closing"}


@pytest.mark.parametrize(
    ("minutes", "hop", "overdue"),
    [
        (9, HopStatus(sessions=0, places=1, limit=""), "51"),
        (9, HopStatus(sessions=1, places=1, limit=""), None),
        (4, HopStatus(sessions=0, places=1, limit=""), None),
        (9, HopStatus(sessions=0, places=1, limit="", free_since=NOW - timedelta(minutes=4)), None),
        (9, HopStatus(sessions=0, places=1, limit="", free_since=NOW - timedelta(minutes=6)), "54"),
        (9, HopStatus(sessions=0, places=1, limit="", free_since=NOW - timedelta(days=1)), "51"),
    ],
    ids=[
        "though a session is free",
        "because no session is free",
        "for a short while",
        "what kept it ended a short while ago",
        "since what kept it ended",
        "nothing kept it then",
    ],
)
async def test_mail_that_nothing_keeps_and_nobody_sends_is_overdue(node, minutes, hop, overdue):
    await fill(node, received(3, MX2, "x@inside.test"), received(minutes, MX2))
    node.hops["outside"] = hop
    async with serving(node) as port:
        inside, outside = (await ask(port, "/api/v1/queues")).json["queues"]
        status = (await ask(port, "/api/v1/status")).json
    since = f"2026-11-21T09:{overdue}:00.000Z" if overdue else None
    assert (inside["overdue_since"], outside["overdue_since"], status["overdue_since"]) == (
        None,
        since,
        since,
    )
    told = f"overdue: mail is due since {since}, and nothing keeps it"
    assert (outside["status"], told in outside["why"]) == ("ready", bool(overdue))


async def test_mail_that_is_being_sent_is_not_overdue(node):
    await fill(node, received(9, MX2))
    await fill(node, lambda ledger: claim(ledger, NextHop("outside"), NOW, 10))
    node.hops["outside"] = HopStatus(sessions=1, places=2, limit="")
    async with serving(node) as port:
        (queue,) = (await ask(port, "/api/v1/queues")).json["queues"]
        status = (await ask(port, "/api/v1/status")).json
    assert (queue["status"], queue["overdue_since"], status["overdue_since"]) == ("active", None, None)


async def test_a_queue_is_active_while_it_sends_and_asking_while_members_are_asked(node):
    await fill(node, received(1, MX2), received(2, MX3, "x@inside.test"))
    await fill(node, lambda ledger: claim(ledger, NextHop("outside"), NOW, 10))
    await fill(node, lambda ledger: cut_off(ledger, MX3, frozenset(), NOW))
    async with serving(node) as port:
        inside, outside = (await ask(port, "/api/v1/queues")).json["queues"]
        asking = (await ask(port, "/api/v1/messages?state=asking")).json["messages"]
    assert (inside["status"], inside["asking"], inside["next_attempt"]) == ("asking", 1, None)
    assert (outside["status"], outside["active"]) == ("active", 1)
    assert [item["id"] for item in asking] == [message_id(2)]


async def test_a_queue_of_which_every_message_is_suspended_says_so(node):
    await fill(node, received(1, MX2))
    by = By("ann", "spam", RequestId("01900000-0000-7000-9000-0000000000aa"))
    await fill(node, lambda ledger: ledger.apply(suspend(ledger, message_id(1), None, by, NOW)))
    async with serving(node) as port:
        queues = (await ask(port, "/api/v1/queues")).json["queues"]
    assert {(one["status"], one["asking"], one["next_attempt"]) for one in queues} == {("suspended", 0, None)}


def resting(until: timedelta) -> HopStatus:
    return HopStatus(
        sessions=0,
        places=1,
        limit="",
        failures=3,
        error="connect: refused",
        rests_until=NOW + until,
    )


@pytest.mark.parametrize("until", [None, NOW + timedelta(hours=2)])
async def test_suspended_mail_has_no_attempt_before_its_suspension_ends(node, until):
    await fill(node, received(1, MX2), attempted(1, Ending.DEFERRED, "451 4.4.1 connect: refused"))
    by, ends = (
        By("ann", "spam", RequestId("01900000-0000-7000-9000-0000000000aa")),
        until and timestamp(until),
    )
    stopped = HopStatus(sessions=0, places=1, limit="", suspension=suspension("a repair", until))

    async def told() -> list[Any]:
        async with serving(node) as port:
            (queue,) = (await ask(port, "/api/v1/queues")).json["queues"]
            shown = (await ask(port, f"/api/v1/messages/{message_id(1)}")).json["recipients"][0]
        assert (queue["status"], shown["doing"]) == ("suspended", "suspended")
        return [queue["next_attempt"], shown["next_attempt"], shown["why"]]

    node.hops["outside"] = stopped
    assert await told() == [ends, ends, "ann suspended the queue: a repair"]
    del node.hops["outside"]
    await fill(
        node,
        lambda ledger: ledger.apply(suspend(ledger, message_id(1), None, by, NOW, until=until or FOREVER)),
    )
    assert await told() == [ends, ends, "an operator suspended it"]
    # Of two suspensions the later end counts: the message goes on when both are over.
    later = NOW + timedelta(hours=3)
    node.hops["outside"] = replace(stopped, suspension=suspension("a repair", later))
    assert await told() == [
        until and timestamp(later),
        until and timestamp(later),
        "an operator suspended it",
    ]


def suspension(reason: str, until: datetime | None) -> Suspension:
    return Suspension(
        id=RequestId(message_id(9)),
        next_hop=NextHop("outside"),
        operator="ann",
        reason=reason,
        suspended=True,
        until=until,
        changed_by=MX2,
        changed_at=NOW,
    )


async def test_a_queue_whose_next_hop_rests_says_until_when_and_why(node):
    await fill(node, received(1, MX2), received(2, MX2, "x@inside.test"))
    node.hops["outside"] = resting(timedelta(minutes=7))
    async with serving(node) as port:
        inside, outside = (await ask(port, "/api/v1/queues")).json["queues"]
        shown = (await ask(port, f"/api/v1/messages/{message_id(1)}")).json["recipients"][0]
        other = (await ask(port, f"/api/v1/messages/{message_id(2)}")).json["recipients"][0]
    assert (outside["status"], outside["waiting"], outside["failures"]) == ("resting", 1, 3)
    assert outside["rests_until"] == outside["next_attempt"] == "2026-11-21T10:07:00.000Z"
    assert outside["why"] == (
        "the next hop rests until 2026-11-21T10:07:00.000Z: it failed 3 times, at last connect: refused"
    )
    assert (shown["why"], shown["next_attempt"]) == (outside["why"], outside["next_attempt"])
    assert (inside["status"], inside["why"], inside["rests_until"]) == ("ready", "", None)
    assert (other["why"], other["next_attempt"]) == ("", None)


async def test_mail_that_was_put_off_for_longer_than_its_next_hop_rests_keeps_its_time(node):
    await fill(node, received(1, MX2), attempted(1, Ending.DEFERRED, "451 4.4.1 connect: refused"))
    node.hops["outside"] = resting(timedelta(minutes=1))
    async with serving(node) as port:
        (queue,) = (await ask(port, "/api/v1/queues")).json["queues"]
        shown = (await ask(port, f"/api/v1/messages/{message_id(1)}")).json["recipients"][0]
    assert (queue["status"], queue["waiting"]) == ("resting", 0)
    assert "rests until 2026-11-21T10:01:00.000Z" in queue["why"]
    assert queue["next_attempt"] == shown["next_attempt"] == "2026-11-21T10:05:00.000Z"


async def test_a_rest_that_is_over_is_none_and_one_session_tries_the_hop_first(node):
    await fill(node, received(1, MX2))
    node.hops["outside"] = resting(timedelta(0))
    async with serving(node) as port:
        (before,) = (await ask(port, "/api/v1/queues")).json["queues"]
        node.hops["outside"] = replace(node.hops["outside"], sessions=1)
        (probed,) = (await ask(port, "/api/v1/queues")).json["queues"]
    assert (before["status"], before["why"], before["rests_until"]) == ("ready", "", None)
    assert probed["why"] == (
        "one session tries the next hop first: it failed 3 times, at last connect: refused"
    )


async def test_messages_that_wait_for_a_free_session_are_counted_and_told_the_limit(node):
    await fill(node, *(received(number, MX2) for number in (1, 2, 3)))
    await fill(node, lambda ledger: claim(ledger, NextHop("outside"), NOW, 1))
    node.hops["outside"] = HopStatus(sessions=1, places=1, limit="max_outbound_connections")
    async with serving(node) as port:
        (queue,) = (await ask(port, "/api/v1/queues")).json["queues"]
        sent, *waiting = [
            (await ask(port, f"/api/v1/messages/{message_id(number)}")).json["recipients"][0]
            for number in (3, 1, 2)  # the oldest first
        ]
    told = "no session is free: 1 of 1 in use (max_outbound_connections)"
    assert (queue["status"], queue["active"], queue["waiting"], queue["why"]) == ("active", 1, 2, told)
    assert (sent["doing"], sent["why"]) == ("active", "")
    assert [item["why"] for item in waiting] == [told, told]


async def test_a_queue_says_what_its_next_hop_is_waited_for_and_since_when(node):
    await fill(node, received(1, MX2))
    await fill(node, lambda ledger: claim(ledger, NextHop("outside"), NOW, 1))
    since = NOW - timedelta(seconds=90)
    node.hops["outside"] = HopStatus(sessions=1, places=9, limit="", awaits="greeting", awaits_since=since)
    async with serving(node) as port:
        (queue,) = (await ask(port, "/api/v1/queues")).json["queues"]
    assert (queue["awaits"], queue["awaits_since"]) == ("greeting", "2026-11-21T09:58:30.000Z")
    assert queue["why"] == "has waited for the greeting of the next hop since 2026-11-21T09:58:30.000Z"


async def test_a_queue_with_nothing_due_waits_for_no_session(node):
    await fill(node, received(1, MX2), received(2, MX2), attempted(2, Ending.DEFERRED, "451 later"))
    await fill(node, lambda ledger: claim(ledger, NextHop("outside"), NOW, 1))
    node.hops["outside"] = HopStatus(sessions=1, places=1, limit="max_outbound_connections")
    async with serving(node) as port:
        (queue,) = (await ask(port, "/api/v1/queues")).json["queues"]
    assert (queue["active"], queue["waiting"], queue["why"]) == (1, 0, "")


async def test_a_shadow_queue_is_named_after_its_primary_and_lists_its_next_hops(node):
    node.statuses = [UNREACHABLE, peer(MX3)]
    await fill(
        node,
        held(3, MX2, "a@b.test", "c@inside.test"),
        held(4, MX2),
        held(5, MX3, "e@inside.test"),
        received(1, MX2),
    )
    async with serving(node) as port:
        first, second = (await ask(port, "/api/v1/shadow-queues")).json["shadow_queues"]
        assert (await ask(port, "/api/v1/queues")).json["queues"][0]["messages"] == 1
    assert first["identity"] == f"{OURS}\\Shadow\\{MX2}"
    assert first["messages"] == 2
    assert first["next_hops"] == [
        {"next_hop": "inside", "messages": 1, "recipients": 1},
        {"next_hop": "outside", "messages": 2, "recipients": 2},
    ]
    assert [found["next_hop"] for found in second["next_hops"]] == ["inside"]
    assert (first["primary_state"], second["primary_state"]) == ("unreachable", "reachable")
    assert "promoted in 2 h 48 min" in first["next"]


async def test_a_long_queue_is_read_part_by_part_and_shows_the_same(node, monkeypatch: pytest.MonkeyPatch):
    await fill(
        node,
        *(received(number, MX2, "a@inside.test", "b@outside.test") for number in range(1, 4)),
        received(4, None),
        attempted(2, Ending.DEFERRED, "451 4.7.1 try later", 2),
        *(held(number, MX2, "a@b.test", "c@d.test") for number in range(5, 8)),
        held(8, MX3),
    )
    async with serving(node) as port:
        whole = [(await ask(port, f"/api/v1/{which}")).json for which in ("queues", "shadow-queues")]
        for most in (1, 2, 4):
            monkeypatch.setattr(queue_views, "PART", most)
            parts = [(await ask(port, f"/api/v1/{which}")).json for which in ("queues", "shadow-queues")]
            assert parts == whole
    assert [queue["messages"] for queue in whole[0]["queues"]] == [3, 4]


async def test_while_a_node_is_opening_it_shows_what_it_has_and_changes_nothing(node):
    await fill(node, received(1, MX2))
    node.opening = True
    async with serving(node) as port:
        assert (await ask(port, "/api/v1/status")).json["queued"] == 1
        for target in (
            f"/api/v1/messages/{message_id(1)}/resume",
            f"/api/v1/peers/{MX2}/retire",
            "/api/v1/drain/begin",
        ):
            got = await ask(port, target, "POST", content_type="application/json")
            assert (got.status, got.json["error"]) == (
                503,
                "this node is opening its database: try again in a moment",
            )


async def test_messages_are_paged_by_state_in_the_order_of_their_ids(node):
    await fill(node, *(received(number, MX2) for number in range(1, 6)), received(6, None), held(7, MX2))
    async with serving(node) as port:
        first = (await ask(port, "/api/v1/messages?limit=4")).json
        assert [item["id"] for item in first["messages"]] == [message_id(number) for number in range(1, 5)]
        second = (await ask(port, f"/api/v1/messages?limit=4&after={first['next']}")).json
        assert [item["id"] for item in second["messages"]] == [message_id(5), message_id(6)]
        assert second["next"] is None
        exposed = (await ask(port, "/api/v1/messages?state=exposed")).json["messages"]
        shadows = (await ask(port, "/api/v1/messages?state=shadow")).json["messages"]
        for empty in ("safety_net", "set_aside", "in_doubt", "asking"):
            assert (await ask(port, f"/api/v1/messages?state={empty}")).json["messages"] == []
    assert [(item["id"], item["exposed"]) for item in exposed] == [(message_id(6), True)]
    assert [(item["id"], item["state"], item["owner"]) for item in shadows] == [
        (message_id(7), "shadow", MX2)
    ]


async def test_a_message_shows_all_that_is_known_of_it(node):
    await fill(node, received(1, MX2, "a@inside.test", "b@outside.test", subject="früh"))
    await fill(node, attempted(1, Ending.DEFERRED, "451 4.7.1 try later", 2))
    async with serving(node) as port:
        shown = (await ask(port, f"/api/v1/messages/{message_id(1)}")).json
    assert (shown["state"], shown["role"], shown["stage"]) == ("queued", "primary", "queued")
    assert (shown["epoch"], shown["rank"], shown["owner"], shown["confirmation"]) == (1, 0, OURS, "none")
    assert shown["envelope"]["subject"] == "früh"
    first, second = shown["recipients"]
    assert (first["address"], first["status"], first["doing"]) == ("a@inside.test", "ready", "ready")
    assert (second["attempts"], second["last_reply"], second["doing"]) == (1, "451 4.7.1 try later", "retry")
    assert second["next_attempt"] == "2026-11-21T10:05:00.000Z"
    assert shown["holders"] == [
        {"name": MX2, "state": "holding", "rank": 1, "database_id": "d2", "mark": f"{'2' * 16}:5"}
    ]


async def test_a_message_shows_who_beyond_the_boundary_handed_it_over(node):
    handed = Handed(message_id(1), ServerName("hub.example.net"), DatabaseId("d9"), message_id(77), (2, 5))
    await fill(node, received(1, MX2, "a@inside.test", "b@outside.test"), received(2, MX2))
    await fill(node, lambda ledger: ledger.apply(Decision(None, (handed,))))
    async with serving(node) as port:
        shown = (await ask(port, f"/api/v1/messages/{message_id(1)}")).json
        other = (await ask(port, f"/api/v1/messages/{message_id(2)}")).json
    assert shown["handed_over_by"] == {
        "name": "hub.example.net",
        "database_id": "d9",
        "id": message_id(77),
        "numbers": [2, 5],
    }
    assert other["handed_over_by"] is None


async def test_a_shadow_copy_is_shown_as_held_for_its_owner(node):
    await fill(node, held(3, MX2))
    async with serving(node) as port:
        shown = (await ask(port, f"/api/v1/messages/{message_id(3)}")).json
    assert (shown["state"], shown["role"], shown["owner"], shown["rank"]) == ("shadow", "shadow", MX2, 1)
    assert shown["recipients"][0]["doing"] == "held"
    assert shown["check_at"] == "2026-11-21T10:01:00.000Z"


async def test_the_beginning_of_an_id_is_enough_while_it_is_unique(node):
    await fill(node, received(1, MX2), received(21, MX2))
    async with serving(node) as port:
        assert (await ask(port, f"/api/v1/messages/{message_id(21)[:-1].upper()}")).json["id"] == message_id(
            21
        )
        several = await ask(port, "/api/v1/messages/01939e00")
    assert several.status == 400
    assert message_id(1) in several.json["error"]


async def test_a_message_whose_copy_is_gone_is_shown_as_remembered(node):
    memory = Outcome(message_id(8), 2, (1, 3), NOW + timedelta(days=4))
    await fill(node, lambda ledger: ledger.apply(Decision(None, (memory,))))
    async with serving(node) as port:
        shown = (await ask(port, f"/api/v1/messages/{message_id(8)[:-2]}")).json
    assert shown["state"] == "gone"
    assert shown["outcome"] == {"epoch": 2, "settled": [1, 3], "kept_until": "2026-11-25T10:00:00.000Z"}


async def test_an_unknown_message_is_404_with_a_sentence(node):
    async with serving(node) as port:
        got = await ask(port, f"/api/v1/messages/{message_id(99)}")
    assert got.status == 404
    assert got.json["error"].startswith(f"this node knows no message {message_id(99)};")


async def test_bad_parameters_are_400_with_a_sentence(node):
    wrong = ["state=nonsense", "limit=0", "limit=501", "limit=x", "limit=%C2%B2", "limit=-1", "colour=red"]
    async with serving(node) as port:
        for query in wrong:
            got = await ask(port, f"/api/v1/messages?{query}")
            assert got.status == 400, query
            assert got.json["error"].startswith(("state is", "limit is", "unknown parameter colour"))


async def test_an_address_that_is_no_utf_8_can_be_shown(node):
    await fill(node, received(1, MX2, subject='\x1b[31m"red"\x85'))
    async with serving(node) as port:
        got = await ask(port, f"/api/v1/messages/{message_id(1)}")
    assert got.text.isascii()
    assert "\x1b" not in got.text
    assert got.json["subject"] == '\x1b[31m"red"\x85'


async def test_unknown_routes_and_methods_are_refused_in_json(node):
    async with serving(node) as port:
        nothing = await ask(port, "/api/v2/status")
        delete = await ask(port, "/api/v1/status", "DELETE")
        read = await ask(port, f"/api/v1/peers/{MX2}/retire")
    assert (nothing.status, delete.status, read.status) == (404, 405, 405)
    assert "nothing at /api/v2/status" in nothing.json["error"]
    assert delete.json["error"] == "/api/v1/status does not take DELETE"
    assert read.headers["allow"] == "post"


async def test_health_tells_whether_the_node_lives_and_takes_mail(node):
    async with serving(node, token="sesame") as port:
        assert (await ask(port, "/healthz/live")).status == 200
        assert (await ask(port, "/healthz/ready")).json == {"ready": True, "reason": ""}
        node.readiness, node.alive = (False, "draining"), False
        assert (await ask(port, "/healthz/live")).status == 503
        drained = await ask(port, "/healthz/ready")
    assert (drained.status, drained.json) == (503, {"ready": False, "reason": "draining"})


def method_of(route: Route) -> str:
    (method,) = route.methods - {"HEAD"}
    return method


async def test_with_a_token_everything_else_wants_it(node):
    unguarded = {"/login", "/logout", "/healthz/live", "/healthz/ready"}
    routes = [route for route in build_app(node).routes if route.path not in unguarded]
    async with serving(node, token="sesame") as port:
        for route in routes:
            method = method_of(route)
            target = route.path.replace("{id}", message_id(1)).replace("{name}", MX2)
            for wrong in ({}, {"authorization": "Bearer no"}, {"authorization": "Basic sesame"}):
                got = await ask(port, target, method, content_type="application/json", **wrong)
                assert got.status == 401, target
                assert got.headers["www-authenticate"] == "bearer"
        assert (await ask(port, "/api/v1/status", authorization="Bearer sesame")).status == 200
        assert (await ask(port, "/metrics", authorization="bearer sesame")).status == 200


async def test_a_failed_database_is_503_not_silence(node):
    node.database.failed.set()
    node.database.failure = "the disk is full"
    async with serving(node) as port:
        got = await ask(port, "/api/v1/status")
        assert (await ask(port, "/healthz/live")).status == 200
    assert got.status == 503
    assert "the disk is full" in got.json["error"]
    node.database.failed.clear()


async def test_a_defect_is_500_without_detail(node):
    def broken() -> list[object]:
        raise KeyError("a secret")

    node.member_statuses = broken
    async with serving(node) as port:
        got = await ask(port, "/api/v1/peers")
    assert (got.status, got.json) == (500, {"error": "the request failed; the node's log says why"})


async def test_every_route_is_in_the_reference(node):
    page = PAGE.read_text()
    for route in build_app(node).routes:
        assert f"`{method_of(route)} {route.path}`" in page


async def test_an_exposed_message_shows_which_member_refused_its_copy_and_why(node):
    await fill(node, received(1, MX2), received(2, None))
    node.refused = {message_id(number): [REFUSAL] for number in (1, 2)}
    async with serving(node) as port:
        safe, alone = [
            (await ask(port, f"/api/v1/messages/{message_id(number)}")).json["refusals"] for number in (1, 2)
        ]
        status = (await ask(port, "/api/v1/status")).json
    assert safe == []
    assert alone == [{"name": MX3, "reply": "550 5.7.1 no", "at": "2026-11-21T10:00:00.000Z"}]
    assert (status["exposed"], status["refused"]) == (1, 1)


async def test_every_field_of_an_answer_is_in_the_reference(node):
    node.statuses = [UNREACHABLE, peer(MX3)]
    await fill(node, received(1, MX2), received(2, None), held(3, MX2), damaged(3))
    await fill(node, received(4, MX2), unbelievable(4), kept_for_hop(1))
    node.refused[message_id(2)] = [REFUSAL]
    page = PAGE.read_text()
    async with serving(node) as port:
        for target in (
            "status",
            "queues",
            "messages",
            f"messages/{message_id(1)}",
            f"messages/{message_id(2)}",
            f"messages/{message_id(3)}",
            f"messages/{message_id(4)}",
            "messages?state=damaged",
            "scrub",
            "shadow-queues",
            "peers",
        ):
            for key in _keys((await ask(port, f"/api/v1/{target}")).json):
                assert f"`{key}`" in page, (target, key)


async def test_a_drain_counts_the_last_copies_of_an_owner_that_is_away_too(node):
    """Who believes that nothing is here alone wipes the disk."""
    await fill(node, held(3, MX2), held(4, MX3))
    node.statuses = [UNREACHABLE, peer(MX3)]
    async with serving(node) as port:
        left = (await ask(port, "/api/v1/drain")).json
    assert (left["exposed"], left["at_risk"], left["held_for"]) == (0, 1, {MX2: 1, MX3: 1})


async def test_a_drain_begins_ends_and_tells_what_is_left(node):
    await fill(node, received(1, MX2), held(3, MX2))
    async with serving(node) as port:
        before = (await ask(port, "/api/v1/drain")).json
        begun = (await ask(port, "/api/v1/drain/begin", "POST", content_type="application/json")).json
        ended = (await ask(port, "/api/v1/drain/end", "POST", content_type="application/json")).json
    assert [told["draining"] for told in (before, begun, ended)] == [False, True, False]
    ordered = {"drain_operator": "anonymous", "drain_ordered_at": "2026-11-21T10:00:00.000Z"}
    assert {key: begun[key] for key in ordered} == {key: ended[key] for key in ordered} == ordered
    assert before["drain_operator"] == ""
    assert {key: value for key, value in begun.items() if key not in {"draining", *ordered}} == {
        "name": OURS,
        "done": False,
        "arriving": 0,
        "queued": 1,
        "at_risk": 0,
        "exposed": 0,
        "set_aside": 0,
        "held_for": {MX2: 1},
        "held_by": {MX2: 1},
        "handed_over": {MX2: 2},
        "not_yet_taken": {MX2: 1},
        "kept_for_hops": {},
    }
    assert [key for key in begun if f"`{key}`" not in PAGE.read_text()] == []


def _keys(value: object) -> set[str]:
    if isinstance(value, dict):
        return set(value) | {key for inner in value.values() for key in _keys(inner)}
    if isinstance(value, list):
        return {key for inner in value for key in _keys(inner)}
    return set()


async def test_many_readers_at_once_are_all_answered(node):
    await fill(node, received(1, MX2))
    async with serving(node) as port:
        answers = await asyncio.gather(*(ask(port, "/api/v1/status") for _ in range(30)))
    assert {answer.status for answer in answers} == {200}


@pytest.mark.parametrize("said", [b"", b"GET / HT", b"GET /healthz/live HTTP/1.1\r\nhost: x\r\n\r\nGET / HT"])
async def test_a_connection_that_brings_no_request_is_closed(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, said: bytes
):
    monkeypatch.setattr(server, "REQUEST_WITHIN", 0.05)
    async with serving(node) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        answer = await asyncio.wait_for(reader.read(), 10)
        assert answer[:12] == (b"HTTP/1.1 200" if b"host" in said else b"")
        writer.close()
        assert (await ask(port, "/healthz/live")).status == 200


async def test_without_a_token_a_name_that_was_rebound_to_the_node_reads_nothing(node):
    hosts = {
        "rebound.test:1": 403,
        "[broken": 403,
        "127.0.0.1:1": 200,
        "[::1]:1": 200,
        "localhost:1": 200,
        "mx1": 200,
        f"{node.name}:8025": 200,
    }
    async with serving(node) as port:
        for host, status in hosts.items():
            assert (await ask(port, "/api/v1/status", host=host)).status == status, host
        assert (await ask(port, "/metrics", host="rebound.test")).status == 200
    async with serving(node, token="sesame sesame sesame") as port:
        told = {"authorization": "Bearer sesame sesame sesame", "host": "rebound.test"}
        assert (await ask(port, "/api/v1/status", **told)).status == 200
