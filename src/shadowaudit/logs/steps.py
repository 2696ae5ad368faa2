"""Rows as numbers: what each does to a message, without strings. Ready to be summed by message.

Two readers make the same arrays, one for our logs and one for Exchange's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shadowaudit.core.events import (
    DELIVERIES,
    DISCARDED,
    FINALS,
    STOP,
    Kind,
    entries_of,
    is_beside,
    kind_of,
)
from shadowaudit.core.facts import Fault
from shadowaudit.core.fingerprint import BITS, digest, weights
from shadowaudit.core.text import number_in
from shadowaudit.logs import loops
from shadowaudit.logs.cells import KEEP, Cells, Numbers, keys, packed
from shadowaudit.logs.grid import Grid
from shadowaudit.logs.rows import moments

Long = NDArray[np.int64]

KINDS = {kind: 1 << number for number, kind in enumerate(Kind)}
"""A bit for each kind: so a row is asked for several at once."""

_PART = 1500  # rows: as many octets as the processor has at hand
_MOST = 1 << 21  # recipients that one row can plausibly have

COLUMNS = (
    "date-time", "client-hostname", "server-hostname", "source-context", "event-id", "network-message-id",
    "recipient-count", "reference", "custom-data", "log-id",
)  # fmt: skip
"""What is read of our logs' rows."""


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
    digests: Long  # a number for the digests of content and envelope; -1: the row has none
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
    closings: dict[str, tuple[int, int, int]] = field(
        default_factory=dict
    )  # snapshot: count, sequence, among
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
        found = _Columns.of(table, f";S:Boot={learnt.boot};S:Db={learnt.database}")
        sequence, which, message = found.sequence, found.tails.of, found.ids.of
        if (sequence < 0).any():
            learnt.faults[Fault.MIXED] = None
            sequence = np.maximum(sequence, 0)
        if table["log-id"].text(0) != f"{learnt.boot}-{sequence[0]}":
            learnt.faults[Fault.MIXED] = None
        parsed = [entries_of(text.removeprefix(";")) for text in found.tails.distinct.texts()]
        events = found.events.distinct.texts()
        kind = np.array([KINDS[kind_of(name)] for name in events], dtype=np.int64)[found.events.of]
        high, low = found.high, found.low
        count, plain, salted = self._recipients(found.counts, parsed, which)
        context = table["source-context"]
        new = is_any(kind, Kind.HARECEIVE) & (context.lengths == 0)
        discarded = is_any(kind, Kind.HADISCARD)
        discarded[discarded] = context.at(discarded).begins(f"{DISCARDED};".encode())
        leaves = is_any(kind, *FINALS) | discarded
        taken = np.array([_needs_a_look(one) for one in parsed])
        odd = taken[which] | ~is_any(
            kind, Kind.RECEIVE, Kind.DSN, Kind.HAREDIRECT, Kind.HARECEIVE, Kind.HADISCARD, Kind.SEND,
            Kind.SENDEXTERNAL, Kind.DELIVER, Kind.FAIL, Kind.DEFER, Kind.LOAD,
        )  # fmt: skip
        odd |= (is_any(kind, Kind.HARECEIVE) & ~new) | (is_any(kind, Kind.HADISCARD) & ~discarded)
        self._snapshots(kind, parsed, which, sequence, (high | low)[message])
        copies = self._holders(table, kind, parsed, which, new)
        return Steps(
            row=table.index,
            sequence=sequence,
            at=found.at,
            kind=kind,
            message=message,
            high=high,
            low=low,
            count=count,
            print=plain,
            salted=salted,
            copies=copies,
            odd=odd,
            hop=self._hops(found.servers, is_any(kind, *DELIVERIES)),
            digests=found.digests,
            enters=is_any(kind, Kind.RECEIVE, Kind.DSN) | new,
            leaves=leaves,
        )

    def _begin(self, custom: str) -> None:
        own = entries_of(custom)
        self.learnt.boot, self.learnt.database = own.get("Boot", ""), own.get("Db", "")
        self._weights = Weights(digest(self.learnt.database))

    def _recipients(
        self, counts: Numbers, parsed: list[dict[str, str]], which: Long
    ) -> tuple[Long, Long, Long]:
        """Recipients by number: those that S:Recipients names, else 1 to recipient-count."""
        texts = counts.distinct.texts()
        number = np.array([max(0, number_in(t)) for t in texts], dtype=np.int64)
        count = np.minimum(number, _MOST)[counts.of]
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
                self.learnt.listed[snapshot] += 0
                count = entries.get("Count", "")
                among = entries.get("Among", count)
                self.learnt.closings[snapshot] = (number_in(count), int(sequence[row]), number_in(among))
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
        rows = np.arange(len(which))
        lasts[which] = rows  # of rows with one number the last one stays,
        far = table["reference"].lengths > 0
        lasts[which[far]] = rows[far]  # rather one that says how far
        counts = np.bincount(which, minlength=len(parsed))
        for one, last, count in zip(parsed, lasts.tolist(), counts.tolist(), strict=True):
            self._named(table, one, last, count)
        return copies

    def _named(self, table: Grid, one: dict[str, str], last: int, count: int) -> None:
        """Other servers and their databases, as so many rows name them: all have the same entries."""
        learnt = self.learnt
        if database := one.get("ShadowDb") or one.get("OwnerDb"):
            sequence = number_in(table["reference"].text(last).rpartition(":")[2])
            if sequence >= 0:
                learnt.witnessed[database] = max(learnt.witnessed.get(database, 0), sequence)
        if "Shadow" in one:
            learnt.shadows[one["Shadow"]] = None
        if database := one.get("ShadowDb"):
            learnt.databases[database] = one.get("Shadow", "")
        if database := one.get("OwnerDb"):
            server = table["client-hostname"].text(last)
            learnt.databases[database] = server
            learnt.shadows[server] = None
            if "Reason" in one:
                learnt.promoted[database] += count
            if one.get("Reason") == "database-rolled-back":
                learnt.set_back[database] = server

    def _hops(self, servers: Numbers, settles: NDArray[np.bool_]) -> Long:
        """Digests of the servers that took responsibility, and their names, in the order of the rows."""
        number = servers.of[settles]
        first = np.full(len(servers.distinct), len(number))
        first[number[::-1]] = np.arange(
            len(number) - 1, -1, -1
        )  # of rows with one number the first one stays
        hops = np.zeros(len(first), dtype=np.int64)
        for one in np.argsort(first)[: np.count_nonzero(first < len(number))].tolist():
            if name := servers.distinct.text(one):
                hops[one] = digest(name)
                if len(self.learnt.names) < 1000:
                    self.learnt.names[str(hops[one])] = name
        return np.where(settles, hops[servers.of], 0)


