"""The exact pass: the rows of suspect messages are read again whole, and judged one message at a time."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from shadowaudit.core.events import ABOUT, SETTLED_ELSEWHERE, Event, Kind
from shadowaudit.core.evidence import Evidence
from shadowaudit.core.exchange import judge_exchange
from shadowaudit.core.facts import Flavour
from shadowaudit.core.findings import Class, Finding
from shadowaudit.core.fingerprint import key_of, uuid_of
from shadowaudit.core.judge import Judgement, judge
from shadowaudit.core.reported import absent
from shadowaudit.engine.merge import Suspect
from shadowaudit.engine.messages import Part
from shadowaudit.engine.port import Asked
from shadowaudit.logs.extract import Key, Octets, Piece, Source, in_file, rows_of
from shadowaudit.logs.unclosed import Unclosed

SCHEMA = (
    "high long, low long, id string, class string, severity string, detail string, recipients string, "
    "addresses string, node string, subject string, exposed long, evidence string"
)
"""One row a finding. ``evidence``: the rows that prove it, one a line. A message cleared has none."""

HEAVIER = 30
"""How many partial states are merged while one suspect's is looked at again, in its rows."""

_AROUND = 8 << 20
"""Octets before and behind a message's rows: some 20,000 rows of others."""

_SHOWN_ROWS, _SHOWN_ADDRESSES, _SHOWN_TEXT = 20, 20, 4000


def arrow_schema() -> Any:
    """``SCHEMA`` in Arrow's terms."""
    import pyarrow as pa

    types = {"long": pa.int64(), "string": pa.string()}
    return pa.schema([(name, types[kind]) for name, kind in (part.split() for part in SCHEMA.split(", "))])


def judged(suspects: Iterable[Suspect], asked: Asked, octets: Octets = in_file) -> Iterator[dict[str, Any]]:
    """The findings about these messages, as rows of ``SCHEMA``. ``octets`` reads a part of a file."""
    sources: dict[int, Source] = {}
    unclosed = _of_this(asked)
    for key, parts in suspects:
        yield from _findings(key, parts, asked, sources, octets, unclosed)


_UNDER_WAY: list[tuple[Asked, Unclosed]] = []


def _of_this(asked: Asked) -> Unclosed:
    """One for all messages that a process judges of an audit: each open log is read once in it."""
    if not _UNDER_WAY or _UNDER_WAY[0][0] is not asked:
        _UNDER_WAY[:] = [(asked, Unclosed())]
    return _UNDER_WAY[0][1]


def _findings(
    key: Key,
    parts: Sequence[Part],
    asked: Asked,
    sources: dict[int, Source],
    octets: Octets,
    unclosed: Unclosed,
) -> list[dict[str, Any]]:
    files = asked.files
    try:
        for number in sorted({part[0] for part in parts} - sources.keys(), key=lambda one: files[one].path):
            sources[number] = Source.of(files[number], octets)
        pieces = [Piece(sources[number], begin, end) for number, begin, end in parts]
        events, found = looked_at(key, pieces, asked.evidence, octets, unclosed)
    except OSError as problem:
        detail = f"its rows cannot be read again: {problem.filename}: {problem.strerror}"
        return [_row(key, uuid_of(*key), Finding(Class.UNPROVEN_LOSS, detail), [], None)]
    name = message_id(events) or uuid_of(*key)
    return [_row(key, name, one, events, found.exposed) for one in found.findings]


def looked_at(
    key: Key,
    pieces: Iterable[Piece],
    evidence: Evidence,
    octets: Octets = in_file,
    unclosed: Unclosed | None = None,
) -> tuple[Sequence[Event], Judgement]:
    """A message's rows, with those of reports on it, and what they show.

    ``pieces``: where its partial states say that the rows are. Raises OSError when a file cannot be read.
    """
    # In an order that does not depend on when a file came, nor on how the work was spread.
    ordered = sorted(pieces, key=lambda piece: (piece.source.path, piece.begin, piece.end))
    events = rows_of(key, ordered, octets)
    if not events:
        what = "its rows cannot be found again: its id is none that a node gives"
        return [], Judgement((Finding(Class.UNPROVEN_LOSS, what),))
    heard, evidence = (unclosed or Unclosed()).heard(key, events, evidence)
    heard = [*heard, *_known(heard, ordered, evidence, octets)]
    return heard, judge_any(heard, evidence)


def _known(
    events: Sequence[Event], pieces: Sequence[Piece], evidence: Evidence, octets: Octets
) -> Iterator[Event]:
    """Of each report, or message to members, that no row makes, a row on the node which should have made it:
    where rows may be missing, and around the message's own ones in the same file.
    """
    if evidence.ends:
        return
    wanted: dict[str, list[str]] = defaultdict(list)
    for event, message in absent(events):
        wanted[event.database].append(message)
    for piece in pieces:
        source, messages = piece.source, wanted[piece.source.database]
        if not messages or source.flavour != Flavour.RELAY:
            continue
        around = Piece(source, max(0, piece.begin - _AROUND), piece.end + _AROUND)
        data = octets(source.path, around.begin, around.end)
        for message in messages:
            rows = rows_of(key_of(message), [around], lambda *_, data=data: data)
            own = [row for row in rows if row.message == message and row.kind not in ABOUT]
            if own and not _let_go(last := max(own, key=lambda row: row.sequence)):
                yield replace(last, kind=Kind.KNOWN)


def _let_go(event: Event) -> bool:
    """Did the node drop its copy, and nobody had settled it?"""
    return event.kind is Kind.HADISCARD and event.reason.partition(";")[0] not in SETTLED_ELSEWHERE


def judge_any(events: Sequence[Event], evidence: Evidence) -> Judgement:
    """Judge a message by whose log it is in."""
    if any(event.database.startswith("exchange:") for event in events):
        servers = frozenset(
            one.node.lower() for one in evidence.databases.values() if one.flavour == Flavour.EXCHANGE
        )
        return judge_exchange(events, servers | {server.partition(".")[0] for server in servers})
    return judge(events, evidence)


def message_id(events: Sequence[Event]) -> str:
    """The id that its rows give the message."""
    return next((one.message for one in events if one.message and one.kind not in ABOUT), "")


def _row(
    key: Key, name: str, finding: Finding, events: Sequence[Event], exposed: int | None
) -> dict[str, Any]:
    proof = [events[index] for index in finding.rows if index < len(events)]
    concerned: dict[str, None] = {}
    for event in proof:
        for number, address in zip(event.recipients, event.addresses, strict=False):
            if not finding.recipients or number in finding.recipients:
                concerned[address] = None
    numbers = [str(number) for number in finding.recipients[:_SHOWN_ADDRESSES] if number < 1 << 21]
    return {
        "high": key[0],
        "low": key[1],
        "id": name,
        "class": finding.what.value,
        "severity": finding.severity.value,
        "detail": finding.detail,
        "recipients": "+".join(numbers),
        "addresses": json.dumps(list(concerned)[:_SHOWN_ADDRESSES], ensure_ascii=False),
        "node": proof[0].node if proof else "",
        "subject": next((event.subject for event in events if event.subject), "")[:200],
        "exposed": exposed,
        "evidence": "\n".join(event.line[:_SHOWN_TEXT] for event in proof[:_SHOWN_ROWS]),
    }
