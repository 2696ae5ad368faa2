"""Runs scripts on a node: performs every step, and sends its result back to the script."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar, assert_never

from shadowrelay.core.decisions import Member
from shadowrelay.core.delivery.journal import JournalCopy
from shadowrelay.core.delivery.settling import Report
from shadowrelay.core.identifiers import MessageId, ServerName
from shadowrelay.core.members.conversation import Answered, Greeting
from shadowrelay.core.operating import ActAnswer
from shadowrelay.core.reception.redundancy import OfferAttempt
from shadowrelay.core.steps import (
    AllFound,
    AnyStep,
    Ask,
    Beside,
    Both,
    Compare,
    Greet,
    OfferCopy,
    Operate,
    Pause,
    Script,
    SendOn,
    Sent,
    Transact,
    Unanswered,
    WriteReports,
)
from shadowrelay.core.values import dataclass

T = TypeVar("T")


class Countdown:
    """The seconds left of a timeout that begins with the first call to ``left``."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end: float | None = None

    def left(self) -> float:
        now = asyncio.get_running_loop().time()
        if self._end is None:
            self._end = now + self._seconds
        return max(0.0, self._end - now)


def _never(step: object) -> NoReturn:
    raise TypeError(f"{type(step).__name__}: this stage performs no such step")


def _not_asked() -> NoReturn:
    _never(AllFound())


@dataclass(slots=True, kw_only=True)
class Performer:
    """Performs the steps of scripts on a node. A stage gives the functions for the steps of its scripts.

    ``transact`` begins the transaction when it is called. ``known``: a member as the ledger has it in memory.
    """

    transact: Callable[[Callable[[Any], Any]], Awaitable[Any]]
    offer: Callable[[OfferCopy], Awaitable[OfferAttempt]] = _never
    known: Callable[[ServerName], Member | None] = _never
    greet: Callable[[Greet], Awaitable[Greeting | Unanswered]] = _never
    ask: Callable[[Ask], Awaitable[Answered | Unanswered]] = _never
    operate: Callable[[Operate], Awaitable[ActAnswer | Unanswered]] = _never
    compare: Callable[[Compare], Awaitable[frozenset[MessageId]]] = _never
    all_found: Callable[[], Awaitable[bool]] = _not_asked
    send: Callable[[SendOn], Awaitable[Sent]] = _never
    report: Callable[[WriteReports], Awaitable[tuple[Report | JournalCopy, ...]]] = _never

    async def run(self, script: Script[T]) -> T:
        """Perform the steps in the script's order. An exception in a step ends the script, and is raised."""
        answer: Any = None
        try:
            while True:
                answer = await self._perform(script.send(answer))
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            script.close()

    def _perform(self, step: AnyStep) -> Awaitable[object]:
        match step:
            case Transact(work):
                return self.transact(work)
            case OfferCopy():
                return self.offer(step)
            case Beside(work, offered):
                return self._beside(work, offered)
            case Pause(length):
                return asyncio.sleep(length.total_seconds())
            case Greet():
                return self.greet(step)
            case Ask():
                return self.ask(step)
            case Operate():
                return self.operate(step)
            case Compare():
                return self.compare(step)
            case AllFound():
                return self.all_found()
            case SendOn():
                return self.send(step)
            case WriteReports():
                return self.report(step)
            case _:
                assert_never(step)

    async def _beside(self, work: Callable[[Any], Any], offered: OfferCopy) -> Both[Any]:
        arriving = self.transact(work)
        attempt = await self.offer(offered)
        return Both(await arriving, attempt, self.known(offered.to))
