"""Aliases and lists on real nodes: nothing is lost and no member gets two, also if a disk is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from damaging import spoil
from scripted_hop import ScriptedHop, original
from sending import MESSAGE, sender, sent
from stations import Station, boundary, eventually, station

from shadowrelay.core.messages import Copy, Role, Stage, Status
from shadowrelay.core.recipients import LISTS
from shadowrelay.reception import recipients

FILE = """
[aliases]
"sales@example.net" = "team@example.net"
"bob@example.net" = "Robert@example.net"

[lists."team@example.net"]
members = ["bob@example.net", "c@example.net", "inner@example.net", "gone@example.net"]
owner = "owner@example.net"

[lists."inner@example.net"]
members = ["c@example.net", "d@example.net", "team@example.net"]

[lists."plain@example.net"]
members = ["c@example.net", "d@example.net"]

[domains."example.net"]
known = true
recipients = ["robert@example.net", "c@example.net", "d@example.net", "owner@example.net"]
"""

LATER, OK = [b"451 4.3.2 later\r\n"], [b"250 2.1.0 ok\r\n"]


def with_file(tmp_path: Path, hop: ScriptedHop, text: str = FILE, **changes: Any) -> dict[str, Any]:
    path = tmp_path / "recipients.toml"
    path.write_text(text)
    way = {"domains": ["*"], "host": "127.0.0.1", "port": hop.port, "tls": "none"}
    return {"recipients_file": str(path), "routes": {"out": way}, **changes}


def got(hop: ScriptedHop) -> list[str]:
    """The recipients that the hop was offered, in order of their names."""
    return sorted(
        command[len("RCPT TO:<") :].partition(">")[0] for command in hop.commands if "RCPT TO" in command
    )


async def settled(*stations: Station) -> bool:
    copies = [copy for one in stations for copy in await one.copies()]
    return bool(copies) and all(copy.stage is Stage.SAFETY_NET for copy in copies)


async def parent_and_child(one: Station) -> tuple[Copy, Copy]:
    copies = await one.copies()
    child = next(copy for copy in copies if copy.content_of is not None)
    return next(copy for copy in copies if copy.id == child.content_of), child


async def test_who_is_unknown_is_refused_before_the_content(tmp_path: Path) -> None:
    async with (
        ScriptedHop() as hop,
        boundary(tmp_path, "mx1", **with_file(tmp_path, hop)) as (one,),
        sender(one) as client,
    ):
        await client.say("EHLO c.example", "MAIL FROM:<a@example.org>")
        for address, reply in {
            "nobody@example.net": "550 5.1.1 No such recipient here",
            "gone@example.net": "550 5.1.1 No such recipient here",
            "BOB@example.net": "250 ",
            "team@example.net": "250 ",
            "postmaster@example.net": "250 ",
            "anybody@other.example": "250 ",
        }.items():
            told = await client.say(f"RCPT TO:<{address}>")
            assert told.startswith(reply), (address, told)


async def test_an_alias_is_rewritten_and_the_sender_hears_of_the_address_that_it_gave(tmp_path: Path) -> None:
    async with (
        ScriptedHop(**{"RCPT": [b"550 5.1.1 nobody\r\n", *OK]}) as hop,
        boundary(tmp_path, "mx1", "mx2", **with_file(tmp_path, hop)) as (owner, _),
    ):
        assert (await sent(owner, MESSAGE, "bob@example.net", "Robert@example.net")).startswith("250 ")
        (copy,) = await owner.copies()
        assert [(r.address, r.orcpt) for r in copy.recipients] == [
            ("Robert@example.net", "rfc822;bob@example.net")
        ]
        rows = await owner.tracked()
        assert [row["event-id"] for row in rows] == ["HAREDIRECT", "RECEIVE", "RESOLVE", "RESOLVE"]
        assert rows[1]["recipient-address"] == rows[2]["recipient-address"] == "Robert@example.net"
        assert [row["related-recipient-address"] for row in rows[2:]] == [
            "bob@example.net",
            "Robert@example.net",
        ]
        owner.run_queue()
        await eventually(lambda: settled(owner))
        report = next(content for content in hop.contents if b"report-type" in content)
        assert b"Original-Recipient: rfc822; bob@example.net" in report
        assert b"Final-Recipient: rfc822; Robert@example.net" in report


async def test_each_member_of_a_list_gets_the_message_once_and_a_bad_one_stops_nobody(tmp_path: Path) -> None:
    async with (
        ScriptedHop() as hop,
        boundary(tmp_path, "mx1", "mx2", **with_file(tmp_path, hop)) as (owner, holder),
    ):
        await sent(owner, MESSAGE, "sales@example.net")
        owner.run_queue()
        holder.run_links()
        await eventually(lambda: got(hop) == [
            "Robert@example.net", "c@example.net", "d@example.net", "owner@example.net"
        ])  # fmt: skip
        parent, child = await parent_and_child(owner)
        assert [(r.address, r.next_hop, r.status) for r in parent.recipients] == [
            ("team@example.net", LISTS, Status.RELAYED)
        ]
        assert (child.envelope.sender, child.digests and child.digests.content) == (
            "owner@example.net",
            parent.digests and parent.digests.content,
        )
        assert {r.address: r.status.value for r in child.recipients} == {
            "Robert@example.net": "relayed",
            "c@example.net": "relayed",
            "d@example.net": "relayed",
            "gone@example.net": "failed",
        }
        to_members = next(content for content in hop.contents if b"report-type" not in content)
        assert original(to_members) == await owner.octets(parent.id)
        report = next(content for content in hop.contents if b"report-type" in content)
        assert b"Final-Recipient: rfc822; gone@example.net" in report
        rows = await owner.tracked()
        (row,) = [row for row in rows if row["event-id"] == "EXPAND"]
        assert (row["network-message-id"], row["recipient-address"], row["reference"], row["source"]) == (
            parent.id,
            "team@example.net",
            child.id,
            "ROUTING",
        )
        (made,) = [row for row in rows if (row["event-id"], row["source"]) == ("RECEIVE", "ROUTING")]
        assert (made["network-message-id"], made["reference"]) == (child.id, parent.id)


async def test_a_list_without_an_owner_keeps_the_sender_and_tells_it_that_the_list_was_expanded(
    tmp_path: Path,
) -> None:
    async with (
        ScriptedHop() as hop,
        boundary(tmp_path, "mx1", **with_file(tmp_path, hop)) as (one,),
    ):
        async with sender(one) as client:
            await client.say("EHLO c.example")
            await client.say("MAIL FROM:<a@example.org> RET=HDRS ENVID=e1")
            await client.say("RCPT TO:<plain@example.net> NOTIFY=SUCCESS,FAILURE")
            assert (await client.content(MESSAGE)).startswith("250 ")
        one.run_queue()
        await eventually(lambda: settled(one))
        _, child = await parent_and_child(one)
        assert (child.envelope.sender, child.envelope.envid) == ("a@example.org", "e1")
        assert {(r.notify, r.orcpt) for r in child.recipients} == {(("FAILURE",), "rfc822;plain@example.net")}
        assert got(hop) == ["a@example.org", "c@example.net", "d@example.net"]
        report = next(content for content in hop.contents if b"report-type" in content)
        assert b"Action: expanded" in report


async def test_a_node_whose_file_lacks_the_list_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipients, "LOOK_AGAIN", 0.0)
    async with (
        ScriptedHop() as hop,
        boundary(tmp_path, "mx1", **with_file(tmp_path, hop)) as (one,),
    ):
        await sent(one, MESSAGE, "plain@example.net")
        (tmp_path / "recipients.toml").write_text("")
        await eventually(lambda: not one.node.book().lists)
        one.run_queue()
        await eventually(lambda: deferred(one))
        (tmp_path / "recipients.toml").write_text(FILE)
        await eventually(lambda: settled(one))
        assert got(hop) == ["c@example.net", "d@example.net"]


async def deferred(one: Station) -> bool:
    return any(
        row["event-id"] == "DEFER" and row["source-context"].startswith("451 4.2.4")
        for row in await one.tracked()
    )


async def test_what_a_member_forwards_to_its_list_is_refused(tmp_path: Path) -> None:
    async with (
        ScriptedHop() as hop,
        boundary(tmp_path, "mx1", "mx2", **with_file(tmp_path, hop)) as (owner, other),
    ):
        assert (await sent(owner, MESSAGE, "sales@example.net")).startswith("250 ")
        owner.run_queue()
        await eventually(lambda: any(b"report-type" not in content for content in hop.contents))
        forwarded = original(next(content for content in hop.contents if b"report-type" not in content))
        for back in (owner, other):  # whichever member of the boundary it comes to
            assert (await sent(back, forwarded, "Team@example.net")).startswith("554 5.4.6 Mail loop")
        assert (await sent(owner, forwarded, "plain@example.net")).startswith("250 ")
        assert (await sent(owner, forwarded, "c@example.net")).startswith("250 ")


async def test_a_damaged_message_is_not_expanded(tmp_path: Path) -> None:
    async with (
        ScriptedHop() as hop,
        boundary(tmp_path, "mx1", **with_file(tmp_path, hop)) as (one,),
    ):
        await sent(one, MESSAGE, "plain@example.net")
        (copy,) = await one.copies()
        await spoil(one, "UPDATE content SET data = ? WHERE message_id = ?", b"other", copy.id)
        one.run_queue()
        await eventually(lambda: damaged(one))
        assert await having(one, 1)
        assert got(hop) == []


async def damaged(one: Station) -> bool:
    return "HADAMAGE" in await one.events()


async def test_the_file_is_wrong_and_the_node_says_so_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipients, "LOOK_AGAIN", 0.0)
    async with (
        ScriptedHop() as hop,
        boundary(tmp_path, "mx1", **with_file(tmp_path, hop)) as (one,),
    ):
        assert one.node.warning() == ""
        (tmp_path / "recipients.toml").write_text("[aliases\n")
        await eventually(lambda: "is no TOML" in one.node.warning())
        async with sender(one) as client:
            assert (await client.begin("bob@example.net")).startswith("250 ")


@asynccontextmanager
async def a_disk_to_be_lost(
    tmp_path: Path, **more: Any
) -> AsyncIterator[tuple[ScriptedHop, Station, Station, Callable[[], Awaitable[None]]]]:
    """A next hop that takes nothing yet, owner and holder, and what loses the owner's disk."""
    async with AsyncExitStack() as stack:
        hop = await stack.enter_async_context(ScriptedHop(MAIL=LATER))
        changes = with_file(tmp_path, hop)
        owner, holder = await stack.enter_async_context(boundary(tmp_path, "mx1", "mx2", **changes, **more))

        async def lost() -> None:
            """It comes back with an empty one."""
            await owner.quiet()
            for connector in owner.connectors:
                await connector.stop(0)
            back = await station(tmp_path / "new", "mx1", ["mx2"], disk=1, **changes)
            stack.push_async_callback(back.stop)
            back.knows(holder)
            holder.knows(back)
            back.run_links()

        yield hop, owner, holder, lost


