"""One bad disk loses no mail that has two copies, and nothing leaves that is not as it was accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from damaging import LARGE, SMALL, accepted, awake, file_of, from_before_sums, nodes, spoil
from scripted_hop import ScriptedHop, original
from stations import eventually, full
from structlog.testing import capture_logs

from shadowrelay.core.decisions import Decision, DropCopy, VerdictKind
from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.members.conversation import Query
from shadowrelay.core.members.damage import Wanted
from shadowrelay.core.messages import Damage, HolderState, Reason, Stage
from shadowrelay.core.ownership.transfer import intend, saved
from shadowrelay.core.steps import Ask, Unanswered
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.members import mend


def flipped(octets: bytes) -> bytes:
    at = len(octets) // 2
    return octets[:at] + bytes([octets[at] ^ 4]) + octets[at + 1 :]


FILES: dict[str, Callable[[bytes], bytes | None]] = {
    "one bit flipped": flipped,
    "cut in half": lambda octets: octets[: len(octets) // 2],
    "zeroed": lambda octets: bytes(len(octets)),
    "a line more": lambda octets: octets + b"one more\r\n",
    "emptied": lambda octets: b"",
    "gone": lambda octets: None,
}


@pytest.mark.parametrize("how", FILES)
async def test_a_damaged_content_is_fetched_and_leaves_as_it_was_accepted(tmp_path: Path, how: str) -> None:
    async with ScriptedHop() as hop, nodes(tmp_path, hop, "mx1", "mx2") as (owner, holder):
        copy = await accepted(owner, LARGE)
        path = file_of(owner, copy.id)
        good = path.read_bytes()
        changed = FILES[how](good)
        path.unlink() if changed is None else path.write_bytes(changed)
        awake(owner, holder)
        await eventually(lambda: len(hop.contents) == 1)
        assert original(hop.contents[0]) == good
        events = await owner.events()
        assert events.index("HADAMAGE") < events.index("HARESTORE") < events.index("SENDEXTERNAL")
        assert "HARESTORE" in await holder.events()
        assert "FAIL" not in events


async def test_a_holder_that_was_just_upgraded_gives_its_good_copy(tmp_path: Path) -> None:
    """It has no digest of it before it reads it: that is no answer that it has none."""
    async with ScriptedHop() as hop, nodes(tmp_path, hop, "mx1", "mx2") as (owner, holder):
        copy = await accepted(owner, LARGE)
        path = file_of(owner, copy.id)
        good = path.read_bytes()
        path.write_bytes(flipped(good))
        await holder.read(from_before_sums)
        awake(owner, holder)
        await eventually(lambda: len(hop.contents) == 1)
        assert original(hop.contents[0]) == good


@pytest.mark.parametrize("made", ["other octets", "text"])
async def test_a_damaged_body_in_the_database_is_fetched_too(tmp_path: Path, made: str) -> None:
    async with ScriptedHop() as hop, nodes(tmp_path, hop, "mx1", "mx2") as (owner, holder):
        copy = await accepted(owner, SMALL)
        good = await owner.octets(copy.id)
        # A flipped bit in front of a row makes text of it: the same octets, of another kind.
        data = good.decode() if made == "text" else flipped(good)
        await spoil(owner, "UPDATE content SET data = ? WHERE message_id = ?", data, copy.id)
        awake(owner, holder)
        await eventually(lambda: len(hop.contents) == 1)
        assert original(hop.contents[0]) == good


async def test_contents_that_were_exchanged_are_told_apart(tmp_path: Path) -> None:
    async with ScriptedHop() as hop, nodes(tmp_path, hop, "mx1", "mx2") as (owner, holder):
        copies = [await accepted(owner, LARGE + b"%d\r\n" % number) for number in (1, 2)]
        paths = [file_of(owner, copy.id) for copy in copies]
        good = [path.read_bytes() for path in paths]
        for path, other in zip(paths, reversed(good), strict=True):
            path.write_bytes(other)
        awake(owner, holder)
        await eventually(lambda: len(hop.contents) == 2)
        assert sorted(map(original, hop.contents)) == sorted(good)
        for row in [row for row in await owner.tracked() if row["event-id"] == "SENDEXTERNAL"]:
            assert row["network-message-id"] in {copy.id for copy in copies}


ROWS = {
    "a letter of an address": "UPDATE recipient SET address = 'c@example.net' WHERE message_id = ?",
    "no text at all": "UPDATE recipient SET address = CAST(x'62ff40' AS TEXT) WHERE message_id = ?",
    "a letter of the subject": "UPDATE message SET subject = CAST(x'ff' AS TEXT) WHERE id = ?",
    "years older": "UPDATE message SET received_at = received_at - 140737488355328 WHERE id = ?",
    "an epoch": "UPDATE message SET epoch = epoch + 2 WHERE id = ?",
    "its owner": "UPDATE message SET owner = 'mx3.example.org' WHERE id = ?",
    "a stage that there is not": "UPDATE message SET stage = 'queuee' WHERE id = ?",
    "a recipient's state": "UPDATE recipient SET status = 'relayed', due_at = NULL WHERE message_id = ?",
    "a next hop": "UPDATE recipient SET next_hop = 'oup' WHERE message_id = ?",
    "a holder's state": "UPDATE holder SET state = 'lost' WHERE message_id = ?",
    "a digest": "UPDATE message SET content_digest = 'xxh3-128:0' WHERE id = ?",
    "no row at all": "DELETE FROM message WHERE id = ?",
    "no sum": "UPDATE message SET row_sum = NULL, received_at = received_at - 140737488355328 WHERE id = ?",
    "a recipient that is gone": "DELETE FROM recipient WHERE message_id = ?",
    "a time that cannot be": "UPDATE message SET received_at = 1 << 62 WHERE id = ?",
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("what", ROWS)
async def test_a_damaged_row_damages_that_message_alone_and_is_restored(tmp_path: Path, what: str) -> None:
    async with ScriptedHop() as hop, nodes(tmp_path, hop, "mx1", "mx2") as (owner, holder):
        other = await accepted(owner, SMALL, "other@example.net")
        copy = await accepted(owner, SMALL, "b@example.net")
        good = await owner.octets(copy.id)
        await spoil(owner, ROWS[what], copy.id)
        awake(owner, holder)
        await owner.read(lambda ledger: ledger.copy(copy.id))  # the scrub reads it, at the latest
        await eventually(lambda: len(hop.contents) == 2)
        assert good in map(original, hop.contents)
        assert sorted(said for said in hop.commands if said.startswith("RCPT")) == [
            "RCPT TO:<b@example.net>",
            "RCPT TO:<other@example.net>",
        ]
        assert not owner.database.failed.is_set()

        async def settled() -> bool:
            return all(one.stage is Stage.SAFETY_NET for one in await owner.copies())

        await eventually(settled)
        assert {one.id for one in await owner.copies()} == {other.id, copy.id}
        assert "FAIL" not in await owner.events()


async def test_what_was_sent_before_its_rows_were_damaged_is_not_sent_again(tmp_path: Path) -> None:
    """The first recipient's row is gone bad with the others, before the holder was told that it was sent; the
    tracking log knows.
    """
    async with ScriptedHop() as hop, nodes(tmp_path, hop, "mx1", "mx2") as (owner, holder):
        hop.script["RCPT TO:<later@example.net>"] = [b"451 4.2.1 later\r\n"]
        copy = await accepted(owner, SMALL, "now@example.net", "later@example.net")
        awake(owner)
        await eventually(lambda: len(hop.contents) == 1)

        async def tried() -> bool:
            (one,) = await owner.copies()
            return [r.settled for r in one.recipients] == [True, False]

        await eventually(tried)
        del hop.script["RCPT TO:<later@example.net>"]
        await spoil(owner, "UPDATE recipient SET address = 'x' || address WHERE message_id = ?", copy.id)
        await spoil(owner, "DELETE FROM discard_event WHERE message_id = ?", copy.id)
        awake(holder)
        await owner.read(lambda ledger: ledger.copy(copy.id))
        await eventually(lambda: len(hop.contents) == 2)
        assert [said for said in hop.commands if "now@" in said] == ["RCPT TO:<now@example.net>"]


async def test_a_damaged_copy_is_no_copy_and_its_owner_makes_another_one(tmp_path: Path) -> None:
    async with ScriptedHop() as hop, nodes(tmp_path, hop, "mx1", "mx2") as (owner, holder):
        copy = await accepted(owner, LARGE)
        path = file_of(holder, copy.id)
        good = path.read_bytes()
        path.write_bytes(flipped(good))
        assert (await holder.node.examiner.look(copy.id)).value == "damaged"
        awake(owner, holder, queue=False)

        async def whole_again() -> bool:
            (held,) = await holder.copies()
            (ours,) = await owner.copies()
            return held.damage is None and ours.holders[0].state is HolderState.HOLDING

        await eventually(whole_again)
        assert await holder.octets(copy.id) == good
        assert not path.exists()  # the damaged file went with the commit that replaced it
        told = [row for row in await owner.tracked() if row["event-id"] == "HAREDIRECT"]
        assert len(told) == 2


async def test_where_only_a_content_is_left_of_a_message_a_copy_of_it_can_be_held_again(
    tmp_path: Path,
) -> None:
    """Its owner has forgotten it; the holder promotes its copy, and has nobody else to hold one."""
    async with ScriptedHop() as hop, nodes(tmp_path, hop, "mx1", "mx2") as (owner, holder):
        copy = await accepted(owner, SMALL)
        for statement in (
            "DELETE FROM message WHERE id = ?",
            "DELETE FROM recipient WHERE message_id = ?",
            "DELETE FROM holder WHERE message_id = ?",
        ):
            await spoil(owner, statement, copy.id)
        awake(owner, holder, queue=False)

        async def two_again() -> bool:
            (new,) = await holder.copies()
            return new.owned and not new.exposed

        await eventually(two_again)
        assert [one.held for one in await owner.copies()] == [True]


async def test_a_repair_ends_no_offer_of_what_is_damaged(tmp_path: Path) -> None:
    """Its holder would refuse it by the digest; its owner knows before that."""
    async with ScriptedHop() as hop, nodes(tmp_path, hop, "mx1", "mx2") as (owner, holder):
        copy = await accepted(owner, LARGE)
        file_of(owner, copy.id).write_bytes(flipped(LARGE))
        await holder.read(lambda ledger: _forget(ledger, copy.id))
        await owner.read(lambda ledger: _without_holders(ledger, copy.id))
        awake(owner, holder, queue=False)

        async def found() -> bool:
            return [one.damage for one in await owner.copies()] == [Damage.CONTENT]

        with capture_logs() as said:
            await eventually(found)
        assert "copy_differs" not in {line["event"] for line in said}
        assert await holder.copies() == []


async def test_nothing_is_set_aside_before_the_member_that_is_away_was_asked(tmp_path: Path) -> None:
    async with ScriptedHop() as hop, nodes(tmp_path, hop, "mx1", "mx2", "mx3") as (owner, one, other):
        copy = await accepted(owner, LARGE)
        holder, third = (one, other) if await one.copies() else (other, one)
        good = file_of(owner, copy.id).read_bytes()
        file_of(owner, copy.id).write_bytes(b"")
        away: Any = owner.node.members.addresses
        away[holder.name] = replace(away[holder.name], port=9)
        await owner.node.members.close()
        awake(owner, third)

        async def asked() -> bool:
            events = await owner.events()
            unanswered = [watch for watch in owner.node.boundary.watches.values() if watch.failures]
            return "HADAMAGE" in events and [watch.name for watch in unanswered] == [holder.name]

        await eventually(asked)
        await asyncio.sleep(2 * mend.INTERVAL)  # the third member has said by now that it has none
        assert "SUSPEND" not in await owner.events()
        owner.knows(holder)
        awake(holder)
        await eventually(lambda: len(hop.contents) == 1)
        assert original(hop.contents[0]) == good


@pytest.mark.slow
async def test_what_is_damaged_a_second_time_is_asked_of_everybody_again(tmp_path: Path) -> None:
    """The second member had no copy when the first damage was found. It has the only good one at the next."""
    async with ScriptedHop() as hop, nodes(tmp_path, hop, "mx1", "mx2", "mx3") as (owner, one, other):
        while not await other.copies():  # members are asked by name: the second one before the third
            copy = await accepted(owner, LARGE)
        file_of(owner, copy.id).write_bytes(b"")
        awake(owner, one, other, queue=False)
        assert (await owner.node.examiner.look(copy.id)).value == "damaged"

        async def good_again() -> bool:
            return copy.id in {found.id for found in await owner.copies() if found.damage is None}

        await eventually(good_again)

        away: Any = owner.node.members.addresses
        here = away[other.name]
        away[other.name] = replace(here, port=9)
        await owner.node.members.close()
        await other.read(lambda ledger: _forget(ledger, copy.id))
        await owner.read(lambda ledger: _without_holders(ledger, copy.id))

        async def held_by_the_second() -> bool:
            ours = {found.id: found for found in await owner.copies()}
            return not ours[copy.id].exposed

        await eventually(held_by_the_second)
        await asyncio.sleep(2 * mend.INTERVAL)  # a look by which it is good
        away[other.name] = here
        owner.knows(other)
        file_of(owner, copy.id).write_bytes(b"")
        assert (await owner.node.examiner.look(copy.id)).value == "damaged"
        await eventually(good_again)
        assert "SUSPEND" not in await owner.events()


async def test_a_damaged_copy_is_never_promoted_and_waits_for_the_operator(tmp_path: Path) -> None:
    """Its owner's disk is lost, and the third member has none: it is neither delivered nor bounced."""
    async with ScriptedHop() as hop, nodes(tmp_path, hop, "mx1", "mx2") as (owner, holder):
        copy = await accepted(owner, LARGE)
        file_of(holder, copy.id).write_bytes(b"")
        await holder.read(lambda ledger: _owner_is_gone(ledger, copy.id))
        await owner.read(lambda ledger: _forget(ledger, copy.id))
        awake(holder, owner)

        async def aside() -> bool:
            return [one.stage for one in await holder.copies()] == [Stage.SET_ASIDE]

        await eventually(aside)
        (row,) = [row for row in await holder.tracked() if row["event-id"] == "SUSPEND"]
        assert row["source-context"] == "damaged, and no member has a good copy"
        events = await holder.events()
        assert {"RESUBMIT", "FAIL", "DSN", "SENDEXTERNAL"}.isdisjoint(events)
        assert hop.contents == []


