"""What a filter quarantines waits on whatever node comes to own it; what is not new passes no filter."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from scripted_hop import ScriptedHop, original
from sending import MESSAGE, sent
from stations import Station, ask_back, boundary, eventually

from shadowrelay.core.jobs import Filter, Verb
from shadowrelay.core.messages import FOREVER, Stage
from shadowrelay.members import reconcile, record_replication
from shadowrelay.operator import job_runner
from shadowrelay.operator.retire import retire
from shadowrelay.wire import xshadow
from tests.neighbours import milter
from tests.neighbours.milter import NEEDED, OwnFilter, filtering

pytestmark = NEEDED

STRICT: dict[str, Any] = {"reject_message_on_shadow_failure": True, "shadow_attempt_timeout": "10s"}
WAITS = b"Subject: waits\r\n\r\nwaits\r\n"
LIST = '[lists."team@example.net"]\nmembers = ["c@example.net", "d@example.net"]\n'


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "INTERVAL", 0.03)
    monkeypatch.setattr(job_runner, "INTERVAL", 0.05)
    monkeypatch.setattr(record_replication, "REFRESH", 0.1)


def quarantining() -> OwnFilter:
    """A filter that signs all, and quarantines what has that subject."""
    waits: list[bool] = []

    def heard(field: Any) -> None:
        if field.name == "Subject":
            waits.append(field.value == b"waits")

    def said(_: Any) -> list[Any]:
        asked = [milter.said.Quarantine("looks odd")] if waits.pop() else []
        return [*asked, milter.said.AddHeader("X-Signed", b"yes"), milter.said.Continue()]

    return OwnFilter({"Header": heard, "EndOfMessage": said})


def to(hop: ScriptedHop, own: OwnFilter) -> dict[str, Any]:
    way = {"domains": ["*"], "host": "127.0.0.1", "port": hop.port, "tls": "none", "inside": True}
    return {"routes": {"out": way}, "receive": {"filters": {"own": {"address": own.address}}}, **STRICT}


def carrying_on(one: Station) -> None:
    one.run_links()
    one.run_reconcile()
    one.run(one.node.replication.run())
    one.run(one.node.services.job_runner.run())


async def test_a_quarantined_message_waits_on_the_holder_that_promotes_it_until_it_is_resumed(
    tmp_path: Path,
) -> None:
    async with (
        filtering(quarantining()) as own,
        ScriptedHop() as hop,
        boundary(tmp_path, "mx1", "mx2", **to(hop, own)) as (owner, holder),
    ):
        for one in (owner, holder):
            carrying_on(one)
        assert (await sent(owner, WAITS)).startswith("250 ")
        for one in (owner, holder):
            (copy,) = await one.copies()
            assert [each.suspended for each in copy.recipients] == [FOREVER], one.name
        (received,) = [row for row in await owner.tracked() if row["event-id"] == "RECEIVE"]
        assert "S:Quarantined=looks odd" in received["custom-data"]
        octets = await owner.octets(copy.id)
        assert octets.endswith(b"X-Signed: yes\r\n\r\nwaits\r\n")
        assert (await sent(owner, MESSAGE)).startswith("250 ")

        await owner.quiet()  # neither was delivered: its queue never ran
        for connector in owner.connectors:
            await connector.stop(0)
        await eventually(lambda: owner.name not in holder.node.boundary.reachable())
        holder.run_queue()
        await holder.read(lambda ledger: retire(ledger, owner.name, holder.node.clock()))
        holder.node.membership.retired(owner.name)

        async def promoted_and_delivered() -> bool:
            copies = await holder.copies()
            return [each.owner == holder.name for each in copies] == [True, True] and len(hop.contents) == 1

        await eventually(promoted_and_delivered)
        assert b"Subject: hello" in hop.contents[0]

        async def free() -> bool:
            copies = await holder.copies()
            return all(one.confirm_since is None for one in copies)

        await eventually(free)
        holder.node.queue.wake.set()
        assert (await sent(holder, MESSAGE)).startswith("451 4.4.0 ")  # nobody else is there
        assert len(hop.contents) == 1
        jobs = holder.node.services.jobs
        await jobs.add(Verb.RESUME, Filter(ids=(copy.id,)), "ann", "it is fine")
        await eventually(lambda: len(hop.contents) == 2)
        assert original(hop.contents[1]) == octets  # as both copies had it
        assert own.connections == 3  # once for each that a client sent


async def test_a_member_that_knows_no_suspension_gets_no_copy_of_what_is_quarantined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xshadow, "VERSIONS", (1, 2, 3))
    async with (
        filtering(quarantining()) as own,
        ScriptedHop() as hop,
        boundary(tmp_path, "mx1", "mx2", **to(hop, own)) as (owner, holder),
    ):
        assert (await sent(owner, WAITS)).startswith("451 4.4.0 ")
        assert await owner.copies() == await holder.copies() == []
        assert (await sent(owner, MESSAGE)).startswith("250 ")


async def test_members_of_a_list_and_what_is_given_back_pass_no_filter(tmp_path: Path) -> None:
    (tmp_path / "recipients.toml").write_text(LIST)
    async with (
        filtering(quarantining()) as own,
        ScriptedHop() as hop,
        boundary(
            tmp_path, "mx1", "mx2", recipients_file=str(tmp_path / "recipients.toml"), **to(hop, own)
        ) as (owner, holder),
    ):
        for one in (owner, holder):
            carrying_on(one)
        owner.run_queue()
        owner.run_repair()
        began = datetime.now(UTC)
        assert (await sent(owner, MESSAGE, "team@example.net")).startswith("250 ")

        async def settled() -> bool:
            return all(copy.stage is Stage.SAFETY_NET for copy in await owner.copies())

        await eventually(lambda: len(hop.contents) == 1)
        await eventually(settled)
        await ask_back(owner, began)
        owner.node.replication.wake.set()
        owner.run(owner.node.resubmitting.run())
        await eventually(lambda: len(hop.contents) == 2)
        assert [content.count(b"X-Signed: yes") for content in hop.contents] == [1, 1]
        assert own.connections == 1
