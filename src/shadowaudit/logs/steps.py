"""Rows as numbers: what each does to a message, without strings. Ready to be summed by message.

Two readers make the same arrays, one for our logs and one for Exchange's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shadowaudit.core import forms
from shadowaudit.core.events import (
    COMPARED,
    DELIVERIES,
    DISCARDED,
    FINALS,
    OPERATED,
    ORIGINS,
    PAST_A_HOP,
    SENT,
    SETTLED_ELSEWHERE,
    STOP,
    Kind,
    closes,
    entries_of,
    is_beside,
    kind_of,
    listed,
    numbers_of,
)
from shadowaudit.core.facts import Fault
from shadowaudit.core.fingerprint import digest, key_of, print_of, weight
from shadowaudit.core.replies import accepted, refused
from shadowaudit.core.text import number_in, restored
from shadowaudit.logs import loops
from shadowaudit.logs.cells import KEEP, Cells, Numbers, keys, packed
from shadowaudit.logs.grid import Grid
from shadowaudit.logs.kinds import KINDS, by_source, is_any
from shadowaudit.logs.rows import moments

Long = NDArray[np.int64]

_MIXING = np.int64(0x1E3779B97F4A7C15)
_DERIVED = 8  # version of a UUID
_PART = 1500  # rows: their octets fit into the cache of the processor

_FEW = ("event-id", "recipient-count", "server-hostname", "source", "schema-version")
_EVENTS = tuple(dict.fromkeys(form.event.value for form in forms.FORMS))
_SOURCES = tuple(dict.fromkeys(form.source for form in forms.FORMS))
_SEEN = (*forms.CELLS, forms.DIGESTS, forms.TAKEN, forms.SETTLED)
_TAKEN = len(forms.TAKEN)

COLUMNS = (
    "date-time", "client-hostname", "server-hostname", "source-context", "source", "event-id",
    "network-message-id", "recipient-address", "recipient-status", "total-bytes", "recipient-count",
    "reference", "sender-address", "custom-data", "log-id", "schema-version",
)  # fmt: skip
"""What is read of our logs' rows."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a row makes of another message: which row that is, and the message that it is about.

    ``print``: of a report, its fingerprint; ``odd``: only the exact pass knows what that row means for it.
    """

    row: int
    print: int
    high: int
    low: int
    odd: bool = False


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
    digests: Long  # a number for size, sender and both digests; -1: the row is not compared
    reports: Long  # of FAIL: the fingerprint of the report that it names
    made: tuple[Made, ...]
    enters: NDArray[np.bool_]
    leaves: NDArray[np.bool_]


@dataclass(slots=True)
class Learnt:
    """What the rows of a file say besides: gathered block by block."""

    boot: str = ""
    schema: str = ""
    database: str = ""
    node: str = ""
    faults: dict[Fault, None] = field(default_factory=dict)
    undigested: int = 0  # rows that are compared, and have no digests
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


class RelaySteps:
    """Reads our rows. The first row of the file tells incarnation and database; the others have to agree."""

    def __init__(self, learnt: Learnt) -> None:
        self.learnt = learnt
        self.refused: Long = np.empty(0, dtype=np.int64)

    def of(self, table: Grid) -> Steps | None:
        """``refused`` gets the numbers of the rows that lack a valid value where they need one."""
        learnt = self.learnt
        if not learnt.boot and len(table):
            own = entries_of(table["custom-data"].text(0))
            learnt.boot, learnt.database = own.get("Boot", ""), own.get("Db", "")
            learnt.schema = table["schema-version"].text(0)
        found = _Columns.of(table, f";S:Boot={learnt.boot};S:Db={learnt.database}")
        parsed = [entries_of(text.removeprefix(";")) for text in found.tails.distinct.texts()]
        numbers = [numbers_of(one) for one in parsed]
        about = _Recipients.of(table, found, numbers, digest(learnt.database))
        bad = self._refused(table, found, parsed, numbers, about)
        if bad.any():
            kept = Grid(table.columns, table.index, ()).only(
                np.flatnonzero(~bad), np.empty(0, dtype=np.int64)
            )
            self.refused = np.concatenate([self.refused, table.index[bad]])
            return self.of(kept) if len(kept) else None
        sequence, which, message = found.sequence, found.tails.of, found.ids.of
        if (sequence < 0).any():
            learnt.faults[Fault.MIXED] = None
            sequence = np.maximum(sequence, 0)
        if table["log-id"].text(0) != f"{learnt.boot}-{sequence[0]}":
            learnt.faults[Fault.MIXED] = None
        events = found.events.distinct.texts()
        kind = np.array([KINDS[kind_of(name)] for name in events], dtype=np.int64)[found.events.of]
        high, low = found.high, found.low
        kind = by_source(table, kind)
        context = table["source-context"]
        new = is_any(kind, Kind.HARECEIVE) & (context.lengths == 0)
        discarded = is_any(kind, Kind.HADISCARD)
        discarded[discarded] = context.at(discarded).begins(f"{DISCARDED};".encode())
        leaves = is_any(kind, *FINALS) | discarded
        taken = np.array([_needs_a_look(one) for one in parsed])
        odd = taken[which] | ~is_any(
            kind, Kind.RECEIVE, Kind.DSN, Kind.JOURNAL, Kind.MEMBERS, Kind.HAREDIRECT, Kind.HARECEIVE,
            Kind.HADISCARD, Kind.SEND, Kind.SENDEXTERNAL, Kind.DELIVER, Kind.FAIL, Kind.DEFER, Kind.LOAD,
        )  # fmt: skip
        odd |= is_any(kind, Kind.JOURNAL, Kind.MEMBERS) & ((high[message] >> 12) & 15 != _DERIVED)
        odd |= (is_any(kind, Kind.HARECEIVE) & ~new) | (is_any(kind, Kind.HADISCARD) & ~discarded)
        failing = is_any(kind, Kind.FAIL)
        odd |= unfitting(
            context, table["recipient-status"],
            sent=is_any(kind, *SENT), failed=failing, deferred=is_any(kind, Kind.DEFER),
        )  # fmt: skip
        odd |= elsewhere(context, is_any(kind, Kind.HAREDIRECT), parsed, which)
        failed = np.flatnonzero(failing)
        reports = np.zeros(len(kind), dtype=np.int64)
        for row in failed.tolist():
            reference = table["reference"].text(row)
            reports[row] = print_of(*key_of(reference)) if reference else 0
            odd[row] |= not reference and table["sender-address"].text(row) != "<>"
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
            count=about.count,
            print=about.plain,
            salted=about.salted,
            copies=copies,
            odd=odd,
            hop=self._hops(found.servers, is_any(kind, *DELIVERIES)),
            digests=self._promised(found, kind),
            reports=reports,
            made=self._made(table, found, kind),
            enters=is_any(kind, *ORIGINS) | new,
            leaves=leaves,
        )

    def _refused(
        self,
        table: Grid,
        found: _Columns,
        parsed: list[dict[str, str]],
        numbers: Sequence[Any],
        about: _Recipients,
    ) -> NDArray[np.bool_]:
        """Which rows have no valid time, id, entry or size, not the recipients that they count, or not the
        form of an event that is known?
        """
        named = np.array([one is not None for one in numbers])[found.tails.of]
        events = found.events.distinct.texts()
        kinds = np.array([KINDS[kind_of(one)] for one in events], dtype=np.int64)[found.events.of]
        closing = np.array([closes(one) for one in parsed])[found.tails.of] & is_any(kinds, Kind.LOAD)
        queue = np.array(["Queue" in one for one in parsed])[found.tails.of] & is_any(kinds, *OPERATED)
        pressed = is_any(kinds, Kind.BACKPRESSURE)
        sized = (found.sizes >= 0) | (about.count == 0)
        sound: NDArray[np.bool_] = (found.at != loops.NONE) & named & sized
        sound &= about.count == about.said
        sound &= np.where(
            closing | queue | pressed,
            (found.ids.distinct.lengths == 0)[found.ids.of],
            found.uuid[found.ids.of],
        )
        return ~sound | self._unfit(table, found, parsed, kinds)

    def _unfit(
        self, table: Grid, found: _Columns, parsed: Sequence[Mapping[str, str]], kinds: Long
    ) -> NDArray[np.bool_]:
        """Which rows have not the form of their event (``core.forms``), or not the version of the first row?

        Few forms are distinct: each is asked for once.
        """
        sets: dict[frozenset[str], int] = {}
        named = np.array([sets.setdefault(forms.named(one), len(sets)) for one in parsed], dtype=np.int64)
        events = _places(found.events, _EVENTS)[found.events.of]
        sources = _places(found.sources, _SOURCES)[found.sources.of]
        key = (events * (len(_SOURCES) + 1) + sources) * len(sets) + named[found.tails.of]
        context = table["source-context"]
        taken, settled = is_any(kinds, Kind.HARECEIVE), is_any(kinds, Kind.HADISCARD)
        taken[taken] = context.at(taken).begins(forms.TAKEN.encode()) & (context.lengths[taken] == _TAKEN)
        rows = np.flatnonzero(settled)
        settled[rows] = False
        for reason in SETTLED_ELSEWHERE:
            settled[rows] |= context.at(rows).begins(f"{reason};".encode())
        seen = [table[name].lengths > 0 for name in forms.CELLS]
        for there in (*seen, found.digests >= 0, taken, settled):
            key = key << 1 | there
        different = pa.array(key).dictionary_encode()
        good = [self._fits(one, list(sets)) for one in different.dictionary.to_pylist()]
        same = np.array([text == self.learnt.schema for text in found.schemas.distinct.texts()])
        fits: NDArray[np.bool_] = np.array(good)[different.indices.to_numpy()] & same[found.schemas.of]
        return ~fits

    def _fits(self, key: int, sets: Sequence[frozenset[str]]) -> bool:
        has = set()
        for name in reversed(_SEEN):
            key, there = divmod(key, 2)
            has |= {name} if there else set()
        key, entries = divmod(key, len(sets))
        event, source = divmod(key, len(_SOURCES) + 1)
        names = (*_EVENTS, ""), (*_SOURCES, "")
        return not forms.unfit(names[0][event], names[1][source], self.learnt.schema, has | sets[entries])

    def _promised(self, found: _Columns, kind: Long) -> Long:
        """One number for digests, size and sender, of rows that are compared."""
        compared = is_any(kind, *COMPARED)
        self.learnt.undigested += int(np.count_nonzero(compared & (found.digests < 0)))
        all_three = ((found.digests ^ found.sizes) * _MIXING ^ found.senders) * _MIXING
        return np.where(compared, all_three & np.iinfo(np.int64).max, -1)

    def _made(self, table: Grid, found: _Columns, kind: Long) -> tuple[Made, ...]:
        """The reports, resubmissions and messages to members that the rows make, with the messages that they
        are about.
        """
        made = []
        for row in np.flatnonzero(
            is_any(kind, Kind.DSN, Kind.RESUBMITTED, Kind.SENT_AGAIN, Kind.MEMBERS)
        ).tolist():
            if about := table["reference"].text(row).partition(PAST_A_HOP)[0]:
                own = int(found.high[found.ids.of[row]]), int(found.low[found.ids.of[row]])
                report = kind[row] == KINDS[Kind.DSN]
                made.append(Made(row, print_of(*own) if report else 0, *key_of(about), odd=not report))
        return tuple(made)

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
        """The holders by HAREDIRECT of their owners and by their own HARECEIVE, and all servers named."""
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
        if database := one.get("ShadowDb") or one.get("OwnerDb") or one.get("TellerDb"):
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
class _Recipients:
    """Of each row: how many recipients, how many it says that they are, and their fingerprints."""

    count: Long  # -1: not as many as it has numbers for
    said: Long
    plain: Long
    salted: Long

    @classmethod
    def of(cls, table: Grid, found: _Columns, numbers: Sequence[Any], salt: int) -> Self:
        """``numbers``: by the number of its tail, what ``S:Recipients`` of a row says."""
        cells = table["recipient-address"]
        count, plain, salted = np.empty((3, len(cells)), dtype=np.int64)
        named = [one or () for one in numbers]
        first = np.cumsum([0, *map(len, named)])
        flat = np.array([number for one in named for number in one] or [0], dtype=np.int64)
        of = found.tails.of
        loops.recipients(cells.begin, cells.end, cells.data, of, first, flat, salt, count, plain, salted)
        for row in np.flatnonzero(count == -2).tolist():
            members = listed(restored(cells.text(row)))
            own = named[of[row]] or tuple(range(1, len(members) + 1))
            count[row] = len(members) if len(own) == len(members) else -1
            plain[row] = sum(weight(*one) for one in zip(own, members, strict=False))
            salted[row] = sum(weight(*one, salt) for one in zip(own, members, strict=False))
        said = np.array([number_in(text) if text else 0 for text in found.counts.distinct.texts()])
        return cls(count, said.astype(np.int64)[found.counts.of], plain, salted)


@dataclass(frozen=True, slots=True)
class _Columns:
    """What all rows are asked for. It is read in parts that fit into the cache of the processor."""

    sequence: Long  # -1: it has none
    at: Long
    ids: Numbers
    high: Long  # each id once
    low: Long
    uuid: NDArray[np.bool_]
    tails: Numbers  # custom-data after what identifies the row, without the digests: few are distinct
    digests: Long
    sizes: Long  # -1: it has none
    senders: Long
    events: Numbers
    counts: Numbers
    servers: Numbers
    sources: Numbers
    schemas: Numbers

    @classmethod
    def of(cls, table: Grid, own: str) -> Self:
        """``own``: what stands behind the sequence."""
        size = len(table)
        sequence, rest, at, cut, digests, sizes, senders = np.empty((7, size), dtype=np.int64)
        octets, sender = table["total-bytes"], table["sender-address"]
        custom, times, behind = table["custom-data"], table["date-time"], own.encode()
        ids, tails = Numbers(table["network-message-id"]), Numbers(Cells(custom.data, rest, cut))
        others = [Numbers(table[name]) for name in _FEW]
        given, words, keyed = packed(behind), custom.words, []
        for begin in range(0, size, _PART):
            rows = slice(begin, begin + _PART)
            texts = custom.begin[rows], custom.end[rows], custom.data, words
            loops.sequences(*texts, KEEP, given, len(behind), sequence[rows], rest[rows])
            tail = rest[rows], custom.end[rows], custom.data, words
            loops.digests(*tail, KEEP, cut[rows], digests[rows])
            _moments(times.at(rows), at[rows])
            loops.whole(octets.begin[rows], octets.end[rows], octets.data, sizes[rows])
            loops.hashed(sender.begin[rows], sender.end[rows], sender.words, KEEP, senders[rows])
            keyed.append(keys(ids.add(rows)))
            for one in (tails, *others):
                one.add(rows)
        high, low, uuid = (np.concatenate(parts) for parts in zip(*keyed, strict=True))
        return cls(sequence, at, ids, high, low, uuid, tails, digests, sizes, senders, *others)


def _places(numbers: Numbers, known: Sequence[str]) -> Long:
    """Of each distinct cell, its place among those that are known; behind them of others."""
    places = {text: place for place, text in enumerate(known)}
    return np.array([places.get(text, len(known)) for text in numbers.distinct.texts()], dtype=np.int64)


def _needs_a_look(entries: Mapping[str, str]) -> bool:
    """Was it taken over, or sent in doubt, or is its copy none that counts? The sums do not tell."""
    if entries.get("Epoch", "1") != "1" or "InDoubt" in entries or "Replication" in entries:
        return True
    return is_beside(entries)


def _moments(times: Cells, found: Long) -> None:
    loops.moments(times.begin, times.end, times.words, found)
    left = np.flatnonzero(found == loops.NONE)
    if len(left):
        found[left] = moments(pa.array(times.at(left).texts(), pa.string()))


Truth = NDArray[np.bool_]


def unfitting(context: Cells, status: Cells, *, sent: Truth, failed: Truth, deferred: Truth) -> Truth:
    """Which deliveries, bounces and attempts have a reply or a recipient's status of another event?"""
    odd: Truth = sent | failed | deferred
    rows = np.flatnonzero(odd)
    odd[rows] = context.at(rows).begins(b"2") != sent[rows]
    rows = np.flatnonzero(sent)
    texts, of = status.at(rows).numbered()
    odd[rows] |= np.array([not accepted(listed(text)) for text in texts.texts()], dtype=np.bool_)[of]
    for row in np.flatnonzero(failed).tolist():
        odd[row] |= not refused(listed(status.text(row)))
    return odd


def elsewhere(
    context: Cells, copied: Truth, entries: Sequence[Mapping[str, str]], which: NDArray[Any]
) -> Truth:
    """Which rows HAREDIRECT do not begin with the good reply of the shadow server that they name?

    ``entries[which[row]]`` are a row's. A row that tells of attempts before the last one is among them.
    """
    odd = copied.copy()
    shadows = {one.get("Shadow", ""): number for number, one in enumerate(entries)}
    number = np.array([shadows[one.get("Shadow", "")] for one in entries])[which]
    for name, its in shadows.items():
        rows = np.flatnonzero(copied & (number == its))
        odd[rows] = ~context.at(rows).begins(f"{name}=2".encode())
    return odd
