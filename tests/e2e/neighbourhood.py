"""What the tests with neighbours share: where those live, what they deliver, what doubled it."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from running_lab import RunningLab

from shadowlab import mail
from shadowlab.ports import free_ports
from shadowmailbox.maildir import messages
from shadowrelay import authority

NOBODY = 65534
PATIENCE = 60.0  # seconds: what a busy machine may take for a burst
TRACE = re.compile(
    rb"(?:(?:Return-Path|X-Original-To|Delivered-To|Received):[^\n]*\n(?:[ \t][^\n]*\n)*)*", re.IGNORECASE
)


@contextmanager
def room() -> Iterator[Path]:
    """A directory that daemons of other users can enter, which is not so below pytest's own."""
    with tempfile.TemporaryDirectory(prefix="shadowrelay-neighbour-", ignore_cleanup_errors=True) as path:
        os.chmod(path, 0o711)
        yield Path(path)


def port() -> int:
    return free_ports(1)[0]


def certificate(lab: RunningLab, directory: Path, name: str) -> tuple[Path, Path, Path]:
    """Issued by the lab's authority for a neighbour: chain, key, authority."""
    there = lab.cluster.layout.authority
    pair = authority.issue(there, name, now=datetime.now(UTC), out=directory)
    return pair.certificate, pair.key, authority.authority_pair(there).certificate


def arrived(mailboxes: Path) -> dict[str, list[bytes]]:
    """Of each mailbox, the files in it."""
    found: dict[str, list[bytes]] = {}
    for recipient, file in messages(mailboxes):
        found.setdefault(recipient, []).append(file.read_bytes())
    return found


def split(stored: bytes) -> tuple[bytes, bytes]:
    """What the servers on the way put in front, and the rest."""
    found = TRACE.match(stored)
    end = found.end() if found else 0
    return stored[:end], stored[end:]


def flood(to: tuple[str, int], *options: str) -> subprocess.CompletedProcess[str]:
    """smtp-source; each of its messages is for nobody but anna@inside.test, unless options say otherwise."""
    command = [
        "smtp-source",
        "-M",
        mail.CLIENT,
        "-f",
        "sender@outside.test",
        "-t",
        "anna@inside.test",
        *options,
    ]
    return subprocess.run(
        [*command, f"{to[0]}:{to[1]}"], capture_output=True, text=True, timeout=PATIENCE * 2, check=False
    )


class Doubled:
    """Messages that arrived more than once, by their Message-IDs, and what all logs say of them."""

    def __init__(self, lab: RunningLab) -> None:
        self._rows: dict[str, list[dict[str, str]]] = {}
        for node in lab.cluster.layout.nodes:
            for row in mail.tracked(node.tracking_dir):
                self._rows.setdefault(row["message-id"], []).append(row)

    def dropped(self) -> list[str]:
        """Those of which the lab's mailbox server dropped a second copy."""
        return [one for one in self._rows if "DUPLICATEDELIVER" in self._events(one)]

    def sent_again_by_the_client(self, message_id: str) -> bool:
        """It got no reply, and began another transaction: the nodes have the message by two ids of their own.

        Of the first one there may be no RECEIVE: the owner died before it accepted, the holder had its copy.
        """
        return len({row["network-message-id"] for row in self._of(message_id)}) > 1

    def reply_lost(self, message_id: str) -> bool:
        """The next hop ended after the final dot: the log says that the message was sent again in doubt."""
        return any(
            row["event-id"] == "DEFER" and "S:InDoubt=true" in row["custom-data"]
            for row in self._of(message_id)
        )

    def unrecorded(self, message_id: str) -> bool:
        """The node died between the next hop's reply and its own record: only the second copy has a row."""
        events = self._events(message_id)
        return events.count("DELIVER") + events.count("DUPLICATEDELIVER") == 1

    def explained(self, doubled: Iterable[str], *explanations: Callable[[str], bool]) -> None:
        """For each of them one holds; else it fails, with the rows of those for which none does."""
        left = [one for one in doubled if not any(holds(one) for holds in explanations)]
        assert not left, "\n".join(_short(row) for one in left for row in self._of(one))

    def _of(self, message_id: str) -> list[dict[str, str]]:
        return self._rows.get(message_id, [])

    def _events(self, message_id: str) -> list[str]:
        return [row["event-id"] for row in self._of(message_id)]


def _short(row: dict[str, str]) -> str:
    names = (
        "date-time",
        "client-hostname",
        "server-hostname",
        "event-id",
        "network-message-id",
        "source-context",
        "custom-data",
    )
    return " ".join(row[name] for name in names)
