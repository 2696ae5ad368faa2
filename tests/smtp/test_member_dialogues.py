"""The golden dialogues between members (tests/wire/golden), spoken with a real port."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from golden_dialogues import FILES, read
from receiving import RawClient
from stations import Station, database_id, full, incarnation, offer, station

from shadowrelay.core.decisions import Content, Decision, DiscardEvent, Outcome, SaveCopy
from shadowrelay.core.identifiers import MessageId, ServerName
from shadowrelay.core.members.damage import found
from shadowrelay.core.messages import Copy, Role
from shadowrelay.core.tracking import Receive
from shadowrelay.wire.xqdiscard import parse_line

NOW = datetime.now(UTC)
CALLER, CALLED = full("mx1"), full("mx2")
_TIME = re.compile(r" TIME=\d+(?= )")  # of the wall clock, which is another each time


async def prepare(holder: Station, given: str) -> None:
    """``tell``: an event for the caller; ``hold``, ``own``: a copy here; ``keep``: a copy with a content of
    eight octets, for that owner; ``damage``: that of before; ``remember``: an outcome; ``refuse``: that of an
    arrival.
    """
    word, _, rest = given.partition(" ")
    if word == "tell":
        event = DiscardEvent(database_id(1), parse_line(f"- {rest}").verdict, NOW)
        return await holder.read(lambda ledger: ledger.apply(Decision(None, (event,))))
    if word == "damage":
        return await holder.read(lambda ledger: ledger.apply(found(ledger, MessageId(rest), NOW)))
    if word == "refuse":
        refused = Decision(None, (Outcome(MessageId(rest), 1, (), NOW + timedelta(days=1), refused=True),))
        return await holder.read(lambda ledger: ledger.apply(refused))
    if word == "keep":
        return await keep(holder, *rest.split(" "))
    message, epoch = rest.split(" ")
    if word == "remember":
        outcome = Outcome(MessageId(message), int(epoch), (1,), NOW + timedelta(days=1))
        return await holder.read(lambda ledger: ledger.apply(Decision(None, (outcome,))))
    step = offer(CALLED)
    copy = Copy(
        id=MessageId(message),
        epoch=int(epoch),
        rank=1,
        role=Role.SHADOW,
        owner=CALLER,
        owner_database=database_id(1),
        offered_in=incarnation(1),
        envelope=step.envelope,
        recipients=step.recipients,
        digests=step.digests,
        received_at=NOW,
    )
    if word == "own":
        copy = replace(copy, role=Role.PRIMARY, owner=CALLED, owner_database=database_id(2))
    save = SaveCopy(None, copy, Content(data=b""))
    return await holder.read(
        lambda ledger: ledger.apply(Decision(None, (save,), (Receive(at=NOW, copy=copy),)))
    )


async def keep(holder: Station, message: str, owner: str) -> None:
    octets = b"\r\nbody\r\n"
    step = offer(CALLED, content=octets)
    copy = Copy(
        id=MessageId(message),
        epoch=1,
        rank=1,
        role=Role.SHADOW,
        owner=ServerName(owner),
        owner_database=database_id(1),
        offered_in=incarnation(1),
        envelope=replace(step.envelope, size=len(octets)),
        recipients=step.recipients,
        digests=step.digests,
        received_at=NOW,
    )
    save = SaveCopy(None, copy, Content(data=octets))
    await holder.read(lambda ledger: ledger.apply(Decision(None, (save,))))


DIALOGUES = {file.stem: file.read_text("utf-8") for file in FILES}


@pytest.mark.parametrize("name", DIALOGUES)
async def test_the_dialogue_goes_as_it_is_written(tmp_path: Path, name: str) -> None:
    given, exchanges = read(DIALOGUES[name])
    async with AsyncExitStack() as stack:
        holder = await station(tmp_path, "mx2", ["mx1"])
        stack.push_async_callback(holder.stop)
        for line in given:
            await prepare(holder, line)
        client = RawClient(*await asyncio.open_connection("127.0.0.1", holder.peer_port))
        stack.push_async_callback(client.close)
        await client.line()
        await client.say(f"EHLO {CALLER}")
        for exchange in exchanges:
            client.send(exchange.octets)
            said = _TIME.sub("", await client.reply())
            assert said == "|".join(exchange.reply), exchange.command
