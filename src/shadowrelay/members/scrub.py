"""The scrub: the stage that reads all that is kept, to find damage while another member has a good copy.

It reads rows and contents of queue, shadow queues and Safety Net from the disk, not from caches in memory,
and then all other rows. Then it compares every table with its indexes. It spreads a round evenly over the
interval, or reads at once if an operator asks for that. A missing row cannot be read, so the scrub also asks
the members that share a message about it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

import structlog

from shadowrelay import measures
from shadowrelay.core.identifiers import MessageId, ServerName
from shadowrelay.core.members.pace import Amount, Round, pause, share
from shadowrelay.core.members.questions import shared_with
from shadowrelay.core.messages import Copy, Damage
from shadowrelay.core.values import replace
from shadowrelay.database import scrubbing
from shadowrelay.database.examining import Examiner, Finding
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.scrubbing import FIRST, ScrubPlace, Seen
from shadowrelay.database.summed import SumRound
from shadowrelay.members.indexes import Indexes
from shadowrelay.members.inquiry import Inquiry

log = structlog.get_logger(__name__)

PAGE = 500  # messages that are listed at once
REST = timedelta(milliseconds=50)  # the shortest pause: shorter ones cost more than they spread
MOST_ASKED = 1000  # questions that may wait for one member; reading stops at more
TURN = 0.1  # seconds to wait until some of them have been asked
NOTE = 60.0  # seconds between two notes of the place reached


class Scrub:
    """The scrub of one node, for as long as the node runs.

    ``now``: the state of this round. ``last``: the last complete round. ``read``: the amount read since the
    start.
    """

    def __init__(
        self,
        examiner: Examiner,
        inquiry: Inquiry,
        reachable: Callable[[], Collection[ServerName]],
        interval: timedelta,
        clock: Callable[[], datetime],
        indexes: Indexes,
    ) -> None:
        self.now = Round()
        self.last: Round | None = None
        self.read = Amount()
        self.looks = measures.Histogram()  # how long it takes to read one message and to compare it
        self.interval = interval
        self._examiner = examiner
        self._database = examiner.database
        self._inquiry = inquiry
        self._reachable = reachable
        self._clock = clock
        self._indexes = indexes
        self._hurry = asyncio.Event()
        self._operator = ""  # who wants a round at once
        self._rounds = 0
        self._names = 0  # of indexes that were built again before this round
        self._began = 0.0  # on the loop's clock: when the round would have begun, with what was done before

    def begin_at_once(self, operator: str = "") -> int:
        """Begin a round at the first message, without pauses; it replaces a round with pauses. Returns its
        number.
        """
        if self.now.at_once:
            return self.now.number
        if not self._hurry.is_set():
            self._operator = operator
        self._hurry.set()
        return self._rounds + 1

    def go_on_slowly(self) -> None:
        """Nobody waits for the round any more: go on with pauses. Without an interval the round ends."""
        self._hurry.clear()
        self.now = replace(self.now, at_once=False)

    async def run(self) -> None:
        """Until cancelled."""
        place = await self._database.transact(scrubbing.place)
        self.now = Round(complete_at=place.complete_at)
        while True:
            if not self.interval and not self._hurry.is_set():
                self.now = Round(complete_at=place.complete_at)
                await self._hurry.wait()
            at_once = self._hurry.is_set()
            self._hurry.clear()
            place = await self._round(replace(place, behind=FIRST) if at_once else place, at_once=at_once)

    async def _round(self, place: ScrubPlace, *, at_once: bool) -> ScrubPlace:
        """Read from that place to the end. Returns where to go on: at the front, or here if interrupted."""
        began_at = self._clock()
        self._names = len(self._indexes.names)
        self._rounds += 1
        self.now = Round(
            number=self._rounds,
            began_at=began_at,
            at_once=at_once,
            operator=self._operator if at_once else "",
            complete_at=place.complete_at,
        )
        await self._count(place.behind)
        at = asyncio.get_running_loop().time()
        done = share(self.now.done, self.now.of) if self.now.of.messages else 0.0
        self._began = at - self.interval.total_seconds() * done
        noted = at
        while found := await self._listed(place.behind):
            await asyncio.to_thread(scrubbing.forget_file, self._database.file)
            await self._database.transact(scrubbing.forget_cached)
            for message_id, amount in found:
                looked = measures.now()
                await self._look(message_id)
                self.looks.since(looked)
                self.now = replace(self.now, done=self.now.done + amount)
                self.read += amount
                place = replace(place, behind=message_id)
                if (at := asyncio.get_running_loop().time()) - noted >= NOTE:
                    noted = at
                    await self._database.transact(partial(scrubbing.note, place=place))
                if await self._interrupted():
                    return place
        if await self._interrupted():
            return place
        await self._compare_rows()
        await self._compare_indexes()
        now = self._clock()
        place = await self._database.transact(lambda ledger: scrubbing.complete(ledger, now))
        self.last = replace(self.now, complete_at=now)
        self.now = Round(complete_at=now)
        told = log.error if self.last.damaged else log.info
        told(
            "scrub_complete",
            messages=self.last.done.messages,
            octets=self.last.done.octets,
            damaged=self.last.damaged,
            compared=self.last.compared,
            rebuilt=self.last.rebuilt,
            seconds=round((now - began_at).total_seconds(), 3),
        )
        return place

    async def _compare_rows(self) -> None:
        """Compare the rows of all other tables with their sums."""
        found = SumRound()
        while not found.done:
            now = self._clock()
            await self._database.transact(lambda ledger, now=now: found.part(ledger, PAGE, now))  # type: ignore[misc]
            if not found.done and not self.now.at_once:
                await asyncio.sleep(TURN)
        self.now = replace(self.now, rows=self.now.rows + found.damaged)

    async def _compare_indexes(self) -> None:
        """Compare every table and every index, as the disk has them. A round with pauses leaves that to the
        comparison that goes on all the time, and tells what it found meanwhile.
        """
        if self.now.at_once:
            await asyncio.to_thread(scrubbing.forget_file, self._database.file)
            await self._database.transact(scrubbing.forget_cached)
            await self._indexes.round()
        compared = self._indexes.last.rows if self._indexes.last else 0
        self.now = replace(self.now, compared=compared, rebuilt=tuple(self._indexes.names[self._names :]))

    async def _count(self, behind: MessageId) -> None:
        """Count what there is to read, and how much of it, up to ``behind``, was read already."""
        of, done, last = Amount(), Amount(), FIRST
        while found := await self._listed(last):
            for message_id, amount in found:
                of += amount
                if message_id <= behind:
                    done += amount
            last = found[-1][0]
        self.now = replace(self.now, of=of, done=done)

    async def _listed(self, behind: MessageId) -> list[tuple[MessageId, Amount]]:
        return await self._database.transact(lambda ledger: scrubbing.page(ledger, behind, PAGE))

    async def _look(self, message_id: MessageId) -> None:
        def work(ledger: SqlLedger) -> tuple[Seen, bool]:
            return scrubbing.reread(ledger, message_id), ledger.damaged(message_id) is not None

        seen, unbelieved = await self._database.transact(work)
        if unbelieved:
            self.now = replace(self.now, rows=self.now.rows + 1)
        if seen.mended:
            log.warning("derived_column_mended", message=message_id)
            self.now = replace(self.now, mended=self.now.mended + 1)
        if seen.copy is None:
            return
        if seen.copy.damaged:
            if not await self._examiner.look_again(message_id) and seen.copy.damage is Damage.CONTENT:
                self.now = replace(self.now, contents=self.now.contents + 1)
            return
        match await self._examiner.compare(seen.copy, seen.content):
            case Finding.DAMAGED:
                self.now = replace(self.now, contents=self.now.contents + 1)
            case Finding.UNREADABLE:
                self.now = replace(self.now, unreadable=self.now.unreadable + 1)
        await self._ask_again(seen.copy)

    async def _ask_again(self, copy: Copy) -> None:
        """Ask the members that share this message about it; a member that is away is asked next time."""
        for name in {copy.owner, *(holder.name for holder in copy.holders)}:
            if not shared_with(copy, name):
                continue
            while name in self._reachable() and self._inquiry.ask_again(name, copy.id) > MOST_ASKED:  # noqa: ASYNC110
                await asyncio.sleep(TURN)

    async def _interrupted(self) -> bool:
        """Pause until the next message is due. True if another round is wanted, or none."""
        if not self.now.at_once and not self._hurry.is_set():
            elapsed = timedelta(seconds=asyncio.get_running_loop().time() - self._began)
            rest = pause(self.now.done, self.now.of, elapsed, self.interval)
            if rest >= REST:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._hurry.wait(), rest.total_seconds())
        return self._hurry.is_set() or not (self.interval or self.now.at_once)
