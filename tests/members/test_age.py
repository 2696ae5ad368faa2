"""How old a message is: counted by the clock of the node that has it, from the age that it was told."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from scripted_hop import ScriptedHop
from sending import sent
from stations import Station, boundary, eventually, offer, pieces

from shadowrelay.core.messages import Copy, Reason
from shadowrelay.core.ownership.transfer import intend
from shadowrelay.database.ledger import SqlLedger

HOUR = timedelta(hours=1)
MOMENT = timedelta(seconds=20)
MESSAGE = b"Subject: age\r\n\r\nbody\r\n"


async def held(holder: Station) -> Copy:
    (copy,) = await holder.copies()
    assert copy.held
    return copy


@pytest.mark.parametrize("ahead", [-3 * HOUR, 3 * HOUR], ids=["behind", "ahead"])
async def test_a_message_is_no_older_for_the_wrong_clock_of_its_owner(
    tmp_path: Path, ahead: timedelta
) -> None:
    """Its owner is lost; the holder promotes and delivers, it does not give the message up as expired."""
    async with ScriptedHop() as hop:
        route = {"domains": ["*"], "host": "127.0.0.1", "port": hop.port, "tls": "none"}
        changes = {"message_expiration_timeout": "1h", "reconcile_timeout": "1s", "routes": {"out": route}}
        async with boundary(tmp_path, "mx1", "mx2", **changes) as (owner, holder):
            owner.wall.ahead = ahead
            assert (await sent(owner, MESSAGE)).startswith("250 ")
            copy = await held(holder)
            assert abs(copy.received_at - datetime.now(UTC)) < MOMENT

            def gone(ledger: SqlLedger) -> None:
                ledger.apply(intend(copy, Reason.DATABASE_REPLACED, datetime.now(UTC)))

            await owner.quiet()
            await asyncio.gather(*(connector.stop(0) for connector in owner.connectors))
            await holder.read(gone)
            holder.run_links()
            holder.run_reconcile()
            holder.run_queue()
            await eventually(lambda: len(hop.contents) == 1)
            assert {"FAIL", "DSN"}.isdisjoint(await holder.events())


async def test_a_message_is_as_old_at_its_holder_as_at_its_owner(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        owner.wall.ahead = -3 * HOUR
        received_at = owner.wall() - HOUR  # by its own clock
        await owner.node.members.offer(
            offer(holder.name, content=b"x", received_at=received_at), pieces(b"x")
        )
        copy = await held(holder)
        assert abs(datetime.now(UTC) - copy.received_at - HOUR) < MOMENT