def _owner_is_gone(ledger: SqlLedger, message_id: MessageId) -> None:
    copy = ledger.copy(message_id)
    assert copy
    ledger.apply(intend(copy, Reason.DATABASE_REPLACED, datetime.now(UTC)))


def _without_holders(ledger: SqlLedger, message_id: MessageId) -> None:
    copy = ledger.copy(message_id)
    assert copy
    ledger.apply(saved(copy, replace(copy, holders=())))


def _forget(ledger: SqlLedger, message_id: MessageId) -> None:
    copy = ledger.copy(message_id)
    assert copy
    ledger.apply(Decision(None, (DropCopy(copy),)))


async def test_a_member_is_given_only_what_is_held_for_it(tmp_path: Path) -> None:
    """The third member asks for a message of the first, whose copy the second holds."""
    async with ScriptedHop() as hop, nodes(tmp_path, hop, "mx1", "mx2", "mx3") as (owner, one, other):
        copy = await accepted(owner, SMALL)
        holder, stranger = (one, other) if await one.copies() else (other, one)
        assert copy.digests
        for wanted in (Wanted(copy.id), Wanted(copy.id, 1, copy.digests.content)):
            said = await stranger.node.members.ask(Ask(holder.name, Query(0, wanted=wanted)))
            assert not isinstance(said, Unanswered)
            assert [line.verdict.kind for line in said.lines] == [VerdictKind.TAKEN]
        assert await stranger.copies() == []
        mine = await owner.node.members.ask(Ask(holder.name, Query(0, wanted=Wanted(copy.id))))
        assert not isinstance(mine, Unanswered)
        assert [line.verdict.kind for line in mine.lines] == [VerdictKind.YOURS]
        assert full("mx3") not in {row.get("server-hostname") for row in await holder.tracked()}
