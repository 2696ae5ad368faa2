"""Empties the active queues of a node to a member that an operator names (Exchange: Redirect-Message).

Each message in the queue when the redirect begins is handed over to that member; one without a copy there is
copied first. Shadow copies and what is set aside stay. Mail that arrives later stays too, unless the node is
being drained.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import datetime
from functools import partial
from typing import Any

import structlog

from shadowrelay.core.identifiers import FIRST, MessageId, ServerName
from shadowrelay.core.messages import Copy
from shadowrelay.core.ownership import chores
from shadowrelay.core.values import dataclass, replace
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queue import awaited, being_sent, count_to_redirect, to_redirect
from shadowrelay.members.boundary import Boundary
from shadowrelay.members.giving import REFUSED, UNREADABLE, WAITED_FOR, Giving, HandoverResult, hand_to

log = structlog.get_logger(__name__)

INTERVAL = 0.5  # seconds between passes
PAGE = 200  # messages in a transaction
MOST_AT_ONCE = 16  # copies offered side by side
PATIENCE = 5.0  # seconds for the member to say whether it takes mail
GOODBYE = 5.0  # seconds for the copies that are on their way when the redirect is stopped
FAILURES = 3  # passes in a row in which the member failed and nothing was handed over


class RedirectRefused(Exception):
    """The redirect is not begun; the text says why, to the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedirectProgress:
    """How far a redirect is. Counts are messages.

    ``queued``: meant, and still in our queue. ``handed_over``: owned by the member now. ``copied``: the part
    of these, and of those left, of which a copy was made there first. ``left``: those still here, by reason,
    as the last pass found them. ``awaited``: handed over, and not yet taken. ``ended``: why it is over; ''
    while it runs. ``operator``: who had it begin; '' if the node did. ``stopped_by``: who stopped it.
    ``reply``: the member's last refusal of a copy. ``warning``: what the operator should know.
    """

    to: ServerName
    began_at: datetime
    operator: str = ""
    stopped_by: str = ""
    queued: int = 0
    handed_over: int = 0
    copied: int = 0
    left: Mapping[str, int] = field(default_factory=dict)
    awaited: int = 0
    ended: str = ""
    reply: str = ""
    warning: str = ""

    @property
    def done(self) -> bool:
        """Did the member take all that was meant?"""
        return self.ended == DONE and not (self.queued or self.awaited)


DONE, STOPPED = "done", "stopped"


