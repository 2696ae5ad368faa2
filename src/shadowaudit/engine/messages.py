"""Partial states of messages merged to one row each, in one process, and which of them are suspect."""

from __future__ import annotations

import binascii
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shadowaudit.core.facts import FileFacts, Flavour
from shadowaudit.core.fingerprint import digest
from shadowaudit.core.judge import LATE_DISCARD
from shadowaudit.logs.fold import GREATEST, LEAST, SUMS
from shadowaudit.logs.groups import NONE_GREATEST, NONE_LEAST, Groups

Long = NDArray[np.int64]
_MIXING = np.uint64(0x9E3779B97F4A7C15)
_PLACES = [place for place in range(36) if place not in (8, 13, 18, 23)]
_OF_FILES = ("file_from", "file_to")
_DIGESTS = ("digests_least", "digests_greatest")
_OF_PLACES = ("first", "last")
_NOT_KEPT = _OF_FILES + _DIGESTS + _OF_PLACES
_LEAST = (*(name for name in LEAST if name not in _NOT_KEPT), "redirect_db", "origin_db")
_GREATEST = (
    *(name for name in GREATEST if name not in _NOT_KEPT),
    "redirect_db_last", "origin_node", "exchange",
)  # fmt: skip
MOMENTS = ("accepted_at", "held_at", "final_at", "discard_at")

Part = tuple[int, int, int]
"""File number, and the octets in which a message's rows of that file are: from, to."""


def bucket_of(high: Long, low: Long, buckets: int) -> NDArray[np.uint16]:
    """Which bucket a message belongs to: all its states to the same, whichever file they are of."""
    mixed = (high ^ low).view(np.uint64) * _MIXING
    return ((mixed >> np.uint64(40)) % np.uint64(buckets)).astype(np.uint16)


@dataclass(frozen=True, slots=True)
class Origins:
    """What a file says of all its rows, by the file's number: digests of its database and its node."""

    database: Long
    node: Long
    exchange: Long

    @classmethod
    def of(cls, files: Sequence[FileFacts]) -> Self:
        return cls(
            np.array([digest(one.database) for one in files], dtype=np.int64),
            np.array([digest(one.node) for one in files], dtype=np.int64),
            np.array([one.flavour == Flavour.EXCHANGE for one in files], dtype=np.int64),
        )


class Rows:
    """One row a message, with what is known of it."""

    columns: dict[str, Long]
    suspect: NDArray[np.bool_]

    @classmethod
    def read(cls, table: Any) -> Rows:
        """From messages.parquet: the inverse of ``table``."""
        rows = cls()
        rows.columns = {}
        for name in table.schema.names:
            if name not in ("id", "suspect"):
                none = NONE_LEAST if name in _LEAST else NONE_GREATEST
                values = table.column(name).combine_chunks()
                rows.columns[name] = (values.fill_null(none) if values.null_count else values).to_numpy()
        rows.suspect = table.column("suspect").to_numpy()
        return rows

    def __getitem__(self, name: str) -> Long:
        return self.columns[name]

    def has(self, name: str) -> NDArray[np.bool_]:
        """Where there is a least or greatest value of that name."""
        found: NDArray[np.bool_] = self[name] != (NONE_LEAST if name in _LEAST else NONE_GREATEST)
        return found

    def table(self) -> Any:
        """For messages.parquet."""
        found: dict[str, Any] = {}
        for name, values in self.columns.items():
            mask = ~self.has(name) if name in (*_LEAST, *_GREATEST) else None
            found[name] = pa.array(values, pa.int64(), mask=mask if mask is not None and mask.any() else None)
        found["suspect"] = pa.array(self.suspect)
        found["id"] = _names(self["high"], self["low"])
        return pa.table(found)


