"""A session on an ordinary Receive connector that may be that of a peer beyond the boundary: XSHADOW and
XQDISCARD beside ordinary SMTP, for a client that shows a pinned certificate (docs/reference/protocol.md,
"Between hops").

For anybody else the verbs and the parameters are unknown, and everything is as on other connectors.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Protocol, cast

from shadowrelay.core.members.conversation import Greeting, Query, QueryResponse
from shadowrelay.smtp.members.peer import PeerReceiver, PeerSession
from shadowrelay.smtp.receiving.contract import Client, ConnectorOptions, Receiver
from shadowrelay.smtp.receiving.limits import Register
from shadowrelay.wire import hops
from shadowrelay.wire.xshadow import MAX_LINE


class HopReceiver(PeerReceiver, Protocol):
    """Takes mail in on one session, and answers the peer, if it is one."""

    def admits(self, client: Client) -> bool:
        """Whether the client showed a pinned certificate, or is in a secured network, and this node tracks
        messages for peers, or did.
        """
        ...

    @property
    def tracks(self) -> bool:
        """Whether this node tracks messages for peers now."""
        ...

    def shown(self, certificate: bytes) -> None:
        """The client showed this certificate (DER), and has its key."""
        ...

    def context(self, address: str) -> ssl.SSLContext | None:
        """TLS for that client. It asks for a certificate, unless the client just showed a wrong one."""
        ...

    def showed_another(self, address: str) -> None:
        """The client showed a certificate that is not pinned, and so the handshake failed."""
        ...


class HopReceivers(Protocol):
    """Makes one for each session."""

    def open(self) -> HopReceiver: ...


class HopSession(PeerSession):
    """One session of a peer beyond the boundary, or of anybody else."""

    answering: HopReceiver

    def __init__(self, receiver: Receiver, options: ConnectorOptions, register: Register) -> None:
        self.answering = cast("HopReceivers", receiver).open()
        super().__init__(self.answering, options, register)

    def offers(self, verb: str) -> bool:
        if verb in {"XSHADOW", "XQDISCARD"}:
            return self.answering.admits(self.client)
        return super().offers(verb)

    def keywords(self) -> list[str]:
        return super().keywords() + (list(self._offered()) if self.answering.admits(self.client) else [])

    def _offered(self) -> tuple[str, ...]:
        return hops.KEYWORDS if self.answering.tracks else hops.KEYWORDS_UNTRACKED

    def limit_commands(self) -> None:
        super().limit_commands()
        for verb, more in hops.LINE_EXTENSIONS.items():
            self.command_size_limits[verb] += more
        self.command_size_limit = self.max_command_size_limit

    def _parameters(self, known: frozenset[str], extra: frozenset[str]) -> frozenset[str]:
        if self.answering.admits(self.client):
            extra |= {hops.MAIL_PARAMETER if self.conversation.verb == "MAIL" else hops.RCPT_PARAMETER}
        return super()._parameters(known, extra)

    async def start_tls(self, context: ssl.SSLContext, transport: asyncio.BaseTransport) -> None:
        await super().start_tls(self.answering.context(self.client.address) or context, transport)

    def tls_failed(self, error: OSError) -> None:
        super().tls_failed(error)
        if isinstance(error, ssl.SSLCertVerificationError):
            self.answering.showed_another(self.client.address)

    def _secured(self, transport: asyncio.Transport) -> None:
        super()._secured(transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and (certificate := tls.getpeercert(binary_form=True)):
            self.answering.shown(certificate)

    def read_greeting(self, text: str) -> Greeting:
        return hops.parse_greeting(text)

    def spell_greeting(self, ours: Greeting) -> str:
        self.conversation.longest_reply = MAX_LINE
        return hops.format_greeting(ours)

    def read_query(self, text: str) -> Query:
        return hops.parse_query(text)

    def spell_answer(self, said: QueryResponse) -> list[str]:
        if said.lines:
            self.conversation.junk = 0  # events bring mail forward, as messages do
        return [hops.format_line(line) for line in said.lines]