class Redirecting:
    """The redirect of this node: one at a time, in the background."""

    def __init__(
        self,
        giving: Giving,
        boundary: Boundary,
        draining: Callable[[], bool],
    ) -> None:
        self._giving = giving
        self._database, self._clock = giving.database, giving.clock
        self._boundary = boundary
        self._draining = draining
        self._seen: RedirectProgress | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._refused: set[MessageId] = set()  # copies that the member refuses, though it takes others

    @property
    def running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def progress(self) -> RedirectProgress | None:
        """The redirect that runs, or the last one since the start; None if there was none."""
        if self._seen is None:
            return None
        until = self._until(self._seen)

        def look(ledger: SqlLedger) -> tuple[int, int]:
            return count_to_redirect(ledger, until), awaited(ledger).get(to, 0)

        to = self._seen.to
        queued, waiting = await self._database.transact(look)
        return replace(self._seen, queued=queued, awaited=waiting)

    async def begin(self, to: ServerName, operator: str = "") -> RedirectProgress | None:
        """Begin, in the background. Again, to the same member: no change. Raises RedirectRefused."""
        if self.running and self._seen is not None:
            if self._seen.to != to:
                raise RedirectRefused(f"the queue is being redirected to {self._seen.to}: stop that first")
            return await self.progress()
        await self._check(to)
        beside = to not in self._boundary.elsewhere()
        warning = (
            f"{to} is on this machine: the loss of the machine takes both copies of what it gets"
            if beside
            else ""
        )
        self._seen = RedirectProgress(to=to, began_at=self._clock(), operator=operator, warning=warning)
        self._stopping = False
        self._refused.clear()
        log.warning("redirect_begins", to=to, beside=beside, operator=operator)
        self._task = asyncio.create_task(self._run())
        return await self.progress()

    async def end(self, operator: str = "") -> RedirectProgress | None:
        """Stop. What was handed over stays with the member; each other message is still ours."""
        if self._task is not None and self.running:
            self._stopping = True
            await asyncio.wait({self._task}, timeout=GOODBYE)  # offers that are under way end as they may
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            if self._seen is not None and not self._seen.ended:
                self._over(STOPPED, operator)
        return await self.progress()

    async def _check(self, to: ServerName) -> None:
        own = self._boundary.own.name
        if to == own:
            raise RedirectRefused(f"{to} is this node: name another member")
        if not self._giving.enabled():
            raise RedirectRefused("shadow redundancy is off: no member takes a message over")
        known = await self._database.transact(lambda ledger: ledger.member(to))
        if known and known.retired:
            raise RedirectRefused(f"{to} was retired: it takes nothing any more")
        names = sorted(place.name for place in self._boundary.places)
        if to not in names:
            raise RedirectRefused(f"{to} is not a member here; the members are: {', '.join(names) or 'none'}")
        if to not in self._boundary.reachable():
            raise RedirectRefused(f"{to} cannot be reached")
        if why := await self._giving.unwilling(to, PATIENCE):
            raise RedirectRefused(why)

    async def _run(self) -> None:
        failures = 0
        try:
            while self._seen is not None and not self._stopping:
                why = await self._giving.unwilling(self._seen.to, PATIENCE)
                before = self._seen.handed_over
                left = Counter[str]() if why else await self._pass(self._seen.to)
                if self._seen.handed_over > before:
                    self._giving.changed()
                failed = why or (self._seen.reply if left["member"] else "")
                failures = failures + 1 if failed and self._seen.handed_over == before else 0
                if failures == FAILURES:
                    return self._over(failed)
                if not (failed or self._stopping) and await self._finished(left):
                    return self._over(DONE)
                await asyncio.sleep(INTERVAL)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("redirect_failed")
            self._over("this node failed; its log says why")

    async def _finished(self, left: Mapping[str, int]) -> bool:
        """Is nothing left that may still go, and has the member taken what it was given?"""
        found = await self.progress()
        return found is not None and not (WAITED_FOR & left.keys() or found.awaited)

    async def _pass(self, to: ServerName) -> Counter[str]:
        """Look at each message once. Returns how many stay, by reason; ``member``: the member failed."""
        left: Counter[str] = Counter()
        after: MessageId | None = FIRST
        while after is not None and not (left["member"] or self._stopping):
            after, offered = await self._database.transact(partial(self._page, after=after, to=to, left=left))
            for start in range(0, len(offered), MOST_AT_ONCE):
                some = offered[start : start + MOST_AT_ONCE]
                ended = await asyncio.gather(*(self._give(message_id, to) for message_id in some))
                for given in ended:
                    self._note(given, left)
                if left["member"] or self._stopping:
                    break
        if self._seen is not None:
            self._seen = replace(self._seen, left={why: n for why, n in left.items() if why != "member"})
        return left

    def _page(
        self, ledger: SqlLedger, after: MessageId, to: ServerName, left: Counter[str]
    ) -> tuple[MessageId | None, list[MessageId]]:
        """Hand over what has a copy there. Returns where to go on, and the messages to be copied first."""
        if self._seen is None or chores.held_back(ledger):
            return None, []
        found = to_redirect(ledger, self._until(self._seen), after, PAGE)
        copied_first, now = [], self._clock()
        for message_id in found:
            if message_id in self._refused:
                left[REFUSED] += 1
                continue
            given = hand_to(ledger, message_id, to, being_sent, now)
            if isinstance(given, Copy):
                copied_first.append(message_id)
            else:
                self._note(given, left)
        return (found[-1] if len(found) == PAGE else None), copied_first

    async def _give(self, message_id: MessageId, to: ServerName) -> HandoverResult:
        given = await self._giving.give(message_id, to, being_sent)
        if given and given.stays == REFUSED and not given.member:
            self._refused.add(message_id)
        return given or HandoverResult(stays=UNREADABLE)

    def _note(self, given: HandoverResult, left: Counter[str]) -> None:
        if self._seen is None:
            return
        self._seen = replace(
            self._seen,
            handed_over=self._seen.handed_over + given.handed,
            copied=self._seen.copied + given.copied,
            reply=given.reply or self._seen.reply,
        )
        if given.stays:
            left[given.stays] += 1
        if given.stays == REFUSED and given.member:
            left["member"] += 1

    def _until(self, seen: RedirectProgress) -> datetime | None:
        return None if self._draining() else seen.began_at

    def _over(self, why: str, operator: str = "") -> None:
        if self._seen is None:
            return
        self._seen = replace(self._seen, ended=why, stopped_by=operator)
        told: dict[str, Any] = {"handed_over": self._seen.handed_over, "copied": self._seen.copied}
        log.warning(
            "redirect_ends", to=self._seen.to, why=why, operator=operator, left=dict(self._seen.left), **told
        )
