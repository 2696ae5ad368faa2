"""What became of the mail: every delivery as the mailbox server saw it, every second one with its cause.

The mailbox server is the only witness: it keeps the first copy of a message, and says of each later one when
it came and from whom. The causes are looked for in the nodes' tracking logs and among the kills.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from email import policy
from email.parser import BytesHeaderParser
from pathlib import Path

from shadowlab.chaos.letters import intact, known_as
from shadowlab.layout import MAILBOX, Layout
from shadowlab.mail import dropped_by, tracked
from shadowmailbox.maildir import messages
from shadowrelay.tracking.verify import verify_file

from .bed.verdict import Told
from .kill_mail import Sending

Key = tuple[str, str]
"""(Message-ID, recipient)."""

UNDER_WAY = 5.0  # seconds that an attempt may take on a busy machine, from the next hop's 250 to the kill
UNPOLLED = 1.0 + 2.0  # the poll interval, and what a busy machine adds to it
_CLOCK = 0.002  # rows of the tracking log have milliseconds

LOST_RECORD = "next hop's reply or our record of it lost"
UNTOLD = "settled, the disk lost before the holder asked"
RESENT = "the sender got no reply, and sent again"

_RECORDS = frozenset({"SEND", "SENDEXTERNAL", "DELIVER", "DUPLICATEDELIVER"})
_FROM = re.compile(r"from (\S+) ")
_ID = re.compile(r"\bid ([0-9a-f-]{36})\b")


@dataclass(frozen=True, slots=True)
class Kill:
    """A node died at a failpoint, perhaps with its disk. ``at``: seconds since the epoch."""

    node: str
    point: str
    at: float
    disk_lost: bool


@dataclass(frozen=True, slots=True)
class Delivery:
    """The next hop took a message from a node."""

    node: str
    at: float


@dataclass(slots=True)
class Verdict:
    """The sums of one run; the promise was kept when there is no problem."""

    acknowledged: int = 0  # messages times recipients, as all numbers here
    delivered: int = 0
    lost: int = 0
    unexpected: int = 0
    recovered: int = 0  # delivered though no attempt was answered 250: the sender does not know
    duplicates: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


class Mailboxes:
    """Reads each delivered file once."""

    def __init__(self, at: Layout) -> None:
        self._at = at
        self._files: dict[Path, tuple[Key, Delivery, str]] = {}

    def first(self) -> Iterator[tuple[Key, Delivery, str]]:
        """What is in the mailboxes, with the relay's own id of the message."""
        for recipient, file in messages(self._at.mailbox.dir):
            if file not in self._files:
                with suppress(FileNotFoundError):
                    self._files[file] = _read(recipient, file)
        yield from self._files.values()

    def dropped(self) -> Iterator[tuple[Key, Delivery]]:
        """What came again."""
        for row in dropped_by(self._at.log(MAILBOX)):
            yield (row.message_id, row.recipient.lower()), Delivery(row.client, row.at)


def _read(recipient: str, file: Path) -> tuple[Key, Delivery, str]:
    """What is not as it was sent is another message: the one that was sent is then missing."""
    content = file.read_bytes()
    message_id, unchanged = intact(content)
    header = BytesHeaderParser(policy=policy.compat32).parsebytes(content)
    by_mailbox, by_relay, *_ = [str(text) for text in header.get_all("Received", ())] + ["", ""]
    node, found = _FROM.match(by_mailbox), _ID.search(by_relay)
    taken_at = int(file.name.partition(".")[0]) / 1e9
    key = known_as(message_id, unchanged=unchanged), recipient.lower()
    return key, Delivery(node[1] if node else "", taken_at), found[1] if found else ""


@dataclass(slots=True)
class Records:
    """What the tracking logs tell of each message and recipient."""

    settled: dict[tuple[Key, str], list[float]] = field(default_factory=lambda: defaultdict(list))  # by node
    ids: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # of each Message-ID
    begun: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # starts of each node

    @classmethod
    def of(cls, at: Layout) -> Records:
        records = cls()
        for node in at.nodes:
            for row in tracked(node.tracking_dir):
                message = row["message-id"]
                when = datetime.fromisoformat(row["date-time"]).timestamp()
                if row["event-id"] == "LOAD":  # a snapshot, taken at each start before anything is sent
                    records.begun[node.name].append(when)
                records.ids[message].add(row["network-message-id"])
                if row["event-id"] in _RECORDS:
                    for recipient in row["recipient-address"].split(";"):
                        records.settled[(message, recipient.lower()), node.name].append(when)
        return records


