"""The rows of single messages, read again whole: for the exact pass, and to explain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from shadowaudit.core import forms
from shadowaudit.core.events import (
    FINALS,
    PAST_A_HOP,
    REDUNDANCY,
    Event,
    Kind,
    about_none,
    entries_of,
    kind_by,
    kind_of,
    listed,
    numbers_of,
)
from shadowaudit.core.facts import FileFacts, Flavour
from shadowaudit.core.fingerprint import digest, key_of, uuid_of
from shadowaudit.core.text import moment_in, number_in, restored, split_row
from shadowaudit.logs.layout import BOM, Layout, comments

Key = tuple[int, int]
Octets = Callable[[str, int, int], bytes]
"""What a file has from one place to another. Raises OSError."""

_HEAD = 1 << 16
_COUNTED = {Kind.RECEIVE, *FINALS} - {Kind.EXPAND}
_ABOUT = {
    Kind.DSN: Kind.REPORT,
    Kind.RESUBMITTED: Kind.RESUBMISSION,
    Kind.SENT_AGAIN: Kind.SENT_PAST,
    Kind.MEMBERS: Kind.MADE,
}
_OUTWARD = FINALS | {Kind.HAREDIRECT, Kind.TRANSFER, Kind.DEFER, Kind.SENT_AGAIN}


def in_file(path: str, begin: int, end: int) -> bytes:
    """``Octets`` of a file on this machine."""
    with Path(path).open("rb", buffering=0) as file:
        file.seek(begin)
        return file.read(end - begin)


@dataclass(frozen=True, slots=True)
class Source:
    """What has to be known of a file to read a row out of its middle."""

    path: str
    node: str
    database: str
    boot: str
    flavour: str
    fields: tuple[str, ...]
    later: tuple[tuple[int, tuple[str, ...]], ...] = ()  # from there on, the columns are these
    schema: str = ""  # of our logs: the schema-version of the first row, which all others have, too

    @classmethod
    def of(cls, facts: FileFacts, octets: Octets = in_file) -> Source:
        """Raises OSError."""
        layout = Layout()
        first = min((*facts.headers, _HEAD))
        head = octets(facts.path, 0, first)
        for line in comments(head):
            layout.comment(line)
        fields, later = layout.fields, []
        for begin in facts.headers:
            layout.comment(octets(facts.path, begin, begin + _HEAD).partition(b"\n")[0] + b"\n")
            later.append((begin, layout.fields))
        named = (facts.path, facts.node, facts.database, facts.boot, facts.flavour)
        schema = _schema(head, fields) if facts.flavour == Flavour.RELAY else ""
        return cls(*named, fields, tuple(later), schema)

    def fields_at(self, offset: int) -> tuple[str, ...]:
        """The columns of a row that begins there."""
        return next((fields for begin, fields in reversed(self.later) if begin <= offset), self.fields)


@dataclass(frozen=True, slots=True)
class Piece:
    """Octets of a file in which all of a message's rows of that file are."""

    source: Source
    begin: int
    end: int


def _schema(head: bytes, fields: tuple[str, ...]) -> str:
    rows = (split_row(line, len(fields), strict=True) for line in records(head) if line[:1] != b"#")
    first = next((cells for cells in rows if cells is not None), None)
    return dict(zip(fields, first, strict=True)).get("schema-version", "") if first else ""


def rows_of(key: Key, pieces: Iterable[Piece], octets: Octets = in_file) -> list[Event]:
    """Every row about that message, and those of other messages that name it (``core.events.ABOUT``).

    What two of Exchange's logs tell in the same octets happened once: one may be the other, collected later.
    Raises OSError when a file cannot be read any more.
    """
    found: dict[tuple[object, ...], Event] = {}
    told: Counter[tuple[str, str]] = Counter()
    rows = {
        (event.node, event.boot, event.sequence, event.line): event for event in _read(key, pieces, octets)
    }
    for event in rows.values():
        if event.database.startswith("exchange:"):
            told[event.boot, event.line] += 1
            found.setdefault((event.node, event.line, told[event.boot, event.line]), event)
        else:
            found[event.node, event.boot, event.sequence, event.line] = event
    return list(found.values())


def _read(key: Key, pieces: Iterable[Piece], octets: Octets) -> Iterator[Event]:
    for piece in pieces:
        data = octets(piece.source.path, piece.begin, piece.end)
        for at, line in _candidates(data, key, piece.source):
            event = event_of(line, piece.source, piece.begin + at)
            if event is None:
                continue
            if event[0] == key:
                yield event[1]
            elif event[1].kind in _ABOUT and key_of(event[1].reference.partition(PAST_A_HOP)[0]) == key:
                yield replace(event[1], kind=_ABOUT[event[1].kind])


