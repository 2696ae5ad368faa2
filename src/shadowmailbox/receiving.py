"""Receives a message for the mailbox service: into the store, into the DeliveredTo table, then 250."""

from __future__ import annotations

import asyncio
import hashlib
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import structlog

from shadowmailbox.counts import MailboxCounts
from shadowmailbox.delivered_to import Delivered, DeliveredTo, TableError
from shadowmailbox.maildir import mailbox_of
from shadowmailbox.maildir_store import FAILED, refused
from shadowmailbox.store import Addressee, MailboxMessage, Store
from shadowrelay.smtp.receiving.contract import Client, Service, Sink
from shadowrelay.smtp.receiving.session import ReceiveSession
from shadowrelay.wire.delivered_to import format_delivered_to
from shadowrelay.wire.esmtp import MailFrom, RcptTo
from shadowrelay.wire.header import LONGEST_FIELD_NAME, lacks_header
from shadowrelay.wire.replies import DUPLICATE_DROPPED, Refused, Reply

log = structlog.get_logger(__name__)

DUPLICATE = Reply(250, "2.0.0", f"{DUPLICATE_DROPPED}, delivered before")
BUSY = Reply(451, "4.3.2", "The same message is being delivered at this moment, try again later")
NOT_REACHED = Reply(451, "4.4.2", "The mailbox store gave no answer, try again later")

_IN_MEMORY = 65_536


@dataclass(kw_only=True)
class MailboxReceiver:
    """The receiver of the connectors. ``clock`` returns aware times.

    ``spool``: the directory for large contents. ``patience``: how long a message waits while another copy of
    it is being delivered.
    """

    store: Store
    table: DeliveredTo
    hostname: str
    spool: Path
    clock: Callable[[], datetime]
    counts: MailboxCounts
    patience: timedelta = timedelta(minutes=5)
    _delivering: set[Delivered] = field(default_factory=set)
    _delivered: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def mail(self, session: Client, mail: MailFrom) -> Reply | None:
        del session, mail
        return self.store.judges(None)

    async def rcpt(
        self, session: Client, mail: MailFrom, rcpt: RcptTo, accepted: Sequence[RcptTo]
    ) -> Reply | None:
        del session, mail, accepted
        return self.store.judges(mailbox_of(rcpt.address, hostname=self.hostname))

    async def content(self, session: Client, mail: MailFrom, recipients: Sequence[RcptTo]) -> Sink | Reply:
        return MailboxSink(self, session, mail, recipients)

    async def reset(self, session: Client) -> None:
        """Do nothing: no state is kept between the commands of a transaction."""

    async def delivered_to(self) -> str | None:
        """The line of the answer to LHLO; None if the table cannot be read."""
        try:
            return format_delivered_to(await self.table.oldest(self.clock()))
        except TableError:
            log.exception("delivered_to_unreadable")
            return None

    @asynccontextmanager
    async def alone_with(self, keys: frozenset[Delivered]) -> AsyncIterator[None]:
        """Allow one delivery of a message at a time: both copies of a message may come at once.

        Raises Refused when the other one takes too long.
        """
        try:
            async with asyncio.timeout(self.patience.total_seconds()), self._delivered:
                await self._delivered.wait_for(lambda: self._delivering.isdisjoint(keys))
                self._delivering |= keys
        except TimeoutError:
            raise Refused.by(BUSY) from None
        try:
            yield
        finally:
            self._delivering -= keys
            async with self._delivered:
                self._delivered.notify_all()


class MailboxSession(ReceiveSession):
    """A session with a relay: the answer to LHLO says from when on duplicates are dropped."""

    receiver: MailboxReceiver
    _line: str | None = None

    async def greeted(self, service: Service, name: str) -> bytes:
        self._line = await self.receiver.delivered_to()
        return await super().greeted(service, name)

    def keywords(self) -> list[str]:
        return [*super().keywords(), *([self._line] if self._line else [])]