def judge(at: Layout, boxes: Mailboxes, mail: Sequence[Sending], kills: Sequence[Kill]) -> Verdict:
    """Compare what clients were told with what arrived, and explain what arrived twice."""
    verdict, records = Verdict(), Records.of(at)
    arrived: dict[Key, list[Delivery]] = defaultdict(list)
    for key, delivery, network_id in boxes.first():
        arrived[key].append(delivery)
        records.ids[key[0]].add(network_id)
    for key, delivery in boxes.dropped():
        arrived[key].append(delivery)
    for sending in mail:
        silent = sending.answers.count(Told.NO_REPLY)
        for recipient in sending.letter.recipients:
            key = (sending.letter.message_id, recipient.lower())
            deliveries = sorted(arrived.get(key, ()), key=lambda one: one.at)
            verdict.acknowledged += sending.taken
            verdict.delivered += bool(deliveries)
            if sending.taken and not deliveries:
                verdict.lost += 1
                verdict.problems.append(f"LOST: {key[0]} for {key[1]}")
            if deliveries and not sending.taken:
                verdict.recovered += bool(silent)
                verdict.unexpected += not silent
                if not silent:
                    verdict.problems.append(f"delivered though refused: {key[0]} for {key[1]}")
            for cause in _causes(key, deliveries, records, kills, silent):
                if cause.startswith("!"):
                    verdict.problems.append(f"duplicate of {key[0]} for {key[1]}: {cause[1:]}")
                verdict.duplicates[cause] += 1
    return verdict


def _causes(
    key: Key, deliveries: Sequence[Delivery], records: Records, kills: Iterable[Kill], silent: int
) -> Iterator[str]:
    """Why each delivery after the first was made; ``!…`` for one that nothing explains.

    Each kill explains one delivery for each delivery that it cut off, each silent attempt one message more.
    """
    spent: set[tuple[Delivery, Kill]] = set()
    messages_more = min(silent, len(records.ids[key[0]]) - 1)
    for number, again in enumerate(deliveries[1:], 1):
        found = next(
            (
                (first, kill, cause)
                for first in deliveries[:number]
                for kill in kills
                if (first, kill) not in spent
                and (cause := _cut_off(key, first, again, deliveries, records, kill))
            ),
            None,
        )
        if found is not None:
            spent.add(found[:2])
            yield found[2]
        elif messages_more > 0:
            messages_more -= 1
            yield RESENT
        else:
            told = ", ".join(f"{one.node} at {one.at:.3f}" for one in deliveries)
            yield f"!nothing explains it (delivered by {told}; {silent} attempts without a reply)"


def _cut_off(
    key: Key,
    first: Delivery,
    again: Delivery,
    deliveries: Sequence[Delivery],
    records: Records,
    kill: Kill,
) -> str:
    """Did this kill keep what the next hop answered to the first delivery from everybody else?"""
    span = UNPOLLED if kill.disk_lost else UNDER_WAY
    # What the next hop stored after the death of a node and before its next start was sent before the death.
    back = min((when for when in records.begun[kill.node] if when > kill.at), default=kill.at + UNDER_WAY)
    if kill.node != first.node or not kill.at - span <= first.at <= back or again.at < kill.at:
        return ""
    later = min(
        (one.at for one in deliveries if one.node == first.node and one.at > first.at), default=math.inf
    )
    rows = records.settled[key, first.node]
    recorded = any(first.at - _CLOCK <= row <= kill.at and row < later for row in rows)
    if not recorded:
        return LOST_RECORD
    return UNTOLD if kill.disk_lost else ""


def torn_logs(at: Layout, wiped: Iterable[str]) -> list[str]:
    """What is wrong with the tracking logs: files that do not verify, rows that are there twice or missing.

    A node that lost its disk lost the file that was open, too: its rows may have a gap.
    """
    problems = []
    for node in at.nodes:
        for file in sorted(node.tracking_dir.glob("MSGTRK-*.LOG")):
            report = verify_file(file)
            problems += [f"{file.name}: {problem.value}" for problem in report.problems]
        sequences: dict[str, list[int]] = defaultdict(list)
        for row in tracked(node.tracking_dir):
            custom = _custom(row)
            sequences[custom["Db"]].append(int(custom["Seq"]))
        for database, found in sequences.items():
            if len(set(found)) != len(found):
                problems.append(f"{node.short}: rows twice in the log of database {database}")
            if node.name not in wiped and max(found) - min(found) + 1 != len(set(found)):
                problems.append(f"{node.short}: rows missing in the log of database {database}")
    return problems


def untold(at: Layout, mail: Sequence[Sending]) -> list[str]:
    """Messages that were acknowledged and of which no log tells that each recipient was settled."""
    settled = {key for key, _ in Records.of(at).settled}
    keys = ((one.letter.message_id, to) for one in mail if one.taken for to in one.letter.recipients)
    return [f"no row tells of {key[0]} for {key[1]}" for key in keys if key not in settled]


def _custom(row: Mapping[str, str]) -> dict[str, str]:
    pairs = (entry.removeprefix("S:").partition("=") for entry in row["custom-data"].split(";"))
    found: dict[str, str] = {}
    for name, _, value in pairs:
        found.setdefault(name, value)
    return found
