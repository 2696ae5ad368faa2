"""One view of all nodes, from any of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from shadowrelay.core.identifiers import MessageId, RequestId, ServerName
from shadowrelay.core.operating import Act, ActAnswer, Scope, Told
from shadowrelay.core.steps import Operate, Unanswered
from shadowrelay.operator.acts import ActRefused, Acts
from shadowrelay.operator.view import LITTLE_PATIENCE, PART, PATIENCE, QUEUES, STATUS, View, parted
from shadowrelay.smtp.members.client import NO_ANSWER
from shadowrelay.wire.xoperate import format_answer

OURS, MX2, MX3 = ServerName("mx1.test"), ServerName("mx2.test"), ServerName("mx3.test")
JOB = RequestId(MessageId("01234567-89ab-7000-8000-000000000001"))
NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)

Ask = Callable[[Operate, float], Awaitable[ActAnswer | Unanswered]]


async def nobody(step: Operate, timeout: float) -> ActAnswer | Unanswered:
    raise AssertionError(f"nobody is asked: {step}")


def a_view(
    ask: Ask, looks: dict[str, Any], members: tuple[ServerName, ...] = (MX2, MX3), **more: Any
) -> View:
    given = {"reachable": lambda: frozenset(members), "seconds": lambda: 0.0} | more
    return View(
        name=OURS,
        looks=looks,
        members=lambda: members,
        ask=ask,
        mint=lambda now: MessageId(JOB),
        clock=lambda: NOW,
        **given,
    )


def saying(**found: Any) -> Callable[[Told], Awaitable[dict[str, Any]]]:
    async def look(told: Told) -> dict[str, Any]:
        return dict(found)

    return look


def act(**arguments: Any) -> Act:
    return Act(job=JOB, action=QUEUES, scope=Scope.READ, operator="", reason="", arguments=arguments)


async def test_each_node_is_an_entry_and_one_that_does_not_answer_says_why():
    async def ask(step: Operate, timeout: float) -> ActAnswer | Unanswered:
        assert step.act.scope is Scope.READ
        if step.to == MX2:
            return Unanswered("xoperate", NO_ANSWER)
        return ActAnswer({}, "look-status takes the scope read; peer_operate here gives none")

    seen = await a_view(ask, {STATUS: saying(queued=3)}).status()
    assert seen == {
        "node": OURS,
        "nodes": [
            {"node": OURS, "answers": True, "why": "", "status": {"queued": 3}},
            {"node": MX2, "answers": False, "why": "it is silent: no answer within 2 s"},
            {
                "node": MX3,
                "answers": False,
                "why": "it refuses: look-status takes the scope read; peer_operate here gives none",
            },
        ],
    }


async def test_members_are_asked_at_once():
    asked: list[ServerName] = []
    all_asked = asyncio.Event()

    async def ask(step: Operate, timeout: float) -> ActAnswer | Unanswered:
        asked.append(step.to)
        if len(asked) == 2:
            all_asked.set()
        await all_asked.wait()
        return ActAnswer({"queued": 1})

    async with asyncio.timeout(30):
        seen = await a_view(ask, {STATUS: saying(queued=3)}).status()
    assert [entry["status"]["queued"] for entry in seen["nodes"]] == [3, 1, 1]


async def test_a_member_that_heartbeats_do_not_reach_is_given_little_time():
    given: dict[ServerName, float] = {}

    async def ask(step: Operate, timeout: float) -> ActAnswer | Unanswered:
        given[step.to] = timeout
        return Unanswered("connect", "refused")

    seen = await a_view(ask, {STATUS: saying()}, reachable=lambda: {MX2}).status()
    assert given == {MX2: PATIENCE, MX3: LITTLE_PATIENCE}
    assert seen["nodes"][1]["why"] == "connect: refused"


async def test_an_older_member_is_said_to_be_older():
    async def ask(step: Operate, timeout: float) -> ActAnswer | Unanswered:
        return await Acts(Scope.OPERATE, {}, lambda: 0.0).perform(OURS, step.act)

    seen = await a_view(ask, {STATUS: saying()}).status()
    assert "older version" in seen["nodes"][1]["why"]


MANY = [{"next_hop": f"world/{number}.test", "last_error": "x" * 500} for number in range(1000)]


async def test_a_long_answer_comes_in_parts_of_the_moment_when_the_first_was_asked_for():
    answered: list[int] = []
    there = list(MANY)

    async def look(told: Told) -> dict[str, Any]:
        return {"queues": list(there), "shadow_queues": [{"primary": OURS}], "site": "here"}

    theirs = a_view(nobody, {QUEUES: look}, members=())
    acts = Acts(Scope.READ, theirs.actions(), lambda: 0.0)

    async def ask(step: Operate, timeout: float) -> ActAnswer | Unanswered:
        answer = await acts.perform(OURS, step.act)
        format_answer(answer.told)  # it fits into the lines between members
        answered.append(len(answer.told["queues"]))
        there.clear()
        return answer

    seen = await a_view(ask, {QUEUES: saying(queues=[])}, members=(MX2,)).queues()
    assert seen["nodes"][1] == {
        "node": MX2,
        "answers": True,
        "why": "",
        "queues": MANY,
        "shadow_queues": [{"primary": OURS}],
        "site": "here",
    }
    assert len(answered) > 2


async def test_what_came_of_a_member_that_falls_silent_in_between_is_shown_as_incomplete():
    async def ask(step: Operate, timeout: float) -> ActAnswer | Unanswered:
        if step.act.arguments["part"]:
            return Unanswered("xoperate", NO_ANSWER)
        return ActAnswer({"queues": MANY[:2], "next_part": 2})

    seen = await a_view(ask, {QUEUES: saying(queues=[])}, members=(MX2,)).queues()
    assert seen["nodes"][1]["queues"] == MANY[:2]
    assert seen["nodes"][1]["why"].startswith("it is silent")


async def test_an_item_that_is_too_long_for_any_part_is_left_out_and_holds_nothing_up():
    found = {"queues": [{"a": 1}, {"a": "x" * PART}, {"a": 2}]}
    part = parted(found, 0)
    assert part == {"queues": [{"a": 1}, {"a": 2}]}


@pytest.mark.parametrize("part", [-1, "1", True, None])
async def test_a_part_that_is_no_number_is_refused(part):
    view = a_view(nobody, {QUEUES: saying(queues=[])}, members=())
    with pytest.raises(ActRefused):
        await view.actions()[QUEUES].perform(MX2, act(part=part))
