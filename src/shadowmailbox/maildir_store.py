"""Maildirs as a store, for labs."""

from __future__ import annotations

import asyncio
import errno
from email.utils import format_datetime
from pathlib import Path

import structlog

from shadowmailbox.maildir import MailboxCopy, folder_of, prepare, store
from shadowmailbox.store import MailboxMessage, TellAnswers
from shadowrelay.wire.replies import Refused, Reply

log = structlog.get_logger(__name__)

REFUSE_FILE = "REFUSE"
REFUSING = Reply(451, "4.3.2", "Mailbox server refuses mail for now")
DELIVERED = Reply(250, "2.0.0", "Delivered")
NO_SPACE = Reply(452, "4.3.1", "Insufficient system storage")
FAILED = Reply(451, "4.3.0", "Mailbox server error, try again later")
NO_FOLDER = Reply(553, "5.1.3", "Mailbox name too long")

_LONGEST_NAME = 255  # of a directory, on every usual file system


class MaildirStore:
    """Maildirs below ``root``. While the file REFUSE is there, all mail is refused for now."""

    def __init__(self, root: Path, hostname: str) -> None:
        self._root, self._hostname = root, hostname

    @classmethod
    async def open(cls, root: Path, hostname: str) -> MaildirStore:
        """Sweep what a crash left unfinished. Raises OSError."""
        await asyncio.to_thread(prepare, root)
        return cls(root, hostname)

    def judges(self, mailbox: str | None) -> Reply | None:
        if mailbox is not None and any(len(name) > _LONGEST_NAME for name in folder_of(mailbox)):
            return NO_FOLDER
        return REFUSING if (self._root / REFUSE_FILE).exists() else None

    async def deliver(self, message: MailboxMessage, heard: TellAnswers) -> None:
        end = b"\r\n" if message.headless else b""
        copies = [
            MailboxCopy(one.mailbox, self._prefix(message, one.mailbox) + end) for one in message.addressees
        ]
        try:
            await asyncio.to_thread(store, self._root, copies, message.content, host=self._hostname)
        except OSError as error:
            raise refused(error) from None
        await heard(dict.fromkeys(range(len(copies)), DELIVERED))

    async def close(self) -> None:
        """Nothing is open between two messages."""

    def _prefix(self, message: MailboxMessage, recipient: str) -> bytes:
        client = message.client
        protocol = client.protocol(smtputf8=message.mail.smtputf8)
        address = f"[{'IPv6:' if ':' in client.address else ''}{client.address}]"
        return (
            f"Return-Path: <{message.mail.sender}>\r\n"
            f"Delivered-To: {recipient}\r\n"
            f"Received: from {client.helo} ({address})\r\n"
            f"\tby {self._hostname} with {protocol} id {client.id}\r\n"
            f"\tfor <{recipient}>; {format_datetime(message.at)}\r\n"
        ).encode()


def refused(error: OSError) -> Refused:
    """A disk that cannot be written or read: nothing was stored."""
    log.error("delivery_failed", error=str(error))
    return Refused.by(NO_SPACE if error.errno in {errno.ENOSPC, errno.EDQUOT} else FAILED)
