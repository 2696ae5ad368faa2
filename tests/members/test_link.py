"""The talk between two members: heartbeat, discards, questions, and what follows when one is gone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from stations import Station, boundary, database_id, eventually, full, offer, pieces
from structlog.testing import capture_logs

from shadowrelay.core.decisions import Decision, DiscardEvent, Outcome, SaveCopy, Verdict, VerdictKind
from shadowrelay.core.messages import Reason, Role, Stage, Status
from shadowrelay.core.ownership.heartbeat import take_over
from shadowrelay.core.ownership.transfer import promote
from shadowrelay.core.reception.redundancy import Leg

CONTENT = b"Subject: held\r\n\r\nbody\r\n"


async def held(owner: Station, holder: Station, number: int = 1) -> str:
    """A copy that the holder holds for the owner, which knows nothing of it."""
    attempt = await owner.node.members.offer(offer(holder.name, number, CONTENT), pieces(CONTENT))
    assert attempt.leg is Leg.ACKNOWLEDGED
    return offer(holder.name, number).message_id


async def tell(owner: Station, holder: Station, *verdicts: Verdict) -> None:
    to = holder.database.lineage.database_id
    events = tuple(DiscardEvent(to, verdict, owner.node.started_at) for verdict in verdicts)
    await owner.read(lambda ledger: ledger.apply(Decision(None, events)))


async def test_a_delivered_copy_moves_to_safety_net_within_the_poll_interval(tmp_path: Path) -> None:
    rarely = {"orphan_check_interval": "1h", "shadow_heartbeat_frequency": "1m"}
    async with boundary(tmp_path, "mx1", "mx2", **rarely) as (owner, holder):
        message = await held(owner, holder)
        holder.run_links()
        await eventually(lambda: holder.node.links[owner.name]._holding)
        await tell(owner, holder, Verdict(message, 1, VerdictKind.DELIVERED, "relayed"))  # type: ignore[arg-type]

        async def released() -> bool:
            return (await holder.copies())[0].stage is Stage.SAFETY_NET

        await eventually(released)
        assert (await holder.copies())[0].recipients[0].status is Status.RELAYED
        assert (await holder.events())[-1] == "HADISCARD"

        async def acknowledged() -> bool:
            return not await owner.read(
                lambda ledger: ledger.events_for(holder.database.lineage.database_id, 9)
            )

        holder.node.links[owner.name].wake.set()
        await eventually(acknowledged)


async def test_a_copy_that_the_owner_refused_goes(tmp_path: Path) -> None:
    """The sender saw no 250, and the owner has that on record; unless it is still deciding."""
    async with boundary(tmp_path, "mx1", "mx2", orphan_check_interval="1s") as (owner, holder):
        message = await held(owner, holder)
        owner.node.in_flight.add(message)  # type: ignore[arg-type]
        holder.run_links()

        async def asked() -> bool:
            copies = await holder.copies()
            return bool(copies) and copies[0].check_at is not None and copies[0].check_at > checked

        checked = (await holder.copies())[0].check_at
        assert checked
        await eventually(asked)
        refused = Decision(
            None, (Outcome(message, 1, (), datetime.now(UTC) + timedelta(days=4), refused=True),)
        )
        await owner.read(lambda ledger: ledger.apply(refused))
        owner.node.in_flight.clear()

        async def gone() -> bool:
            return not await holder.copies()

        await eventually(gone)
        assert (await holder.tracked())[-1]["source-context"].startswith("Rejected")
        assert await owner.copies() == []


async def test_a_copy_that_the_owner_has_forgotten_is_promoted(tmp_path: Path) -> None:
    """A stale page may have made it forget what it acknowledged, in the very incarnation that did."""
    async with boundary(tmp_path, "mx1", "mx2", orphan_check_interval="1s") as (owner, holder):
        await held(owner, holder)
        holder.run_links()
        holder.run_reconcile()

        async def promoted() -> bool:
            return [copy.owned for copy in await holder.copies()] == [True]

        await eventually(promoted)
        (row,) = [row for row in await holder.tracked() if row["event-id"] == "RESUBMIT"]
        assert row["source-context"] == "owner-forgot"


async def test_the_copies_of_an_owner_that_is_gone_too_long_are_promoted(tmp_path: Path) -> None:
    quick = {"shadow_resubmit_time_span": "1s", "holder_loss_heartbeats": 1}
    async with boundary(tmp_path, "mx1", "mx2", **quick) as (owner, holder):
        message = await held(owner, holder)
        await owner.quiet()
        await owner.connectors[0].stop(0)
        holder.run_links()
        holder.run_reconcile()

        async def promoted() -> bool:
            return (await holder.copies())[0].role is Role.PRIMARY

        await eventually(promoted, within=8)
        (ours,) = await holder.copies()
        assert (ours.id, ours.epoch, ours.former_owner) == (message, 2, owner.name)
        row = (await holder.tracked())[-1]
        assert (row["event-id"], row["source-context"]) == ("RESUBMIT", "heartbeat-lost")
        link = holder.node.links[owner.name]
        assert link.step == "connect"
        assert link.failing_since


async def test_a_heartbeat_that_fails_is_logged_with_its_step_and_its_cause(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, other):
        await owner.quiet()
        await owner.connectors[0].stop(0)
        with capture_logs() as logs:
            other.run_links()
            await eventually(lambda: [one for one in logs if one["event"] == "heartbeat_failed"])
        row = next(one for one in logs if one["event"] == "heartbeat_failed")
        assert (row["member"], row["step"], row["failures"]) == (owner.name, "connect", 1)
        assert "127.0.0.1" in row["error"]
        assert row["since"]


async def test_a_session_that_breaks_once_is_no_failed_heartbeat(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        holder.run_links()
        link = holder.node.links[owner.name]
        await eventually(lambda: link._session)
        link._session.abort()  # type: ignore[union-attr]
        link.wake.set()
        contact = link.contact_at
        await eventually(lambda: link.contact_at != contact)
        assert holder.node.boundary.watches[owner.name].failures == 0


async def test_a_member_that_comes_back_with_another_database_loses_its_copies_to_us(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        await held(owner, holder)
        lineage = owner.database.ledger.lineage
        owner.database.ledger._database_id = database_id(7)
        owner.database.lineage = replace(lineage, database_id=database_id(7))
        holder.run_links()
        holder.run_reconcile()

        async def promoted() -> bool:
            return (await holder.copies())[0].role is Role.PRIMARY

        await eventually(promoted)
        assert (await holder.tracked())[-1]["source-context"] == "database-replaced"


async def test_a_message_taken_over_makes_its_former_owner_a_holder(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, taker):
        await held(owner, taker)
        await held(taker, owner)
        (copy,) = await owner.copies()
        ours = replace(
            copy, role=Role.PRIMARY, owner=owner.name, owner_database=database_id(1), check_at=None
        )
        await owner.read(lambda ledger: ledger.apply(Decision(None, (SaveCopy(copy, ours),))))
        now = owner.node.started_at
        await taker.read(lambda ledger: take_over(ledger, owner.name, Reason.HEARTBEAT_LOST, now))
        await taker.read(lambda ledger: ledger.apply(promote(ledger, ledger.copy(copy.id), now)))
        owner.run_links()

        async def yielded() -> bool:
            return (await owner.copies())[0].role is Role.SHADOW

        await eventually(yielded)
        (copy,) = await owner.copies()
        assert (copy.epoch, copy.owner) == (2, full("mx2"))
        assert "TRANSFER" in await owner.events()

        async def recorded() -> bool:
            return [holder.name for holder in (await taker.copies())[0].holders] == [owner.name]

        await eventually(recorded)  # roles have swapped: two copies again, and nothing was sent
