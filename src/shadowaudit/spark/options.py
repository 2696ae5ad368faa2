"""What a user may say of a read, by Spark's names. docs/reference/events.md tells of each."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from difflib import get_close_matches

from shadowaudit.spark import places, planning
from shadowaudit.spark.columns import NAMED, RECORD
from shadowaudit.spark.event_rows import Mode
from shadowaudit.spark.places import Choice, Log

NAMES = (
    "path", "paths", "columns", "mode", "columnNameOfCorruptRecord", "mergeSchema", "pathGlobFilter",
    "recursiveFileLookup", "modifiedAfter", "modifiedBefore", "maxPartitionBytes", "maxFilesPerTrigger",
)  # fmt: skip
"""``paths`` is how Spark hands on a list of them."""

EVERYTHING = "*"
"""Among ``columns``: those that there are unless some are named."""


class OptionError(ValueError):
    """An option that there is not, or a value that it cannot have."""


@dataclass(frozen=True, slots=True)
class Options:
    """``record``: what the column ``_corrupt_record`` is called."""

    places: tuple[str, ...]
    choice: Choice
    columns: tuple[str, ...]
    record: str
    merges: bool
    mode: Mode
    part: int
    files_per_trigger: int | None

    @classmethod
    def of(cls, options: Mapping[str, str], own: Collection[str] = ()) -> Options:
        """``own``: others that are known. Raises OptionError."""
        given = _Given(options)
        given.check({*NAMES, *own})
        told = [given["path"]] if given["path"] else []
        told += json.loads(given["paths"] or "[]")
        mode = (given["mode"] or Mode.PERMISSIVE).upper()
        if mode not in list(Mode):
            raise OptionError(f"mode is one of {', '.join(Mode)}, not {mode}")
        record = given["columnNameOfCorruptRecord"] or RECORD
        if record in NAMED and record != RECORD:
            raise OptionError(f"columnNameOfCorruptRecord: there is a column {record} already")
        return cls(
            tuple(map(places.absolute, told)),
            Choice(
                given.pattern("pathGlobFilter"),
                given.moment("modifiedAfter"),
                given.moment("modifiedBefore"),
                deep=given.is_true("recursiveFileLookup", unless_told=True),
            ),
            tuple(name.strip() for name in (given["columns"] or "").split(",") if name.strip()),
            record,
            given.is_true("mergeSchema", unless_told=False),
            Mode(mode),
            given.count("maxPartitionBytes") or planning.PART,
            given.count("maxFilesPerTrigger"),
        )

    def where(self) -> tuple[str, ...]:
        """Raises OptionError if nobody said where the logs are."""
        if not self.places:
            raise OptionError(
                "say where the logs are: load(PATH), load([PATH, …]), OPTIONS (path 'PATH'), or, of a table "
                "whose columns were named, WITH (path = 'PATH')"
            )
        return self.places

    def logs(self, *, whole: bool = False) -> list[Log]:
        """Which logs there are now. Raises OptionError, and what ``places.find`` raises."""
        return places.find(self.where(), replace(self.choice, whole=whole))


class _Given:
    """Options by name, in any case."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._texts = {name.lower(): text for name, text in options.items()}

    def __getitem__(self, name: str) -> str | None:
        return self._texts.get(name.lower())

    def check(self, known: Collection[str]) -> None:
        """Raises OptionError for one that is not known, with those that it may have been meant for."""
        named = {name.lower(): name for name in known}
        for name in self._texts.keys() - named.keys():
            near = [named[one] for one in get_close_matches(name, named, n=3)]
            told = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(NAMES)}"
            raise OptionError(f"no option {name!r}: {told}")

    def count(self, name: str) -> int | None:
        text = self[name]
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and int(text)):
            raise OptionError(f"{name} is a whole number from 1 on, not {text!r}")
        return int(text)

    def is_true(self, name: str, *, unless_told: bool) -> bool:
        text = self[name]
        if text is None:
            return unless_told
        if text.lower() not in ("true", "false"):
            raise OptionError(f"{name} is true or false, not {text!r}")
        return text.lower() == "true"

    def pattern(self, name: str) -> str | None:
        text = self[name]
        try:
            places.compiled(text or "")
        except ValueError as problem:
            raise OptionError(f"{name} {text!r}: {problem}") from None
        return text

    def moment(self, name: str) -> int | None:
        """Nanoseconds since 1970."""
        text = self[name]
        if text is None:
            return None
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise OptionError(f"{name} is a time such as 2026-11-21T10:00:00 (UTC), not {text!r}") from None
        return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1_000_000) * 1000
