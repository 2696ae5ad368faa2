"""Records what happens in a run, in memory and in a file: attempts to send, arrivals, faults."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TextIO

from shadowlab.chaos.verdict import Delivery


class SendOutcome(StrEnum):
    """REFUSED: the answer was 4yz or 5yz. UNANSWERED: the message was sent whole, and no answer came or the
    client left before it. ABANDONED: the connection ended before the message did."""

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    UNANSWERED = "unanswered"
    ABANDONED = "abandoned"


class Loses(StrEnum):
    """What a node loses by a fault. WORK: what it was about to record."""

    NOTHING = "nothing"
    WORK = "work"
    DISK = "disk"


@dataclass(frozen=True, slots=True)
class SendAttempt:
    """One try to send one message. ``waited``: seconds from the end of the message to the answer."""

    at: float  # seconds since 1970, as all times here
    message_id: str
    recipients: tuple[str, ...]
    size: int
    node: str
    outcome: SendOutcome
    waited: float
    reply: str = ""


@dataclass(frozen=True, slots=True)
class MailboxArrival:
    """One message for one recipient at the mailbox server, which keeps the first copy and drops others."""

    at: float
    message_id: str
    recipient: str
    dropped: bool = False
    damaged: bool = False  # its octets are not those that were sent


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault that struck: when it began, was complete and undone, and all mail had two copies again."""

    number: int
    name: str
    node: str
    touched: tuple[str, ...]  # nodes that could not tell the others what they did
    silences: bool
    loses: Loses
    began: float
    broken: float
    healed: float
    whole: float
    spoilt: tuple[str, ...] = ()  # network-message-ids of the copies that were damaged

    @property
    def cuts_links(self) -> bool:
        """Whether the fault cut links while the nodes went on."""
        return len(self.touched) > 1 and not self.silences


class History:
    """The record of a run, filled by several threads. The file is made with the first entry."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None
        self._lock = threading.Lock()
        self.attempts: list[SendAttempt] = []
        self.arrivals: list[MailboxArrival] = []
        self.faults: list[Struck] = []

    def tell(self, what: SendAttempt | MailboxArrival | Struck) -> None:
        line = json.dumps({"what": type(what).__name__.lower(), **asdict(what)})
        with self._lock:
            match what:
                case SendAttempt():
                    self.attempts.append(what)
                case MailboxArrival():
                    self.arrivals.append(what)
                case Struck():
                    self.faults.append(what)
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("a", encoding="utf-8")
            self._file.write(f"{line}\n")

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()

    def acknowledged(self) -> Counter[Delivery]:
        return _deliveries(one for one in self.attempts if one.outcome is SendOutcome.ACKNOWLEDGED)

    def attempted(self) -> Counter[Delivery]:
        """Attempts that may lead to a delivery: the answer was 250 or is not known."""
        possible = (SendOutcome.ACKNOWLEDGED, SendOutcome.UNANSWERED)
        return _deliveries(one for one in self.attempts if one.outcome in possible)

    def addressed(self) -> dict[str, set[str]]:
        """The recipients that a client named for each message, by Message-ID, whatever became of it."""
        found: dict[str, set[str]] = {}
        for one in self.attempts:
            found.setdefault(one.message_id, set()).update(one.recipients)
        return found

    def arrived(self, *, damaged: bool = False) -> Counter[Delivery]:
        """Deliveries that came as they were sent, or those that came ``damaged``."""
        return Counter((one.message_id, one.recipient) for one in self.arrivals if one.damaged is damaged)


def now() -> float:
    return time.time()


def _deliveries(attempts: Iterable[SendAttempt]) -> Counter[Delivery]:
    return Counter((one.message_id, to) for one in attempts for to in one.recipients)
