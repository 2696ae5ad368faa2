"""A copy of a message on its way to a member that is to hold it."""

from __future__ import annotations

from collections.abc import AsyncIterable, Sequence
from datetime import datetime, timedelta

from shadowrelay.core.identifiers import Digest, Mark
from shadowrelay.core.messages import Recipient, Status, TlsWish
from shadowrelay.core.reception.by_reference import MadeOf
from shadowrelay.core.reception.redundancy import Concern, Leg, OfferAttempt
from shadowrelay.core.steps import OfferCopy
from shadowrelay.core.values import replace
from shadowrelay.smtp.members.client import MemberConnection, MemberFailed, MemberGone, marked
from shadowrelay.wire import xshadow
from shadowrelay.wire.esmtp import MailFrom, RcptTo, format_mail, format_rcpt
from shadowrelay.wire.replies import Reply

_OFFERED = frozenset({"8BITMIME", "SMTPUTF8", "DSN", "REQUIRETLS"})
SEND_CONTENT = (450, "4.6.0")
"""The holder cannot, or may not, take the content from another message: it must be sent."""
_ORDERS_SINCE, _REQUIRETLS_SINCE = 4, 6  # versions of the protocol
_MOST_UNHEARD = 64  # replies to chunks that may be unread: more of them could block both ends


class OutgoingOffer:
    """One copy on its way to a holder: MAIL and RCPT leave with the first block of content, or when it is
    announced; the other blocks as they come. ``send_it``: the holder refused to refer to the content that it
    has; the same session can take the content.
    """

    def __init__(self, session: MemberConnection, step: OfferCopy, mark: Mark, now: datetime) -> None:
        self.step = step
        self._session = session
        recipients = _offered_to(session.version, step.recipients)
        self._unheard = 1 + len(recipients)
        version = session.version
        old = _lost_on(version, step, recipients, now) if version < _REQUIRETLS_SINCE else ""
        self._refusal: Reply | None = Reply(450, "4.5.0", old) if old else None
        self._ended = False
        self.send_it = False
        # What leaves next, in one write: a small message is one segment, and one TLS record.
        rcpts = [_rcpt(session.version, one) for one in recipients]
        self._commands = b"".join((_mail(session.version, step, mark, now), *rcpts))
        self._block = b""  # the last one is held back: it leaves with LAST

    def announce(self) -> None:
        """MAIL and RCPT leave before there is any content."""
        if self._refusal is not None:
            return
        self._session.write(self._commands)
        self._commands = b""

    async def write(self, data: bytes) -> None:
        """One block; nothing leaves any more once the copy is refused. Raises MemberFailed."""
        block, self._block = self._block, data
        if self._refusal is not None or not block:
            return
        self._unheard += 1
        await self._chunk(b"BDAT %d\r\n" % len(block), block)
        if self._unheard > _MOST_UNHEARD:
            await self._hear()

    async def _chunk(self, command: bytes, block: bytes) -> None:
        self._session.write(self._commands + command + block)
        self._commands = b""
        await self._session.drain("content")

    async def _hear(self) -> None:
        reply = await self._session.reply("offer")
        self._unheard -= 1
        if not reply.positive:
            self._refusal = reply

    async def send(self, content: AsyncIterable[bytes], digest: Digest | None) -> OfferAttempt:
        """Send the whole content, then ``finish``. What reading it raises passes; the session is aborted."""
        try:
            async for block in content:
                await self.write(block)
        except MemberFailed as failed:
            return self.failed(failed)
        except BaseException:
            self._session.abort()
            raise
        return await self.finish(digest)

    async def refer(self, digest: Digest | None) -> OfferAttempt:
        """Offer the copy without its content: the holder has it."""
        return await self.finish(digest)

    async def finish(self, digest: Digest | None) -> OfferAttempt:
        """Send the end of the content with its ``digest``, and read the holder's answer.

        A refusal of the envelope, or of a chunk, is final: the holder keeps nothing.
        """
        session = self._session
        try:
            if self._refusal is None and not session.lost:
                self._ended = True
                promised = f" {digest}" if digest and session.version > 1 else ""
                await self._chunk(f"BDAT {len(self._block)} LAST{promised}\r\n".encode(), self._block)
            while self._unheard and self._refusal is None:
                await self._hear()
            answer = self._refusal or await session.reply("acknowledgement")
        except MemberFailed as failed:
            return self.failed(failed)
        if not answer.positive:
            self.send_it = self.step.refers and (answer.code, answer.enhanced) == SEND_CONTENT
            if answer.code == 421 or self._refusal is not None:
                session.abort()
            return self._attempt(Leg.REFUSED, str(answer), concern=concern_of(answer))
        try:
            texts, mark = marked(answer)
        except xshadow.Malformed as error:
            session.abort()
            return self._attempt(Leg.LOST, str(error))
        reply_text = f"{answer.code} {answer.enhanced} {' '.join(texts)}"
        return self._attempt(Leg.ACKNOWLEDGED, reply_text, mark)

    def failed(self, failed: MemberFailed) -> OfferAttempt:
        """Before the last chunk leaves the holder can have no copy; after that it may."""
        concern = Concern.SESSION if isinstance(failed, MemberGone) else Concern.MEMBER
        return self._attempt(Leg.LOST if self._ended else Leg.REFUSED, str(failed), concern=concern)

    def _attempt(
        self, leg: Leg, reply: str, mark: Mark | None = None, concern: Concern = Concern.MEMBER
    ) -> OfferAttempt:
        greeting = self._session.greeting
        database = greeting.lineage.database_id if greeting else None
        return OfferAttempt(self.step.to, leg, self.step.rank, reply, database, mark, concern)


