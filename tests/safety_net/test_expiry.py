"""Safety Net is emptied after its hold time, and the space is given back."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from stations import boundary, eventually, offer, pieces, station

from shadowrelay.core.decisions import Content, Decision, SaveCopy
from shadowrelay.core.messages import Copy, Role, Stage, Status
from shadowrelay.core.policy import Policy
from shadowrelay.core.reckoning import Endings
from shadowrelay.safety_net.expiry import Expiry

POLICY = Policy(safety_net_hold_time=timedelta(seconds=1), message_expiration_timeout=timedelta(seconds=5))


async def test_a_settled_message_stays_for_the_hold_time_and_is_remembered_longer(tmp_path: Path) -> None:
    found = await station(tmp_path, "mx1", ["mx2"])
    content = found.node.spool / "large.eml"
    content.write_bytes(b"large")
    step, now = offer(found.name), datetime.now(UTC)
    copy = Copy(
        id=step.message_id,
        epoch=1,
        rank=0,
        role=Role.PRIMARY,
        stage=Stage.SAFETY_NET,
        owner=found.name,
        owner_database=found.database.lineage.database_id,
        offered_in=found.database.lineage.incarnation,
        envelope=step.envelope,
        recipients=tuple(replace(one, status=Status.RELAYED) for one in step.recipients),
        received_at=now,
        settled_at=now,
    )
    decision = Decision(None, (SaveCopy(None, copy, Content(path=str(content))),))
    await found.read(lambda ledger: ledger.apply(decision))
    found.run(Expiry(found.database, POLICY, lambda: Endings(datetime.now(UTC)), frozenset).run())
    assert len(await found.copies()) == 1

    async def gone() -> bool:
        return not await found.copies()

    await eventually(gone)
    assert datetime.now(UTC) - now >= POLICY.safety_net_hold_time
    await eventually(lambda: not found.files())
    outcome = await found.read(lambda ledger: ledger.outcome(copy.id))
    assert outcome is not None
    assert outcome.delivered == (1,)
    await found.stop()


async def test_a_shadow_copy_that_nobody_ever_settled_goes_in_the_end(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        old, young = b"\r\nold\r\n", b"\r\nyoung\r\n"
        step = offer(holder.name, content=old, received_at=datetime.now(UTC) - timedelta(seconds=7))
        await owner.node.members.offer(step, pieces(old))
        step = offer(holder.name, 2, young, received_at=datetime.now(UTC))
        await owner.node.members.offer(step, pieces(young))
        holder.run(Expiry(holder.database, POLICY, lambda: Endings(datetime.now(UTC)), frozenset).run())

        async def one_left() -> bool:
            return [copy.id for copy in await holder.copies()] == [step.message_id]

        await eventually(one_left)
        assert (await holder.tracked())[-1]["source-context"].startswith("Expired")


async def test_of_very_many_copies_each_sweep_looks_at_a_part_and_the_next_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shadowrelay.safety_net.expiry.LOOKS", 1)
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        old, young = b"\r\nold\r\n", b"\r\nyoung\r\n"
        kept = offer(holder.name, 1, young, received_at=datetime.now(UTC))
        await owner.node.members.offer(kept, pieces(young))
        gone = offer(holder.name, 2, old, received_at=datetime.now(UTC) - timedelta(seconds=7))
        await owner.node.members.offer(gone, pieces(old))
        assert kept.message_id < gone.message_id
        holder.run(Expiry(holder.database, POLICY, lambda: Endings(datetime.now(UTC)), frozenset).run())

        async def one_left() -> bool:
            return [copy.id for copy in await holder.copies()] == [kept.message_id]

        await eventually(one_left)
