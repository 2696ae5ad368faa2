"""Answers the other members: offers of copies, and questions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime
from pathlib import Path

import structlog

from shadowrelay.core.decisions import Content, SaveCopy
from shadowrelay.core.digests import of_envelope
from shadowrelay.core.identifiers import Digest, Mark, MessageId, ServerName
from shadowrelay.core.members.conversation import Greeting, Query, QueryResponse, asked, introduce
from shadowrelay.core.members.questions import Speaker
from shadowrelay.core.messages import Copy, Digests, Recipient, TlsWish, Unread
from shadowrelay.core.operating import Act, ActAnswer
from shadowrelay.core.ownership import chores
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.by_reference import MadeOf, may_refer
from shadowrelay.core.reception.holding import OfferAnswer, ShadowCopyOffer, hold
from shadowrelay.core.values import dataclass, replace
from shadowrelay.database.content import Spool, is_full
from shadowrelay.database.examining import Examiner, Finding
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.room import Room
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.in_hand import NOWHERE
from shadowrelay.members.admission import Admission
from shadowrelay.members.boundary import Boundary
from shadowrelay.members.pool import seconds
from shadowrelay.node_clock import NodeClock
from shadowrelay.smtp.members.offer import SEND_CONTENT
from shadowrelay.smtp.receiving.contract import Client
from shadowrelay.wire.esmtp import MailFrom, RcptTo
from shadowrelay.wire.header import HeaderScan
from shadowrelay.wire.networks import Networks
from shadowrelay.wire.replies import NO_ROOM, Refused, Reply
from shadowrelay.wire.xshadow import (
    Fork,
    Malformed,
    OfferParameter,
    parse_fork,
    parse_offer,
    parse_origin,
    parse_unread,
)

log = structlog.get_logger(__name__)

DRAINING = Reply(451, "4.3.2", "Being drained, ask another member")
SEND_IT = Reply(*SEND_CONTENT, "Send the content")
OPENING = Reply(451, "4.3.2", "Being opened, ask another member")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweringOptions:
    """``externally_secured``: networks whose clients are believed without a certificate."""

    externally_secured: Networks
    content: Path
    room: Room


@dataclass(frozen=True, slots=True)
class AnsweringSessions:
    """Opens an ``AnsweringSession`` for each session of the members' connector."""

    database: TransportDatabase
    boundary: Boundary
    options: AnsweringOptions
    policy: Policy
    clock: NodeClock
    meet: Callable[[Greeting], Awaitable[None]]  # stores the greeting of a member that called
    in_flight: Collection[MessageId]
    met: Callable[[ServerName], None]  # called after the greeting of a new or restarted member is stored
    operate: Callable[[ServerName, Act], Awaitable[ActAnswer]]  # acts for an operator on another node
    give: Callable[[MessageId, ServerName], None]  # gives a good copy to a member whose own is damaged
    enabled: Callable[[], bool] = lambda: True  # shadow redundancy, here and now
    draining: Callable[[], bool] = lambda: False  # being drained, this node takes no more copies
    opening: Callable[[], bool] = lambda: False  # being opened, it takes no copies and answers *pending*

    def open(self) -> AnsweringSession:
        return AnsweringSession(self)


