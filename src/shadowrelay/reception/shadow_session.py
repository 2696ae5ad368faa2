"""The shadow session of one message, opened while its sender is still talking."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.reception.redundancy import OfferAttempt
from shadowrelay.core.steps import OfferCopy
from shadowrelay.members.boundary import Candidates
from shadowrelay.members.pool import EARLY_SESSIONS, Members
from shadowrelay.smtp.members.client import MemberConnection, MemberFailed
from shadowrelay.smtp.members.offer import OutgoingOffer


class ShadowSession:
    """From MAIL to the end of the transaction. The first candidate is connected to at once, unless many other
    messages wait for their content already: then a session is taken when the content is there.

    A large body streams to it while it arrives; whatever goes wrong on the way, the next candidate gets the
    content from where it was kept.
    """

    def __init__(self, members: Members, candidates: Candidates) -> None:
        self._members = members
        self.candidates = candidates
        turn = candidates.first
        self.first: ServerName | None = turn.to if turn else None
        self._opening: asyncio.Task[MemberConnection] | None = None
        self._offering: OutgoingOffer | None = None
        self._session: MemberConnection | None = None
        self._broken: MemberFailed | None = None
        self._streams = False
        self._early = False
        if self.first is not None and members.early[self.first] < EARLY_SESSIONS:
            self._early = True
            members.early[self.first] += 1
            self._session = members.pooled(self.first)
            if self._session is None:
                self._opening = asyncio.create_task(members.acquire_for_copy(self.first))

    def announce(self, step: Callable[[ServerName], OfferCopy]) -> None:
        """The content is about to come. If nobody else's is, MAIL and RCPT leave now: the holder is done with
        them when the sender is done with the content. Where many come at a time, one write costs less.
        """
        if self.first is not None and self._session is not None and self._members.early[self.first] == 1:
            self._offering = self._members.offering(self._session, step(self.first))
            self._offering.announce()

    async def begin(self, step: OfferCopy) -> None:
        """Start to stream."""
        self._streams = True
        try:
            session = await self._opened()
            if session.closed:  # while the sender talked: nothing can be there
                session.abort()
                self._offering = None
                session = self._session = await self._members.acquire_for_copy(step.to)
        except MemberFailed as failed:
            self._broken = failed
            return
        self._offering = self._offering or self._members.offering(session, step)

    async def stream(self, data: bytes) -> None:
        """The next octets of a body that streams. A failure is remembered, not raised."""
        if self._offering is not None and self._broken is None:
            try:
                await self._offering.write(data)
            except MemberFailed as failed:
                self._broken = failed

    async def offer(self, step: OfferCopy, content: AsyncIterable[bytes]) -> OfferAttempt:
        """The whole offer, or the end of the one that streams."""
        self._content_came()
        if step.to != self.first or not (self._opening or self._session):
            return await self._members.offer(step, content)
        try:
            session = await self._opened()
        except MemberFailed as failed:
            self._opening = None
            return self._members.unreachable(step, failed)
        if session.closed and not self._streams:  # while the sender talked: nothing can be there
            session.abort()
            self._opening = self._session = self._offering = None
            return await self._members.offer(step, content)
        offering = self._offering or self._members.offering(session, step)
        digest = step.digests.content if step.digests else None
        if self._broken is not None:
            attempt = offering.failed(self._broken)
        elif self._streams:
            attempt = await offering.finish(digest)
        else:
            attempt = await offering.send(content, digest)
        self._opening = self._session = self._offering = None
        return self._members.offered(session, offering, attempt)

    def drop(self) -> None:
        """The transaction is over: an unused session goes back, one in the middle of a body is cut off.

        One that is still being opened is for the next message: whoever begins messages and takes them back
        has no more of them opened than there are early ones.
        """
        opening, self._opening = self._opening, None
        session, self._session = self._session, None
        if session is not None and self._offering is not None:
            session.abort()
        elif session is not None and self.first is not None:
            self._members.release(self.first, session)
        elif opening is not None:
            opening.add_done_callback(self._opened_in_vain)
            return
        self._content_came()

    def _opened_in_vain(self, opening: asyncio.Task[MemberConnection]) -> None:
        self._content_came()
        if not opening.cancelled() and opening.exception() is None and self.first is not None:
            self._members.release(self.first, opening.result())

    def _content_came(self) -> None:
        """Or never will: from here on nobody is waited for."""
        if self._early and self.first is not None:
            self._early = False
            self._members.early[self.first] -= 1

    async def _opened(self) -> MemberConnection:
        if self._session is None:
            if self._opening is None:
                raise MemberFailed("connect", "the session was given up")
            self._session = await self._opening
        return self._session
