"""The seam between the mailbox service and what stores the mail: Maildirs, or a server by LMTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeAlias

from shadowrelay.core.values import dataclass
from shadowrelay.smtp.receiving.contract import Client
from shadowrelay.wire.esmtp import MailFrom, RcptTo
from shadowrelay.wire.replies import Reply


class ContentFile(Protocol):
    """A file of octets, open for reading."""

    def seek(self, offset: int, /) -> int: ...

    def read(self, size: int = -1, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Addressee:
    """One mailbox of a message. ``mailbox``: its canonical address; ``rcpt``: as the relay named it."""

    mailbox: str
    rcpt: RcptTo


@dataclass(frozen=True, slots=True, kw_only=True)
class MailboxMessage:
    """A message for mailboxes of a store, each named once.

    ``content`` is the store's alone until ``deliver`` returns. ``size`` is in octets; ``eight_bit``: there
    are octets above 127; ``headless``: it has no header field, so that fields put above it need an empty
    line. ``at`` is when it came.
    """

    client: Client
    mail: MailFrom
    addressees: Sequence[Addressee]
    content: ContentFile
    size: int
    eight_bit: bool
    headless: bool
    at: datetime


TellAnswers: TypeAlias = Callable[[Mapping[int, Reply]], Awaitable[None]]
"""Told what a store answers for addressees, by their index, as soon as it is known."""


class Store(Protocol):
    """Keeps mail. It need not know what it has: the service asks it for what is to be stored alone."""

    def judges(self, mailbox: str | None) -> Reply | None:
        """The reply that refuses a mailbox, or (None) all mail for now; None takes it."""
        ...

    async def deliver(self, message: MailboxMessage, heard: TellAnswers) -> None:
        """Store a message. ``heard`` is told of each addressee once.

        250 means that the message is stored, and stays so if the power fails. Whatever is not certain is a
        4yz: the relay tries it again. An addressee of whom ``heard`` was not told was not reached. Raises
        Refused for all of whom ``heard`` was not told.
        """
        ...

    async def close(self) -> None:
        """Let go of what is open. Idempotent."""
        ...
