"""Rows as numbers: what each does to a message, without strings. Ready to be summed by message.

Two readers make the same arrays, one for our logs and one for Exchange's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shadowaudit.core.events import DISCARDED, FINALS, STOP, Kind, entries_of, kind_of
from shadowaudit.core.facts import Fault
from shadowaudit.core.fingerprint import BITS, digest, weights
from shadowaudit.logs.cells import SLACK, Cells, keys, template
from shadowaudit.logs.grid import Grid
from shadowaudit.logs.rows import moments

Long = NDArray[np.int64]

KINDS = {kind: 1 << number for number, kind in enumerate(Kind)}
"""A bit for each kind: so a row is asked for several at once."""

_SEQUENCE = b"S:Seq="
_DIGITS = 18  # that 64 bits always hold
_MOST = 1 << 21  # recipients that one row can plausibly have

COLUMNS = {
    "date-time": 24,
    "client-hostname": 0,
    "server-hostname": 0,
    "source-context": 0,
    "event-id": 16,
    "network-message-id": 40,
    "recipient-count": 8,
    "reference": 0,
    "custom-data": 128,
    "log-id": 0,
}
"""What is read of our logs' rows, and how many octets of it in each row, a multiple of 8."""


@dataclass(slots=True)
class Steps:
    """One block. ``row``: the row's number in the block; ``origin`` to ``hop`` are what is summed."""

    row: Long
    sequence: Long
    at: Long
    kind: Long
    message: Long  # which of the messages below the row is about
    high: Long  # each message once: its id, as two words. Of rows about none they are 0
    low: Long
    count: Long  # recipients that the row is about
    print: Long  # and their fingerprint
    salted: Long  # the same, salted with the database
    copies: Long  # of HAREDIRECT and HARECEIVE: the holder's fingerprint
    odd: NDArray[np.bool_]  # only the exact pass understands this row
    hop: Long  # digest of the next hop, of rows that settle
    enters: NDArray[np.bool_]
    leaves: NDArray[np.bool_]


@dataclass(slots=True)
class Learnt:
    """What the rows of a file say besides: gathered block by block."""

    boot: str = ""
    database: str = ""
    node: str = ""
    faults: dict[Fault, None] = field(default_factory=dict)
    listed: Counter[str] = field(default_factory=Counter)
    closings: dict[str, tuple[int, int]] = field(default_factory=dict)  # snapshot: count, sequence
    goes_on: int = 0  # sequence of the last row that closes a snapshot of a node that runs
    shadows: dict[str, None] = field(default_factory=dict)
    databases: dict[str, str] = field(default_factory=dict)
    set_back: dict[str, str] = field(default_factory=dict)
    promoted: Counter[str] = field(default_factory=Counter)
    witnessed: dict[str, int] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)


class Weights:
    """Fingerprints of the recipients 1 to n, for every n, with and without a database's salt."""

    def __init__(self, salt: int) -> None:
        self.salt = salt
        self.plain = _sums(1024, 0)
        self.salted = _sums(1024, salt)

    def upto(self, counts: Long) -> tuple[Long, Long]:
        most = int(counts.max(initial=0))
        if most >= len(self.plain):
            self.plain, self.salted = _sums(most + 1, 0), _sums(most + 1, self.salt)
        return self.plain[counts], self.salted[counts]


def _sums(size: int, salt: int) -> Long:
    word = np.arange(1, size, dtype=np.uint64) + np.uint64(salt) + np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    word = (word ^ (word >> np.uint64(31))) >> np.uint64(64 - BITS)
    return np.concatenate(([0], np.cumsum(word.astype(np.int64))))


