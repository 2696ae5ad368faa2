"""One change at a time, in files that are sealed again: what an audit sees of it.

A cell of a row, or an entry of custom-data, gets another value or is erased; a row has the name of another
event, or is gone. ``docs/reference/audit-matrix.md`` has what is not seen, and why.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plainly import by_sums
from resealing import copied, logs, resealed, rows

from shadowaudit.core.facts import FileFacts
from shadowaudit.core.forms import FORMS
from shadowaudit.core.verdict import PROVEN, VIOLATED, Verdict
from shadowaudit.logs.file import digest_file
from shadowlab.generate.cluster import generate
from shadowlab.generate.writing import FIELDS, footer

COLUMNS = FIELDS.split(",")
_SEALED = {"Seq", "Boot", "Db"}
"""Who seals a log again numbers it anew: other tests change these."""

_END = ", its end"
_OTHER_ID = "01a1f0be-24e4-766c-be62-dc047c6895f0"

ERASED, RENAMED, REMOVED = "erased", "renamed", "removed"
CHANGED = "changed"
"""What is done to a cell or a row."""

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
    "message-id": _HEADER,
    "message-subject": _HEADER,
    "return-path": "sender-address, which is compared, again",
    "log-id": "S:Boot and S:Seq, which are read, again; the first row of a file is looked at",
    "related-recipient-address": "whom the sender addressed, nobody else tells (of a list it is seen)",
    **dict.fromkeys(
        (
            "server-ip", "internal-message-id", "message-info", "directionality",
            "tenant-id", "original-server-ip", "transport-traffic-type",
        ),
        _EMPTY,
    ),
}  # fmt: skip
"""Columns that may be changed or erased in any event unseen, and why."""

_PASSING = {
    "DEFER", "HADAMAGE", "HAREDIRECT", "HAREDIRECTFAIL", "LOAD", "RESOLVE", "RESUBMIT", "TRANSFER", "RETRY",
    "RESUME", "SUSPEND",
}  # fmt: skip
_RECEIVED = {"RECEIVE", "DUPLICATERECEIVE"}
_SENT = {"DELIVER", "DUPLICATEDELIVER", "SEND", "SENDEXTERNAL"}
_OPERATED = {"FAIL", "REMOVE", "RETRY", "RESUME", "SUSPEND", QUEUE}
_COMPARED = "it is compared on rows that accept, hold or settle: this row says that again"
_MACHINE = "a machine may get another name between the two rows; one row that names one twice is enough"
_ATTEMPT = "an attempt that changed nothing"
_BY = "who asked for it and why, nobody else tells: that somebody did is seen"
_WORDS = "words for people; a bounce may have any but a code of success"

IN_SOME: dict[str, tuple[set[str], str]] = {
    **dict.fromkeys(("S:Operator", "S:Reason", "S:Job"), (_OPERATED, _BY)),
    **dict.fromkeys(("S:Queue", "S:ChangedBy"), ({QUEUE}, "it is about no message")),
    "S:Fork": ({"DEFER", "FAIL", *_OPERATED, *_SENT}, "it names the attempt: no rule depends on that name"),
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
    "recipient-status": ({"FAIL"}, _WORDS),
    "recipient-status, its end": ({"FAIL", *_SENT}, "the words behind the code of a reply"),
    "reference": (
        {"HADISCARD", "HARECEIVE", "HAREDIRECT", COPIED},
        "how far another log has to reach: less than it may be. Of what a journal copy is one, nobody tells",
    ),
    "source-context": (_PASSING - {"HAREDIRECT", "RESUBMIT"} | _RECEIVED | _OPERATED, _WORDS),
    "source-context, its end": (
        _PASSING - {"RESUBMIT"} | {"EXPAND", "HADISCARD"} | _RECEIVED | _OPERATED | _SENT,
        "the words behind a code or reason",
    ),
}  # fmt: skip
"""Columns whose value may be another one unseen in these events, and why."""

WHEN_ERASED: dict[str, tuple[set[str], str]] = {
    "S:Reason": (_OPERATED, "an operator may give none"),
    "S:Host": ({"HARECEIVE", "HAREDIRECT"}, "a node may not know its machine"),
    "S:OwnerHost": ({"HARECEIVE"}, "a node may not know that machine"),
    "S:ShadowHost": ({"HAREDIRECT"}, "a node may not know that machine"),
    "S:Recipients": (
        {"DEFER", "HADISCARD", *_SENT, *_OPERATED},
        "it is the first recipient, and the row counts one: without numbers that is what it says",
    ),
    "reference": ({"FAIL", "REMOVE"}, "the report on the first recipient is the one that nodes derive"),
    "source-context": (
        _PASSING - {"HAREDIRECTFAIL", "HADAMAGE"} | _RECEIVED | {"REMOVE"},
        "words for people",
    ),
}
"""The same of what is erased."""

RENAMES: dict[tuple[str, str], str] = {
    ("SENDEXTERNAL", "SEND"): "on which side of the boundary a hop is, no other row tells",
    ("HAREDIRECTFAIL", "DUPLICATERECEIVE"): "RECEIVE says itself that it has one copy",
    ("RETRY", "SUSPEND"): "it was sent all the same: an attempt may be under way",
    **{(QUEUE, other): "it is about no message" for other in ("RESUME", "RETRY", "SUSPEND")},
}
"""Event, and the name under which its row passes, and why."""

GONE = {
    "DEFER": _ATTEMPT,
    "DUPLICATEDELIVER": "a second delivery",
    "HAREDIRECTFAIL": "RECEIVE says itself that it has one copy",
    "HAREDIRECT": "of a copy that was made again: without it the message seems exposed for longer",
    "HARESTORE": "the one of who gave the copy; who took it says it, too",
    "LOAD": "one of two empty snapshots of a node with nothing between them",
    CLOSING: "one of two empty snapshots of a node with nothing between them",
    "RESOLVE": "whom the sender addressed, nobody else tells",
    "RESUME": "an operator's act that moved nothing",
    "RETRY": "an operator's wish for an attempt",
    QUEUE: "it is about no message",
}
"""Events of which a row may be taken out unseen, and why."""


Cell = tuple[str, str, str]
"""Event; column, entry or row; and what is done to it."""


def why(event: str, what: str, how: str) -> str:
    """Why that is not seen; empty if it is on no list."""
    name = what.removesuffix(_END)
    if how == RENAMED:
        return RENAMES.get((event, what.removeprefix("as ")), "")
    if how == REMOVED:
        return GONE.get(event, "")
    events, reason = (WHEN_ERASED if how == ERASED else IN_SOME).get(what, (set(), ""))
    if event not in events and how == CHANGED:
        events, reason = IN_SOME.get(name, (set(), ""))
    return ANYWHERE.get(name, "") or (reason if event in events else "")


EVENTS = tuple(dict.fromkeys(form.event.value for form in FORMS))
ROW = "the row"


@dataclass(frozen=True, slots=True)
class Change:
    """``what``: the column, or the entry of custom-data. ``line`` takes the place of ``row``; without one the
    row is gone.
    """

    event: str
    what: str
    path: Path
    row: bytes
    line: bytes
    how: str = CHANGED

    @property
    def cell(self) -> tuple[str, str, str]:
        return self.event, self.what, self.how


def event_of(cells: Sequence[str]) -> str:
    """The event of a row, and what tells it from others of that name."""
    event, source = cells[COLUMNS.index("event-id")], cells[COLUMNS.index("source")]
    if not cells[COLUMNS.index("network-message-id")]:
        return QUEUE if "S:Queue=" in cells[COLUMNS.index("custom-data")] else CLOSING
    return f"{event} {source}" if f"{event} {source}" in (GIVEN_BACK, COPIED, TO_MEMBERS) else event


def changes(directory: Path) -> Iterator[Change]:
    """Each column and entry of the first row of each event that has it, changed to what may stand there, and
    erased; and the first row of each event under another one's name, and taken out.
    """
    seen: set[tuple[str, str, bool]] = set()
    for path in logs(directory):
        for row in rows(path):
            (cells,) = csv.reader([row.decode()])
            event = event_of(cells)
            for name, text, others in _changed(cells):
                if (event, name, bool(text)) not in seen:
                    seen.add((event, name, bool(text)))
                    for what, how, changed in others:
                        yield Change(event, what, path, row, as_row(changed), how)
            if (event, ROW, True) not in seen:
                seen.add((event, ROW, True))
                place = COLUMNS.index("event-id")
                for other in EVENTS:
                    if other != cells[place]:
                        renamed = [*cells[:place], other, *cells[place + 1 :]]
                        yield Change(event, f"as {other}", path, row, as_row(renamed), RENAMED)
                yield Change(event, ROW, path, row, b"", REMOVED)


def as_row(cells: Sequence[str]) -> bytes:
    return (",".join(map(as_cell, cells)) + "\r\n").encode()


_Others = Iterator[tuple[str, str, list[str]]]


def _changed(cells: list[str]) -> Iterator[tuple[str, str, _Others]]:
    """Name and text of each column and entry, and the rows that other texts make."""
    for place, name in enumerate(COLUMNS):
        if name == "event-id":
            continue
        if name != "custom-data":
            texts = [(*one, CHANGED) for one in _others(name, cells[place])]
            texts += [(name, "", ERASED)] if cells[place] else []
            yield name, cells[place], _rows(cells, place, texts)
            continue
        entries = cells[place].split(";")
        for number, entry in enumerate(entries):
            key, _, text = entry.partition("=")
            if key.removeprefix("S:") not in _SEALED:
                before, after = entries[:number], entries[number + 1 :]
                texts = [
                    (what, ";".join([*before, f"{key}={other}", *after]), CHANGED)
                    for what, other in _others(key, text)
                ]
                yield key, text, _rows(cells, place, [*texts, (key, ";".join([*before, *after]), ERASED)])


def _rows(cells: list[str], place: int, texts: Sequence[tuple[str, str, str]]) -> _Others:
    for what, other, how in texts:
        yield what, how, [*cells[:place], other, *cells[place + 1 :]]


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


class Forging:
    """Logs in which one thing at a time is changed. What did not change is read once."""

    def __init__(self, clean: Path, target: Path) -> None:
        self.clean, self.target = clean, target
        copied(clean, target)
        self.digests = {path: digest_file(path) for path in logs(target)}
        self.verdict, _ = by_sums([*self.digests.values()])

    def seen(self, change: Change) -> tuple[bool, set[str]]:
        """Is the verdict another one? And the messages that the sums alone clear (``plainly.by_sums``)."""
        verdict, cleared = self.judged(change)
        return (verdict.status, verdict.classes) != (PROVEN, self.verdict.classes), cleared

    def judged(self, change: Change) -> tuple[Verdict, set[str]]:
        """``plainly.by_sums`` of the logs with that change."""
        path = self.target / change.path.relative_to(self.clean)
        whole = path.read_bytes()
        digests: dict[Path, tuple[FileFacts, Any]]
        if change.how == REMOVED:
            path.write_bytes(whole.replace(change.row, b"", 1))
            resealed(self.target)
            digests = {one: digest_file(one) for one in logs(self.target)}
        else:
            *lines, _ = whole.replace(change.row, change.line, 1).splitlines(keepends=True)
            facts, _ = self.digests[path]
            path.write_bytes(b"".join(lines) + footer(b"".join(lines), facts.first, facts.last, facts.rows))
            digests = self.digests | {path: digest_file(path)}
        try:
            return by_sums([*digests.values()])
        finally:
            if change.how == REMOVED:
                copied(self.clean, self.target)
            else:
                path.write_bytes(whole)


STORIES = (
    "promotion", "handover", "exposed", "in-transit", "orphan", "damaged-copy", "restored", "bounced",
    "resubmitted", "resubmitted-by-holder", "journal-copy", "expanded", "rewritten", "tracked-by-a-hop",
    "sent-again-past-a-hop", "dropped-duplicate", "removed", "removed-with-report", "bounced-by-hand",
    "suspended", "resumed", "retried", "queue-suspended",
)  # fmt: skip
"""Faults of the generator that are none: together they have rows of nearly all events."""


def generated(directory: Path) -> Path:
    """The logs whose cells the page is about."""
    generate(directory, messages=30, faults=dict.fromkeys(STORIES, 1), seed=3)
    return directory


def unseen(directory: Path, target: Path, *, one_in: int = 1) -> tuple[set[Cell], dict[Cell, set[str]]]:
    """The changes that leave the verdict as it is. And those of which the sums clear a message that its rows
    show not to be safe: none, if all is well.
    """
    forging = Forging(directory, target)
    assert forging.verdict.status == PROVEN, forging.verdict.as_dict()
    found, cleared = set(), {}
    for number, change in enumerate(changes(directory)):
        if number % one_in == 0:
            seen, some = forging.seen(change)
            found |= set() if seen else {change.cell}
            cleared |= {change.cell: some} if some else {}
    return found, cleared


_UNDONE = "it is the violation: without that row there was none"
_SHOWN = "it is all that shows it: nobody else tells of it"

HIDDEN: dict[tuple[str, Cell], str] = {
    **{
        (fault, (event, ROW, REMOVED)): _UNDONE
        for fault, event in (
            ("duplicate", "DELIVER"),
            ("unknown-origin", "DELIVER"),
            ("delivered-by-who-heard", "DELIVER"),
            ("delivered-by-who-removed", "DELIVER"),
            ("removed-after-delivery", "DELIVER"),
            ("removed-after-delivery", "REMOVE"),
            ("resumed-and-sent-twice", "DELIVER"),
        )
    },
    **{
        (fault, (event, ROW, REMOVED)): _SHOWN
        for fault, event in (
            ("damaged-everywhere", "HADAMAGE"),
            ("delivered-by-who-heard", "HADISCARD"),
            ("delivered-by-who-removed", "REMOVE"),
            ("sent-again-past-a-hop-that-delivered", "HADISCARD"),
            ("rewritten-to-another", "RESOLVE"),
        )
    },
    ("removed-unreported", ("REMOVE", "reference", ERASED)): WHEN_ERASED["reference"][1],
    ("resubmitted-outside", ("SENDEXTERNAL", "as SEND", RENAMED)): RENAMES["SENDEXTERNAL", "SEND"],
}
"""A violation of the generator's, what hides it, and why: the verdict is *proven* then."""


def hiding(
    directory: Path, faults: Iterable[str], *, one_in: int = 1
) -> tuple[set[tuple[str, Cell]], dict[str, set[str]]]:
    """What of logs with a violation leaves none when it is changed. And what the sums clear then."""
    found, cleared, number = set(), {}, 0
    for fault in faults:
        clean = directory / fault / "clean"
        generate(clean, messages=1, faults={fault: 1}, seed=3)
        forging = Forging(clean, directory / fault / "logs")
        if forging.verdict.status != VIOLATED:
            continue
        for change in changes(clean):
            number += 1
            if number % one_in == 0:
                verdict, some = forging.judged(change)
                found |= {(fault, change.cell)} if verdict.status == PROVEN else set()
                cleared |= {f"{fault}: {change.cell}": some} if some else {}
    return found, cleared


def unlisted(cells: set[Cell]) -> set[Cell]:
    """Those of them that are on no list."""
    return {cell for cell in cells if not why(*cell)}
