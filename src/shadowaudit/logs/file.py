"""One file, read once: its facts, and its partial states. Whatever it holds is reported, never raised."""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from shadowaudit.core.events import Kind
from shadowaudit.core.facts import Fault, FileFacts, Flavour, Snapshot
from shadowaudit.logs import exchange, steps
from shadowaudit.logs.fold import fold, joined
from shadowaudit.logs.grid import split
from shadowaudit.logs.kinds import KINDS
from shadowaudit.logs.layout import NAME, encoding_of
from shadowaudit.logs.lines import Begun, Block, Readable, Reading, Room
from shadowaudit.logs.rows import read
from shadowaudit.logs.steps import Learnt, RelaySteps, Steps

_SHOWN = 120  # characters of an unreadable row that are shown


def digest_file(path: Path, room: Room | None = None) -> tuple[FileFacts, Any]:
    """Facts and partial states (an Arrow table of ``fold.SCHEMA``). ``room`` serves for other files, too."""
    size = modified = 0
    problem: OSError | None = None
    try:
        status = path.stat()
        size, modified = status.st_size, status.st_mtime_ns
        if not stat.S_ISREG(status.st_mode):  # to open one may wait for ever
            problem = OSError(errno.EINVAL, f"it is {_kind(status.st_mode)}, and no file")
    except OSError as error:
        problem = error

    def opened() -> Any:
        if problem is not None:
            raise problem
        return path.open("rb", buffering=0)

    return digest(str(path), opened, size=size, modified=modified, room=room)


def digest(
    name: str,
    opened: Callable[[], AbstractContextManager[Readable]],
    *,
    size: int,
    modified: int,
    room: Room | None = None,
) -> tuple[FileFacts, Any]:
    """The same of a log that lies anywhere. ``name``: its path or URI. ``opened`` may raise OSError.

    ``size`` (octets) and ``modified`` (nanoseconds) are facts, too.
    """
    return _Digest(name, room).result(opened, size, modified)


def _kind(mode: int) -> str:
    kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a directory"}
    return kinds.get(stat.S_IFMT(mode), "a device")