class RelaySteps:
    """Reads our rows. The first row of the file tells incarnation and database; the others have to agree."""

    def __init__(self, learnt: Learnt) -> None:
        self.learnt = learnt
        self._weights = Weights(0)

    def of(self, table: Grid) -> Steps:
        learnt = self.learnt
        custom = table["custom-data"]
        if not learnt.boot and len(table):
            self._begin(custom.text(0))
        sequence, tails = self._identity(custom)
        if table["log-id"].text(0) != f"{learnt.boot}-{sequence[0]}":
            learnt.faults[Fault.MIXED] = None
        entries, which = tails.texts()
        parsed = [entries_of(text.removeprefix(";")) for text in entries]
        events, event = table["event-id"].texts()
        kind = np.array([KINDS[kind_of(name)] for name in events], dtype=np.int64)[event]
        message, high, low = keys(table["network-message-id"])
        count, plain, salted = self._recipients(table["recipient-count"], parsed, which)
        context = table["source-context"]
        new = is_any(kind, Kind.HARECEIVE) & (context.lengths == 0)
        discarded = is_any(kind, Kind.HADISCARD)
        discarded[discarded] = context.at(discarded).begins(f"{DISCARDED};".encode())
        leaves = is_any(kind, *FINALS) | discarded
        taken = np.array(
            [int(one.get("Epoch") or 1) > 1 or "InDoubt" in one or "Replication" in one for one in parsed]
        )
        odd = taken[which] | ~is_any(
            kind, Kind.RECEIVE, Kind.DSN, Kind.HAREDIRECT, Kind.HARECEIVE, Kind.HADISCARD, Kind.SEND,
            Kind.SENDEXTERNAL, Kind.DELIVER, Kind.FAIL, Kind.DEFER, Kind.LOAD,
        )  # fmt: skip
        odd |= (is_any(kind, Kind.HARECEIVE) & ~new) | (is_any(kind, Kind.HADISCARD) & ~discarded)
        self._snapshots(kind, parsed, which, sequence, (high | low)[message])
        copies = self._holders(table, kind, parsed, which, new)
        settles = is_any(kind, Kind.SEND, Kind.SENDEXTERNAL, Kind.DELIVER)
        servers, server = table["server-hostname"].at(settles).texts()
        hops = np.zeros(len(kind), dtype=np.int64)
        hops[settles] = np.array([self._name(name) for name in servers], dtype=np.int64)[server]
        return Steps(
            row=table.index,
            sequence=sequence,
            at=moments(table["date-time"].arrow()),
            kind=kind,
            message=message,
            high=high,
            low=low,
            count=count,
            print=plain,
            salted=salted,
            copies=copies,
            odd=odd,
            hop=hops,
            enters=is_any(kind, Kind.RECEIVE, Kind.DSN) | new,
            leaves=leaves,
        )

    def _begin(self, custom: str) -> None:
        own = entries_of(custom)
        self.learnt.boot, self.learnt.database = own.get("Boot", ""), own.get("Db", "")
        self._weights = Weights(digest(self.learnt.database))

    def _identity(self, custom: Cells) -> tuple[Long, Cells]:
        """Sequences, and custom-data after ``S:Seq``, ``S:Boot`` and ``S:Db``, which stand first."""
        own = f";S:Boot={self.learnt.boot};S:Db={self.learnt.database}".encode()
        # Sequences rise: nearly always all of a block have as many digits as its first.
        likely = custom.octets(0).find(own) - len(_SEQUENCE)
        good, numbers = _sequences(custom, likely, own)
        size = len(_SEQUENCE) + likely + len(own)
        if good.all():
            return numbers, custom.after(size)
        begin = np.where(good, custom.begin + size, custom.begin)
        left = np.flatnonzero(~good)
        numbers[left] = 0
        for digits in range(1, _DIGITS + 1):
            if len(left):
                good, found = _sequences(custom.at(left), digits, own)
                numbers[left[good]] = found[good]
                begin[left[good]] += len(_SEQUENCE) + digits + len(own)
                left = left[~good]
        if len(left):
            self.learnt.faults[Fault.MIXED] = None
        return numbers, Cells(custom.data, begin, custom.end)

    def _recipients(
        self, counts: Cells, parsed: list[dict[str, str]], which: Long
    ) -> tuple[Long, Long, Long]:
        """Recipients by number: those that S:Recipients names, else 1 to recipient-count."""
        texts, place = counts.texts()
        number = np.array([int(t) if t.isascii() and t.isdigit() else 0 for t in texts], dtype=np.int64)
        count = np.minimum(number, _MOST)[place]
        plain, salted = self._weights.upto(count)
        named = [_numbers(one.get("Recipients", "")) for one in parsed]
        some = np.flatnonzero(np.array([bool(one) for one in named])[which])
        if len(some):
            salt, of = self._weights.salt, which[some]
            count[some] = np.array([len(one) for one in named], dtype=np.int64)[of]
            plain[some] = np.array([weights(one) for one in named], dtype=np.int64)[of]
            salted[some] = np.array([weights(one, salt) for one in named], dtype=np.int64)[of]
        return count, plain, salted

    def _snapshots(
        self, kind: Long, parsed: list[dict[str, str]], which: Long, sequence: Long, about: Long
    ) -> None:
        for row in np.flatnonzero(is_any(kind, Kind.LOAD)):
            entries = parsed[which[row]]
            snapshot = entries.get("Snapshot", "")
            if about[row]:
                self.learnt.listed[snapshot] += 1
            else:
                count = entries.get("Count", "")
                self.learnt.listed[snapshot] += 0
                self.learnt.closings[snapshot] = (int(count) if count.isdigit() else -1, int(sequence[row]))
                if entries.get("Taken", STOP) != STOP:  # older versions did not say
                    self.learnt.goes_on = int(sequence[row])

    def _holders(
        self, table: Grid, kind: Long, parsed: list[dict[str, str]], which: Long, new: NDArray[np.bool_]
    ) -> Long:
        """Who holds, by the owner's word on HAREDIRECT and by its own on HARECEIVE; and who is named."""
        learnt = self.learnt
        said = np.array([digest(one.get("Shadow", "")) >> 22 for one in parsed], dtype=np.int64)[which]
        copies = np.where(is_any(kind, Kind.HAREDIRECT), said, 0)
        copies = np.where(new, -(digest(learnt.node) >> 22), copies)
        lasts = np.zeros(len(parsed), dtype=np.int64)
        lasts[which] = np.arange(len(which))  # of rows with one number the last one stays
        counts = np.bincount(which, minlength=len(parsed))
        for one, last, count in zip(parsed, lasts.tolist(), counts.tolist(), strict=True):
            self._named(table, one, last, count)
        return copies

    def _named(self, table: Grid, one: dict[str, str], last: int, count: int) -> None:
        """Other servers and their databases, as so many rows name them: all have the same entries."""
        learnt = self.learnt
        if "Shadow" in one:
            learnt.shadows[one["Shadow"]] = None
        if database := one.get("ShadowDb"):
            learnt.databases[database] = one.get("Shadow", "")
            sequence = table["reference"].text(last).rpartition(":")[2]
            if sequence.isascii() and sequence.isdigit():
                learnt.witnessed[database] = max(learnt.witnessed.get(database, 0), int(sequence))
        if database := one.get("OwnerDb"):
            server = table["client-hostname"].text(last)
            learnt.databases[database] = server
            learnt.shadows[server] = None
            if "Reason" in one:
                learnt.promoted[database] += count
            if one.get("Reason") == "database-rolled-back":
                learnt.set_back[database] = server

    def _name(self, name: str) -> int:
        number = digest(name) if name else 0
        if name and len(self.learnt.names) < 1000:
            self.learnt.names[str(number)] = name
        return number


