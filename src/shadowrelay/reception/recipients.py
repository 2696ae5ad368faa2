"""The recipients file of a running node, which may change at any time."""

from __future__ import annotations

import stat
from pathlib import Path
from time import monotonic

import structlog

from shadowrelay.core.recipients import AddressBook
from shadowrelay.reception.recipient_files import BookLimits, RecipientsInvalid, oddities, read_recipients

log = structlog.get_logger(__name__)

_LOOK_AGAIN = 1.0  # seconds after which the file is looked at again


class RecipientsFile:
    """The book in the recipients file. A file that cannot be read, or is invalid, changes nothing: the book
    from before stands, and ``wrong`` says why. Making one raises RecipientsInvalid, OSError.
    """

    def __init__(self, path: Path, limits: BookLimits) -> None:
        self.path = path
        self._limits = limits
        self._wrong = ""
        self._seen: tuple[int, ...] = ()
        self._looked_at = monotonic()
        self._book = self._read()

    def book(self) -> AddressBook:
        """The book as it is now. The file is looked at again after a while."""
        now = monotonic()
        if now - self._looked_at >= _LOOK_AGAIN:
            self._looked_at = now
            wrong = ""
            try:
                self._book = self._read()
            except (OSError, RecipientsInvalid) as error:
                wrong = str(error)
                if wrong != self._wrong:  # told once
                    log.error("recipients_not_read", file=str(self.path), error=wrong)
            self._wrong = wrong
        return self._book

    @property
    def wrong(self) -> str:
        """What is wrong with the file, '' if nothing is; then the book is the one from before."""
        self.book()
        return self._wrong

    def _read(self) -> AddressBook:
        found = self.path.stat()
        if not stat.S_ISREG(found.st_mode):  # reading might never end
            raise RecipientsInvalid("is no file")
        seen = (found.st_ino, found.st_size, found.st_mtime_ns)
        if seen == self._seen and not self._wrong:
            return self._book
        book = read_recipients(self.path, self._limits)
        self._seen = seen
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
