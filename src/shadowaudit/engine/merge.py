"""A bucket of messages: their partial states merged to one row each, counted, and its suspects found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shadowaudit.core.facts import FileFacts
from shadowaudit.engine.blocks import States
from shadowaudit.engine.messages import Messages, Origins, Part
from shadowaudit.engine.port import Asked
from shadowaudit.engine.totals import tally
from shadowaudit.logs.extract import Key

OCTETS = 128 << 20
"""Octets of logs whose messages make a bucket: as a rule 130,000 states."""

MOST_BUCKETS = 1 << 16

Suspect = tuple[Key, list[Part]]
"""A message's id; and where its rows are: number of a file, from, to."""


@dataclass(frozen=True, slots=True)
class Merged:
    """``messages``: the rows of messages.parquet, as an Arrow table. ``tally``: plain, for JSON.

    ``suspects`` can be gone through once.
    """

    messages: Any
    tally: dict[str, Any]
    suspects: Iterator[Suspect]


def buckets_for(octets: int) -> int:
    """How many buckets so many octets of logs make."""
    return min(MOST_BUCKETS, octets // OCTETS + 1)


def merge(asked: Asked, states: States, logs: Sequence[str]) -> Merged | None:
    """Merge all states of a bucket's messages. None: there are no messages of that time in it.

    ``logs``: names of the logs by the numbers that these states have. Those of a log that is not among
    ``asked.files`` do not count.
    """
    states = renumbered(states, logs, asked.files)
    if not len(states["file"]):
        return None
    messages = Messages(states, Origins.of(asked.files))
    if asked.since is not None or asked.until is not None:
        messages.within(asked.since, asked.until)
    if not len(messages.suspect):
        return None
    return Merged(messages.table(), tally(messages, asked.width), messages.suspects())


def renumbered(states: States, logs: Sequence[str], files: Sequence[FileFacts]) -> States:
    """The states of those logs that are among ``files``, by their numbers there."""
    numbers = {one.path: number for number, one in enumerate(files)}
    new = np.array([numbers.get(name, -1) for name in logs], dtype=np.int64)[states["file"]]
    keep = new >= 0
    found = {**states, "file": new}
    return found if keep.all() else {name: values[keep] for name, values in found.items()}


def plain(files: Sequence[FileFacts]) -> tuple[FileFacts, ...]:
    """With no more than their rows' readers need."""
    return tuple(
        FileFacts(
            path=one.path,
            node=one.node,
            database=one.database,
            boot=one.boot,
            flavour=one.flavour,
            messages=one.messages,
            headers=one.headers,
        )
        for one in files
    )
