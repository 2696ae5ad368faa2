"""What becomes of a message without any good copy, once an operator has decided, or mended a disk."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from damaging import LARGE, accepted, awake, file_of, nodes, spoil
from scripted_hop import ScriptedHop, original
from stations import Station, eventually, full

from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.messages import Copy, Stage
from shadowrelay.core.ownership.set_aside import resume
from shadowrelay.members import mend

SECRET = b"a line that nobody is to quote"
OCTETS = LARGE + SECRET + b"\r\n"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that was promised, and found damaged before it came, is waited for less long."""
    monkeypatch.setattr(mend, "PATIENCE", 1.0)


@dataclass
class Spoilt:
    """A message whose two files are damaged, and which is set aside for that. ``good``: what they were."""

    hop: ScriptedHop
    owner: Station
    holder: Station
    copy: Copy
    good: bytes

    async def now(self) -> Copy:
        (found,) = [one for one in await self.owner.copies() if one.id == self.copy.id]
        return found

    async def is_aside(self) -> bool:
        return (await self.now()).stage is Stage.SET_ASIDE

    async def resume(self) -> None:
        at = self.owner.clock()
        assert await self.owner.read(lambda ledger: ledger.apply(resume(ledger, self.copy.id, at)))


@asynccontextmanager
async def spoilt(tmp_path: Path) -> AsyncIterator[Spoilt]:
    async with ScriptedHop() as hop, nodes(tmp_path, hop, "mx1", "mx2") as (owner, holder):
        copy = await accepted(owner, OCTETS)
        made = Spoilt(hop, owner, holder, copy, file_of(owner, copy.id).read_bytes())
        for node in (owner, holder):
            path = file_of(node, copy.id)
            path.write_bytes(path.read_bytes().replace(b"Subject", b"subject"))
        awake(owner, holder)
        await eventually(made.is_aside)
        yield made


async def test_without_a_good_copy_it_is_set_aside_again_however_often_it_is_resumed(tmp_path: Path) -> None:
    async with spoilt(tmp_path) as at:
        before = (await at.owner.events()).count("SUSPEND")
        await at.resume()

        async def again() -> bool:
            return (await at.owner.events()).count("SUSPEND") > before and await at.is_aside()

        await eventually(again)
        assert at.hop.contents == []
        assert {"FAIL", "DSN", "SENDEXTERNAL"}.isdisjoint(await at.owner.events())


async def test_what_was_put_back_on_its_own_disk_goes_out_once_it_is_resumed(tmp_path: Path) -> None:
    async with spoilt(tmp_path) as at:
        file_of(at.owner, at.copy.id).write_bytes(at.good)
        assert await at.is_aside()
        await at.resume()
        await eventually(lambda: len(at.hop.contents) == 1)
        assert original(at.hop.contents[0]) == at.good
        (row,) = [row for row in await at.owner.tracked() if row["event-id"] == "HARESTORE"]
        assert row["client-hostname"] == row["server-hostname"] == full("mx1")


@pytest.mark.slow
async def test_a_holder_whose_disk_was_mended_and_read_gives_its_copy_once_it_is_resumed(
    tmp_path: Path,
) -> None:
    async with spoilt(tmp_path) as at:
        file_of(at.holder, at.copy.id).write_bytes(at.good)
        at.holder.run(at.holder.node.scrub.run())
        at.holder.node.scrub.begin_at_once()

        async def sound() -> bool:
            return not any(one.damaged for one in await at.holder.copies())

        await eventually(sound)
        await at.resume()
        await eventually(lambda: len(at.hop.contents) == 1)
        assert original(at.hop.contents[0]) == at.good


async def test_its_sender_is_told_when_it_is_given_up_and_nothing_of_it_is_quoted(tmp_path: Path) -> None:
    async with spoilt(tmp_path) as at:
        file_of(at.owner, at.copy.id).unlink()
        assert await at.owner.node.give_up(at.copy.id, "ann")
        await eventually(lambda: len(at.hop.contents) == 1)
        report = at.hop.contents[0]
        assert b"5.3.0" in report
        assert SECRET not in report
        assert b"subject: large" not in report
        assert (await at.now()).stage is Stage.SAFETY_NET


async def test_a_content_of_which_even_the_row_is_gone_can_be_given_up_too(tmp_path: Path) -> None:
    async with spoilt(tmp_path) as at:
        await spoil(at.owner, "DELETE FROM content WHERE message_id = ?", at.copy.id)
        assert await at.owner.node.give_up(at.copy.id, "ann")
        assert "FAIL" in await at.owner.events()


async def test_who_has_not_answered_is_told_while_it_is_away(tmp_path: Path) -> None:
    async with ScriptedHop() as hop, nodes(tmp_path, hop, "mx1", "mx2", "mx3") as (owner, one, other):
        copy = await accepted(owner, LARGE)
        holder, third = (one, other) if await one.copies() else (other, one)
        file_of(owner, copy.id).write_bytes(b"")
        await holder.quiet()
        awake(owner, third)
        await eventually(lambda: set(owner.node.waits_for(copy.id)) == {holder.name})
        assert (await owner.node.damage_in_log(copy.id) or ("", ""))[1] == "the octets differ from the digest"
        assert await owner.node.damage_in_log(MessageId("none")) is None