def _sequences(custom: Cells, digits: int, own: bytes) -> tuple[NDArray[np.bool_], Long]:
    """Which cells begin with a sequence of so many digits and then ``own``; and the sequences."""
    size = len(_SEQUENCE) + digits + len(own)
    good, numbers = custom.lengths >= size, np.zeros(len(custom), dtype=np.int64)
    if not 0 < digits <= _DIGITS or size > SLACK or not good.any():
        return np.zeros(len(custom), dtype=bool), numbers
    words = custom.words(size)
    blank = bytes(digits)
    wanted, masks = template(_SEQUENCE + blank + own, b"\xff" * len(_SEQUENCE) + blank + b"\xff" * len(own))
    for place, (word, mask) in enumerate(zip(wanted, masks, strict=True)):
        good &= (words[:, place] & mask) == word
    octets = words.view(np.uint8)
    for place in range(len(_SEQUENCE), len(_SEQUENCE) + digits):
        digit = octets[:, place] - np.uint8(ord("0"))  # wraps around: what is no digit is more than 9
        good &= digit <= 9
        numbers = numbers * 10 + digit
    return good, numbers


def _numbers(text: str) -> tuple[int, ...]:
    parts = text.split("+") if text else []
    return tuple(int(part) for part in parts if part.isascii() and part.isdigit())


def is_any(kind: Long, *kinds: Kind) -> NDArray[np.bool_]:
    """Where the row is of one of these kinds."""
    found: NDArray[np.bool_] = (kind & sum(KINDS[one] for one in kinds)) != 0
    return found
