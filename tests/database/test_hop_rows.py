"""What is kept of peers beyond the boundary: it survives, and what a disk made of it says nothing wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from damaging import unclean
from opened import NOW, OTHER_DATABASE, database, incarnation, message, save
from test_damaged_tables import put
from test_database_salvage import leaves, overwrite

from shadowrelay.core.decisions import Content, Decision
from shadowrelay.core.delivery.settling import AttemptResult, Ending, Hop, settle
from shadowrelay.core.hops import Handed, HopPeer
from shadowrelay.core.identifiers import Beginning, Lineage, Mark, MessageId, ServerName
from shadowrelay.database.opening import FILE

PEER = ServerName("hub.example.net")
THEIRS = MessageId("01900000-0000-7000-8000-0000000000ff")
LINEAGE = Lineage(OTHER_DATABASE, (Beginning(incarnation(7), 0), Beginning(incarnation(8), 5)), 9)
KNOWN = HopPeer(PEER, LINEAGE, incarnation(1), Mark(incarnation(8), 3), incarnation(6))


def handed(message_id: MessageId, *numbers: int) -> Handed:
    return Handed(message_id, PEER, OTHER_DATABASE, THEIRS, numbers)


@pytest.mark.parametrize("peer", [KNOWN, HopPeer(PEER)])
async def test_a_peer_and_what_it_handed_over_are_read_as_they_were_written(
    tmp_path: Path, peer: HopPeer
) -> None:
    given = handed(message().id, 3, 1, 20)
    async with database(tmp_path) as there:
        await there.transact(lambda ledger: ledger.apply(Decision(None, (peer, given))))
    async with database(tmp_path) as there:
        assert await there.transact(lambda ledger: ledger.hop_peer(PEER)) == peer
        assert await there.transact(lambda ledger: ledger.handed(given.message_id)) == given
        assert await there.transact(lambda ledger: ledger.handed_as(OTHER_DATABASE, THEIRS)) == [given]


@pytest.mark.parametrize("column", ["peer", "database_id", "their_id", "numbers"])
async def test_a_damaged_row_of_what_was_handed_over_tells_the_peer_nothing(
    tmp_path: Path, column: str
) -> None:
    """The peer would drop its copy of a message, or of recipients, that nobody has delivered."""
    copy = message("inside")
    async with database(tmp_path) as there:
        await there.transact(save(copy))
        await there.transact(lambda ledger: ledger.apply(Decision(None, (handed(copy.id, 1),))))
    put(tmp_path, f"UPDATE handed SET {column} = ?", "2")
    async with database(tmp_path) as there:
        result = AttemptResult(1, Ending.ACCEPTED, "250 OK")
        hop = Hop("next", inside=False, mailbox=False)
        await there.transact(lambda ledger: ledger.apply(settle(ledger, copy.id, [result], (), hop, NOW)))
        events = await there.transact(
            lambda ledger: ledger.connection.execute("SELECT count(*) FROM discard_event").fetchone()[0]
        )
        assert events == 0
        assert await there.transact(lambda ledger: ledger.handed(copy.id)) is None


async def test_a_damaged_row_of_a_peer_is_none_and_it_introduces_itself_again(tmp_path: Path) -> None:
    async with database(tmp_path) as there:
        await there.transact(lambda ledger: ledger.apply(Decision(None, (KNOWN,))))
    put(tmp_path, "UPDATE hop_peer SET told = substr(told, 5)")
    async with database(tmp_path) as there:
        assert await there.transact(lambda ledger: ledger.hop_peer(PEER)) is None


async def test_what_was_handed_over_survives_a_salvage(tmp_path: Path) -> None:
    copies = [message("inside") for _ in range(200)]
    async with database(tmp_path) as there:
        await there.transact(lambda ledger: ledger.apply(Decision(None, (KNOWN,))))
        for copy in copies:
            await there.transact(save(copy, Content(data=b"hello")))
            await there.transact(lambda ledger, one=copy: ledger.apply(Decision(None, (handed(one.id, 4),))))
    unclean(tmp_path / FILE)
    overwrite(tmp_path / FILE, leaves(tmp_path / FILE, "recipient")[1])
    async with database(tmp_path) as there:
        assert there.opened.salvaged
        assert await there.transact(lambda ledger: ledger.hop_peer(PEER)) == KNOWN
        kept = await there.transact(lambda ledger: ledger.handed_as(OTHER_DATABASE, THEIRS))
        assert {one.message_id for one in kept} == {copy.id for copy in copies}
