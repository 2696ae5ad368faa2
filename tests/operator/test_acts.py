"""What members may do for operators on their nodes: scopes, limits, refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shadowrelay.core.identifiers import RequestId, ServerName
from shadowrelay.core.operating import Act, ActAnswer, Scope, Told
from shadowrelay.operator.acts import MOST_PER_SECOND, Action, ActRefused, Acts
from shadowrelay.wire.replies import Refused

MX1, MX2 = ServerName("mx1.example.org"), ServerName("mx2.example.org")
ACT = Act(
    job=RequestId("01900000-0000-7000-8000-000000000001"),
    action="change",
    scope=Scope.OPERATE,
    operator="ann",
    reason="",
    arguments={},
)


def acts(most: Scope = Scope.OPERATE) -> tuple[Acts, list[str]]:
    done: list[str] = []

    async def change(member: ServerName, act: Act) -> Told:
        if act.reason == "wrong":
            raise ActRefused("there is no such thing")
        done.append(f"{member} {act.action}")
        return {"done": True}

    actions = {"change": Action(Scope.OPERATE, change), "look": Action(Scope.READ, change)}
    return Acts(most, actions, lambda: 5.5), done


@pytest.mark.parametrize("action", ["look", "change"])
@pytest.mark.parametrize("here", Scope)
@pytest.mark.parametrize("token", Scope)
async def test_an_act_takes_the_scope_of_the_token_and_of_the_node(
    action: str, here: Scope, token: Scope
) -> None:
    found, done = acts(here)
    answer = await found.perform(MX1, replace(ACT, action=action, scope=token))
    allowed = {"look": {Scope.READ, Scope.OPERATE}, "change": {Scope.OPERATE}}[action]
    if {here, token} <= allowed:
        assert (answer, done) == (ActAnswer({"done": True}), [f"{MX1} {action}"])
    else:
        assert done == []
        assert ("the token" if token not in allowed else "peer_operate") in answer.refused


async def test_an_unknown_action_and_one_that_cannot_be_done_are_refused_with_the_reason() -> None:
    found, done = acts()
    assert "knows no action" in (await found.perform(MX1, replace(ACT, action="burn"))).refused
    assert "no such thing" in (await found.perform(MX1, replace(ACT, reason="wrong"))).refused
    assert done == []


async def test_a_member_that_asks_too_often_is_asked_to_come_later_and_others_are_not() -> None:
    found, _ = acts()
    for _ in range(MOST_PER_SECOND):
        await found.perform(MX1, ACT)
    with pytest.raises(Refused, match="ask later"):
        await found.perform(MX1, ACT)
    assert (await found.perform(MX2, ACT)).told
    found.seconds = lambda: 6.5
    assert (await found.perform(MX1, ACT)).told
