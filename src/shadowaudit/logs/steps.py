"""Rows as numbers: what each does to a message, without strings. Ready to be summed by message.

Two readers make the same arrays, one for our logs and one for Exchange's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shadowaudit.core.events import DISCARDED, FINALS, Kind, entries_of, kind_of
from shadowaudit.core.facts import Fault
from shadowaudit.core.fingerprint import BITS, digest, weights
from shadowaudit.logs.rows import Table, keys, moments, uniques

Long = NDArray[np.int64]

KINDS = {kind: number for number, kind in enumerate(Kind)}
_SEQUENCE = b"S:Seq="
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

    def of(self, table: Table) -> Steps:
        learnt = self.learnt
        custom = table["custom-data"]
        if not learnt.boot and len(table):
            self._begin(custom[0].as_py())
        sequence, tails = self._identity(table["log-id"], custom)
        entries, which = uniques(tails)
        parsed = [entries_of(text.removeprefix(";")) for text in entries]
        events, event = uniques(table["event-id"])
        kind = np.array([KINDS[kind_of(name)] for name in events], dtype=np.int64)[event]
        message, high, low = keys(table["network-message-id"])
        count, plain, salted = self._recipients(table["recipient-count"], parsed, which)
        new = is_any(kind, Kind.HARECEIVE) & _empty(table["source-context"])
        discarded = is_any(kind, Kind.HADISCARD) & _begins(table["source-context"], DISCARDED + ";")
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
        servers, server = uniques(table["server-hostname"])
        hops = np.array([self._name(name) for name in servers], dtype=np.int64)[server]
        settles = is_any(kind, Kind.SEND, Kind.SENDEXTERNAL, Kind.DELIVER)
        return Steps(
            row=table.index,
            sequence=sequence,
            at=moments(table["date-time"]),
            kind=kind,
            message=message,
            high=high,
            low=low,
            count=count,
            print=plain,
            salted=salted,
            copies=copies,
            odd=odd,
            hop=np.where(settles, hops, 0),
            enters=is_any(kind, Kind.RECEIVE, Kind.DSN) | new,
            leaves=leaves,
        )

    def _begin(self, custom: str) -> None:
        own = entries_of(custom)
        self.learnt.boot, self.learnt.database = own.get("Boot", ""), own.get("Db", "")
        self._weights = Weights(digest(self.learnt.database))

    def _identity(self, ids: Any, custom: Any) -> tuple[Long, Any]:
        """Sequences, and custom-data after ``S:Seq``, ``S:Boot`` and ``S:Db``, which stand first."""
        own = f";S:Boot={self.learnt.boot};S:Db={self.learnt.database}"
        numbers, tails = _alike(custom, own) or self._unlike(custom, own)
        if len(ids) and ids[0].as_py() != f"{self.learnt.boot}-{numbers[0]}":
            self.learnt.faults[Fault.MIXED] = None
        return numbers, tails

    def _unlike(self, custom: Any, own: str) -> tuple[Long, Any]:
        place = pc.find_substring(custom, own)
        places = place.to_numpy(zero_copy_only=False).astype(np.int64)
        numbers = np.zeros(len(places), dtype=np.int64)
        if not (places > len(_SEQUENCE)).all():
            self.learnt.faults[Fault.MIXED] = None
        # Sequences rise, so rows with as many digits stand together: one slice a run.
        bounds = np.flatnonzero(np.append(True, places[1:] != places[:-1]))
        tails = []
        for begin, end in zip(bounds, np.append(bounds[1:], len(places)), strict=True):
            part, width = custom.slice(int(begin), int(end - begin)), int(places[begin])
            digits = pc.utf8_slice_codeunits(part, 6, width) if width > len(_SEQUENCE) else None
            if digits is not None and pc.all(pc.utf8_is_digit(digits)).as_py():
                numbers[begin:end] = digits.cast("int64").to_numpy(zero_copy_only=False)
            else:
                self.learnt.faults[Fault.MIXED] = None
            tails.append(pc.utf8_slice_codeunits(part, max(width, 0) + len(own)))
        return numbers, tails[0] if len(tails) == 1 else pa.concat_arrays(tails)

    def _recipients(self, counts: Any, parsed: list[dict[str, str]], which: Long) -> tuple[Long, Long, Long]:
        """Recipients by number: those that S:Recipients names, else 1 to recipient-count."""
        texts, place = uniques(counts)
        number = np.array([int(t) if t.isascii() and t.isdigit() else 0 for t in texts], dtype=np.int64)
        count = np.minimum(number, _MOST)[place]
        plain, salted = self._weights.upto(count)
        named = [_numbers(one.get("Recipients", "")) for one in parsed]
        some = np.array([bool(one) for one in named])[which]
        if some.any():
            salt = self._weights.salt
            some_of = np.array(
                [(len(one), weights(one), weights(one, salt)) for one in named], dtype=np.int64
            ).reshape(-1, 3)[which]
            count = np.where(some, some_of[:, 0], count)
            plain = np.where(some, some_of[:, 1], plain)
            salted = np.where(some, some_of[:, 2], salted)
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

    def _holders(
        self, table: Table, kind: Long, parsed: list[dict[str, str]], which: Long, new: NDArray[np.bool_]
    ) -> Long:
        """Who holds, by the owner's word on HAREDIRECT and by its own on HARECEIVE; and who is named."""
        learnt = self.learnt
        said = np.array([digest(one.get("Shadow", "")) >> 22 for one in parsed], dtype=np.int64)[which]
        copies = np.where(is_any(kind, Kind.HAREDIRECT), said, 0)
        copies = np.where(new, -(digest(learnt.node) >> 22), copies)
        for number in np.unique(which):
            self._named(table, parsed[number], np.flatnonzero(which == number))
        return copies

    def _named(self, table: Table, one: dict[str, str], rows: Long) -> None:
        """Other servers and their databases, as these rows name them: all have the same entries."""
        learnt = self.learnt
        last = int(rows[-1])
        if "Shadow" in one:
            learnt.shadows[one["Shadow"]] = None
        if database := one.get("ShadowDb"):
            learnt.databases[database] = one.get("Shadow", "")
            sequence = table["reference"][last].as_py().rpartition(":")[2]
            if sequence.isascii() and sequence.isdigit():
                learnt.witnessed[database] = max(learnt.witnessed.get(database, 0), int(sequence))
        if database := one.get("OwnerDb"):
            server = table["client-hostname"][last].as_py()
            learnt.databases[database] = server
            learnt.shadows[server] = None
            if "Reason" in one:
                learnt.promoted[database] += len(rows)
            if one.get("Reason") == "database-rolled-back":
                learnt.set_back[database] = server

    def _name(self, name: str) -> int:
        number = digest(name) if name else 0
        if name and len(self.learnt.names) < 1000:
            self.learnt.names[str(number)] = name
        return number


