"""What a relay that breaks its promise would have logged: cells changed, and files sealed again."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from resealing import logs, resealed, rows
from tampering import COLUMNS, as_cell

SENT = frozenset({"DELIVER", "SEND", "SENDEXTERNAL"})


def id_of(cells: list[str]) -> str:
    return cells[COLUMNS.index("network-message-id")]


def event_of(cells: list[str]) -> str:
    return cells[COLUMNS.index("event-id")]


def taken(directory: Path) -> list[str]:
    """Messages that some node received and delivered in one go, in the order of their ids."""
    found: dict[str, list[str]] = {}
    for path in logs(directory):
        for row in rows(path):
            (cells,) = csv.reader([row.decode()])
            found.setdefault(id_of(cells), []).append(event_of(cells))
    return sorted(
        name
        for name, events in found.items()
        if "RECEIVE" in events and len(SENT.intersection(events)) == sum(one in SENT for one in events) == 1
        and {"DEFER", "FAIL"}.isdisjoint(events)
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Edit:
    """``column`` of a message's rows of these ``events`` gets what ``change`` makes of it."""

    events: frozenset[str]
    column: str
    change: Callable[[str], str]
    entry: str = ""  # of custom-data

    def apply(self, directory: Path, message: str) -> None:
        place, done = COLUMNS.index(self.column), 0
        for path in logs(directory):
            text = path.read_bytes()
            for row in rows(path):
                (cells,) = csv.reader([row.decode()])
                if id_of(cells) == message and event_of(cells) in self.events:
                    cells[place] = self._changed(cells[place])
                    text = text.replace(row, (",".join(map(as_cell, cells)) + "\r\n").encode(), 1)
                    done += 1
            path.write_bytes(text)
        assert done, f"no row {self.events} of {message}"
        resealed(directory)

    def _changed(self, text: str) -> str:
        if not self.entry:
            return self.change(text)
        entries = [one.partition("=") for one in text.split(";")]
        return ";".join(
            f"{name}={self.change(said) if name == self.entry else said}" for name, _, said in entries
        )


def _of(*events: str) -> frozenset[str]:
    return frozenset(events)


def _elsewhere(text: str) -> str:
    return ";".join(f"x{one}" for one in text.split(";"))


def _one_more(text: str) -> str:
    return f"{text};more@example.com"


OWNERS = SENT | {"RECEIVE", "HAREDIRECT"}
HOLDERS = _of("HARECEIVE", "HADISCARD")

EXAMPLES: dict[str, tuple[tuple[Edit, ...], dict[str, int]]] = {
    "it arrived empty": ((Edit(SENT, "total-bytes", lambda _: "0"),), {"altered": 1}),
    "half of it arrived": (
        (Edit(SENT, "total-bytes", lambda text: str(int(text) // 2)),),
        {"altered": 1},
    ),
    "it is in the mailbox of another": ((Edit(SENT, "recipient-address", _elsewhere),), {"misdelivered": 1}),
    "its address was changed in the owner's rows": (
        (Edit(OWNERS, "recipient-address", _elsewhere),),
        {"altered": 1},
    ),
    "its holder knows one recipient more": (
        (
            Edit(HOLDERS, "recipient-address", _one_more),
            Edit(HOLDERS, "recipient-count", lambda text: str(int(text) + 1)),
        ),
        {"altered": 1},
    ),
    "its holder has it in another size": (
        (Edit(_of("HARECEIVE"), "total-bytes", lambda text: str(int(text) + 1)),),
        {"altered": 1},
    ),
    "it was delivered with a 550": (
        (Edit(SENT, "source-context", lambda _: "550 5.1.1 no such user"),),
        {"rows-contradict": 1},
    ),
    "a recipient of it was refused": (
        (Edit(SENT, "recipient-status", lambda _: "250 2.1.5 Recipient OK;550 5.1.1 no such user"),),
        {"rows-contradict": 1},
    ),
    "its shadow server refused it": (
        (Edit(_of("HAREDIRECT"), "source-context", lambda text: text.replace("=250", "=451")),),
        {"rows-contradict": 1},
    ),
    "another server replied for its shadow server": (
        (Edit(_of("HAREDIRECT"), "source-context", lambda text: f"x{text}"),),
        {"rows-contradict": 1},
    ),
    "it was delivered in an epoch that nobody began": (
        (Edit(SENT, "custom-data", lambda _: "7", entry="S:Epoch"),),
        {"rows-contradict": 1},
    ),
    "the time of its delivery is none": (
        (Edit(SENT, "date-time", lambda _: "yesterday"),),
        {"fate-not-known": 1},
    ),
}
"""What is changed in a message's rows, and what has to be found: messages by class."""
