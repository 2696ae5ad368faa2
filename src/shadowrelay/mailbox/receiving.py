"""Receives a message for the mailbox server: into the Maildirs, into the DeliveredTo table, then 250."""

from __future__ import annotations

import asyncio
import errno
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from email.utils import format_datetime
from pathlib import Path

import structlog

from shadowrelay.database.delivered_to import Delivered, DeliveredTo, TableError
from shadowrelay.mailbox.identity import Fingerprint
from shadowrelay.mailbox.maildir import MailboxCopy, folder_of, mailbox_of, store
from shadowrelay.smtp.receiving.contract import Client, Sink
from shadowrelay.wire.esmtp import MailFrom, RcptTo
from shadowrelay.wire.header import LONGEST_FIELD_NAME, lacks_header
from shadowrelay.wire.replies import DUPLICATE_DROPPED, Refused, Reply

log = structlog.get_logger(__name__)

REFUSE_FILE = "REFUSE"
REFUSING = Reply(451, "4.3.2", "Mailbox server refuses mail for now")
DELIVERED = Reply(250, "2.0.0", "Delivered")
DUPLICATE = Reply(250, "2.0.0", f"{DUPLICATE_DROPPED}, delivered before")
NO_SPACE = Reply(452, "4.3.1", "Insufficient system storage")
TABLE_FAILED = Reply(451, "4.3.0", "Mailbox server error, try again later")
NO_FOLDER = Reply(553, "5.1.3", "Mailbox name too long")

_IN_MEMORY = 65_536
_LONGEST_NAME = 255  # of a directory, on every usual file system


class MailboxReceiver:
    """The receiver of both connectors. ``clock`` returns aware times."""

    def __init__(self, root: Path, hostname: str, table: DeliveredTo, clock: Callable[[], datetime]) -> None:
        self.root, self.hostname, self.table, self.clock = root, hostname, table, clock
        self._delivering: set[Delivered] = set()
        self._delivered = asyncio.Condition()

    async def mail(self, session: Client, mail: MailFrom) -> Reply | None:
        del session, mail
        return self._refusal()

    async def rcpt(
        self, session: Client, mail: MailFrom, rcpt: RcptTo, accepted: Sequence[RcptTo]
    ) -> Reply | None:
        del session, mail, accepted
        if any(
            len(name) > _LONGEST_NAME for name in folder_of(mailbox_of(rcpt.address, hostname=self.hostname))
        ):
            return NO_FOLDER
        return self._refusal()

    async def content(self, session: Client, mail: MailFrom, recipients: Sequence[RcptTo]) -> Sink | Reply:
        return MailboxSink(self, session, mail, recipients)

    async def reset(self, session: Client) -> None:
        """Do nothing: no state is kept between the commands of a transaction."""

    def _refusal(self) -> Reply | None:
        return REFUSING if (self.root / REFUSE_FILE).exists() else None

    @asynccontextmanager
    async def alone_with(self, keys: Iterable[Delivered]) -> AsyncIterator[None]:
        """Allow one delivery of a message at a time: both copies of a message may come at once."""
        wanted = frozenset(keys)
        async with self._delivered:
            await self._delivered.wait_for(lambda: self._delivering.isdisjoint(wanted))
            self._delivering |= wanted
        try:
            yield
        finally:
            self._delivering -= wanted
            async with self._delivered:
                self._delivered.notify_all()


class MailboxSink:
    """One message. Its content is in memory, or in an unlinked file if it is large."""

    def __init__(
        self, receiver: MailboxReceiver, session: Client, mail: MailFrom, recipients: Sequence[RcptTo]
    ) -> None:
        self._receiver, self._session, self._mail = receiver, session, mail
        self._recipients = tuple(recipients)
        self._fingerprint = Fingerprint()
        self._content = tempfile.SpooledTemporaryFile(  # noqa: SIM115 - closed by finish or abort
            max_size=_IN_MEMORY, dir=str(receiver.root)
        )
        self._size = 0

    async def write(self, data: bytes) -> None:
        self._fingerprint.feed(data)
        self._size += len(data)
        if self._size <= _IN_MEMORY:
            self._content.write(data)
            return
        try:
            await asyncio.to_thread(self._content.write, data)
        except OSError as error:
            raise _refused(error) from None

    async def abort(self) -> None:
        self._content.close()

    async def finish(self) -> Sequence[Reply]:
        """Deliver. Returns one reply per recipient for LMTP, one for all recipients for SMTP."""
        receiver = self._receiver
        message_id, date = self._fingerprint.result()
        mailboxes = [mailbox_of(rcpt.address, hostname=receiver.hostname) for rcpt in self._recipients]
        keys = [Delivered(message_id, date, mailbox) for mailbox in mailboxes]
        try:
            async with receiver.alone_with(keys):
                known = await receiver.table.known(keys, receiver.clock())
                fresh = [key for key in dict.fromkeys(keys) if key not in known]
                self._tell_of(known)
                await self._deliver(fresh)
        except Refused as refused:
            outcomes = [refused.reply] * len(keys)
        except TableError:
            log.exception("delivered_to_unreadable")
            outcomes = [TABLE_FAILED] * len(keys)
        else:
            outcomes = _outcomes(keys, fresh)
        finally:
            self._content.close()
        if self._session.service == "LMTP":
            return outcomes
        return (next((reply for reply in outcomes if reply is not DUPLICATE), DUPLICATE),)

    def _tell_of(self, known: Iterable[Delivered]) -> None:
        for key in known:
            log.info(
                "duplicate_dropped",
                message_id=key.message_id,
                recipient=key.recipient,
                sender=self._mail.sender,
                client=self._session.helo,
                session=self._session.id,
            )

    async def _deliver(self, fresh: Sequence[Delivered]) -> None:
        if not fresh:
            return
        receiver, now = self._receiver, self._receiver.clock()
        self._content.seek(0)
        end = b"\r\n" if lacks_header(self._content.read(LONGEST_FIELD_NAME)) else b""
        letters = [MailboxCopy(key.recipient, self._prefix(key.recipient, now) + end) for key in fresh]
        try:
            await asyncio.to_thread(store, receiver.root, letters, self._content, host=receiver.hostname)
        except OSError as error:
            raise _refused(error) from None
        try:
            await receiver.table.record(fresh, now)
        except TableError:
            # The message is in its mailbox: a 4yz now would only make a second copy.
            log.exception("delivered_to_not_recorded")

    def _prefix(self, recipient: str, now: datetime) -> bytes:
        session = self._session
        protocol = session.protocol(smtputf8=self._mail.smtputf8)
        client = f"[{'IPv6:' if ':' in session.address else ''}{session.address}]"
        return (
            f"Return-Path: <{self._mail.sender}>\r\n"
            f"Delivered-To: {recipient}\r\n"
            f"Received: from {session.helo} ({client})\r\n"
            f"\tby {self._receiver.hostname} with {protocol} id {session.id}\r\n"
            f"\tfor <{recipient}>; {format_datetime(now)}\r\n"
        ).encode()


def _outcomes(keys: Sequence[Delivered], fresh: Sequence[Delivered]) -> list[Reply]:
    """The reply for each key. A mailbox named twice in one transaction gets one copy."""
    left = set(fresh)
    outcomes = []
    for key in keys:
        outcomes.append(DELIVERED if key in left else DUPLICATE)
        left.discard(key)
    return outcomes


def _refused(error: OSError) -> Refused:
    log.error("delivery_failed", error=str(error))
    full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    reply = NO_SPACE if full else TABLE_FAILED
    return Refused.by(reply)