class Messages(Rows):
    """Partial states merged. ``states``: columns of ``fold.SCHEMA`` and ``file``, the number of the file.

    All states of a message have to be in it.
    """

    def __init__(self, states: Mapping[str, Long], origins: Origins) -> None:
        given = _columns(states, origins)
        high, low = given["high"], given["low"]
        database = origins.database[given["file"]]
        order = np.lexsort((database, low))
        same_low = low[order][1:] == low[order][:-1]
        if (same_low & (high[order][1:] != high[order][:-1])).any():
            order = np.lexsort((database, low, high))
        high, low, database = high[order], low[order], database[order]
        new = np.append(True, (high[1:] != high[:-1]) | (low[1:] != low[:-1]))
        numbers, places = np.empty((2, len(order)), dtype=np.int64)
        numbers[order] = np.cumsum(new) - 1
        places[order] = np.cumsum(new | np.append(True, database[1:] != database[:-1])) - 1
        self._begins = np.flatnonzero(new)
        self._order, self._numbers = order, numbers
        self._states = {name: given[name] for name in ("file", *_OF_FILES)}
        groups = Groups(numbers, len(self._begins))
        self.columns = {"high": high[self._begins], "low": low[self._begins]}
        self.columns |= {name: groups.total(given[name]) for name in SUMS}
        self.columns |= {name: groups.least(given[name]) for name in _LEAST}
        taken = np.flatnonzero(given["redirects"])
        given["redirect_db_last"] = given["redirect_db"]
        for name in _GREATEST:
            where = taken if name == "redirect_db_last" else None
            self.columns[name] = groups.greatest(given[name], where)
        least, greatest = (given[name] for name in _DIGESTS)
        altered = groups.least(least) < groups.greatest(greatest)
        self.suspect = ~self._proven() | altered
        self.suspect[numbers[_disordered(given, places)]] = True
        self.chosen = np.ones(groups.size, dtype=bool)

    def within(self, since: int | None, until: int | None) -> None:
        """Keep only messages of that time."""
        moment = np.zeros(len(self.suspect), dtype=np.int64)
        known = np.zeros(len(self.suspect), dtype=bool)
        for name in MOMENTS:
            new = self.has(name) & ~known
            moment[new] = self[name][new]
            known |= new
        chosen = known
        if since is not None:
            chosen = chosen & (moment >= since)
        if until is not None:
            chosen = chosen & (moment < until)
        self.keep(chosen)

    def keep(self, chosen: NDArray[np.bool_]) -> None:
        """Keep only these messages. Once: of all that there are."""
        self.columns = {name: values[chosen] for name, values in self.columns.items()}
        self.suspect, self.chosen = self.suspect[chosen], chosen

    def of(self, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which of the states that were given are of these messages; before any are let go."""
        return chosen[self._numbers]

    def _proven(self) -> NDArray[np.bool_]:
        """A message is not suspect when its state alone proves it.

        Accepted once, after a copy was made in the same database; as many copies taken as were said to be,
        with the same recipients; every recipient ended once, under its address, and in each database whatever
        came in went out again, and nothing happened before that or after; each report that a bounce names was
        made. (And size and digests on all its rows are the same.) Everything else is judged from its rows.
        """
        received, redirects = self["received"], self["redirects"]
        here = (self["redirect_db"] == self["origin_db"]) & (self["redirect_db_last"] == self["origin_db"])
        copied = (redirects >= 1) & (self["redirect_at"] < self["origin_at"]) & here
        weaker = (redirects == 0) & (self["exchange"] == 1)
        begun = ((received == 1) & (copied | weaker)) | (received == 0)
        settled = (self["ended"] == self["recipients"]) & (self["owed"] == 0)
        closed = (self["balance"] == 0) & (self["residue"] == 0)
        held = (redirects == self["holds"]) & (self["holders"] == 0)
        once = (self["origins"] == 1) & (self["odd"] == 0)
        same = (self["copied"] == 0) | ((redirects == 0) & (self["holds"] == 0))
        reported = self["reports"] == 0
        both = self.has("discard_at") & self.has("final_at")
        late = both & (self["discard_at"] - LATE_DISCARD > self["final_at"])
        found: NDArray[np.bool_] = once & begun & settled & closed & held & same & reported & ~late
        return found

    def told_by(self, states: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which messages these states that were given are of; before any are let go."""
        found: NDArray[np.bool_] = np.bincount(self._numbers[states], minlength=len(self.suspect)) > 0
        return found

    def suspects(self) -> Iterator[tuple[tuple[int, int], list[Part]]]:
        """Each suspect's id, and where its rows are."""
        ends = np.append(self._begins[1:], len(self._order))
        groups = np.flatnonzero(self.chosen)
        for place in np.flatnonzero(self.suspect):
            group = groups[place]
            rows = self._order[self._begins[group] : ends[group]]
            parts = zip(*(self._states[name][rows].tolist() for name in ("file", *_OF_FILES)), strict=True)
            yield (int(self["high"][place]), int(self["low"][place])), list(parts)


def _disordered(given: Mapping[str, Long], places: Long) -> NDArray[np.bool_]:
    """Which states are of a message that one database did not receive once, in its first row but for copies,
    and settle or let go in its last one? Who accepted it settles it, and nobody else. ``places``: a number
    for each message in each database.
    """
    groups = Groups(places, int(places.max()) + 1 if len(places) else 0)
    entered = groups.total(given["origins"] + given["holds"]) == 1
    ended = groups.total(given["ended"] - given["recipients"]) == 0
    first, last = groups.least(given["first"]) % 2 == 0, groups.greatest(given["last"]) % 2 == 1
    told = groups.total(given["rows"]) > 0  # else only rows of other messages
    numbered = groups.greatest(given["exchange"]) == 0
    found: NDArray[np.bool_] = (told & numbered & ~(entered & ended & first & last))[places]
    return found


def _columns(states: Mapping[str, Long], origins: Origins) -> dict[str, Long]:
    """The states' columns, with those that follow from the file a state is of."""
    given = dict(states)
    file, begun, taken = given["file"], given["origins"] > 0, given["redirects"] > 0
    given["origin_db"] = np.where(begun, origins.database[file], NONE_LEAST)
    given["origin_node"] = np.where(begun, origins.node[file], NONE_GREATEST)
    given["redirect_db"] = np.where(taken, origins.database[file], NONE_LEAST)
    given["exchange"] = origins.exchange[file]
    return given


def _names(high: Long, low: Long) -> Any:
    """The ids as UUIDs (``core.fingerprint.uuid_of``)."""
    size = len(high)
    digits = binascii.hexlify(np.stack([high, low], axis=1).astype(">i8").tobytes())
    text = np.full((size, 36), ord("-"), dtype=np.uint8)
    text[:, _PLACES] = np.frombuffer(digits, np.uint8).reshape(size, 32)
    offsets = np.arange(size + 1, dtype=np.int32) * 36
    return pa.StringArray.from_buffers(size, pa.py_buffer(offsets), pa.py_buffer(text.tobytes()))
