"""Lists of messages over all nodes are sorted by any column, and their pages follow one another both ways."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from admin.admin_node import (
    MX2,
    NOW,
    FakeNode,
    a_node,
    attempted,
    damaged,
    fill,
    held,
    meet,
    message_id,
    received,
)

from shadowrelay.admin.node_view import NodeView
from shadowrelay.core.delivery.settling import Ending
from shadowrelay.core.identifiers import NextHop, RequestId
from shadowrelay.core.jobs import Filter
from shadowrelay.core.suspensions import Suspension
from shadowrelay.database.message_list import SortBy
from shadowrelay.database.views import MessageState
from shadowrelay.operator import listing
from shadowrelay.operator.acts import ActRefused
from shadowrelay.operator.listing import ListWanted, place

NODES = ("mx1", "mx2", "mx3")
SUBJECTS = ("hello", "Äpfel", "=?utf-8?Q?Gr=C3=BC=C3=9Fe?=", "zebra", "Hello", "")
MANY = 41


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[dict[str, FakeNode]]:
    """Three nodes: their queues have mail that differs in all columns, and much that is alike."""
    chance = random.Random(7)
    async with AsyncExitStack() as stack:
        made = {}
        for name in NODES:
            (tmp_path / name).mkdir()
            made[name] = await stack.enter_async_context(a_node(tmp_path / name))
        for node in made.values():
            await fill(node, meet(MX2))
        for number in range(1, MANY + 1):
            node = made[chance.choice(NODES)]
            to = chance.choice(["ann@outside.test", "b@inside.test", "Zoe@inside.test"])
            mail = received(number, chance.choice([MX2, None]), to, subject=chance.choice(SUBJECTS))
            await fill(node, mail)
        yield made


async def page(nodes: dict[str, FakeNode], wanted: ListWanted) -> Any:
    """The page that a node would show that all answer."""
    entries = []
    for name, node in nodes.items():
        look = NodeView(node, lambda: NOW, perf_counter).looks()["look-list"]
        entries.append({"node": name, "answers": True, "why": "", **await look(wanted.arguments())})
    return listing.page("mx1", entries, wanted)


async def walked(nodes: dict[str, FakeNode], wanted: ListWanted) -> tuple[list[Any], list[list[str]]]:
    found, pages, total = [], [], await count(nodes, wanted)
    while True:
        one = await page(nodes, wanted)
        found += one["messages"]
        pages.append([each["id"] for each in one["messages"]])
        assert one["total"] == total
        assert bool(one["previous"]) == bool(len(pages) > 1)
        if not one["next"]:
            break
        wanted = replace(wanted, after=one["next"])
    back = [pages[-1]]
    while one["previous"]:
        one = await page(nodes, replace(wanted, after="", before=one["previous"]))
        back.insert(0, [each["id"] for each in one["messages"]])
        assert one["next"]
    assert back == pages
    return found, pages


async def count(nodes: dict[str, FakeNode], wanted: ListWanted) -> int:
    whole = await page(nodes, ListWanted(state=wanted.state, filter=wanted.filter, limit=500))
    return len(whole["messages"])


def column(one: dict[str, Any], by: str) -> Any:
    return {
        SortBy.RECEIVED: one["id"],
        SortBy.SENDER: one["sender"],
        SortBy.SUBJECT: (one["subject"] or "").casefold(),
        SortBy.SIZE: one["size"],
        SortBy.RECIPIENT: one["addresses"][0].lower(),
        SortBy.NEXT_HOP: one["next_hops"][0],
        SortBy.REASON: one["reason"],
        SortBy.ATTEMPTS: one["attempts"],
    }[SortBy(by)]


@pytest.mark.parametrize("filtered", [None, Filter(queue=NextHop("inside")), Filter(subject="grüsse")])
@pytest.mark.parametrize("down", ["", "-"])
async def test_a_list_is_sorted_by_each_column_and_its_pages_follow_one_another_both_ways(
    nodes: dict[str, FakeNode], down: str, filtered: Filter | None
) -> None:
    for by in SortBy:
        for limit in (7,) if filtered else (4, 50):
            found, pages = await walked(nodes, ListWanted(sort=down + by, limit=limit, filter=filtered))
            keys = [(column(one, by), one["id"]) for one in found]
            assert keys == sorted(keys, reverse=bool(down)), (by, limit)
            assert (
                len({one["id"] for one in found})
                == len(found)
                == await count(nodes, ListWanted(filter=filtered))
            )
            assert all(len(one) == limit for one in pages[:-1])
    assert filtered is not None or len(found) == MANY


@pytest.mark.parametrize("state", [*MessageState])
async def test_every_state_is_listed_with_its_number_in_both_directions(state: str, tmp_path: Path) -> None:
    async with a_node(tmp_path) as node:
        await fill(node, meet(MX2), *(received(one, MX2 if one % 2 else None) for one in range(1, 9)))
        await fill(node, *(held(one, MX2) for one in range(9, 13)))
        await fill(
            node,
            damaged(1, aside=True),
            damaged(2),
            *(attempted(one, Ending.ACCEPTED, "250") for one in (3, 4, 5)),
        )
        for sort in ("received", "-received"):
            found, _ = await walked({"mx1": node}, ListWanted(state=state, sort=sort, limit=2))
            expected = {"exposed": 3, "shadow": 4, "safety_net": 3, "queued": 4, "at_risk": 3}.get(state)
            assert expected is None or len(found) == expected, (state, len(found))


@pytest.mark.parametrize(
    "wanted",
    [
        ListWanted(sort="colour"),
        ListWanted(state="lost"),
        ListWanted(state="safety_net", sort="size"),
        ListWanted(after="nothing"),
        ListWanted(after='["x", "y"]', sort="size"),
        ListWanted(before="[1, 2]"),
        ListWanted(before="[" * 5_000),
        ListWanted(limit=0),
    ],
)
async def test_what_is_no_list_is_refused(nodes: dict[str, FakeNode], wanted: ListWanted) -> None:
    with pytest.raises(ActRefused):
        await page(nodes, wanted)


async def test_messages_at_one_place_on_several_nodes_are_on_one_page(nodes: dict[str, FakeNode]) -> None:
    one = {**(await page(nodes, ListWanted(limit=1)))["messages"][0]}
    entries = [
        {"node": name, "answers": True, "why": "", "total": 1, "messages": [dict(one)]}
        for name in ("mx1", "mx2")
    ]
    found = listing.page("mx1", entries, ListWanted(limit=1))
    assert [each["node"] for each in found["messages"]] == ["mx1", "mx2"]
    assert (found["total"], found["next"]) == (2, None)


async def test_a_message_in_a_suspended_queue_is_suspended_in_a_list_and_says_why(tmp_path: Path) -> None:
    async with a_node(tmp_path) as node:
        await fill(node, meet(MX2), received(1, MX2))
        by: dict[str, Any] = {"changed_by": MX2, "changed_at": NOW}
        said: dict[str, Any] = {"operator": "ann", "reason": "they move", **by}
        order = Suspension(id=RequestId(message_id(9)), next_hop=NextHop("outside"), suspended=True, **said)
        hop = node.hop
        node.hop = lambda name: replace(hop(name), suspension=order)  # type: ignore[method-assign]
        (found,) = (await page({"mx1": node}, ListWanted()))["messages"]
        assert (found["doing"], found["reason"]) == ("suspended", "ann suspended the queue: they move")


def test_a_place_of_the_longest_subject_is_a_place_and_a_longer_text_is_none() -> None:
    subject = json.dumps(["\u3042" * 900, "01939e00"], separators=(",", ":"))
    assert place(subject) == ["\u3042" * 900, "01939e00"]
    with pytest.raises(ActRefused):
        place(json.dumps(["a" * 20_000, "01939e00"]))
