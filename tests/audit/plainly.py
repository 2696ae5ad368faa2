"""An audit without an engine: every message is judged by its rows. Slow, small, and easy to see through."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from shadowaudit.core.copies import distinct
from shadowaudit.core.evidence import Evidence
from shadowaudit.core.facts import FileFacts
from shadowaudit.core.findings import MEANING, Class, Severity
from shadowaudit.core.fingerprint import uuid_of
from shadowaudit.core.verdict import Verdict
from shadowaudit.core.weighing import weigh
from shadowaudit.engine.exact import looked_at, message_id
from shadowaudit.engine.messages import Messages, Origins
from shadowaudit.logs.extract import Key, Piece, Source
from shadowaudit.logs.file import digest_file
from shadowaudit.logs.fold import SCHEMA
from shadowaudit.logs.grown import without_beginnings
from shadowaudit.logs.manifest import open_logs

Digests = Sequence[tuple[FileFacts, Any]]
Found = Mapping[Key, tuple[str, set[Class]]]


def judged(
    directory: Path, *, lost: Sequence[str] = (), allow_open: bool = False, since: int | None = None
) -> tuple[Verdict, dict[str, set[Class]]]:
    """The verdict, and the classes found for each message that has any."""
    digests = [digest_file(path) for path in sorted(directory.rglob("MSGTRK*.LOG"))]
    facts, notes = distinct([one for one, _ in digests])
    facts, beginnings = without_beginnings(facts)
    notes = (*notes, *beginnings)
    opened = open_logs([directory])
    evidence = weigh(facts, lost=lost, allow_open=allow_open, opened=opened, since=since, notes=notes)
    found = by_rows([(one, table) for one, table in digests if one in facts], evidence)
    return (
        verdict_of(found, evidence, len(facts), allow_open=allow_open),
        {name: classes for name, classes in found.values() if classes},
    )


def by_rows(digests: Digests, evidence: Evidence) -> Found:
    """What the rows of each message show."""
    pieces: dict[Key, list[Piece]] = {}
    for one, table in digests:
        if not one.messages:
            continue
        source = Source.of(one)
        for row in table.to_pylist():
            piece = Piece(source, row["file_from"], row["file_to"])
            pieces.setdefault((row["high"], row["low"]), []).append(piece)
    found = {}
    for key, parts in pieces.items():
        events, judgement = looked_at(key, parts, evidence)
        found[key] = message_id(events) or uuid_of(*key), {one.what for one in judgement.findings}
    return found


def suspects(digests: Digests) -> set[Key]:
    """Those that the sums do not clear."""
    if not any(len(table) for _, table in digests):
        return set()
    sizes = [len(table) for _, table in digests]
    states = pa.concat_tables([table for _, table in digests])
    numbers = np.repeat(np.arange(len(sizes)), sizes)
    columns = {name: states[name].to_numpy().astype("int64") for name in SCHEMA.names} | {"file": numbers}
    return {key for key, _ in Messages(columns, Origins.of([one for one, _ in digests])).suspects()}


def verdict_of(found: Found, evidence: Evidence, files: int, *, allow_open: bool = False) -> Verdict:
    classes = Counter(str(one) for _, names in found.values() for one in names)
    totals = {"messages": len(found)}
    return Verdict(
        totals=totals, classes=classes, evidence=evidence, files=files, nodes=0, allow_open=allow_open
    )


def by_sums(digests: Digests) -> tuple[Verdict, set[str]]:
    """The verdict as ``verify`` gives it: by the rows of what the sums do not clear. And the messages that
    they clear although their rows show that they are not safe: none, if all is well.
    """
    evidence = weigh([one for one, _ in digests])
    found, open_ = by_rows(digests, evidence), suspects(digests)
    unsafe = {key for key, (_, names) in found.items() if any(map(_unsafe, names))}
    cleared = {found[key][0] for key in unsafe - open_}
    return verdict_of({key: found[key] for key in found.keys() & open_}, evidence, len(digests)), cleared


def _unsafe(what: Class) -> bool:
    return MEANING[what][0] is not Severity.NOTE
