"""Mail of the tour: sent as any client does, written down when acknowledged, counted where it arrives."""

from __future__ import annotations

import json
import os
import re
import smtplib
import uuid
from collections import Counter
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate
from pathlib import Path
from urllib.parse import unquote

import engine

_FOUND = re.compile(r"^/data/(?P<domain>[^/]+)/(?P<local>[^/]+)/[^:]*:message-id: *<(?P<token>[^@>]+)@", re.I)
_DROPPED = '"event": "duplicate_dropped"'


def out() -> Path:
    """Where the tour keeps what it was told 250 for, and where the audit writes its report."""
    path = Path(os.environ.get("LAB_OUT") or engine.ROOT / "out")
    path.mkdir(parents=True, exist_ok=True)
    return path


def _book() -> Path:
    return out() / "acknowledged.jsonl"


@dataclass(frozen=True)
class Count:
    """Recipients: acknowledged, found in a mailbox, missing; and of those sent once more, dropped by the
    mailbox server, or in the mailbox twice.
    """

    acknowledged: int
    delivered: int
    missing: int
    dropped: int
    twice: int

    def __str__(self) -> str:
        arrived = f"acknowledged {self.acknowledged}, delivered {self.delivered}"
        if self.dropped:
            arrived += f", {self.dropped} of them sent twice and one dropped by the mailbox server"
        if self.twice:
            arrived += f", {self.twice} of them in the mailbox twice"
        return f"{arrived}, not there {self.missing}"


def send(number: int, nodes: list[str], recipient: str) -> tuple[Counter[str], dict[str, str]]:
    """Send messages, each to the first of the nodes that takes it. How many each took, or what it said last.

    Every third one has a second recipient, outside the boundary.
    """
    by: Counter[str] = Counter()
    refusals: dict[str, str] = {}
    for each in range(number):
        token = str(uuid.uuid4())
        to = [recipient] if each % 3 else [recipient, "bob@outside.test"]
        for node in nodes:
            if refusal := _refusal(node, token, to):
                refusals[node] = refusal
            else:
                by[node] += 1
                with _book().open("a") as book:
                    book.write(json.dumps({"token": token, "to": to}) + "\n")
                break
    return by, refusals


def _refusal(node: str, token: str, to: list[str]) -> str:
    """Empty if the message was taken for every recipient."""
    message = EmailMessage()
    message["Message-ID"] = f"<{token}@client.outside.test>"
    message["Date"] = formatdate()
    message["From"] = "sender@outside.test"
    message["To"] = ", ".join(to)
    message["Subject"] = "A letter of the tour"
    message.set_content("Whatever dies, this one arrives.\n")
    address = engine.published(node, 2525)
    if address is None:
        return "it is down, or cut off"
    try:
        with smtplib.SMTP(*address, timeout=60) as session:
            refused = session.send_message(message, "sender@outside.test", to)
    except smtplib.SMTPRecipientsRefused as error:
        refused = error.recipients
    except smtplib.SMTPResponseException as error:
        refused = {"": (error.smtp_code, error.smtp_error)}
    except (OSError, smtplib.SMTPException) as error:
        return str(error) or type(error).__name__
    replies = {f"{code} {text.decode(errors='replace')}" for code, text in refused.values()}
    return "; ".join(sorted(replies))


def count() -> Count:
    """Compare what was acknowledged with the mailboxes. Tokens are unique, so nothing else is counted."""
    owed: set[tuple[str, str]] = set()
    if _book().exists():
        for line in _book().read_text().splitlines():
            letter = json.loads(line)
            owed |= {(letter["token"], to) for to in letter["to"]}
    found: Counter[tuple[str, str]] = Counter()
    dropped = 0
    for server in ("mailbox", "outside"):
        lines = engine.execute(server, "sh", "-c", "grep -rism1 '^message-id:' /data || true").splitlines()
        for seen in filter(None, map(_FOUND.match, lines)):
            found[seen["token"], f"{unquote(seen['local'])}@{seen['domain']}"] += 1
        again = (line for line in engine.logs(server) if _DROPPED in line)
        dropped += sum(f"<{token}@" in line and to in line for line in again for token, to in owed)
    twice = sum(times - 1 for letter, times in found.items() if letter in owed)
    return Count(len(owed), len(owed & found.keys()), len(owed - found.keys()), dropped, twice)


def forget() -> None:
    """The lab is gone, and its mail with it."""
    for name in ("acknowledged.jsonl", "lost-databases"):
        (out() / name).unlink(missing_ok=True)
