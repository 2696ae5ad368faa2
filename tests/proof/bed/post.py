"""Clients that remember what they were told about each message."""

from __future__ import annotations

import smtplib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from shadowlab.chaos.letters import Parcel, sealed
from shadowlab.layout import Address
from shadowlab.mail import CLIENT, Letter, token

from .verdict import Told

_TIMEOUT = 30.0  # seconds; longer than a node may take over a message here
_HEADER = 300  # octets, about
_PATIENCE = 0.05  # seconds before a client that was refused tries again
_SENDER, _RECIPIENT = "sender@outside.test", "otto@outside.test"


@dataclass(slots=True)
class Post:
    """All that was sent: what the client was told of each token, and when (monotonic clock)."""

    told: dict[str, tuple[Told, float]] = field(default_factory=dict)
    accepted: int = 0

    def send(self, server: Address, size: int, session: smtplib.SMTP | None = None) -> tuple[str, Told]:
        """Send one message of about ``size`` octets; the session is its own unless one is given."""
        sent, told = token("proof"), Told.NOTHING_SENT
        own = session is None
        try:
            session = session or smtplib.SMTP(*server, local_hostname=CLIENT, timeout=_TIMEOUT)
            letter = Letter(sent, _SENDER, (_RECIPIENT,))
            told = transaction(session, letter, filled(letter, size).content)
        except (smtplib.SMTPException, OSError):
            pass  # it was not even taken as far as the content
        finally:
            if own and session is not None:
                session.close()
        self.told[sent] = (told, time.monotonic())
        self.accepted += told is Told.ACCEPTED
        return sent, told


def transaction(session: smtplib.SMTP, letter: Letter, content: bytes) -> Told:
    """Send a content none of whose lines begins with a dot. Raises SMTPException or OSError when the session
    ends before it.
    """
    session.ehlo_or_helo_if_needed()
    for command in (f"MAIL FROM:<{letter.sender}>", *(f"RCPT TO:<{to}>" for to in letter.recipients), "DATA"):
        code, _ = session.docmd(command)
        if code >= 400:
            with suppress(smtplib.SMTPException):
                session.rset()
            return Told.REFUSED
    try:
        assert session.sock is not None
        session.sock.sendall(content + b".\r\n")
        code, _ = session.getreply()
    except (smtplib.SMTPException, OSError):
        return Told.NO_REPLY
    return Told.ACCEPTED if code == 250 else Told.REFUSED


def filled(letter: Letter, size: int) -> Parcel:
    """The letter, of about ``size`` octets that no other one has. No line begins with a dot."""
    line = f"{letter.token} must arrive as it was sent, whatever dies.\r\n".encode()
    return sealed(letter, letter.token, line * max(1, (size - _HEADER) // len(line)))


@contextmanager
def continuous(post: Post, server: Address, *, clients: int, size: int, pause: float) -> Iterator[None]:
    """So many clients send one message after the other, with a pause between, until exit."""
    over = threading.Event()

    def client() -> None:
        session: smtplib.SMTP | None = None
        while not over.wait(pause):
            if session is None:
                with suppress(smtplib.SMTPException, OSError):
                    session = smtplib.SMTP(*server, local_hostname=CLIENT, timeout=_TIMEOUT)
                continue
            _, told = post.send(server, size, session)
            if told in (Told.NO_REPLY, Told.NOTHING_SENT):
                session.close()
                session = None
            if told is not Told.ACCEPTED:
                over.wait(_PATIENCE)
        if session is not None:
            session.close()

    threads = [threading.Thread(target=client, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(_TIMEOUT + 5)
