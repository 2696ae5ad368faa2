"""A node says over the peer channel how many workers it has: the others take them, and let them go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from machines_of_workers import Cluster, cluster
from scripted_hop import ScriptedHop
from sending import MESSAGE, sent
from stations import Station, eventually, full

from shadowrelay.core.identifiers import RequestId, ServerName
from shadowrelay.core.messages import HolderState, Role
from shadowrelay.core.operating import Act, ActAnswer, Scope
from shadowrelay.core.steps import Operate
from shadowrelay.core.workers import worker_name

FIRST, SECOND = full("mx1"), worker_name(full("mx1"), 2)


def members(of: Station) -> set[ServerName]:
    return set(of.node.boundary.watches)


async def says(caller: Station, to: Station, **arguments: Any) -> ActAnswer:
    """What a member says in place of its own announcement, and the answer."""
    act = Act(
        job=RequestId("01900000-0000-7000-8000-000000000001"),
        action="workers",
        scope=Scope.NONE,
        operator="",
        reason="",
        arguments=arguments,
    )
    answer = await caller.node.members.operate(Operate(to.name, act), 5.0)
    assert isinstance(answer, ActAnswer), answer
    return answer


async def holders(of: Station) -> list[ServerName]:
    """Those of the copies of the messages that it owns."""
    own = [copy for copy in await of.copies() if copy.role is Role.PRIMARY]
    return [one.name for copy in own for one in copy.holders if one.state is HolderState.HOLDING]


async def raised(made: Cluster) -> None:
    """The first node has a second worker; nothing is changed on the second node."""
    file = made.file("mx1", 2, {})
    await made.reload("mx1", 1, file)
    await made.start("mx1", 2, file)
    await made.converse(("mx1", 2))


async def test_a_second_worker_gets_copies_of_a_node_whose_settings_do_not_know_it(tmp_path: Path) -> None:
    async with cluster(tmp_path, {"mx1": 1, "mx2": 1}, tls=True) as made:
        await made.converse()
        other = made.workers["mx2", 1]
        assert members(other) == {FIRST}
        await raised(made)
        await eventually(lambda: members(other) == {FIRST, SECOND})
        await eventually(lambda: SECOND in other.node.boundary.reachable())
        for _ in range(4):
            assert (await sent(other, MESSAGE, "b@example.net")).startswith("250 ")
        assert set(await holders(other)) == {FIRST, SECOND}
        assert (await sent(made.workers["mx1", 2], MESSAGE, "b@example.net")).startswith("250 ")
        assert await holders(made.workers["mx1", 2]) == [other.name]


async def test_what_a_node_said_stays_over_a_restart_and_counts_before_the_settings_file(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, {"mx1": 1, "mx2": 1}) as made:
        await made.converse()
        await raised(made)
        await eventually(lambda: SECOND in members(made.workers["mx2", 1]))
        for which in list(made.workers):
            await made.stop(*which)
        for known in (1, 4):
            again = await made.start("mx2", 1, made.file("mx2", 1, {"mx1": known}))
            await made.converse(("mx2", 1))
            assert members(again) == {FIRST, SECOND}
            await made.stop("mx2", 1)


async def test_a_node_with_fewer_workers_than_the_settings_file_says_is_believed(tmp_path: Path) -> None:
    async with cluster(tmp_path, {"mx1": 1, "mx2": 1}, run=False) as made:
        await made.start("mx1", 1, made.file("mx1", 1, {}))
        other = await made.start("mx2", 1, made.file("mx2", 1, {"mx1": 3}))
        assert len(members(other)) == 3
        await made.converse()
        await eventually(lambda: members(other) == {FIRST})


async def test_a_worker_that_goes_is_a_member_until_nothing_is_held_for_it(tmp_path: Path) -> None:
    async with ScriptedHop() as hop:
        route = {"domains": ["*"], "host": "127.0.0.1", "port": hop.port, "tls": "none"}
        async with cluster(tmp_path, {"mx1": 2, "mx2": 1}, routes={"out": route}) as made:
            await made.converse()
            other, second = made.workers["mx2", 1], made.workers["mx1", 2]
            assert (await sent(second, MESSAGE, "b@example.net")).startswith("250 ")
            await made.reload("mx1", 1, made.file("mx1", 1, {}))
            await eventually(lambda: other.node.membership.counts == {FIRST: 1})
            assert members(other) == {FIRST, SECOND}, "or its copy would be nobody's"
            second.run_queue()
            await eventually(lambda: members(other) == {FIRST})
            assert len(hop.contents) == 1


async def test_a_worker_that_goes_is_waited_for_over_a_restart_of_who_holds_for_it(tmp_path: Path) -> None:
    async with ScriptedHop() as hop:
        route = {"domains": ["*"], "host": "127.0.0.1", "port": hop.port, "tls": "none"}
        async with cluster(tmp_path, {"mx1": 2, "mx2": 1}, routes={"out": route}) as made:
            await made.converse()
            second = made.workers["mx1", 2]
            assert (await sent(second, MESSAGE, "b@example.net")).startswith("250 ")
            await made.reload("mx1", 1, made.file("mx1", 1, {}))
            await eventually(lambda: made.workers["mx2", 1].node.membership.counts == {FIRST: 1})
            await made.stop("mx2", 1)
            again = await made.start("mx2", 1, made.file("mx2", 1, {"mx1": 1}))
            await made.converse(("mx2", 1))
            await eventually(lambda: members(again) == {FIRST, SECOND})
            second.run_queue()
            await eventually(lambda: members(again) == {FIRST})
            assert len(hop.contents) == 1


async def test_a_node_speaks_for_itself_alone_and_by_its_first_worker(tmp_path: Path) -> None:
    async with cluster(
        tmp_path, {"mx1": 2, "mx2": 1, "mx3": 1}, tls=True, peer={"peer_operate": "none"}
    ) as made:
        other = made.workers["mx2", 1]
        before = members(other)
        third = made.workers["mx3", 1]
        for caller, node in (
            (third, FIRST),
            (made.workers["mx1", 2], FIRST),
            (made.workers["mx1", 2], SECOND),
        ):
            answer = await says(caller, other, node=node, workers=4)
            assert "the first worker of a node" in answer.refused, (caller.name, node)
        for count in (0, 65, -1, True, "2", None, 2.0):
            assert (
                "a number from 1 to 64" in (await says(third, other, node=third.name, workers=count)).refused
            )
        assert (
            "the first worker"
            in (await says(made.workers["mx1", 1], made.workers["mx1", 2], node=FIRST, workers=4)).refused
        )
        assert members(other) == before
        assert (await says(third, other, node=third.name, workers=2)).told == {"workers": 2}
        assert members(other) == before | {worker_name(third.name, 2)}