def _candidates(data: bytes, key: Key, source: Source) -> Iterator[tuple[int, bytes]]:
    """Rows that may be about the message, and where each begins. A message's rows may lie far apart."""
    if source.flavour != Flavour.RELAY:
        at = 0
        for line in records(data):
            text = line.removeprefix(BOM)
            if not text.startswith(b"#"):
                yield at + len(line) - len(text), text
            at += len(line)
        return
    name = uuid_of(*key).encode()
    at = data.find(name)
    while at >= 0:
        begin = data.rfind(b"\n", 0, at) + 1
        end = data.find(b"\n", at) + 1 or len(data)
        yield begin, data[begin:end]
        at = data.find(name, end)


def records(data: bytes) -> Iterator[bytes]:
    """Rows with their line ends; one with an open quote goes on in the next line."""
    pending = b""
    for line in data.splitlines(keepends=True) if b"\r" not in data else _lines(data):
        pending += line
        if pending.count(b'"') % 2 == 0:
            yield pending
            pending = b""
    if pending:
        yield pending


def _lines(data: bytes) -> Iterator[bytes]:
    begin = 0
    while (end := data.find(b"\n", begin) + 1) > 0:
        yield data[begin:end]
        begin = end
    if begin < len(data):
        yield data[begin:]


def event_of(line: bytes, source: Source, offset: int) -> tuple[Key, Event] | None:
    """The row as an event, and the key of its message; None when it cannot be read or is about no message."""
    try:
        return _event(line, source, offset)
    except ValueError:  # not a number: the file's facts count this row as unreadable
        return None


def _event(line: bytes, source: Source, offset: int) -> tuple[Key, Event] | None:
    relay = source.flavour == Flavour.RELAY
    fields = source.fields_at(offset)
    cells = split_row(line, len(fields), strict=relay)
    if cells is None:
        return None
    cell = dict(zip(fields, map(restored, cells) if relay else cells, strict=True))
    message = cell.get("network-message-id") or (cell.get("message-id", "") if not relay else "")
    if not message:
        return None
    own = entries_of(cell.get("custom-data", ""))
    event_id = cell["event-id"].upper()
    kind = kind_of(event_id)
    if relay:
        kind = kind_by(kind, cell.get("source", ""), cell.get("reference", ""))
    addresses = listed(cell["recipient-address"])
    at, epoch = moment_in(cell["date-time"]), number_in(own.get("Epoch", "1")) if relay else 1
    size, count = number_in(cell.get("total-bytes", "")), number_in(cell.get("recipient-count", "") or "0")
    if relay:
        numbers = numbers_of(own)
        recipients = numbers or tuple(range(1, len(addresses) + 1))
        sound = numbers is not None and len(recipients) == len(addresses) == count
        sound = sound and kind is not Kind.OTHER and (size >= 0 or not addresses)
        sound = sound and not about_none(kind, own)
        has = {name for name in forms.CELLS if cell.get(name)} | forms.named(own)
        has |= forms.marks(event_id, cell.get("source-context", ""))
        has |= {forms.DIGESTS} if own.keys() & {"Content", "Envelope"} else set()
        version = cell.get("schema-version", "")
        sound = sound and version == (source.schema or version)
        sound = sound and not forms.unfit(event_id, cell.get("source", ""), version, has)
    else:
        recipients = tuple(digest(address.lower()) for address in addresses)
        counted = kind in _COUNTED and bool(cell.get("recipient-count"))
        sound = "\ufffd" not in cell["recipient-address"] and (not counted or count == len(addresses))
    if at is None or not sound:
        return None
    outward = kind in _OUTWARD or (kind is Kind.HADISCARD and cell.get("source", "").upper() == REDUNDANCY)
    peer = cell.get("server-hostname" if outward else "client-hostname", "")
    if relay and kind is Kind.HAREDIRECT:
        peer = own.get("Shadow", peer)
    event = Event(
        node=source.node,
        database=own.get("Db", source.database) if relay else source.database,
        boot=own.get("Boot", source.boot) if relay else source.path,
        sequence=int(own.get("Seq", "0")) if relay else offset,
        at=at,
        kind=kind,
        epoch=epoch,
        recipients=recipients,
        reason=cell.get("source-context", "").partition(";")[0],
        peer=peer,
        reference=cell.get("reference", ""),
        source=cell.get("source", "").upper(),
        entries=own,
        addresses=addresses,
        related=listed(cell.get("related-recipient-address", "")),
        size=size if relay and size >= 0 else None,
        sender=cell.get("sender-address", ""),
        message=message,
        subject=cell.get("message-subject", ""),
        context=cell.get("source-context", ""),
        status=listed(cell.get("recipient-status", "")),
        schema=cell.get("schema-version", ""),
        line=line.decode("utf-8", "replace").rstrip("\r\n"),
    )
    return key_of(message), event
