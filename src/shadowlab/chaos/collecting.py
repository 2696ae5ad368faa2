"""Takes delivered mail out of the mailboxes as it comes, so that a long run does not fill the disk."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from shadowlab.chaos.history import History, MailboxArrival
from shadowlab.chaos.letters import intact
from shadowlab.mail import dropped_by
from shadowmailbox.maildir import messages

_INTERVAL = 0.5


class Collector(threading.Thread):
    """Notes every message that arrived, and removes its file, until ``over`` is set."""

    def __init__(self, mailboxes: Path, history: History, over: threading.Event) -> None:
        super().__init__(name="collector", daemon=True)
        self._mailboxes, self._history, self._over = mailboxes, history, over

    def run(self) -> None:
        while not self._over.wait(_INTERVAL):
            self.collect()

    def collect(self) -> None:
        for recipient, file in messages(self._mailboxes):
            message_id, unchanged = intact(file.read_bytes())
            at = int(file.name.partition(".")[0]) / 1e9
            self._history.tell(MailboxArrival(at, message_id, recipient, damaged=not unchanged))
            if unchanged:
                file.unlink()
            else:
                file.rename(self._mailboxes.parent / f"changed-{file.name}")


def dropped(log: Path) -> Iterator[MailboxArrival]:
    """Second copies that the mailbox server dropped, from its log."""
    for row in dropped_by(log):
        yield MailboxArrival(row.at, row.message_id, row.recipient, dropped=True)
