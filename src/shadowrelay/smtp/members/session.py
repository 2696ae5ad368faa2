"""The members' connector: XSHADOW, XQDISCARD and XOPERATE beside ordinary SMTP (docs/reference/protocol.md).

Members alone are offered the keywords. For anybody else the verbs are unknown commands.
"""

from __future__ import annotations

from typing import ClassVar, Protocol, cast

from shadowrelay import failpoints
from shadowrelay.core.digests import is_digest
from shadowrelay.core.identifiers import Digest
from shadowrelay.core.members.conversation import Greeting, Query, QueryResponse
from shadowrelay.core.operating import Act, ActAnswer
from shadowrelay.core.values import replace
from shadowrelay.smtp.members.peer import XSHADOW_NEEDED, PeerReceiver, PeerSession
from shadowrelay.smtp.receiving.content import Body
from shadowrelay.smtp.receiving.contract import Client, ConnectorOptions, Receiver
from shadowrelay.smtp.receiving.library import syntax
from shadowrelay.smtp.receiving.limits import Register
from shadowrelay.smtp.receiving.transaction import MailTransaction
from shadowrelay.wire import xoperate, xqdiscard, xshadow
from shadowrelay.wire.esmtp import RcptTo
from shadowrelay.wire.replies import Refused, Reply


class MemberReceiver(PeerReceiver, Protocol):
    """Answers one session of a member."""

    @property
    def keeps(self) -> bool:
        """Whether this node keeps copies: shadow redundancy is on."""
        ...

    def admits(self, client: Client) -> bool:
        """Whether this client may use the verbs: by a certificate of our authority, or a secured network."""
        ...

    async def operate(self, act: Act) -> ActAnswer:
        """Do something for an operator who asked the member that introduced itself. Raises Refused."""
        ...

    def promised(self, digest: Digest) -> None:
        """The digest that this transaction's content must have; it comes with the last chunk."""
        ...


class MemberReceivers(Protocol):
    """Makes one for each session."""

    def open(self) -> MemberReceiver: ...


class MemberSession(PeerSession):
    """One session of a member, or of a client that claims to be one."""

    always: ClassVar[frozenset[str]] = frozenset()
    extra_mail_parameters: ClassVar[frozenset[str]] = frozenset({"XSHADOW", "XMADEOF", "REQUIRETLS"})
    extra_rcpt_parameters: ClassVar[frozenset[str]] = frozenset({"XFORK", "XUNREAD"})

    answering: MemberReceiver

    def __init__(self, receiver: Receiver, options: ConnectorOptions, register: Register) -> None:
        self.answering = cast("MemberReceivers", receiver).open()
        super().__init__(self.answering, options, register)

    def offers(self, verb: str) -> bool:
        if verb in {"XSHADOW", "XQDISCARD", "XOPERATE", "MAIL", "RCPT", "DATA", "BDAT"}:
            return self.introduced is not None or self.answering.admits(self.client)
        return super().offers(verb)

    def keywords(self) -> list[str]:
        offered = super().keywords()
        if self.answering.admits(self.client):
            offered += xshadow.keywords(keeps=self.answering.keeps)
        return offered

    def judge(self, rcpt: RcptTo) -> None:
        """Refuse no recipient: a holder takes every envelope that its owner took."""

    @property
    def _version(self) -> int:
        """Of the protocol, as this session speaks it."""
        return self.introduced.version if self.introduced else 1

    def read_greeting(self, text: str) -> Greeting:
        return xshadow.parse_greeting(text)

    def spell_greeting(self, ours: Greeting) -> str:
        return xshadow.format_greeting(replace(ours, version=self._version))

    def read_query(self, text: str) -> Query:
        return xqdiscard.parse_query(text)

    def spell_answer(self, said: QueryResponse) -> list[str]:
        lines = [xqdiscard.format_line(line, self._version) for line in said.lines]
        if said.seen:
            lines.append(xqdiscard.format_seen(said.seen))
        return lines

    @syntax("XOPERATE <job> <action> <scope> <arguments>")
    async def smtp_XOPERATE(self, argument: str) -> None:
        if self.introduced is None:
            return await self.answer(XSHADOW_NEEDED)
        try:
            act = xoperate.parse_act(argument)
        except xshadow.Malformed as error:
            raise Refused(501, "5.5.4", str(error)) from error
        answer = await self.answering.operate(act)
        if answer.refused:
            return await self.answer(Reply(550, "5.7.1", answer.refused))
        try:
            lines = xoperate.format_answer(answer.told)
        except xoperate.TooLong as error:
            raise Refused(550, "5.3.4", str(error)) from error
        return await self.answer(Reply(250, "2.0.0", lines))

    @syntax("MAIL FROM:<address>")
    async def smtp_MAIL(self, argument: str) -> None:
        if self.introduced is None:
            return await self.answer(XSHADOW_NEEDED)
        await super().smtp_MAIL(argument)
        return None

    @syntax("DATA")
    async def smtp_DATA(self, argument: str) -> None:
        if self._version > 1:
            # A copy needs its digest, which comes with the last chunk.
            return await self.answer(Reply(502, "5.5.1", "Between members content comes by BDAT"))
        return await super().smtp_DATA(argument)

    @syntax("BDAT <octets> [LAST] [<digest>]")
    async def smtp_BDAT(self, argument: str) -> None:
        chunk, _, digest = argument.rpartition(" ")
        if self._version > 1 and is_digest(digest):
            self.answering.promised(Digest(digest))
            argument = chunk
        return await super().smtp_BDAT(argument)

    async def _finish(self, transaction: MailTransaction, body: Body) -> None:
        await super()._finish(transaction, body)
        failpoints.soon("after-shadow-reply")

    def lacks(self, transaction: MailTransaction) -> Reply | None:
        if transaction.refused:
            return Reply(451, "4.5.0", "A copy has all its recipients, or is none")
        return super().lacks(transaction)