class _Digest:
    def __init__(self, name: str, room: Room | None) -> None:
        self.name, self.path = name, Path(name)
        self.reading = Reading(self.path, room)
        self.sha256 = ""
        self.learnt = Learnt()
        self.tables: list[Any] = []
        self.ours: RelaySteps | None = None
        self.others: exchange.ExchangeSteps | None = None
        self.first = self.last = self.rows = self.unreadable = 0
        self.begins = self.ends = 0
        self.example = ""
        self.first_is_snapshot = self.last_closes = False
        if found := NAME.fullmatch(self.path.name):
            self.learnt.node = found["node"]

    def result(
        self, opened: Callable[[], AbstractContextManager[Readable]], size: int, modified: int
    ) -> tuple[FileFacts, Any]:
        try:
            with opened() as file:
                begun = Begun(file)
                if name := encoding_of(begun.head):
                    self.learnt.faults[Fault.ENCODING] = None
                    self.example = f"{name}: convert it, and ask again"
                else:
                    for block in self.reading.blocks_of(begun):
                        self._block(block)
                    self.sha256 = self.reading.sha256()
        except OSError as problem:
            self.learnt.faults[Fault.UNREADABLE_FILE] = None
            self.example = problem.strerror or str(problem)
        self._compare()
        return self._facts(size, modified), joined(self.tables)

    def _block(self, block: Block) -> None:
        layout = self.reading.layout
        if not layout.usable:
            self.learnt.faults[Fault.NO_FIELDS] = None
            self._cannot_read(block, range(block.rows))
            return
        found = self._ours(block) if layout.flavour is Flavour.RELAY else self._exchange(block)
        if found is not None:
            self._note(found, relay=layout.flavour is Flavour.RELAY)
            self.tables.append(fold(found, block))

    def _ours(self, block: Block) -> Steps | None:
        grid = split(block, self.reading.layout.fields, steps.COLUMNS)
        self._cannot_read(block, grid.unreadable)
        if not len(grid):
            return None
        self.ours = self.ours or RelaySteps(self.learnt)
        self.ours.refused = self.ours.refused[:0]
        found = self.ours.of(grid)
        self._cannot_read(block, self.ours.refused)
        return found

    def _exchange(self, block: Block) -> Steps | None:
        table = read(block, self.reading.layout.fields, exchange.COLUMNS, strict=False)
        if exchange.is_ours(table):
            self.learnt.faults[Fault.WRONG_HEADER] = None
            if self.others is None:  # then it is read as what it is
                self.reading.layout.flavour = Flavour.RELAY
                return self._ours(block)
        if len(table) and not (good := exchange.sound(table)).all():
            table = table.only(good)
        self._cannot_read(block, table.unreadable)
        if not len(table):
            return None
        if self.others is None:
            server = exchange.first_server(table) or self.path.parent.name
            self.learnt.node = self.learnt.node or server
            self.learnt.database = f"exchange:{server}"
            self.others = exchange.ExchangeSteps(self.learnt)
        return self.others.of(table)

    def _cannot_read(self, block: Block, rows: Any) -> None:
        if len(rows):
            self.unreadable += len(rows)
            self.example = self.example or block.row(rows[0])[:_SHOWN].decode("utf-8", "replace").strip()

    def _note(self, found: Steps, *, relay: bool) -> None:
        if relay:
            rises = np.diff(found.sequence, prepend=self.last) if self.rows else np.diff(found.sequence)
            if (rises <= 0).any():
                self.learnt.faults[Fault.NOT_RISING] = None
            if (rises > 1).any():
                self.learnt.faults[Fault.GAP] = None
        load = KINDS[Kind.LOAD]
        if not self.rows:
            self.first, self.begins = int(found.sequence[0]), int(found.at[0])
            self.first_is_snapshot = bool(found.kind[0] == load)
        self.last, self.ends = int(found.sequence[-1]), int(found.at[-1])
        last = found.message[-1]
        closes = bool(found.kind[-1] == load and not (found.high[last] or found.low[last]))
        self.last_closes = closes and self.learnt.goes_on != self.last
        self.rows += len(found.row)

    def _compare(self) -> None:
        layout, faults = self.reading.layout, self.learnt.faults
        if self.unreadable:
            faults[Fault.UNREADABLE_ROWS] = None
        if not self.rows and not faults and not layout.usable:
            faults[Fault.NO_FIELDS] = None
        if faults.keys() & {Fault.UNREADABLE_FILE, Fault.ENCODING, Fault.NO_FIELDS}:
            return  # nothing is said of what nobody could read
        rows = self.rows + self.unreadable
        faults |= dict.fromkeys(layout.closing_faults(self.path.name, self.sha256, rows))
        footer = layout.footer
        if layout.flavour is not Flavour.RELAY or footer is None:
            return
        found = NAME.fullmatch(self.path.name)
        named = found is None or (int(found["first"]) == self.first and found["boot"] == self.learnt.boot)
        if (footer.first, footer.last) != (self.first, self.last) or not named:
            faults[Fault.WRONG_RANGE] = None

    def _facts(self, size: int, modified: int) -> FileFacts:
        learnt = self.learnt
        snapshots = tuple(
            Snapshot(
                id=name,
                listed=listed,
                count=learnt.closings[name][0] if name in learnt.closings else None,
                end=learnt.closings[name][1] if name in learnt.closings else None,
                among=learnt.closings[name][2] if name in learnt.closings else None,
            )
            for name, listed in learnt.listed.items()
        )
        return FileFacts(
            path=self.name,
            size=size,
            modified=modified,
            flavour=self.reading.layout.flavour,
            node=learnt.node,
            database=learnt.database,
            boot=learnt.boot,
            first=self.first,
            last=self.last,
            rows=self.rows,
            messages=sum(len(table) for table in self.tables),
            unreadable=self.unreadable,
            example=self.example,
            begins=self.begins,
            ends=self.ends,
            sha256=self.sha256,
            faults=tuple(learnt.faults),
            first_is_snapshot=self.first_is_snapshot,
            last_closes_snapshot=self.last_closes,
            snapshots=snapshots,
            shadows=tuple(learnt.shadows),
            databases=learnt.databases,
            promoted=dict(learnt.promoted),
            set_back=learnt.set_back,
            witnessed=learnt.witnessed,
            undigested=learnt.undigested,
            headers=tuple(self.reading.headers),
            names=learnt.names,
        )
