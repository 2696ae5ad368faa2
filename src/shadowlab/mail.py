"""Sends mail with known identities as an ordinary client does, and counts it where it arrives."""

from __future__ import annotations

import csv
import json
import secrets
import shutil
import smtplib
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email import policy
from email.message import EmailMessage
from email.parser import BytesHeaderParser
from email.utils import format_datetime
from pathlib import Path
from typing import TextIO

from shadowlab.layout import MAILBOX, Address, Layout
from shadowmailbox.maildir import messages

CLIENT = "client.lab.test"
_SENDING = 60.0  # seconds for one message; a shadow copy may take a while
_FIELDS = "#Fields: "


@dataclass(frozen=True, slots=True)
class Letter:
    """One message; ``token`` is unique, and the local part of its Message-ID."""

    token: str
    sender: str
    recipients: tuple[str, ...]

    @property
    def message_id(self) -> str:
        return message_id(self.token)


def token(sender: str) -> str:
    """A token that no other message has; ``sender`` is a word for whatever sends it."""
    return f"{sender}-{secrets.token_hex(8)}"


def message_id(token: str) -> str:
    """The Message-ID with that token."""
    return f"<{token}@{CLIENT}>"


def token_of(message_id: str) -> str:
    """The inverse of ``message_id``."""
    return message_id.strip("<>").partition("@")[0]


@dataclass(frozen=True, slots=True)
class Count:
    """What became of acknowledged mail, counted for each recipient of each message.

    ``duplicates`` were sent once more; the mailbox server dropped ``dropped`` of these, and the others are in
    a mailbox twice.
    """

    acknowledged: int
    delivered: int
    lost: int
    duplicates: int
    unexpected: int  # arrived, though no 250 was given for it
    dropped: int = 0

    def __str__(self) -> str:
        told = (
            f"acknowledged {self.acknowledged}, delivered {self.delivered}, "
            f"lost {self.lost}, duplicates {self.duplicates}"
        )
        if not self.duplicates:
            return told
        twice = self.duplicates - self.dropped
        return (
            f"{told} (sent twice, one dropped by the mailbox: {self.dropped}; in the mailbox twice: {twice})"
        )


def send(server: Address, letter: Letter, *, swaks: str | None = None) -> bool:
    """Send one message, with swaks if its path is given. Returns whether the server answered 250."""
    return _send_with_swaks(swaks, server, letter) if swaks else _send_with_smtplib(server, letter)


def find_swaks() -> str | None:
    return shutil.which("swaks")


def written(letter: Letter) -> EmailMessage:
    """The message that the client sends."""
    message = EmailMessage(policy=policy.SMTP)
    message["Message-ID"] = letter.message_id
    message["Date"] = format_datetime(datetime.now(UTC))
    message["From"] = letter.sender
    message["To"] = ", ".join(letter.recipients)
    message["Subject"] = f"Lab message {letter.token}"
    message.set_content("This message must arrive, whatever dies.\n")
    return message


def count(at: Layout, acknowledged: Sequence[Letter]) -> Count:
    """Compare acknowledged mail with the files in the mailboxes.

    A second copy counts as a duplicate even if the mailbox server dropped it.
    """
    owed = {(letter.message_id, to.lower()) for letter in acknowledged for to in letter.recipients}
    found, again = arrivals(at.mailbox.dir), dropped(at)
    return Count(
        acknowledged=len(owed),
        delivered=len(owed & found.keys()),
        lost=len(owed - found.keys()),
        duplicates=sum(times - 1 for times in found.values()) + again,
        unexpected=len(found.keys() - owed),
        dropped=again,
    )


def arrivals(mailboxes: Path) -> Counter[tuple[str, str]]:
    """How often each message arrived: (Message-ID, recipient) to the number of files."""
    parser = BytesHeaderParser(policy=policy.compat32)
    found: Counter[tuple[str, str]] = Counter()
    for recipient, file in messages(mailboxes):
        with suppress(FileNotFoundError), file.open("rb") as content:
            found[str(parser.parse(content)["Message-ID"]), recipient.lower()] += 1
    return found


def dropped(at: Layout) -> int:
    """How many second copies the mailbox server dropped, by the logs of the nodes or by its own log."""
    by_nodes = sum(
        int(row["recipient-count"] or 1)
        for node in at.nodes
        for place in node.places
        for row in tracked(place.tracking_dir)
        if row["event-id"] == "DUPLICATEDELIVER"
    )
    # A node that lost its disk has no log; the mailbox server logs only a message that came whole.
    return max(by_nodes, sum(1 for _ in dropped_by(at.log(MAILBOX))))


def tracked(directory: Path) -> Iterator[dict[str, str]]:
    """The rows of a node's tracking log, also those of the growing file.

    The growing file is opened first and read last: if it is renamed meanwhile, it is read once and whole.
    """
    with ExitStack() as held:
        still_open: dict[str, TextIO] = {}  # by the name that it gets
        for file in sorted(directory.glob(".MSGTRK-*.LOG.open")):
            with suppress(FileNotFoundError):
                opened = held.enter_context(file.open(encoding="utf-8", newline=""))
                still_open[file.name.removeprefix(".").removesuffix(".open")] = opened
        for file in sorted(directory.glob("MSGTRK-*.LOG")):
            if file.name not in still_open:
                with suppress(FileNotFoundError), file.open(encoding="utf-8", newline="") as closed:
                    yield from _rows(closed)
        for text in still_open.values():
            yield from _rows(text)


def _rows(text: TextIO) -> Iterator[dict[str, str]]:
    columns: list[str] = []
    for line in text:
        if line.startswith(_FIELDS):
            columns = line.removeprefix(_FIELDS).rstrip("\r\n").split(",")
        elif not line.startswith("#") and line.endswith("\n"):
            yield dict(zip(columns, next(csv.reader([line])), strict=False))


@dataclass(frozen=True, slots=True)
class Dropped:
    """A second copy that the mailbox server dropped. ``at``: Unix time; ``client``: the node that sent it."""

    at: float
    message_id: str
    recipient: str
    client: str


def dropped_by(log: Path) -> Iterator[Dropped]:
    """Second copies in the log of the mailbox server; skips lines that a kill cut off."""
    with suppress(FileNotFoundError), log.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            with suppress(ValueError, TypeError, KeyError):
                row = json.loads(line)
                if row["event"] == "duplicate_dropped":
                    at = datetime.fromisoformat(row["timestamp"]).timestamp()
                    yield Dropped(at, row["message_id"], row["recipient"], row["client"])


def _send_with_smtplib(server: Address, letter: Letter) -> bool:
    try:
        with smtplib.SMTP(*server, local_hostname=CLIENT, timeout=_SENDING) as client:
            return not client.send_message(written(letter), letter.sender, letter.recipients)
    except (smtplib.SMTPException, OSError):
        return False


def _send_with_swaks(swaks: str, server: Address, letter: Letter) -> bool:
    """Exit status 0 is a 250 to the final dot, with every recipient accepted before it."""
    options = {
        "--server": server[0],
        "--port": str(server[1]),
        "--ehlo": CLIENT,
        "--from": letter.sender,
        "--to": ",".join(letter.recipients),
        "--data": written(letter).as_string().replace("\r\n", "\n"),
        "--timeout": f"{_SENDING:.0f}s",
    }
    command = [swaks, "--hide-all", *(part for option in options.items() for part in option)]
    done = subprocess.run(command, capture_output=True, timeout=_SENDING + 10, check=False)
    return done.returncode == 0