class AnsweringSession:
    """One session of a member."""

    def __init__(self, sessions: AnsweringSessions) -> None:
        self.database = sessions.database
        self.boundary = sessions.boundary
        self._admission = Admission(self.database, self.boundary, sessions.options.externally_secured)
        self.clock = sessions.clock
        self.options = sessions.options
        self.policy = sessions.policy
        self._in_flight = sessions.in_flight
        self._meet = sessions.meet
        self._met = sessions.met
        self._give = sessions.give
        self._operate = sessions.operate
        self._enabled = sessions.enabled
        self._draining = sessions.draining
        self._opening = sessions.opening
        self._greeting: Greeting | None = None
        self._offer: OfferParameter | None = None
        self._origin: MadeOf | None = None
        self._offers = 0
        self.digest: Digest | None = None  # that the content of this transaction must have

    def mark(self) -> Mark:
        return self.database.lineage.mark

    @property
    def keeps(self) -> bool:
        return self._enabled()

    def admits(self, client: Client) -> bool:
        return self._admission.admits(client)

    async def greet(self, client: Client, theirs: Greeting) -> Greeting:
        watch, known = await self._admission.member(client, theirs)
        new_contact = watch.silent or known is None or known.lineage is None
        restarted = known and known.lineage and known.lineage.incarnation != theirs.lineage.incarnation
        await self._meet(theirs)
        self.boundary.called(theirs.name, seconds())
        self._greeting = theirs
        if new_contact or restarted:
            self._met(theirs.name)
        ours = await self.database.transact(lambda ledger: introduce(ledger, theirs.name))
        return replace(ours, time=self.clock.read().wall)

    async def ask(self, query: Query) -> QueryResponse:
        asker = self._member()
        mark = query.at or asker.lineage.mark
        speaker = Speaker(asker.name, asker.lineage.database_id, mark, asker.version)
        now = self.clock()
        sighted = self.boundary.sighted(seconds())
        closed = self._opening()
        said = await self.database.transact(
            lambda ledger: asked(
                ledger, speaker, query, self._in_flight, sighted, self.policy, now, closed=closed
            )
        )
        self.boundary.called(asker.name, seconds())
        return said

    async def operate(self, act: Act) -> ActAnswer:
        return await self._operate(self._member().name, act)

    def said(self, said: QueryResponse) -> None:
        if said.give is not None:
            self._give(said.give, self._member().name)

    def promised(self, digest: Digest) -> None:
        self.digest = digest

    async def mail(self, session: Client, mail: MailFrom) -> Reply | None:  # noqa: ARG002
        member = self._member()
        if not self.options.room.admits_copy():
            log.warning("copy_refused_without_room", member=member.name, why=self.options.room.shortage)
            return NO_ROOM
        if "XSHADOW" not in mail.extra:
            return Reply(501, "5.5.4", "XSHADOW needed")
        try:
            self._offer = parse_offer(mail.extra["XSHADOW"])
            self._origin = parse_origin(mail.extra["XMADEOF"]) if "XMADEOF" in mail.extra else None
        except Malformed as error:
            return Reply(501, "5.5.4", str(error))
        self.digest = None
        if member.version > 1 and self._offer.envelope is None:
            return Reply(501, "5.5.4", "Age and digest needed")
        if (origin := self._origin) and (
            member.version < 3
            or origin.message_id == self._offer.message_id
            or (origin.octets is not None and self._offer.given_for)
        ):
            return Reply(501, "5.5.4", "XMADEOF names nothing that this copy can be made of")
        return None

    async def rcpt(
        self,
        session: Client,  # noqa: ARG002
        mail: MailFrom,  # noqa: ARG002
        rcpt: RcptTo,
        accepted: Sequence[RcptTo],
    ) -> Reply | None:
        try:
            number, *_ = parse_fork(rcpt.extra.get("XFORK", ""))
            _unread(rcpt)
        except Malformed as error:
            return Reply(501, "5.5.4", str(error))
        if accepted and parse_fork(accepted[-1].extra["XFORK"])[0] == number:
            return Reply(501, "5.5.4", "Recipient number used twice")
        return None

    async def content(
        self, session: Client, mail: MailFrom, recipients: Sequence[RcptTo]
    ) -> HoldSink | Reply:
        if self._offer is None:
            return Reply(503, "5.5.1", "MAIL needed first")
        if self._draining():  # minutes can pass between MAIL and the content
            return DRAINING
        if self._opening() or chores.takes_no_copies(self.database.ledger):
            return OPENING
        named = {fork[0]: (fork, rcpt) for rcpt in recipients if (fork := parse_fork(rcpt.extra["XFORK"]))}
        if len(named) != len(recipients):
            return Reply(501, "5.5.4", "Recipient number used twice")
        known = tuple([_recipient(*named[number]) for number in sorted(named)])
        self._offers += 1
        name = f"{self._offer.message_id}-{session.id}-{self._offers}"
        return HoldSink(self, name, self._offer, self._origin, self._member(), mail, known)

    async def reset(self, session: Client) -> None:  # noqa: ARG002
        self._offer = self._origin = None

    def _member(self) -> Greeting:
        if self._greeting is None or self._greeting.name not in self.boundary.watches:
            raise Refused(503, "5.5.1", "XSHADOW needed first")
        return self._greeting


def _recipient(fork: Fork, rcpt: RcptTo) -> Recipient:
    found = fork.recipient(rcpt.address, rcpt.notify, rcpt.orcpt)
    return replace(found, unread=_unread(rcpt)) if "XUNREAD" in rcpt.extra else found


def _unread(rcpt: RcptTo) -> Unread | None:
    """Raises Malformed."""
    return parse_unread(rcpt.extra["XUNREAD"]) if "XUNREAD" in rcpt.extra else None