def concern_of(refusal: Reply) -> Concern:
    """What a refusal is about, by the subject of its enhanced code (RFC 3463 section 3): X.3.z is about the
    member; any other subject, and every 5yz, about this copy. 421 is about the session alone.
    """
    if refusal.code == 421:
        return Concern.SESSION
    subject = refusal.enhanced.split(".")[1] if refusal.enhanced else "3"
    return Concern.MEMBER if not refusal.permanent and subject == "3" else Concern.COPY


def _offered_to(version: int, recipients: Sequence[Recipient]) -> list[Recipient]:
    """All of them. One whose report is not safe yet is offered as unsettled; version 1 omits settled ones."""
    known = [one if not one.waits else replace(one, status=Status.READY) for one in recipients]
    if version == 2:
        known = [replace(one, settled_at=None) for one in known]
    return [one for one in known if not one.settled] if version == 1 else known


def _lost_on(version: int, step: OfferCopy, recipients: Sequence[Recipient], now: datetime) -> str:
    """What a member of that version would not know of the copy, and do otherwise if it promoted it; '' if
    nothing.
    """
    if version < _ORDERS_SINCE and any(one.is_suspended(now) for one in recipients):
        return "a member of that version would not let suspended mail wait"
    if step.envelope.tls is TlsWish.REQUIRED:
        return "a member of that version would send it without REQUIRETLS"
    return ""


def may_refer(version: int, step: OfferCopy) -> bool:
    """Whether a session of that version can offer the copy without its content."""
    return step.refers and step.content_of is not None and version > 2


def _mail(version: int, step: OfferCopy, mark: Mark, now: datetime) -> bytes:
    envelope, digests = step.envelope, step.digests
    offered = (step.message_id, step.epoch, step.rank, mark)
    if version > 1 and digests is not None:
        age = max(timedelta(0), now - step.received_at)
        offer = xshadow.OfferParameter(*offered, age, digests.envelope, step.given_for, step.received_at)
    else:
        offer = xshadow.OfferParameter(*offered, received_at=step.received_at)
    extra = {"XSHADOW": xshadow.format_offer(offer)}
    if step.content_of is not None and version > 2:
        octets = envelope.size if may_refer(version, step) else None
        extra["XMADEOF"] = xshadow.format_origin(MadeOf(step.content_of, step.request, octets))
    mail = MailFrom(
        sender=envelope.sender,
        body=envelope.body,
        smtputf8=envelope.smtputf8,
        ret=envelope.ret,
        envid=envelope.envid,
        requiretls=envelope.tls is TlsWish.REQUIRED,
        extra=extra,
    )
    return format_mail(mail, _OFFERED)


def _rcpt(version: int, recipient: Recipient) -> bytes:
    fork = xshadow.format_fork(*xshadow.fork_of(recipient, version))
    extra = {"XFORK": fork}
    if recipient.unread is not None and not recipient.settled and version > 4:
        extra["XUNREAD"] = xshadow.format_unread(recipient.unread)
    rcpt = RcptTo(recipient.address, recipient.notify, recipient.orcpt, extra)
    return format_rcpt(rcpt, _OFFERED)
