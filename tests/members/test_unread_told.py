"""An answer that cannot be read is counted with the message, on every member that has a copy of it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from odd_answers import Odd, OddHop
from stations import Station, eventually
from test_orders_told import retire_of, taken_over, two_copies

from shadowrelay.core.delivery.settling import AttemptResult, Ending, Hop, settle
from shadowrelay.core.messages import Copy, Recipient, Unread
from shadowrelay.members import repair

PAUSE = timedelta(minutes=15)
HOST = "mx.example.net:25"
SAID = "451 4.5.0 It took the content, its answer cannot be read: 25x"


async def unreadable(owner: Station, copy: Copy, host: str = HOST) -> None:
    """An attempt of the owner's ends so."""
    result = AttemptResult(1, Ending.UNREADABLE, SAID, PAUSE, remote=False)
    hop = Hop(host, inside=False, mailbox=False)
    await owner.read(lambda ledger: ledger.apply(settle(ledger, copy.id, [result], (), hop, owner.clock())))


async def first(one: Station) -> Recipient:
    return (await one.copies())[0].recipients[0]


async def test_a_holder_hears_of_each_try_and_pauses_when_it_promotes_its_copy(tmp_path: Path) -> None:
    async with two_copies(tmp_path) as ((owner, holder), copy):
        await unreadable(owner, copy)
        await unreadable(owner, copy)
        assert (await first(owner)).unread == Unread(2, HOST)
        holder.run_links()

        async def heard() -> bool:
            return (await first(holder)).unread == Unread(2, HOST)

        await eventually(heard)
        await holder.quiet()
        await taken_over(holder, owner)
        there = (await holder.copies())[0]
        assert there.owned
        assert there.recipients[0].next_attempt is not None
        assert there.recipients[0].next_attempt > holder.clock() + timedelta(minutes=50)


async def test_a_holder_of_a_message_that_waits_for_an_operator_does_not_deliver_it_either(
    tmp_path: Path,
) -> None:
    async with OddHop(Odd(b"250 ok\r\n")) as hop:
        routes = {"out": {"domains": ["*"], "host": "127.0.0.1", "port": hop.port, "tls": "none"}}
        async with two_copies(tmp_path, routes=routes) as ((owner, holder), copy):
            for _ in range(4):
                await unreadable(owner, copy, f"127.0.0.1:{hop.port}")
            holder.run_links()

            async def heard() -> bool:
                unread = (await first(holder)).unread
                return unread is not None and unread.tries == 4

            await eventually(heard)
            await holder.quiet()
            await taken_over(holder, owner)
            holder.clock.ahead = timedelta(hours=1)
            holder.run_queue()

            async def promoted() -> bool:
                return (await holder.copies())[0].owned

            await eventually(promoted)
            looked_at = (await first(holder)).next_attempt
            assert looked_at is not None
            assert looked_at > holder.clock()
            assert hop.taken == 0


async def test_a_copy_that_is_made_later_has_the_count(tmp_path: Path) -> None:
    async with two_copies(tmp_path, "mx1", "mx2", "mx3") as ((owner, holder, third), copy):
        await unreadable(owner, copy)
        await holder.quiet()
        for connector in holder.connectors:
            await connector.stop(0)
        await owner.read(lambda ledger: ledger.apply(retire_of(ledger, holder)))
        repair.INTERVAL, before = 0.03, repair.INTERVAL
        try:
            owner.run_repair()

            async def copied() -> bool:
                return bool(await third.copies())

            await eventually(copied)
        finally:
            repair.INTERVAL = before
        assert (await first(third)).unread == Unread(1, HOST)
        paused = (await first(third)).next_attempt
        assert paused is not None
        assert paused > third.clock() + timedelta(minutes=14)


async def test_an_owner_hears_it_of_a_former_owner_whose_attempt_was_under_way(tmp_path: Path) -> None:
    async with two_copies(tmp_path) as ((owner, holder), copy):
        await taken_over(holder, owner)
        owner.run_links()
        holder.run_links()

        async def yielded() -> bool:
            return not (await owner.copies())[0].owned

        await eventually(yielded)
        await unreadable(owner, copy)

        async def heard() -> bool:
            return (await first(holder)).unread == Unread(1, HOST)

        await eventually(heard)
        assert (await holder.copies())[0].owned
