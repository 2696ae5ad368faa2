"""What is shown after a verb is what the verb did: counts, ages and states."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sending import MESSAGE, sent
from stations import Station, boundary, eventually
from test_jobs import INSIDE, QUEUE, away, came_to, give, running

from shadowrelay.admin.node_view import NodeView
from shadowrelay.core.jobs import Filter, Verb
from shadowrelay.core.messages import Copy
from shadowrelay.core.ownership.set_aside import set_aside
from shadowrelay.core.ownership.transfer import ask_about
from shadowrelay.core.tracking_row import timestamp
from shadowrelay.database.views import MessageState
from shadowrelay.members import reconcile, record_replication, repair
from shadowrelay.operator import job_runner
from shadowrelay.operator.resume import resume
from shadowrelay.operator.retire import retire


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for stage in (reconcile, repair):
        monkeypatch.setattr(stage, "INTERVAL", 0.03)
    monkeypatch.setattr(job_runner, "INTERVAL", 0.05)
    monkeypatch.setattr(record_replication, "REFRESH", 0.1)


def view(one: Station) -> NodeView:
    return NodeView(one.node, one.node.clock, lambda: 0.0)


async def queue(one: Station) -> dict[str, Any]:
    (found,) = (await view(one).queues())["queues"]
    return dict(found)


async def test_a_retry_counts_a_message_that_was_taken_over_once_and_tries_it_once(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (one, lost):
        await running(one, lost)
        for _ in range(3):
            await sent(lost, MESSAGE)
        await away(lost)
        await eventually(lambda: lost.name not in one.node.boundary.reachable())
        for _ in range(2):
            await sent(one, MESSAGE)
        await one.read(lambda ledger: retire(ledger, lost.name, one.node.clock()))
        one.node.membership.retired(lost.name)

        async def promoted() -> bool:
            return (await queue(one))["messages"] == 5

        await eventually(promoted)
        found = await came_to(one, await give(one, Verb.RETRY), "done")
        assert found["did"] == 5
        rows = [row for row in await one.tracked() if row["source"] == "ADMIN" and row["event-id"] == "RETRY"]
        assert len([row for row in rows if row.get("network-message-id")]) == 5


async def by_job(one: Station, copy: Copy) -> None:
    await came_to(one, await give(one, Verb.SUSPEND), "done")
    for clock in (one.wall, one.clock):
        clock.ahead = timedelta(hours=3)
    await came_to(one, await give(one, Verb.RESUME), "done")


async def of_what_was_set_aside(one: Station, copy: Copy) -> None:
    await one.read(lambda ledger: ledger.apply(set_aside(copy, one.node.clock())))
    for clock in (one.wall, one.clock):
        clock.ahead = timedelta(hours=3)
    assert await one.read(lambda ledger: resume(ledger, copy.id, one.node.clock()))


@pytest.mark.parametrize("resumed", [by_job, of_what_was_set_aside])
async def test_a_resume_leaves_the_time_at_which_a_message_was_received(tmp_path: Path, resumed: Any) -> None:
    """Its age for expiry begins anew; what is shown, and what filters mean, is when it came."""
    async with boundary(tmp_path, "mx1") as (one,):
        await running(one)
        await sent(one, MESSAGE)
        (copy,) = await one.copies()
        received = timestamp(copy.received_at)
        await resumed(one, copy)
        (after,) = await one.copies()
        assert after.received_at > copy.received_at + timedelta(hours=2)
        (listed,) = (await view(one).messages(MessageState.QUEUED, "", 10))["messages"]
        shown: Any = await view(one).message(copy.id)
        assert {listed["received_at"], shown["received_at"], (await queue(one))["oldest"]} == {received}
        assert (await view(one).status())["oldest_queued"] == received
        for hours, found in ((2, 1), (4, 0)):
            older = Filter(queue=INSIDE, older=timedelta(hours=hours))
            seen = await one.node.services.jobs.preview(older)
            assert (seen["messages"], {each["received_at"] for each in seen["sample"]} <= {received}) == (
                found,
                True,
            )
            assert (await came_to(one, await give(one, Verb.RETRY, older), "done"))["did"] == found


@pytest.mark.parametrize("until", [None, datetime(2090, 1, 1, tzinfo=UTC)])
async def test_a_queue_whose_mail_is_suspended_is_shown_as_suspended_also_while_it_is_asked_about(
    tmp_path: Path, until: datetime | None
) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (one, two):
        await running(one, two)
        await sent(one, MESSAGE)
        await came_to(one, await give(one, Verb.SUSPEND, QUEUE, until=until), "done")
        assert (await queue(one))["status"] == "suspended"
        await one.quiet()
        (copy,) = await one.copies()
        await one.read(lambda ledger: ledger.apply(ask_about(copy, one.node.clock())))
        assert (await queue(one))["asking"] == 1
        assert (await queue(one))["status"] == "suspended"
        await sent(one, MESSAGE)  # another one may be sent
        assert (await queue(one))["status"] == "ready"
