"""Sends mail as a number of clients do: each records the answers, and sometimes vanishes."""

from __future__ import annotations

import random
import re
import smtplib
import socket
import struct
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

from shadowlab.chaos.history import History, SendAttempt, SendOutcome, now
from shadowlab.chaos.letters import Parcel, compose
from shadowlab.layout import Address
from shadowlab.mail import CLIENT

_GREETING = 5.0  # seconds; a silent node is passed over
_ANSWER = 120.0
_VANISHES = 0.08  # share of attempts; half of these in the middle of the message, half at its end
_BY_BDAT = 0.3
_REUSED = (1, 1, 2, 5, 10)  # messages in one session
_RETRIED = 0.5  # share of unacknowledged messages; the others show what a refusal is worth
_RESET = struct.pack("ii", 1, 0)


class Vanished(Exception):
    """The client left in the middle of a session."""


class ChaosClient(threading.Thread):
    """Sends until ``over`` is set, about every ``interval`` seconds, to any of the nodes."""

    def __init__(
        self,
        number: int,
        seed: int,
        nodes: Mapping[str, Address],
        history: History,
        over: threading.Event,
        interval: float,
    ) -> None:
        super().__init__(name=f"client-{number}", daemon=True)
        self._chance = random.Random(f"{seed}-{number}")  # noqa: S311 - repeatable, not secret
        self._prefix = f"chaos-{seed}-{number}"
        self._nodes, self._history, self._over, self._interval = nodes, history, over, interval
        self._sent = 0
        self._again: list[Parcel] = []

    def run(self) -> None:
        while not self._over.is_set():
            node = self._chance.choice(list(self._nodes))
            try:
                with smtplib.SMTP(*self._nodes[node], local_hostname=CLIENT, timeout=_GREETING) as session:
                    session.ehlo_or_helo_if_needed()
                    assert session.sock is not None
                    session.sock.settimeout(_ANSWER)
                    self._talk(session, node)
            except (OSError, smtplib.SMTPException, Vanished):
                self._rest()

    def _talk(self, session: smtplib.SMTP, node: str) -> None:
        for _ in range(self._chance.choice(_REUSED)):
            if self._over.is_set():
                return
            self._send(session, node, self._next())
            self._rest()

    def _next(self) -> Parcel:
        if self._again:
            return self._again.pop()
        self._sent += 1
        return compose(f"{self._prefix}-{self._sent}", self._chance)

    def _send(self, session: smtplib.SMTP, node: str, parcel: Parcel) -> None:
        """Make one attempt, and record it. Raises what ends the session."""
        attempt = _Sending(session, parcel, self._chance)
        try:
            attempt.run()
        finally:
            letter = parcel.letter
            self._history.tell(
                SendAttempt(
                    now(),
                    letter.message_id,
                    letter.recipients,
                    len(parcel.content),
                    node,
                    attempt.outcome,
                    attempt.waited,
                    attempt.reply,
                )
            )
            if attempt.outcome is not SendOutcome.ACKNOWLEDGED and self._chance.random() < _RETRIED:
                self._again.append(parcel)

    def _rest(self) -> None:
        self._over.wait(self._chance.uniform(0, 2 * self._interval))


class _Sending:
    """One message in one session; ``outcome`` is right at every moment, also after an exception."""

    def __init__(self, session: smtplib.SMTP, parcel: Parcel, chance: random.Random) -> None:
        self._session, self._parcel = session, parcel
        self._by_bdat = session.has_extn("chunking") and chance.random() < _BY_BDAT
        self._vanishes = chance.random() < _VANISHES
        self._in_the_middle = chance.random() < 0.5
        self._with_reset = chance.random() < 0.5
        self.outcome = SendOutcome.ABANDONED
        self.reply = ""
        self.waited = 0.0

    def run(self) -> None:
        letter = self._parcel.letter
        if not self._agreed(self._session.mail(letter.sender)):
            return
        for recipient in letter.recipients:
            if not self._agreed(self._session.rcpt(recipient)):
                return
        if self._by_bdat:
            command, content, end = f"BDAT {len(self._parcel.content)} LAST", self._parcel.content, b""
            self._session.putcmd(command)
        else:
            command, content, end = "DATA", _stuffed(self._parcel.content), b".\r\n"
            if not self._agreed(self._session.docmd(command), 354):
                return
        self._transmit(content, end)

    def _transmit(self, content: bytes, end: bytes) -> None:
        if self._vanishes and self._in_the_middle:
            self._session.send(content[: len(content) // 2])
            self._vanish()
        # The last octets complete the message: from here on its fate is unknown until an answer comes.
        keep = len(end) or 1
        whole = content + end
        self._session.send(whole[:-keep])
        self.outcome = SendOutcome.UNANSWERED
        self._session.send(whole[-keep:])
        if self._vanishes:
            self._vanish()
        began = time.monotonic()
        code, text = self._session.getreply()
        self.waited = time.monotonic() - began
        self.reply = f"{code} {text.decode('utf-8', 'replace')}"
        if code == 250:
            self.outcome = SendOutcome.ACKNOWLEDGED
        elif 400 <= code < 600:
            self.outcome = SendOutcome.REFUSED

    def _agreed(self, answer: tuple[int, bytes], code: int = 250) -> bool:
        """Whether the answer has that code. Any other answer is a refusal and ends the attempt."""
        found, text = answer
        if found == code:
            return True
        self.outcome = SendOutcome.REFUSED
        self.reply = f"{found} {text.decode('utf-8', 'replace')}"
        with suppress(smtplib.SMTPException):
            self._session.rset()
        return False

    def _vanish(self) -> None:
        if self._with_reset and self._session.sock is not None:
            self._session.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._session.close()
        raise Vanished


def _stuffed(content: bytes) -> bytes:
    return re.sub(rb"(?m)^\.", b"..", content)
