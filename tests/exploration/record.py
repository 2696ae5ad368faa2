"""What was explored, on disk: hours of it may be interrupted, and gone on with."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict, fields, replace
from hashlib import blake2b
from itertools import product
from pathlib import Path

from .search import Found
from .setup import Setup

EXPLORED = tuple(f"shadowrelay.{layer}." for layer in ("core", "wire", "primary", "shadow"))
"""What decides about what is found. No other layer of the relay runs in an exploration."""


COUNTED = ("duplicates", "begun")
FORM = {field.name for field in fields(Found)}


class Record:
    """A file with a line for each exploration that ended. A line written for other code, or in another form,
    does not count.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._code = _code() if path else ""
        self._known: dict[str, Found] = {}
        if path and path.exists():
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                if entry.pop("code") == self._code and entry.keys() == FORM:
                    setup = entry.pop("setup")
                    counted = {name: Counter[str](entry.pop(name)) for name in COUNTED}
                    faults = tuple(tuple(one) for one in setup.pop("faults"))
                    setup = Setup(**{**setup, "faults": faults, "line": tuple(setup["line"])})
                    self._known[_key(setup)] = Found(setup, **counted, **entry)

    def of(self, setup: Setup) -> list[Found]:
        """What there is of it: that exploration, or others that went through all of its pairs of faults."""
        if known := self._known.get(_key(setup)):
            return [known]
        if len(setup.faults) < 2:
            return []
        pairs = _pairs(setup)
        others = [
            found
            for found in self._known.values()
            if found.setup == replace(setup, faults=found.setup.faults, causes=found.setup.causes)
            and not pairs.isdisjoint(_pairs(found.setup))
        ]
        return others if pairs <= {pair for found in others for pair in _pairs(found.setup)} else []

    def add(self, found: Found) -> None:
        """Only what is complete: the rest is to be gone through again, and further."""
        if self._path and (found.complete or found.problem):
            entry = asdict(replace(found, duplicates=Counter(), begun=Counter()))
            entry |= {name: dict(getattr(found, name)) for name in COUNTED}
            with self._path.open("a") as file:
                file.write(json.dumps({"code": self._code, **entry}) + "\n")


def _pairs(setup: Setup) -> set[tuple[str, ...]]:
    return set(product(*setup.faults))


def _key(setup: Setup) -> str:
    return json.dumps(asdict(setup), sort_keys=True)


def _code() -> str:
    """The relay's modules that run here."""
    digest = blake2b(digest_size=8)
    for name, module in sorted(sys.modules.items()):
        if name.startswith(EXPLORED) and module.__file__:
            digest.update(Path(module.__file__).read_bytes())
    return digest.hexdigest()
