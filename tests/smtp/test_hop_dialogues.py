"""The golden dialogues between hops (tests/wire/golden/hops), spoken with a real connector over TLS."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from golden_dialogues import FOLDER, read
from hopping import PEER, call, hop
from stations import Station, database_id, offer

from shadowrelay.core.decisions import Content, Decision, SaveCopy
from shadowrelay.core.delivery.settling import AttemptResult, Ending, Hop, settle
from shadowrelay.core.hops import Handed
from shadowrelay.core.identifiers import MessageId, NextHop
from shadowrelay.core.messages import Recipient
from shadowrelay.core.ownership.transfer import made_here
from shadowrelay.core.tracking import Receive
from shadowrelay.database.ledger import SqlLedger

NOW = datetime.now(UTC)
OURS = MessageId("01900000-0000-7000-8000-0000000000aa")
DIALOGUES = {file.stem: file.read_text("utf-8") for file in sorted((FOLDER / "hops").glob("*.txt"))}


async def prepare(node: Station, given: str) -> None:
    """``hand``: a message of the peer's with those numbers; ``settle``: that recipient of ours."""
    word, message, rest = given.split(" ", 2)
    theirs = MessageId(message)
    if word == "hand":
        numbers = tuple(map(int, rest.split(",")))

        def hand(ledger: SqlLedger) -> None:
            step = offer(node.name)
            recipients = tuple(
                Recipient(at, f"r{at}@inside.test", NextHop("inside")) for at in range(1, len(numbers) + 1)
            )
            copy = made_here(ledger, OURS, step.envelope, recipients, None, NOW)
            handed = Handed(OURS, PEER, database_id(1), theirs, numbers)
            writes = (SaveCopy(None, copy, Content(data=b"")), handed)
            ledger.apply(Decision(None, writes, (Receive(at=NOW, copy=copy),)))

        return await node.read(hand)
    number, ending = rest.split(" ")
    how = {"relayed": Ending.ACCEPTED, "failed": Ending.REJECTED}[ending]
    result = AttemptResult(int(number), how, "250 2.0.0 OK")
    away = Hop("next", inside=False, mailbox=False)
    await node.read(lambda ledger: ledger.apply(settle(ledger, OURS, [result], (), away, NOW)))
    return None


@pytest.mark.parametrize("name", DIALOGUES)
async def test_the_dialogue_goes_as_it_is_written(tmp_path: Path, name: str) -> None:
    given, exchanges = read(DIALOGUES[name])
    async with hop(tmp_path) as node:
        for line in given:
            await prepare(node, line)
        async with call(node, tmp_path) as client:
            for exchange in exchanges:
                client.send(exchange.octets)
                told = re.sub(r"250 2\.6\.0 \S+ Queued", f"250 2.6.0 {OURS} Queued", await client.reply())
                assert told == "|".join(exchange.reply), exchange.command
