"""Mail for the kill points: clients that try each message until it is acknowledged, as mail servers do."""

from __future__ import annotations

import smtplib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shadowlab.layout import Address
from shadowlab.mail import CLIENT, Letter, token

from .bed.post import filled, transaction
from .bed.verdict import Told

SENDER, INSIDE, OUTSIDE = "sender@outside.test", "anna@inside.test", "otto@outside.test"

_TIMEOUT = 60.0
_RETRY = 0.1
_SMALL, _LARGE = 500, 100_000  # octets


@dataclass(slots=True)
class Sending:
    """One message, always the same octets, and the answers to its attempts."""

    letter: Letter
    octets: bytes
    answers: list[Told] = field(default_factory=list)

    @property
    def taken(self) -> bool:
        return Told.ACCEPTED in self.answers


def sendings(count: int) -> list[Sending]:
    """Each tenth of a size that is kept in a file."""
    sizes = (_LARGE if number % 10 == 5 else _SMALL for number in range(count))
    letters = (Letter(token("kill"), SENDER, (INSIDE, OUTSIDE)) for _ in range(count))
    return [
        Sending(letter, filled(letter, size).content) for letter, size in zip(letters, sizes, strict=True)
    ]


class Stream:
    """Several clients that share a list of messages. ``pause`` says how long to wait before the next one."""

    def __init__(
        self, server: Address, mail: Sequence[Sending], clients: int, pause: Callable[[], float]
    ) -> None:
        self._server = server
        self._left = list(reversed(mail))
        self._pause = pause
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._send, daemon=True) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    @property
    def flowing(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def close(self) -> None:
        """Give up what was not acknowledged."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        client: smtplib.SMTP | None = None
        while not self._over.is_set():
            try:
                sending = self._left.pop()
            except IndexError:
                break
            while not self._over.wait(self._pause()) and not sending.taken:
                client, answer = attempt(client, self._server, sending)
                sending.answers.append(answer)
                if answer is not Told.ACCEPTED:
                    self._over.wait(_RETRY)
        if client is not None:
            client.close()


def attempt(
    client: smtplib.SMTP | None, server: Address, sending: Sending
) -> tuple[smtplib.SMTP | None, Told]:
    """One attempt, in the session at hand or a new one; the session to go on with, and what was answered."""
    told = Told.NOTHING_SENT
    try:
        client = client or smtplib.SMTP(*server, local_hostname=CLIENT, timeout=_TIMEOUT)
        told = transaction(client, sending.letter, sending.octets)
    except (smtplib.SMTPException, OSError):
        pass  # it was not even taken as far as the content
    if client is not None and told is not Told.ACCEPTED:
        client.close()
        client = None
    return client, told


def poll(condition: Callable[[], object], within: float, every: float = 0.05) -> bool:
    """Look until it holds; False when it does not in time."""
    end = time.monotonic() + within
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(every)
    return True
