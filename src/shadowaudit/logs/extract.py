"""The rows of single messages, read again whole: for the exact pass, and to explain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from shadowaudit.core.events import FINALS, Event, Kind, entries_of, kind_of, listed
from shadowaudit.core.facts import FileFacts, Flavour
from shadowaudit.core.fingerprint import digest, key_of, uuid_of
from shadowaudit.core.text import restored, split_row
from shadowaudit.logs.layout import Layout

Key = tuple[int, int]
_HEAD = 1 << 16
_OUTWARD = FINALS | {Kind.HAREDIRECT, Kind.TRANSFER, Kind.DEFER}


@dataclass(frozen=True, slots=True)
class Source:
    """What has to be known of a file to read a row out of its middle."""

    path: str
    node: str
    database: str
    boot: str
    flavour: str
    fields: tuple[str, ...]

    @classmethod
    def of(cls, facts: FileFacts) -> Source:
        """Raises OSError."""
        layout = Layout()
        with Path(facts.path).open("rb") as file:
            for line in file.read(_HEAD).removeprefix(b"\xef\xbb\xbf").splitlines(keepends=True):
                if line.startswith(b"#"):
                    layout.comment(line)
        return cls(facts.path, facts.node, facts.database, facts.boot, facts.flavour, layout.fields)


@dataclass(frozen=True, slots=True)
class Piece:
    """Octets of a file in which all of a message's rows of that file are."""

    source: Source
    begin: int
    end: int


def rows_of(key: Key, pieces: Iterable[Piece]) -> list[Event]:
    """Every row about that message. Raises OSError when a file cannot be read any more."""
    found = {(event.node, event.boot, event.sequence, event.line): event for event in _read(key, pieces)}
    return list(found.values())


def _read(key: Key, pieces: Iterable[Piece]) -> Iterator[Event]:
    for piece in pieces:
        with Path(piece.source.path).open("rb") as file:
            file.seek(piece.begin)
            data = file.read(piece.end - piece.begin)
        for at, line in _candidates(data, key, piece.source):
            event = event_of(line, piece.source, piece.begin + at)
            if event is not None and event[0] == key:
                yield event[1]


def _candidates(data: bytes, key: Key, source: Source) -> Iterator[tuple[int, bytes]]:
    """Rows that may be about the message, and where each begins. A message's rows may lie far apart."""
    if source.flavour != Flavour.RELAY:
        at = 0
        for line in records(data):
            if not line.startswith(b"#"):
                yield at, line
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
    except ValueError:  # a number that is none: the file's facts tell of it
        return None


def _event(line: bytes, source: Source, offset: int) -> tuple[Key, Event] | None:
    relay = source.flavour == Flavour.RELAY
    cells = split_row(line, len(source.fields), strict=relay)
    if cells is None:
        return None
    cell = dict(zip(source.fields, map(restored, cells) if relay else cells, strict=True))
    message = cell.get("network-message-id") or (cell.get("message-id", "") if not relay else "")
    if not message:
        return None
    own = entries_of(cell.get("custom-data", ""))
    event_id = cell["event-id"].upper()
    kind = kind_of(event_id)
    addresses = listed(cell["recipient-address"])
    if relay:
        named = own.get("Recipients", "")
        count = cell.get("recipient-count", "0")
        recipients = (
            tuple(int(part) for part in named.split("+")) if named else tuple(range(1, int(count or 0) + 1))
        )
    else:
        recipients = tuple(digest(address.lower()) for address in addresses)
    peer = cell.get("server-hostname" if kind in _OUTWARD else "client-hostname", "")
    event = Event(
        node=source.node,
        database=own.get("Db", source.database) if relay else source.database,
        boot=own.get("Boot", source.boot) if relay else source.path,
        sequence=int(own.get("Seq", "0")) if relay else offset,
        at=_milliseconds(cell["date-time"]),
        kind=kind,
        epoch=int(own.get("Epoch", "1")) if relay else 1,
        recipients=recipients,
        reason=cell.get("source-context", "").partition(";")[0],
        peer=peer,
        reference=cell.get("reference", ""),
        source=cell.get("source", "").upper(),
        entries=own,
        addresses=addresses,
        message=message,
        subject=cell.get("message-subject", ""),
        line=line.decode("utf-8", "replace").rstrip("\r\n"),
    )
    return key_of(message), event


def _milliseconds(text: str) -> int:
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000 + 0.5)
    except ValueError:
        return 0
