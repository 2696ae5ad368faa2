"""Crashes that the process itself reports, and the messages that were in hand at two of them.

A crash leaves a note beside the file of what is in hand: the text of an unhandled error, or the traceback of
a fatal signal, which ``faulthandler`` writes. The next start counts one crash more for each message in hand.
A process that is killed, or that lacks memory, leaves no note, and nothing counts. Nor does it count if the
node says itself that it cannot go on: its disk or its port is the reason then.
"""

from __future__ import annotations

import hashlib
import os
import traceback
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path

import structlog

from shadowrelay import in_hand, signals
from shadowrelay.database import poison
from shadowrelay.database.transport import DatabaseFailed, TransportDatabase
from shadowrelay.errors import NodeFailed
from shadowrelay.in_hand import InHand

log = structlog.get_logger(__name__)

NOTE = "crash"
_MOST = 64 * 1024  # octets of a note that are read


class Crashes:
    """The note of one data directory. Made when the directory is locked, before the node does anything."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file = directory / NOTE
        self._left = in_hand.left(directory)
        try:
            self._note = self._file.read_bytes()[:_MOST]
            self._stamp = str(self._file.stat().st_mtime_ns)
        except OSError:
            self._note, self._stamp = b"", ""
        signals.fatal_to(self._file)

    async def count(self, database: TransportDatabase, now: datetime, kind: type[InHand] = InHand) -> None:
        """Count a crash that was noted, and begin a new file of what is in hand.

        A note counts once: what it says, and when it was written, is stored with the counts.
        """
        if self._note:
            why = _first_line(self._note.decode("utf-8", "replace"))
            log.critical("crashed_before", why=why, note=self._note.decode("utf-8", "replace"))
            digest = hashlib.sha256(self._note + self._stamp.encode()).hexdigest()
            crash = poison.Crash(digest, why, now)
            found = await database.transact(partial(poison.count, crash=crash, in_hand=sorted(self._left)))
            for message_id in found:
                log.critical("message_set_aside", message=message_id, reason="in hand at two crashes")
        try:
            os.truncate(self._file, 0)
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("crash_note_not_emptied", error=str(error))
        try:
            database.in_hand = kind.on_disk(self._directory)
        except OSError as error:
            log.warning("in_hand_not_noted", error=str(error), consequence="crashes are not counted")

    def note(self, error: BaseException, now_in_hand: InHand) -> None:
        """Note an error that ends the node and that nobody expected."""
        now_in_hand.freeze()
        for leaf in _leaves(error):
            if isinstance(leaf, Exception) and not isinstance(leaf, _SAYS_WHY):
                told = "".join(traceback.format_exception(leaf))
                last = traceback.format_exception_only(leaf)[-1].strip()
                try:
                    with self._file.open("ab") as file:
                        file.write(f"Unhandled error: {last}\n{told}".encode()[:_MOST])
                except OSError as problem:
                    log.warning("crash_not_noted", error=str(problem))
                return


_SAYS_WHY = (NodeFailed, DatabaseFailed, OSError, MemoryError)
"""Errors that tell of the surroundings: a disk, a port, the memory."""


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _first_line(text: str) -> str:
    return text.partition("\n")[0].strip()[:200]
