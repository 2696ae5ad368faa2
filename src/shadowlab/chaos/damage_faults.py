"""Makes faults that damage stored data silently: it is no longer what was written.

They damage only copies of which another node has one, and the run goes on once those messages have arrived:
the promise does not cover a message whose copies are all damaged.
"""

from __future__ import annotations

import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from shadowlab.chaos.faults import Alone, Down, Hands
from shadowlab.chaos.history import Loses
from shadowlab.chaos.spoiling import exchange, in_pairs, spoil, victims
from shadowlab.probing import listed
from shadowrelay.core.identifiers import MessageId
from shadowrelay.database import offline
from shadowrelay.database.opening import CONTENT, FILE
from shadowrelay.database.queue import DUE

EXCHANGE = "exchange"
"""A way besides those of ``spoiling``: it exchanges two contents."""

_FEW, _MOST = 2, 6  # copies to wait for, and most copies to damage
_PATIENCE = 10.0  # seconds to wait for them: mail keeps coming, and none leaves
_LOOK = 0.2


@dataclass(frozen=True, slots=True)
class ContentSpoilt(Alone):
    """Change content files of a running node. ``way``: one of ``spoiling.WAYS``, or EXCHANGE."""

    others: tuple[str, ...]
    way: str
    draw: int

    @property
    def touched(self) -> tuple[str, ...]:
        return ()  # it still records and reports what it does

    @property
    def silences(self) -> bool:
        return False

    def do(self, hands: Hands) -> None:
        chance = _chance(self.draw)
        files: dict[str, Path] = {}

        def here() -> Collection[str]:
            files.update(_files(hands, self.node, _in_transit(hands, self.node)))
            return files

        chosen = _chosen(hands, here, lambda: _elsewhere(hands, self.others), chance)
        _spoil([files[one] for one in chosen], self.way, chance)

    def undo(self, hands: Hands) -> None:
        """Do nothing: the damage stays."""


@dataclass(frozen=True, slots=True)
class HoldersSpoilt(Down):
    """Change the copies that others hold of its mail; then kill the node, which comes back."""

    others: tuple[str, ...]
    way: str
    draw: int

    def do(self, hands: Hands) -> None:
        chance = _chance(self.draw)
        files: dict[str, Path] = {}

        def there() -> Collection[str]:
            for other in self.others:
                files.update(_files(hands, other, listed(hands.cluster.node(other), "shadow")))
            return files

        chosen = _chosen(hands, there, lambda: listed(hands.cluster.node(self.node), "queued"), chance)
        _spoil([files[one] for one in chosen], self.way, chance)
        hands.cluster.kill(self.node)


@dataclass(frozen=True, slots=True)
class _DatabaseSpoilt(Down, ABC):
    """SIGKILL; the node comes back with a changed database."""

    others: tuple[str, ...]
    draw: int

    def do(self, hands: Hands) -> None:
        chance = _chance(self.draw)
        self.before(hands)
        chosen = _chosen(
            hands, lambda: _in_transit(hands, self.node), lambda: _elsewhere(hands, self.others), chance
        )
        hands.cluster.kill(self.node)
        self.spoil(hands.cluster.node(self.node).data_dir, chosen, chance)
        hands.equipment.sync()

    def before(self, hands: Hands) -> None:
        """Prepare while the node runs."""

    @abstractmethod
    def spoil(self, data: Path, chosen: Collection[MessageId], chance: Random) -> None:
        """Change the rows of these messages."""


@dataclass(frozen=True, slots=True)
class RowsFlipped(_DatabaseSpoilt):
    """Flip a bit in one row of each message: its own, a recipient's or a holder's; and in each row that says
    what became of it.
    """

    def spoil(self, data: Path, chosen: Collection[MessageId], chance: Random) -> None:
        for one in chosen:
            offline.flip_row(data, one, chance)
            offline.flip_told(data, one, chance)


@dataclass(frozen=True, slots=True)
class BodiesFlipped(_DatabaseSpoilt):
    """Flip a bit of each content in the database."""

    def spoil(self, data: Path, chosen: Collection[MessageId], chance: Random) -> None:
        for one in chosen:
            offline.flip_body(data, one, chance)


@dataclass(frozen=True, slots=True)
class RowsOfBefore(_DatabaseSpoilt):
    """Put back some rows of each message as they were ``age`` seconds before; remove them if there were none.

    Nothing else changes: to all members it looks like a database that was never put back.
    """

    age: float

    @property
    def loses(self) -> Loses:
        return Loses.DISK  # it loses some of its records

    def before(self, hands: Hands) -> None:
        data = hands.cluster.node(self.node).data_dir
        hands.cluster.freeze(self.node)
        try:
            _former(data).mkdir()
            for file in data.glob(f"{FILE}*"):
                shutil.copy(file, _former(data))
        finally:
            hands.cluster.thaw(self.node)
        hands.pause(self.age)

    def spoil(self, data: Path, chosen: Collection[MessageId], chance: Random) -> None:
        for one, rows in offline.rows_of(_former(data), chosen).items():
            whole = not rows["message"]  # else a page of one table
            tables = offline.TABLES if whole else (chance.choice(offline.ROWS),)
            offline.put_back(data, one, tables, rows)
        shutil.rmtree(_former(data))


@dataclass(frozen=True, slots=True)
class IndexesSpoilt(Down):
    """Stop the node gracefully, so that its start checks nothing; damage pages of the index of due mail and
    of two others. No copy is damaged: the rows are as they were.
    """

    draw: int

    def do(self, hands: Hands) -> None:
        chance = _chance(self.draw)
        hands.cluster.stop(self.node)
        data = hands.cluster.node(self.node).data_dir
        others = [one for one in offline.indexes(data) if one != DUE and not one.startswith("sqlite_")]
        for one in (DUE, *chance.sample(others, 2)):
            offline.spoil_index(data, one, chance.choice(tuple(offline.IndexWay)), chance)
        hands.equipment.sync()


def _former(data: Path) -> Path:
    return data.with_name("former")


def _chance(draw: int) -> Random:
    return Random(draw)  # noqa: S311 - repeatable, not secret


def _in_transit(hands: Hands, node: str) -> set[str]:
    """Messages that the node has in its queue or holds copies of."""
    return {one for state in ("queued", "shadow") for one in listed(hands.cluster.node(node), state)}


def _elsewhere(hands: Hands, nodes: Collection[str]) -> set[str]:
    return set().union(*(_in_transit(hands, node) for node in nodes))


def _files(hands: Hands, node: str, ids: Collection[str]) -> Mapping[str, Path]:
    """The files with contents of these messages."""
    directory = hands.cluster.node(node).data_dir / CONTENT
    found = {one: next(directory.glob(f"{one}*"), None) for one in ids}
    return {one: file for one, file in found.items() if file}


def _chosen(
    hands: Hands,
    here: Callable[[], Collection[str]],
    elsewhere: Callable[[], Collection[str]],
    chance: Random,
) -> tuple[MessageId, ...]:
    """Choose the messages whose copies to damage, and note them."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        chosen = victims(here(), elsewhere(), _MOST, chance)
        if len(chosen) >= _FEW or time.monotonic() >= deadline:
            hands.spoilt.update(chosen)
            return tuple(map(MessageId, chosen))
        hands.pause(_LOOK)


def _spoil(files: Collection[Path], way: str, chance: Random) -> None:
    if way == EXCHANGE:
        for one, other in in_pairs(files):
            exchange(one, other)
    else:
        for file in files:
            spoil(file, way, chance)
