"""The shadow session of one message: it is opened early, while the sender is still talking."""

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
    """The shadow session from MAIL to the end of the transaction.

    It connects to the first candidate at once, unless many messages wait for their content already: then it
    takes a session when the content has come. A large message streams to the candidate while it arrives. If
    anything fails, the next candidate gets the content from the spool.
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
                self._opening = asyncio.create_task(
                    members.acquire_for_copy(self.first, needed=candidates.needed)
                )

    def announce(self, step: Callable[[ServerName], OfferCopy]) -> None:
        """The content is about to come. If this member awaits no other content, send MAIL and RCPT now,
        so that the holder has read them when the content is complete. If many messages come at a time, a
        single write costs less.
        """
        if self.first is not None and self._session is not None and self._members.early[self.first] == 1:
            self._offering = self._members.offering(self._session, step(self.first))
            self._offering.announce()

    async def begin(self, step: OfferCopy) -> None:
        """Start to stream the message to the first candidate. A failure is remembered, not raised."""
        self._streams = True
        try:
            session = await self._opened()
            if session.closed:  # closed while the sender talked, so no copy can be there
                session.abort()
                self._offering = None
                session = self._session = await self._members.acquire_for_copy(
                    step.to, needed=self.candidates.needed
                )
        except MemberFailed as failed:
            self._broken = failed
            return
        self._offering = self._offering or self._members.offering(session, step)

    async def stream(self, data: bytes) -> None:
        """Send the next octets of a message that streams. A failure is remembered, not raised."""
        if self._offering is not None and self._broken is None:
            try:
                await self._offering.write(data)
            except MemberFailed as failed:
                self._broken = failed

    async def offer(self, step: OfferCopy, content: AsyncIterable[bytes]) -> OfferAttempt:
        """Make the whole offer, or finish the one that streams."""
        self._content_came()
        if step.to != self.first or not (self._opening or self._session):
            return await self._members.offer(step, content, needed=self.candidates.needed)
        try:
            session = await self._opened()
        except MemberFailed as failed:
            self._opening = None
            return self._members.unreachable(step, failed)
        if session.closed and not self._streams:  # closed while the sender talked, so no copy can be there
            session.abort()
            self._opening = self._session = self._offering = None
            return await self._members.offer(step, content, needed=self.candidates.needed)
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
        """The transaction is over: return an unused session to the pool; abort one with an unfinished offer.

        A session that is still being opened goes to the pool when it is open, and counts as early until then.
        So a client that begins messages and abandons them opens no more sessions than EARLY_SESSIONS.
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
        """The content has come, or will not come: this session is no longer an early one."""
        if self._early and self.first is not None:
            self._early = False
            self._members.early[self.first] -= 1

    async def _opened(self) -> MemberConnection:
        if self._session is None:
            if self._opening is None:
                raise MemberFailed("connect", "the session was given up")
            self._session = await self._opening
        return self._session