def _alike(custom: Any, own: str) -> tuple[Long, Any] | None:
    """Sequences and the rest, if all rows have ``own`` at one place, as nearly always: quickly."""
    octets, text = custom.view(pa.binary()), own.encode()
    begin = custom[0].as_py().encode().find(text)
    end = begin + len(text)
    for place, expected in ((0, _SEQUENCE), (begin, text)):
        if (
            begin <= len(_SEQUENCE)
            or not pc.all(
                pc.equal(
                    pc.binary_slice(octets, place, place + len(expected)), pa.scalar(expected, pa.binary())
                )
            ).as_py()
        ):
            return None
    digits = pc.binary_slice(octets, len(_SEQUENCE), begin).cast(pa.string())
    if not pc.all(pc.ascii_is_decimal(digits)).as_py():
        return None
    longest = pc.max(pc.binary_length(octets)).as_py()
    tails = pc.binary_slice(octets, end, max(longest, end))
    return digits.cast("int64").to_numpy(zero_copy_only=False), tails.view(pa.string())


def _numbers(text: str) -> tuple[int, ...]:
    parts = text.split("+") if text else []
    return tuple(int(part) for part in parts if part.isascii() and part.isdigit())


def is_any(kind: Long, *kinds: Kind) -> NDArray[np.bool_]:
    """Where the row is of one of these kinds."""
    chosen = np.zeros(len(KINDS), dtype=bool)
    chosen[[KINDS[one] for one in kinds]] = True
    found: NDArray[np.bool_] = chosen[kind]
    return found


def _empty(texts: Any) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = pc.equal(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False)
    return found


def _begins(texts: Any, prefix: str) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = pc.starts_with(texts, prefix).to_numpy(zero_copy_only=False)
    return found
