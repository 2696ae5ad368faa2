"""The recipients file of a running node, which may change at any time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import monotonic

import structlog

from shadowrelay.core.recipients import AddressBook
from shadowrelay.file_stamps import LOOK_AGAIN, Stamp, stamp
from shadowrelay.reception.recipient_files import BookLimits, RecipientsInvalid, oddities, read_recipients

log = structlog.get_logger(__name__)


class RecipientsFile:
    """The book in the recipients file. A file that cannot be read, or is invalid, changes nothing: the book
    from before stands, and ``wrong`` says why. Making one raises RecipientsInvalid, OSError.

    A large file takes a second, so a changed one is read in a thread, and once only, also if it is invalid.
    Until it is read the book from before counts. Without an event loop it is read at once.
    """

    def __init__(self, path: Path, limits: BookLimits) -> None:
        self.path = path
        self._limits = limits
        self._wrong = ""
        self._looked_at = monotonic()
        self._reading: asyncio.Task[None] | None = None
        self._seen: Stamp | None = stamp(self.path, RecipientsInvalid)
        self._book = self._read()

    def book(self) -> AddressBook:
        """The book as it is now. The file is looked at again after a while."""
        now = monotonic()
        if now - self._looked_at >= LOOK_AGAIN and self._reading is None:
            self._looked_at = now
            self._look()
        return self._book

    @property
    def wrong(self) -> str:
        """What is wrong with the file, '' if nothing is; then the book is the one from before."""
        self.book()
        return self._wrong

    def _look(self) -> None:
        """Read the file if it is not the one that was read, or could not be read, last."""
        try:
            found = stamp(self.path, RecipientsInvalid)
        except (OSError, RecipientsInvalid) as error:
            self._seen = None
            self._is_wrong(error)
            return
        if found == self._seen:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._read_again(found)
            return
        self._reading = loop.create_task(asyncio.to_thread(self._read_again, found))
        self._reading.add_done_callback(self._has_read)

    def _has_read(self, ended: asyncio.Task[None]) -> None:
        self._reading = None
        if not ended.cancelled() and (error := ended.exception()) is not None:
            log.error("recipients_not_read", file=str(self.path), error=repr(error))

    def _read_again(self, found: Stamp | None) -> None:
        try:
            self._book, self._wrong = self._read(), ""
        except (OSError, RecipientsInvalid) as error:
            self._is_wrong(error)
            if isinstance(error, OSError):  # it may be readable in a moment, and does not change for that
                found = None
        self._seen = found  # of before it was read: what changed meanwhile is read again

    def _is_wrong(self, error: Exception) -> None:
        wrong = str(error)
        if wrong != self._wrong:  # told once
            log.error("recipients_not_read", file=str(self.path), error=wrong)
        self._wrong = wrong

    def _read(self) -> AddressBook:
        book = read_recipients(self.path, self._limits)
        log.info(
            "recipients_read",
            file=str(self.path),
            aliases=len(book.aliases),
            lists=len(book.lists),
            known_domains=len(book.known),
        )
        for odd in oddities(book):
            log.warning("recipients_odd", file=str(self.path), what=odd)
        return book
