"""An audit without an engine: every message is judged by its rows. Slow, small, and easy to see through."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from shadowaudit.core.copies import distinct
from shadowaudit.core.findings import Class
from shadowaudit.core.fingerprint import uuid_of
from shadowaudit.core.verdict import Verdict
from shadowaudit.core.weighing import weigh
from shadowaudit.engine.exact import looked_at, message_id
from shadowaudit.logs.extract import Key, Piece, Source
from shadowaudit.logs.file import digest_file
from shadowaudit.logs.grown import without_beginnings
from shadowaudit.logs.manifest import open_logs


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
    pieces: dict[Key, list[Piece]] = {}
    for one, table in digests:
        if not one.messages or one not in facts:
            continue
        source = Source.of(one)
        for row in table.to_pylist():
            piece = Piece(source, row["file_from"], row["file_to"])
            pieces.setdefault((row["high"], row["low"]), []).append(piece)
    found: dict[str, set[Class]] = {}
    for key, parts in pieces.items():
        events, judgement = looked_at(key, parts, evidence)
        for finding in judgement.findings:
            found.setdefault(message_id(events) or uuid_of(*key), set()).add(finding.what)
    classes = Counter(str(one) for names in found.values() for one in names)
    totals = {"messages": len(pieces)}
    verdict = Verdict(
        totals=totals, classes=classes, evidence=evidence, files=len(facts), nodes=0, allow_open=allow_open
    )
    return verdict, found