@pytest.mark.parametrize("safe", [False, True], ids=["before", "after"])
async def test_the_owner_is_lost_around_the_moment_when_the_members_message_is_safe(
    tmp_path: Path, safe: bool
) -> None:
    """No member goes without, and none gets two: the holder expands again, or has what was made."""
    async with a_disk_to_be_lost(tmp_path) as (hop, owner, holder, lost):
        await sent(owner, MESSAGE, "team@example.net")
        holder.run_links()
        owner.run_queue()
        await eventually(lambda: having(owner, 3))  # the third is the report on the member that nobody has
        parent, made = await parent_and_child(owner)
        assert parent.stage is Stage.SAFETY_NET
        assert await owner.rows("discard_event") == 0
        if safe:
            owner.run_repair()
            await eventually(lambda: having(holder, 3))
            await eventually(lambda: is_settled(holder, parent))
        else:
            assert [one.held for one in await holder.copies()] == [True]
        await lost()
        hop.script["MAIL"] = OK
        hop.commands.clear()
        holder.run_reconcile()
        holder.run_queue()
        holder.run_repair()
        await eventually(lambda: settled(holder))
        again, child = await parent_and_child(holder)
        assert (child.id, child.role) == (made.id, Role.PRIMARY)
        assert again.epoch == (1 if safe else 2)
        assert got(hop) == ["Robert@example.net", "c@example.net", "d@example.net", "owner@example.net"]
        expanded = [row for row in await holder.tracked() if row["event-id"] == "EXPAND"]
        assert len(expanded) == (0 if safe else 1)


async def having(one: Station, count: int) -> bool:
    return len(await one.copies()) == count


async def is_settled(one: Station, like: Copy) -> bool:
    return next(copy for copy in await one.copies() if copy.id == like.id).stage is Stage.SAFETY_NET
