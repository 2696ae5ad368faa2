"""One node's log files: rows numbered, files closed with a footer, snapshots first and last."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

FIELDS = (
    "date-time,client-ip,client-hostname,server-ip,server-hostname,source-context,connector-id,source,event-id,"
    "internal-message-id,message-id,network-message-id,recipient-address,recipient-status,total-bytes,"
    "recipient-count,related-recipient-address,reference,message-subject,sender-address,return-path,message-info,"
    "directionality,tenant-id,original-client-ip,original-server-ip,custom-data,transport-traffic-type,log-id,"
    "schema-version"
)
VERSION = "01.00.0001.000"


@dataclass(slots=True)
class GeneratedRow:
    """What a row says; what the node adds stands in ``NodeLog.write``."""

    event: str
    id: str
    recipients: str  # addresses, a list
    count: int
    source: str = "SMTP"
    client: str = ""
    server: str = ""
    context: str = ""
    custom: str = ""  # entries after S:Epoch
    digests: str = ""  # and those behind them
    epoch: int = 1
    reference: str = ""
    sender: str = "sender@example.org"
    subject: str = "Report"
    size: int = 4096
    related: str = ""
    status: str = ""  # of each recipient
    bare: bool = False  # its message's rows are damaged: only the id is known
    names: tuple[str, str] = ("", "")  # a node, and the entry that names its database
    refers_to: str = (
        "mark"  # what ``reference`` says of that node: its ``mark``, its ``database``, or nothing
    )


@dataclass(slots=True)
class NodeLog:
    """Writes one node's rows, in the order of its time."""

    directory: Path
    node: str
    database: str
    boot: str
    limit: int = 10_000_000
    sequence: int = 0
    files: list[Path] = field(default_factory=list)
    _lines: list[str] = field(default_factory=list)
    _size: int = 0
    _first: int = 0
    _second: int = -1
    _moment: str = ""

    def write(self, at: int, row: GeneratedRow) -> None:
        """Add a row; ``at`` is in milliseconds."""
        self.sequence += 1
        known = bool(row.id) and not row.bare
        self._first = self._first or self.sequence
        second, rest = divmod(at, 1000)
        if second != self._second:
            self._second = second
            self._moment = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        header = f"<{row.id[-12:]}@example.org>" if known else ""
        about = f";S:Epoch={row.epoch}" if known else ""
        count, size = (str(row.count), str(row.size)) if known else ("", "")
        sender, subject = (row.sender, row.subject) if known else ("", "")
        line = (
            f"{self._moment}.{rest:03d}Z,,{row.client},,{row.server},{row.context},,{row.source},{row.event},,"
            f"{header},{row.id},{row.recipients},{row.status},{size},{count},{row.related},{row.reference},{subject},"
            f"{sender},{sender},,,,,,S:Seq={self.sequence};S:Boot={self.boot};S:Db={self.database}{about}"
            f"{row.custom}{row.digests},,{self.boot}-{self.sequence},{VERSION}\r\n"
        )
        self._lines.append(line)
        self._size += len(line)
        if self._size >= self.limit:
            self.close(at)

    def snapshot(self, at: int, name: str, rows: list[GeneratedRow], taken: str = "stop") -> None:
        """What the node holds at that moment, and how much that is."""
        for row in rows:
            row.custom, row.source = f";S:Snapshot={name};S:Role={row.custom}", "BOOTLOADER"
            self.write(at, row)
        closing = f";S:Snapshot={name};S:Count={len(rows)};S:Taken={taken}"
        self.write(at, GeneratedRow("LOAD", "", "", 0, "BOOTLOADER", server=self.node, custom=closing))

    def close(self, at: int) -> None:
        """Close the file, if there is one, as a node does."""
        if not self._lines:
            return
        covered = self._written(at)
        path = self.directory / self._name()
        path.write_bytes(covered + footer(covered, self._first, self.sequence, len(self._lines)))
        self.files.append(path)
        self._lines.clear()
        self._size = self._first = 0

    def leave_open(self, at: int) -> Path:
        """Write what there is as a node does that has not closed the file yet."""
        path = self.directory / f".{self._name()}.open"
        path.write_bytes(self._written(at))
        return path

    def _name(self) -> str:
        return f"MSGTRK-{self.node}-{self.boot}-{self._first}.LOG"

    def _written(self, at: int) -> bytes:
        date = datetime.fromtimestamp(at // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        head = (
            f"#Software: shadowrelay\r\n#Version: {VERSION}\r\n#NodeLog-type: Message Tracking NodeLog\r\n"
            f"#Date: {date}\r\n#Fields: {FIELDS}\r\n"
        )
        return (head + "".join(self._lines)).encode()


def witnessed(row: GeneratedRow, logs: Mapping[str, NodeLog]) -> GeneratedRow:
    """The row with the database of the other node that it names, and how far that one's log has got."""
    name, entry = row.names
    if name:
        other = logs[name]
        row.custom += f";S:{entry}={other.database}"
        said = {"mark": f"{other.boot}:{other.sequence}", "database": other.database}
        row.reference = said.get(row.refers_to, "")
    return row


def footer(covered: bytes, first: int, last: int, rows: int) -> bytes:
    """The line that closes a file of these octets."""
    digest = hashlib.sha256(covered).hexdigest()
    return f"#Footer: first={first} last={last} rows={rows} sha256={digest}\r\n".encode()
