"""The stage that compares indexes with the rows of their tables, slowly and always.

An index that a bad disk changed hides rows: mail is due and nobody finds it. So no index is believed for
long. Between other work a part of a table, or of an index, is compared; an index that differs is built again.
"""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from shadowrelay.core.values import dataclass
from shadowrelay.database import sums
from shadowrelay.database.indexes import ROWS, CannotRebuild, Comparison, Differs, rebuild, structure
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.transport import DatabaseFailed, TransportDatabase

log = structlog.get_logger(__name__)

REST = 0.5  # seconds between two parts
SHARE = 400  # a part that took long is followed by a rest of so many times its length
_STEP = 97  # the first part of each round has another length, so that no page is always at the end of a part
ROUND = 60.0  # seconds from the end of a round to the next one


def _taken_doubts(ledger: SqlLedger) -> tuple[str, ...]:
    taken = tuple(sorted(ledger.doubted))
    ledger.doubted.clear()
    return taken


@dataclass(frozen=True, slots=True)
class Compared:
    """A complete round: how many rows and entries were compared, and which indexes were built again."""

    rows: int
    rebuilt: tuple[str, ...] = ()


class Indexes:
    """The comparison of the indexes of one node. ``names``: those that were built again since the start, in
    this order. ``last``: the last complete round.
    """

    def __init__(self, database: TransportDatabase) -> None:
        self.names: list[str] = []
        self._begun = 0  # rounds
        self.last: Compared | None = None
        self.rest, self.pause = REST, ROUND
        self._database = database
        self._building = asyncio.Lock()
        self._doubt = database.when_doubted(asyncio.Event())

    @property
    def rebuilt(self) -> int:
        """How many were built again since the start."""
        return len(self.names)

    async def run(self) -> None:
        """Compare all that there is, again and again, until cancelled."""
        while True:
            await self.round(slowly=True)
            await asyncio.sleep(self.pause)

    async def heed(self) -> None:
        """Compare at once what said something that no row says, until cancelled."""
        while True:
            await self._doubt.wait()
            self._doubt.clear()
            for index in await self._database.transact(_taken_doubts):
                await self.hold(index)

    async def round(self, *, slowly: bool = False) -> Compared:
        """Compare every index with its table, and build again those that differ. Raises DatabaseFailed if
        that does not help.
        """
        self.last = await self._round(Comparison(), slowly=slowly)
        return self.last

    async def hold(self, index: str) -> bool:
        """Compare one index, at once. False if it differed: then it was built again."""
        return not (await self._round(Comparison(only=index), slowly=False)).rebuilt

    async def _round(self, comparison: Comparison, *, slowly: bool) -> Compared:
        found: list[str] = []
        self._begun += 1
        most = 1 + _STEP * self._begun % ROWS
        clock = asyncio.get_running_loop().time
        while self._database.unchecked:  # the file is read from end to end already  # noqa: ASYNC110
            await asyncio.sleep(REST)
        while not comparison.done:
            began = clock()
            part = await self._database.transact(partial(comparison.part, most=most))
            most = ROWS
            took = clock() - began
            for differs in part.differs:
                found.append(await self._mend(differs))
            await asyncio.sleep(max(self.rest, SHARE * took) if slowly else 0)
        return Compared(comparison.rows, tuple(found))

    async def _mend(self, differs: Differs) -> str:
        """Build an index again. Returns its name."""
        log.error("index_damaged", table=differs.table, index=differs.index)
        if differs.index is None:
            self._give_up(f"rows of {differs.table} are not found by their numbers")
        async with self._building:
            began = asyncio.get_running_loop().time()
            if wrong := await self._database.read(lambda readers: structure(readers[0])):
                self._give_up(wrong)
            try:
                await self._database.transact(partial(rebuild, index=str(differs.index)))
            except CannotRebuild as error:
                self._give_up(str(error))
            self.names.append(str(differs.index))
            took = round(asyncio.get_running_loop().time() - began, 3)
            log.warning("index_rebuilt", table=differs.table, index=differs.index, seconds=took)
        return str(differs.index)

    def _give_up(self, why: str) -> None:
        """The file is corrupt. The node ends, and its next start saves what can be read."""
        self._database.fail(sums.corrupt(why))
        raise DatabaseFailed(self._database.failure)