class MailboxSink:
    """One message. Its content is in memory, or in an unlinked file if it is large."""

    def __init__(
        self, receiver: MailboxReceiver, session: Client, mail: MailFrom, recipients: Sequence[RcptTo]
    ) -> None:
        self._receiver, self._session, self._mail = receiver, session, mail
        self._recipients = tuple(recipients)
        self._fingerprint = Fingerprint()
        self._content = tempfile.SpooledTemporaryFile(  # noqa: SIM115 - closed by finish or abort
            max_size=_IN_MEMORY, dir=str(receiver.spool)
        )
        self._size = 0
        self._eight_bit = False

    async def write(self, data: bytes) -> None:
        self._fingerprint.feed(data)
        self._size += len(data)
        self._eight_bit = self._eight_bit or not data.isascii()
        if self._size <= _IN_MEMORY:
            self._content.write(data)
            return
        try:
            await asyncio.to_thread(self._content.write, data)
        except OSError as error:
            raise refused(error) from None

    async def abort(self) -> None:
        self._content.close()

    async def finish(self) -> Sequence[Reply]:
        """Deliver. Returns one reply per recipient for LMTP, one for all recipients for SMTP."""
        receiver = self._receiver
        message_id, date = self._fingerprint.result()
        mailboxes = [mailbox_of(rcpt.address, hostname=receiver.hostname) for rcpt in self._recipients]
        keys = [Delivered(message_id, date, mailbox) for mailbox in mailboxes]
        answers: dict[Delivered, Reply] = {}
        try:
            async with receiver.alone_with(frozenset(keys)):
                known = await receiver.table.known(keys, receiver.clock())
                self._tell_of(known)
                answers |= dict.fromkeys(known, DUPLICATE)
                fresh = {
                    key: rcpt for key, rcpt in zip(keys, self._recipients, strict=True) if key not in known
                }
                await self._deliver(fresh, answers)
            left = NOT_REACHED
        except Refused as error:
            left = error.reply
        except OSError as error:
            left = refused(error).reply
        except TableError:
            log.exception("delivered_to_unreadable")
            left = FAILED
        finally:
            self._content.close()
        outcomes = self._counted([answers.get(key, left) for key in keys], keys)
        if self._session.service == "LMTP":
            return outcomes
        return (next((reply for reply in outcomes if reply is not DUPLICATE), DUPLICATE),)

    def _tell_of(self, known: frozenset[Delivered]) -> None:
        for key in known:
            log.info(
                "duplicate_dropped",
                message_id=key.message_id,
                recipient=key.recipient,
                sender=self._mail.sender,
                client=self._session.helo,
                session=self._session.id,
            )

    async def _deliver(self, fresh: Mapping[Delivered, RcptTo], answers: dict[Delivered, Reply]) -> None:
        """Store the message for those who lack it. ``answers`` gets what the store says, as it comes.

        Raises Refused and OSError for those who are not in ``answers`` then.
        """
        if not fresh:
            return
        receiver, keys = self._receiver, list(fresh)
        self._content.seek(0)

        async def heard(replies: Mapping[int, Reply]) -> None:
            stored = [keys[index] for index, reply in replies.items() if reply.positive]
            # In the table first: if this process ends before the relay hears 250, the relay tries again.
            await self._record(stored)
            answers.update((keys[index], reply) for index, reply in replies.items())

        message = MailboxMessage(
            client=self._session,
            mail=self._mail,
            addressees=[Addressee(key.recipient, rcpt) for key, rcpt in fresh.items()],
            content=self._content,
            size=self._size,
            eight_bit=self._eight_bit,
            headless=lacks_header(self._content.read(LONGEST_FIELD_NAME)),
            at=receiver.clock(),
        )
        await receiver.store.deliver(message, heard)

    async def _record(self, stored: Sequence[Delivered]) -> None:
        if not stored:
            return
        try:
            await self._receiver.table.record(stored, self._receiver.clock())
        except TableError:
            # The message is in its mailbox: a 4yz now would only make a second copy.
            log.exception("delivered_to_not_recorded")
            self._receiver.counts.unrecorded += len(stored)

    def _counted(self, outcomes: list[Reply], keys: Sequence[Delivered]) -> list[Reply]:
        """Count the replies. A mailbox named twice in one transaction gets one copy."""
        counts, told = self._receiver.counts, set[Delivered]()
        for index, (key, reply) in enumerate(zip(keys, outcomes, strict=True)):
            if reply.positive and (reply.duplicate or key in told):
                counts.duplicates += 1
                if not reply.duplicate:
                    outcomes[index] = DUPLICATE
            elif reply.positive:
                counts.delivered += 1
            else:
                counts.refused[reply.code // 100] += 1
            told.add(key)
        return outcomes


_TRACE = frozenset({b"received", b"return-path", b"delivered-to"})
_FIELD = re.compile(rb"([!-9;-~]+)[ \t]*:(.*)", re.DOTALL)
_LONGEST = 500
"""Most characters of a value that is kept; a longer value is kept as its hash."""


class Fingerprint:
    """Reads a message as it passes, and keeps only its header.

    The caller bounds the header; a message without an empty line is all header.
    """

    def __init__(self) -> None:
        self._header: bytearray | None = bytearray()
        self._hash = hashlib.sha256()
        self._message_id = self._date = ""

    def feed(self, data: bytes) -> None:
        if self._header is None:
            if not self._message_id:
                self._hash.update(data)
            return
        searched = max(0, len(self._header) - 3)
        self._header += data
        end = 0 if self._header.startswith(b"\r\n") else self._header.find(b"\r\n\r\n", searched)
        if end >= 0:
            self._read_header(bytes(self._header), end + 2)

    def result(self) -> tuple[str, str]:
        """(Message-ID, Date), or (hash, '') for a message without a Message-ID."""
        if self._header is not None:
            self._read_header(bytes(self._header), len(self._header))
        if self._message_id:
            return self._message_id, self._date
        return f"sha256:{self._hash.hexdigest()}", ""

    def _read_header(self, message: bytes, end: int) -> None:
        self._header = None
        fields = re.split(rb"\r\n(?![ \t])", message[:end])
        below = 0
        trace = True
        for text in fields:
            found = _FIELD.match(text)
            name = found[1].lower() if found else b""
            trace = trace and name in _TRACE
            if trace:
                below += len(text) + 2
            elif found and name == b"message-id":
                self._message_id = self._message_id or _value(found[2])
            elif found and name == b"date":
                self._date = self._date or _value(found[2])
        self._hash.update(message[below:])


def _value(raw: bytes) -> str:
    """A value unfolded, one character for each octet, and of bounded length."""
    text = b" ".join(raw.split()).decode("latin-1")
    return text if len(text) <= _LONGEST else f"sha256:{hashlib.sha256(text.encode('utf-8')).hexdigest()}"