class HoldSink:
    """Takes one copy that is offered; no further copy of it is made from here."""

    def __init__(
        self,
        answering: AnsweringSession,
        name: str,
        offer: OfferParameter,
        origin: MadeOf | None,
        owner: Greeting,
        mail: MailFrom,
        recipients: tuple[Recipient, ...],
    ) -> None:
        self._answering = answering
        self._offer = offer
        self._origin = origin
        self._owner = owner
        self._mail = mail
        self._recipients = recipients
        self._scan = HeaderScan()
        self._spool = Spool(answering.options.content, name, cached=False)
        self._slot = answering.database.in_hand.take(offer.message_id)

    async def write(self, data: bytes) -> None:
        if not self._scan.complete:
            self._scan.feed(data)
        try:
            self._spool.write(data)
        except OSError as error:
            self._no_room(error)
            raise Refused.by(NO_ROOM) from error

    async def finish(self) -> Sequence[Reply]:
        try:
            return await self._finished()
        finally:
            self._over()

    def _over(self) -> None:
        self._answering.database.in_hand.leave(self._slot)
        self._slot = NOWHERE

    async def _finished(self) -> Sequence[Reply]:
        self._scan.finish()
        try:
            content = await self._spool.seal()
        except OSError as error:
            self._no_room(error)
            self._spool.discard()
            return [NO_ROOM]
        self._answering.options.room.wrote(self._spool.size)
        offer, scan = self._offer, self._scan
        envelope = self._mail.envelope(
            self._spool.size, message_id=scan.message_id, subject=scan.subject, tls=scan.tls
        )
        digest = self._spool.digest
        if self._origin is not None and self._origin.octets is not None:
            original = await self._referred_to(self._origin)
            if original is None or original.digests is None or original.digests.content is None:
                self._spool.discard()
                return [SEND_IT]
            kept = original.envelope
            waived = TlsWish.WAIVED if kept.tls is TlsWish.WAIVED else None
            envelope = replace(
                envelope,
                size=kept.size,
                message_id=kept.message_id,
                subject=kept.subject,
                tls=envelope.tls or waived,
            )
            digest, content = original.digests.content, Content(of=original.id)
        digests = Digests(digest, of_envelope(envelope, self._recipients), offer.envelope is None)
        if offer.envelope is not None and self._differs(digests):
            self._spool.discard()
            return [Reply(554, "5.6.0", f"{offer.message_id} differs from its digest")]
        now = self._answering.clock()
        described = ShadowCopyOffer(
            message_id=offer.message_id,
            epoch=offer.epoch,
            rank=offer.rank,
            owner=ServerName(self._owner.name),
            owner_database=self._owner.lineage.database_id,
            mark=offer.mark,
            received_at=_received_at(offer, now),
            envelope=envelope,
            recipients=self._recipients,
            digests=digests,
            given_for=offer.given_for,
            content_of=self._origin.message_id if self._origin else None,
            request=self._origin.request if self._origin else None,
        )

        def work(ledger: SqlLedger) -> tuple[OfferAnswer | None, bool]:
            if chores.refuses(ledger, described.message_id):
                return None, False
            decision = hold(ledger, described, content, self._answering.policy, now)
            stored = any(isinstance(write, SaveCopy) and write.content for write in decision.writes)
            return ledger.apply(decision), stored

        held, stored = await self._answering.database.transact_briefly(work)
        self._answering.boundary.called(described.owner, seconds())
        if not stored:
            self._spool.discard()
        if held is None:
            return [OPENING]
        if held is OfferAnswer.SEND:
            return [SEND_IT]
        if held is OfferAnswer.QUEUED:
            return [Reply(250, "2.6.0", f"{offer.message_id} Queued mail for redundancy")]
        log.warning("copy_refused", message=offer.message_id, owner=self._owner.name, reason=held.value)
        return [Reply(451, "4.4.0", f"{offer.message_id} {held.value}")]

    async def _referred_to(self, origin: MadeOf) -> Copy | None:
        """The message whose content the owner refers to, with octets that were compared just now; None if it
        must send them.
        """
        asker, digest = ServerName(self._owner.name), self._answering.digest
        octets = origin.octets

        def work(ledger: SqlLedger) -> Copy | None:
            allowed = may_refer(ledger, asker, origin.message_id, octets or 0, digest)
            return ledger.copy(origin.message_id) if allowed else None

        found = None if self._spool.size else await self._answering.database.transact_briefly(work)
        if found is None:
            log.warning("reference_refused", message=self._offer.message_id, owner=asker)
            return None
        examiner = Examiner(self._answering.database, self._answering.clock)
        return found if await examiner.look(found.id) is Finding.SOUND else None

    async def abort(self) -> None:
        self._over()
        self._spool.discard()

    def _differs(self, found: Digests) -> bool:
        """Does the copy differ from its owner's digests? Then it is refused."""
        envelope, content = self._offer.envelope != found.envelope, self._answering.digest != found.content
        if envelope or content:
            log.error(
                "copy_differs",
                message=self._offer.message_id,
                owner=self._owner.name,
                envelope=envelope,
                content=content,
            )
        return envelope or content

    def _no_room(self, error: OSError) -> None:
        log.error("spool_failed", message=self._offer.message_id, error=str(error))
        if not is_full(error):
            self._answering.database.fail(error)


def _received_at(offer: OfferParameter, now: datetime) -> datetime:
    """The time of reception by our own clock, computed from the age: the owner's clock may be wrong by hours.

    A member of version 1 sends the time of reception by its own clock, which may be ahead.
    """
    if offer.age is not None:
        return now - offer.age
    return min(offer.received_at or now, now)