@dataclass(frozen=True, slots=True)
class _Columns:
    """What all rows are asked for, part by part: as long as a part's octets are at hand."""

    sequence: Long  # -1: it has none
    at: Long
    ids: Numbers
    high: Long  # each id once
    low: Long
    tails: Numbers  # custom-data after what identifies the row, without the digests: few are distinct
    digests: Long
    events: Numbers
    counts: Numbers
    servers: Numbers

    @classmethod
    def of(cls, table: Grid, own: str) -> Self:
        """``own``: what stands behind the sequence."""
        size = len(table)
        sequence, rest, at, cut, digests = np.empty((5, size), dtype=np.int64)
        custom, times, behind = table["custom-data"], table["date-time"], own.encode()
        ids, tails = Numbers(table["network-message-id"]), Numbers(Cells(custom.data, rest, cut))
        others = [Numbers(table[name]) for name in ("event-id", "recipient-count", "server-hostname")]
        given, words, keyed = packed(behind), custom.words, []
        for begin in range(0, size, _PART):
            rows = slice(begin, begin + _PART)
            texts = custom.begin[rows], custom.end[rows], custom.data, words
            loops.sequences(*texts, KEEP, given, len(behind), sequence[rows], rest[rows])
            tail = rest[rows], custom.end[rows], custom.data, words
            loops.digests(*tail, KEEP, cut[rows], digests[rows])
            _moments(times.at(rows), at[rows])
            keyed.append(keys(ids.add(rows)))
            for one in (tails, *others):
                one.add(rows)
        high, low = (np.concatenate(parts) for parts in zip(*keyed, strict=True))
        return cls(sequence, at, ids, high, low, tails, digests, *others)


def _needs_a_look(entries: Mapping[str, str]) -> bool:
    """Was it taken over, or sent in doubt, or is its copy none that counts? The sums do not tell."""
    if int(entries.get("Epoch") or 1) > 1 or "InDoubt" in entries or "Replication" in entries:
        return True
    return is_beside(entries)


def _moments(times: Cells, found: Long) -> None:
    loops.moments(times.begin, times.end, times.words, found)
    left = np.flatnonzero(found == loops.NONE)
    if len(left):
        found[left] = moments(pa.array(times.at(left).texts(), pa.string()))


def _numbers(text: str) -> tuple[int, ...]:
    parts = text.split("+") if text else []
    return tuple(number for part in parts if (number := number_in(part)) >= 0)


def is_any(kind: Long, *kinds: Kind) -> NDArray[np.bool_]:
    """Where the row is of one of these kinds."""
    found: NDArray[np.bool_] = (kind & sum(KINDS[one] for one in kinds)) != 0
    return found
