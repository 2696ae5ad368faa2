"""One message looked at from any node: its owner tells, whoever is asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from sending import MESSAGE, sent
from stations import boundary, eventually
from test_jobs import running
from test_verbs_by_command import admin, command

from shadowrelay.members import reconcile, record_replication


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(reconcile, "INTERVAL", 0.03)
    monkeypatch.setattr(record_replication, "REFRESH", 0.1)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    structlog.reset_defaults()


async def test_a_message_is_shown_as_its_owner_knows_it_at_every_node(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2", "mx3") as stations:
        await running(*stations)
        owner, *_ = stations
        await sent(owner, MESSAGE)
        (copy,) = await owner.copies()
        holders = {holder.name for holder in copy.holders}
        (stranger,) = [one for one in stations if one is not owner and one.name not in holders]
        await owner.node.services.suspensions.suspend("inside", "ann", "it loses mail")
        await eventually(lambda: stranger.node.suspended("inside"))
        for one in stations:
            async with admin(one) as url:
                told = await command(url, "message", "show", copy.id[:-1])
                assert told.exit_code == 0, told.output
                tree = json.loads((await command(url, "message", "show", copy.id, "--json")).stdout)
                assert (tree["node"], tree["role"], tree["id"]) == (owner.name, "primary", copy.id)
                (recipient,) = tree["recipients"]
                assert recipient["next_hop"] == "inside"
                assert recipient["why"] == "ann suspended the queue: it loses mail"
                assert recipient["why"] in told.stdout
                assert owner.name in told.stdout
        async with admin(stranger) as url:
            here = await command(url, "message", "show", copy.id, "--here")
            assert here.exit_code == 1
            assert "this node knows no message" in here.stderr


async def test_that_nobody_knows_it_is_said_with_the_nodes_that_do_not_answer(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (one, two), admin(one) as url:
        await running(one, two)
        unknown = "01900000-0000-7000-8000-000000000009"
        told = await command(url, "message", "show", unknown)
        assert (told.exit_code, told.stderr.strip()) == (
            1,
            f"Error: no node that answers knows a message {unknown}",
        )
        await two.quiet()
        for connector in two.connectors:
            await connector.stop(0)
        less = await command(url, "message", "show", unknown)
        assert less.exit_code == 1
        assert f"not all nodes answer: {two.name}: " in less.stderr


async def test_a_beginning_that_names_two_messages_of_one_other_node_is_refused(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2", "mx3") as stations, admin(stations[2]) as url:
        await running(*stations)
        for _ in range(2):
            await sent(stations[0], MESSAGE)
        first, second = (copy.id for copy in await stations[0].copies())
        told = await command(url, "message", "show", first[:4])
        assert told.exit_code == 1
        assert f"several messages begin with {first[:4]}: " in told.stderr
        assert first in told.stderr
        assert second in told.stderr
