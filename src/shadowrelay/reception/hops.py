"""The intake of mail from peers beyond the boundary that know XSHADOW: who they are, what they hand over, and
what they are told of it. Everybody else's mail goes straight to the intake.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import field

import structlog

from shadowrelay.core.hops import Handed
from shadowrelay.core.identifiers import Continuity, DatabaseId, Mark, MessageId, ServerName
from shadowrelay.core.members import hops
from shadowrelay.core.members.conversation import Greeting, Query, QueryResponse
from shadowrelay.core.values import dataclass
from shadowrelay.core.workers import node_of
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.reception.intake import Intake, IntakeSink
from shadowrelay.smtp.members.peer import XSHADOW_NEEDED
from shadowrelay.smtp.receiving.contract import Client
from shadowrelay.wire.esmtp import MailFrom, RcptTo
from shadowrelay.wire.hops import MAIL_PARAMETER, RCPT_PARAMETER, parse_fork, parse_tracked
from shadowrelay.wire.networks import Networks, within
from shadowrelay.wire.replies import Refused, Reply
from shadowrelay.wire.xshadow import Malformed

log = structlog.get_logger(__name__)

SHY_FOR = 3600.0
"""Seconds for which a client that showed a certificate that is not pinned is asked for none."""

_MOST_SHY = 4096

_UNWELCOME = {
    hops.Unwelcome.REPLACED: Reply(451, "4.3.0", "Another database took the place of yours"),
    hops.Unwelcome.ANOTHERS: Reply(550, "5.7.1", "That database is another one's"),
}

_NOT_TRACKED = Reply(451, "4.3.0", "No messages are tracked now")


@dataclass(frozen=True, slots=True)
class HopTls:
    """How a connector knows its peers. ``asking`` trusts their certificates alone, ``plain`` asks for none;
    without TLS both are None. ``pinned``: the peers by their certificates (DER). ``secured``: the networks
    from which a peer is believed without one.
    """

    asking: ssl.SSLContext | None
    plain: ssl.SSLContext | None
    pinned: Mapping[bytes, ServerName]
    secured: Mapping[ServerName, Networks] = field(default_factory=dict)


class HopIntakes:
    """Opens a ``HopIntake`` for each session of a connector with ``accept_xshadow``."""

    def __init__(self, intake: Intake, tls: HopTls) -> None:
        self.intake = intake
        self.tls = tls
        self.shy: dict[str, float] = {}

    def open(self) -> HopIntake:
        return HopIntake(self)

    @property
    def tracking(self) -> bool:
        """Whether this node tracks messages for peers. With members it makes second copies of its own."""
        intake = self.intake
        others = any(place.name != intake.boundary.own.name for place in intake.boundary.places)
        return intake.policy.shadow_redundancy_enabled and not others


class HopIntake:
    """One session on such a connector."""

    def __init__(self, intakes: HopIntakes) -> None:
        self._intakes = intakes
        self._intake = intakes.intake
        self._peer: ServerName | None = None
        self._greeting: Greeting | None = None
        self._tracked: MessageId | None = None  # the peer's id of the message under way
        self._numbers: set[int] = set()  # of its recipients that were accepted

    # Who is there

    def admits(self, client: Client) -> bool:
        if not self._names(client):
            return False
        known = self._greeting is not None or self._intake.database.ledger.hop_rows.any_handed
        return known or self._intakes.tracking

    def _names(self, client: Client) -> set[ServerName]:
        """The peers that this client may be."""
        secured = self._intakes.tls.secured.items()
        names = {name for name, networks in secured if within(client.address, networks)}
        return names if self._peer is None else names | {self._peer}

    @property
    def tracks(self) -> bool:
        return self._intakes.tracking

    def shown(self, certificate: bytes) -> None:
        self._peer = self._intakes.tls.pinned.get(certificate)

    def context(self, address: str) -> ssl.SSLContext | None:
        until, tls = self._intakes.shy.get(address, 0.0), self._intakes.tls
        return tls.asking if until < time.monotonic() else tls.plain

    def showed_another(self, address: str) -> None:
        shy = self._intakes.shy
        log.warning("certificate_not_pinned", client=address, connector=self._intake.options.connector)
        shy.pop(address, None)
        while len(shy) >= _MOST_SHY:
            del shy[next(iter(shy))]
        shy[address] = time.monotonic() + SHY_FOR

    def mark(self) -> Mark:
        return self._intake.database.lineage.mark

    async def greet(self, client: Client, theirs: Greeting) -> Greeting:
        names, tls = self._names(client), self._intakes.tls
        others = {*tls.pinned.values(), *tls.secured} - names
        if not names & {theirs.name, node_of(theirs.name)} or theirs.name in others:
            log.warning("hop_refused", client=client.address, said=theirs.name, certificate=self._peer)
            raise Refused(550, "5.7.1", "Not the peer of that certificate")
        met = await self._intake.database.transact(lambda ledger: self._meet(ledger, theirs))
        if isinstance(met, Reply):
            log.warning("hop_refused", client=client.address, said=theirs.name, reply=str(met))
            raise Refused.by(met)
        self._greeting = theirs
        return met

    def _meet(self, ledger: SqlLedger, theirs: Greeting) -> Greeting | Reply:
        met = hops.called(ledger, theirs, self._others(ledger, theirs.name))
        if isinstance(met, hops.Unwelcome):
            return _UNWELCOME[met]
        ours, continuity = met
        if continuity is Continuity.BROKEN:
            log.warning("hop_lineage_broken", peer=theirs.name, database=theirs.lineage.database_id)
        return ours

    def _others(self, ledger: SqlLedger, name: ServerName) -> set[DatabaseId]:
        """Databases that this peer cannot have: whoever shows an id gets the events for it. Peers of other
        connectors, and hops that we send to, count too.
        """
        lineages = [one.lineage for one in ledger.hop_rows.peers_but(name)]
        lineages += [one.lineage for one in ledger.members()]
        known = {lineage.database_id for lineage in lineages if lineage}
        return known | {ledger.lineage.database_id}

    async def ask(self, query: Query) -> QueryResponse:
        asker = self._greeted()
        now = self._intake.clock()
        return await self._intake.database.transact(lambda ledger: hops.asked(ledger, asker, query, now))

    def said(self, said: QueryResponse) -> None:
        """Nothing follows."""

    def _greeted(self) -> Greeting:
        if self._greeting is None:
            raise Refused.by(XSHADOW_NEEDED)
        return self._greeting

    # What it hands over

    async def mail(self, session: Client, mail: MailFrom) -> Reply | None:
        self._tracked, self._numbers = None, set()
        if MAIL_PARAMETER in mail.extra:
            self._greeted()
            if not self.tracks:  # redundancy was switched off after EHLO
                return _NOT_TRACKED
            try:
                self._tracked = parse_tracked(mail.extra[MAIL_PARAMETER])
            except Malformed as error:
                return Reply(501, "5.5.4", str(error))
        return await self._intake.mail(session, mail)

    async def rcpt(
        self, session: Client, mail: MailFrom, rcpt: RcptTo, accepted: Sequence[RcptTo]
    ) -> Reply | None:
        fork = rcpt.extra.get(RCPT_PARAMETER)
        if (fork is None) != (self._tracked is None):
            wrong = "XFORK needed" if fork is None else "XFORK comes with XSHADOW in MAIL"
            return Reply(501, "5.5.4", wrong)
        if fork is None:
            return await self._intake.rcpt(session, mail, rcpt, accepted)
        try:
            number = parse_fork(fork)
        except Malformed as error:
            return Reply(501, "5.5.4", str(error))
        if number in self._numbers:
            return Reply(501, "5.5.4", "Recipient number used twice")
        refusal = await self._intake.rcpt(session, mail, rcpt, accepted)
        if refusal is None:
            self._numbers.add(number)
        return refusal

    async def content(self, session: Client, mail: MailFrom, recipients: Sequence[RcptTo]) -> IntakeSink:
        theirs, self._tracked = self._tracked, None
        if theirs is None:
            return await self._intake.content(session, mail, recipients)
        giver, numbers = self._greeted(), tuple(map(_number, recipients))

        def handed(message_id: MessageId) -> Handed:
            return Handed(message_id, giver.name, giver.lineage.database_id, theirs, numbers)

        return await self._intake.content(session, mail, recipients, handed)

    async def reset(self, session: Client) -> None:
        self._tracked = None
        await self._intake.reset(session)


def _number(rcpt: RcptTo) -> int:
    """The number of a recipient that was accepted, so that it can be read."""
    return parse_fork(rcpt.extra[RCPT_PARAMETER])
