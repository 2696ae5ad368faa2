"""One cell changed at a time, in files that are sealed again: what an audit sees of it."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from plainly import judged
from resealing import copied, logs, resealed, rows

from shadowaudit.core.verdict import PROVEN
from shadowlab.generate.writing import FIELDS

COLUMNS = FIELDS.split(",")
_SEALED = {"Seq", "Boot", "Db"}
"""Who seals a log again numbers it anew: other tests change these."""

_END = ", its end"
_OTHER_ID = "01a1f0be-24e4-766c-be62-dc047c6895f0"

CLOSING = "closing LOAD"
"""A row LOAD about no message."""

QUEUE = "an act on a queue"
"""A row about no message: RETRY, SUSPEND or RESUME of a queue."""

GIVEN_BACK, COPIED, TO_MEMBERS = "RESUBMIT SAFETYNET", "RECEIVE AGENT", "RECEIVE ROUTING"
"""Rows that begin a message of our own: by event and source."""


_EMPTY = "it is always empty"
_ORIGIN = "nobody else tells where a message came from, and nothing is promised about that"
_HEADER = "a header field, which the digest of the content covers"
_SERVER = "whose log it is, S:Db and the file's name say; who holds a copy, S:Shadow and S:OwnerDb"

ANYWHERE = {
    "date-time": "clocks may jump: the order of rows is that of their sequence",
    "client-ip": _ORIGIN,
    "original-client-ip": _ORIGIN,
    "connector-id": _ORIGIN,
    "client-hostname": _SERVER,
    "server-hostname": _SERVER,
    "source": "the event says what happened, but for two events (it is seen there)",
    "message-id": _HEADER,
    "message-subject": _HEADER,
    "return-path": "sender-address, which is compared, again",
    "log-id": "S:Boot and S:Seq, which are read, again; the first row of a file is looked at",
    "related-recipient-address": "whom the sender addressed, nobody else tells (of a list it is seen)",
    "schema-version": "a bounce without a report alone depends on it",
    **dict.fromkeys(
        (
            "server-ip", "internal-message-id", "message-info", "directionality",
            "tenant-id", "original-server-ip", "transport-traffic-type",
        ),
        _EMPTY,
    ),
}  # fmt: skip
"""Columns whose change is not seen in any event, and why."""

_PASSING = {
    "DEFER",
    "HADAMAGE",
    "HAREDIRECT",
    "HAREDIRECTFAIL",
    "LOAD",
    "RESOLVE",
    "RESUBMIT",
    "TRANSFER",
    "RETRY",
    "RESUME",
    "SUSPEND",
    CLOSING,
    QUEUE,
}
_WITHOUT_REPLY = {
    "DSN",
    "HADISCARD",
    "HARECEIVE",
    "HARESTORE",
    "RECEIVE",
    GIVEN_BACK,
    COPIED,
    TO_MEMBERS,
    *_PASSING,
}
_SENT = {"DELIVER", "SENDEXTERNAL"}
_COMPARED = "it is compared on rows that accept, hold or settle: this row says that again"
_MACHINE = "a machine may get another name between the two rows; one row that names one twice is enough"
_ATTEMPT = "an attempt that changed nothing"

_OPERATED = ("FAIL", "REMOVE", "RETRY", "RESUME", "SUSPEND", QUEUE)
_BY = "who asked for it and why, nobody else tells"

IN_SOME: dict[str, tuple[set[str], str]] = {
    **dict.fromkeys(("S:Operator", "S:Reason"), (set(_OPERATED), _BY)),
    "S:Job": (set(_OPERATED), "which job it was, for people: that there is one is seen"),
    "S:Queue": ({QUEUE}, "it is about no message"),
    "S:Fork": ({"DEFER", *_SENT}, "it names the attempt, and no rule depends on that name"),
    "S:Host": ({"HARECEIVE", "HAREDIRECT"}, _MACHINE),
    "S:OwnerHost": ({"HARECEIVE"}, _MACHINE),
    "S:ShadowHost": ({"HAREDIRECT"}, _MACHINE),
    "S:Owner": ({GIVEN_BACK}, "which part of a request it was, for people: no rule depends on it"),
    "S:Rank": ({"HARECEIVE"}, "the order in which holders ask: each of them may promote"),
    "S:Recipients": ({"DEFER"}, _ATTEMPT),
    "recipient-address": ({"DEFER"}, _ATTEMPT),
    "S:TellerDb": ({"HADISCARD"}, "whose word it was: a log that is not here denies nothing"),
    "S:Snapshot": ({CLOSING}, "a snapshot of nothing: there is no row that it closes"),
    "sender-address": (_PASSING, _COMPARED),
    "total-bytes": (_PASSING, _COMPARED),
    "recipient-status": ({"EXPAND", "FAIL", "REMOVE", *_WITHOUT_REPLY}, _EMPTY),
    "recipient-status, its end": (_SENT, "the words behind the code of a reply"),
    "reference": (_WITHOUT_REPLY | _SENT, "empty; or how far another log has to reach: less than it may be"),
    "source-context": (
        _WITHOUT_REPLY - {"HADISCARD", "HARECEIVE", "HAREDIRECT", "RESUBMIT"} | {"FAIL", "REMOVE"},
        "words for people; a bounce may have any but a code of success",
    ),
    "source-context, its end": (
        _WITHOUT_REPLY - {"HARECEIVE", "RESUBMIT"} | _SENT | {"EXPAND", "FAIL", "REMOVE"},
        "the words behind a code or reason",
    ),
}  # fmt: skip
"""Columns whose change is not seen in these events, and why."""


def known(what: str) -> set[str] | None:
    """The events in which a change of that is on the list; None: in all."""
    name = what.removesuffix(_END)
    if name in ANYWHERE:
        return None
    events, _ = IN_SOME.get(what) or IN_SOME.get(name, (set(), ""))
    return events


@dataclass(frozen=True, slots=True)
class Change:
    """``what``: the column, or the entry of custom-data. ``line`` takes the place of ``row``."""

    event: str
    what: str
    path: Path
    row: bytes
    line: bytes


def changes(directory: Path) -> Iterator[Change]:
    """Each column and entry of the first row of each event that has it, changed to what may stand there."""
    seen: set[tuple[str, str, bool]] = set()
    for path in logs(directory):
        for row in rows(path):
            (cells,) = csv.reader([row.decode()])
            event = cells[COLUMNS.index("event-id")]
            if not cells[COLUMNS.index("network-message-id")]:
                event = QUEUE if "S:Queue=" in cells[COLUMNS.index("custom-data")] else CLOSING
            elif f"{event} {cells[COLUMNS.index('source')]}" in (GIVEN_BACK, COPIED, TO_MEMBERS):
                event = f"{event} {cells[COLUMNS.index('source')]}"
            for name, text, others in _changed(cells):
                if (event, name, bool(text)) not in seen:
                    seen.add((event, name, bool(text)))
                    for what, changed in others:
                        line = ",".join(map(as_cell, changed)) + "\r\n"
                        yield Change(event, what, path, row, line.encode())


def _changed(cells: list[str]) -> Iterator[tuple[str, str, Iterator[tuple[str, list[str]]]]]:
    """Name and text of each column and entry, and the rows that other texts make."""
    for place, name in enumerate(COLUMNS):
        if name != "custom-data":
            yield name, cells[place], _rows(cells, place, _others(name, cells[place]))
            continue
        entries = cells[place].split(";")
        for number, entry in enumerate(entries):
            key, _, text = entry.partition("=")
            if key.removeprefix("S:") not in _SEALED:
                others = (
                    (what, ";".join([*entries[:number], f"{key}={other}", *entries[number + 1 :]]))
                    for what, other in _others(key, text)
                )
                yield key, text, _rows(cells, place, others)


def _rows(cells: list[str], place: int, others: Iterator[tuple[str, str]]) -> Iterator[tuple[str, list[str]]]:
    for what, other in others:
        yield what, [*cells[:place], other, *cells[place + 1 :]]


def _others(name: str, text: str) -> Iterator[tuple[str, str]]:
    """Other values of that kind, and what is changed: a text has a beginning and an end."""
    if name == "date-time":
        yield name, f"2027{text[4:]}"
    elif not text:
        yield name, _OTHER_ID if name == "network-message-id" else "x"
    elif text.isdigit():
        yield name, str(int(text) + 1)
    else:
        first, last = ("0", "1") if text[0] != "0" else ("1", "1")
        yield name, f"{first}{text[1:]}"
        yield f"{name}{_END}", text[:-1] + (last if text[-1] != last else "2")


def as_cell(text: str) -> str:
    """As our logs quote it."""
    quoted = text.replace('"', '""')
    return f'"{quoted}"' if "," in text or '"' in text else text


def unlisted(found: dict[str, set[str]]) -> dict[str, set[str]]:
    """What of that is on no list."""
    told = ((what, events, known(what)) for what, events in found.items())
    return {what: events - listed for what, events, listed in told if listed is not None and events - listed}


def unseen(directory: Path, target: Path) -> dict[str, set[str]]:
    """Columns and entries that may be changed while the verdict stays what it is, with their events."""
    found: dict[str, set[str]] = defaultdict(set)
    classes = judged(directory)[0].classes
    for change in changes(directory):
        copied(directory, target)
        path = target / change.path.relative_to(directory)
        path.write_bytes(path.read_bytes().replace(change.row, change.line, 1))
        resealed(target)
        verdict = judged(target)[0]
        if verdict.status == PROVEN and verdict.classes == classes:
            found[change.what].add(change.event)
    return dict(found)
