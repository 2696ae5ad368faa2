"""The routes that show all nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from admin.admin_node import (
    MX2,
    MX3,
    NOW,
    OURS,
    FakeNode,
    a_node,
    ask,
    attempted,
    fill,
    held,
    meet,
    message_id,
    received,
    serving,
    tls_result,
)

from shadowrelay.core.delivery.settling import Ending
from shadowrelay.shown.nodes import tls_together

SILENT = "it is silent: no answer within 2 s"


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[FakeNode]:
    """A node with two members: the second answers, the third is silent."""
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    async with a_node(tmp_path / "1") as first, a_node(tmp_path / "2") as second:
        await fill(first, meet(MX2), meet(MX3), received(1, MX2), received(2, None))
        await fill(first, attempted(1, Ending.DEFERRED, "451 4.7.1 later"))
        second.name = MX2
        await fill(second, meet(MX2), meet(MX3), held(1, MX2))
        first.elsewhere[MX2] = second
        yield first


async def get(node: FakeNode, path: str) -> dict:
    async with serving(node) as port:
        got = await ask(port, f"/api/v1/cluster/{path}")
    assert got.status == 200, got
    return got.json


async def test_any_node_tells_the_status_of_all_and_a_silent_one_is_an_entry(nodes):
    found = await get(nodes, "status")
    assert found["node"] == OURS
    ours, second, third = found["nodes"]
    assert (ours["node"], ours["status"]["queued"]) == (OURS, 2)
    assert (second["node"], second["status"]["shadow_held"]) == (MX2, 1)
    assert third == {"node": MX3, "answers": False, "why": SILENT}


async def test_any_node_tells_the_queues_of_all(nodes):
    ours, second, third = (await get(nodes, "queues"))["nodes"]
    assert [one["identity"] for one in ours["queues"]] == [f"{OURS}\\outside"]
    assert [one["identity"] for one in second["shadow_queues"]] == [f"{MX2}\\Shadow\\{MX2}"]
    assert second["queues"] == []
    assert not third["answers"]


async def test_any_node_tells_what_became_of_tls_at_all_the_last_of_each_host(nodes):
    other = nodes.elsewhere[MX2]
    nodes.tls_results.note(tls_result("b.test", "certificate-expired", when=NOW))
    nodes.tls_results.note(tls_result("a.test", when=NOW + timedelta(seconds=1), testing=True))
    nodes.tls_results.note(tls_result("b.test", when=NOW + timedelta(seconds=2), kind="dane", source="dane"))
    other.tls_results.note(tls_result("b.test", "dnssec-invalid", when=NOW + timedelta(seconds=3)))
    ours, second, third = (await get(nodes, "tls"))["nodes"]
    assert ours["results"] == [
        {
            "domain": "b.test",
            "host": "mail.b.test",
            "policy": "dane",
            "source": "dane",
            "testing": False,
            "result": "",
            "when": "2026-11-21T10:00:02.000Z",
        },
        {
            "domain": "a.test",
            "host": "mail.a.test",
            "policy": "pkix",
            "source": "mta-sts",
            "testing": True,
            "result": "",
            "when": "2026-11-21T10:00:01.000Z",
        },
    ]
    assert not third["answers"]
    assert [(one["domain"], one["result"]) for one in tls_together((ours, second, third))] == [
        ("b.test", "dnssec-invalid"),
        ("a.test", ""),
    ]


async def test_one_next_hop_is_shown_by_each_node_with_its_last_error_in_full(nodes):
    found = await get(nodes, "queues/outside")
    ours, second, _ = found["nodes"]
    assert ours["queue"]["last_error"] == "451 4.7.1 later"
    assert second["queue"] is None
    assert second["sessions"] == 0
    assert (await get(nodes, "queues/world/example.net"))["next_hop"] == "world/example.net"


async def test_a_message_is_found_once_with_where_each_copy_is(nodes):
    found = await get(nodes, "find?q=bob@example.net")
    assert (found["by"], found["next"]) == ("address", None)
    assert [one["id"] for one in found["messages"]] == [message_id(2), message_id(1)]
    copies = found["messages"][1]["copies"]
    assert [(one["node"], one["role"], one["state"], one["epoch"]) for one in copies] == [
        (OURS, "primary", "queued", 1),
        (MX2, "shadow", "shadow", 1),
    ]
    assert copies[0]["holders"] == [MX2]
    assert found["messages"][1]["subject"] == "hello"
    assert [(one["node"], one["answers"]) for one in found["nodes"]] == [
        (OURS, True),
        (MX2, True),
        (MX3, False),
    ]


async def test_a_node_that_does_not_find_a_message_still_tells_what_it_has_of_it(nodes):
    """The copy of the member has no subject here: the search of that node does not match it."""
    found = await get(nodes, "find?q=subject:hello")
    assert [one["node"] for one in found["messages"][1]["copies"]] == [OURS, MX2]


async def test_pages_of_what_all_nodes_find_follow_one_another(nodes):
    first = await get(nodes, "find?q=bob@example.net&limit=1")
    assert [one["id"] for one in first["messages"]] == [message_id(2)]
    second = await get(nodes, f"find?q=bob@example.net&limit=1&after={first['next']}")
    assert [one["id"] for one in second["messages"]] == [message_id(1)]


@pytest.mark.parametrize("query", ["", "q=", "q=a@b.test&limit=0", "q=a@b.test&to=me"])
async def test_a_search_that_cannot_be_understood_is_refused(nodes, query):
    async with serving(nodes) as port:
        assert (await ask(port, f"/api/v1/cluster/find?{query}")).status == 400


@pytest.mark.parametrize(
    "path",
    [
        "cluster/find?q=%00",
        "cluster/find?q=b@example.net%00",
        "cluster/find?q=b&after=%00",
        "cluster/queues/a%00b",
        "safety-net?sender=%00",
    ],
)
async def test_text_with_a_nul_behind_which_the_database_sees_nothing_is_refused(nodes, path):
    async with serving(nodes) as port:
        got = await ask(port, f"/api/v1/{path}")
    assert got.status in (400, 422), got
    assert "NUL" in got.json["error"]
