"""The verbs XSHADOW and XQDISCARD of a session: what members, and peers beyond the boundary, say alike."""

from __future__ import annotations

from typing import ClassVar, Protocol

from shadowrelay.core.identifiers import Mark
from shadowrelay.core.members.conversation import Greeting, Query, QueryResponse
from shadowrelay.smtp.receiving.contract import Client, Receiver
from shadowrelay.smtp.receiving.library import syntax
from shadowrelay.smtp.receiving.session import ReceiveSession
from shadowrelay.wire.replies import Refused, Reply
from shadowrelay.wire.xshadow import Malformed, format_mark

XSHADOW_NEEDED = Reply(503, "5.5.1", "XSHADOW needed first")


class PeerReceiver(Receiver, Protocol):
    """Answers one session of a peer. Its marks are of committed sequences alone."""

    def mark(self) -> Mark:
        """Our incarnation and the last committed sequence."""
        ...

    async def greet(self, client: Client, theirs: Greeting) -> Greeting:
        """A peer introduced itself. Raises Refused if it is none, or not the one of its certificate."""
        ...

    async def ask(self, query: Query) -> QueryResponse:
        """Answer the peer that introduced itself."""
        ...

    def said(self, said: QueryResponse) -> None:
        """The answer has left: what follows from it may begin."""
        ...


class PeerSession(ReceiveSession):
    """One session of a peer, or of a client that claims to be one. The grammar is that of a subclass."""

    ours: ClassVar[frozenset[str]] = ReceiveSession.ours | {"XSHADOW", "XQDISCARD", "XOPERATE"}

    answering: PeerReceiver
    introduced: Greeting | None = None

    def read_greeting(self, text: str) -> Greeting:
        """Raises Malformed."""
        raise NotImplementedError

    def spell_greeting(self, ours: Greeting) -> str:
        raise NotImplementedError

    def read_query(self, text: str) -> Query:
        """Raises Malformed."""
        raise NotImplementedError

    def spell_answer(self, said: QueryResponse) -> list[str]:
        """The lines of the answer to XQDISCARD."""
        raise NotImplementedError

    def decorate(self, reply: Reply) -> Reply:
        """Every reply ends with our mark, so that a peer always knows how far our database has come."""
        if self.introduced is None:
            return reply
        mark = format_mark(self.answering.mark())
        if isinstance(reply.text, str):
            return Reply(reply.code, reply.enhanced, f"{reply.text} {mark}")
        *before, last = reply.text
        return Reply(reply.code, reply.enhanced, (*before, f"{last} {mark}"))

    @syntax("XSHADOW <name> <lineage>")
    async def smtp_XSHADOW(self, argument: str) -> None:
        if not self.client.helo:
            return await self.answer(Reply(503, "5.5.1", "Say hello first"))
        if self.transaction is not None:
            return await self.answer(Reply(503, "5.5.1", "A transaction is under way"))
        try:
            theirs = self.read_greeting(argument)
        except Malformed as error:
            raise Refused(501, "5.5.4", str(error)) from error
        ours = await self.answering.greet(self.client, theirs)
        self.introduced = theirs
        return await self.answer(Reply(250, "2.0.0", self.spell_greeting(ours)))

    @syntax("XQDISCARD <query>")
    async def smtp_XQDISCARD(self, argument: str) -> None:
        if self.introduced is None:
            return await self.answer(XSHADOW_NEEDED)
        try:
            query = self.read_query(argument)
        except Malformed as error:
            raise Refused(501, "5.5.4", str(error)) from error
        said = await self.answering.ask(query)
        lines = self.spell_answer(said)
        nothing = Reply(251, "2.0.0", "No discard events")
        await self.answer(Reply(250, "2.0.0", tuple(lines)) if lines else nothing)
        self.answering.said(said)
        return None
