"""The lines around the rows: the header that names the columns, and the footer that closes our files."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from shadowaudit.core.events import SCHEMAS
from shadowaudit.core.facts import Fault, Flavour

NAME = re.compile(r"MSGTRK-(?P<node>.+)-(?P<boot>[0-9A-Za-z]+)-(?P<first>[0-9]+)\.LOG", re.ASCII)
"""Our files' names. Exchange's are MSGTRK, MSGTRKMA, MSGTRKMS or MSGTRKMD, then hour and number."""

_FOOTER = re.compile(rb"#Footer: first=(\d+) last=(\d+) rows=(\d+) sha256=([0-9a-f]{64})\r\n")
_OURS = b"shadowrelay"
BOM = b"\xef\xbb\xbf"
"""May stand before each header: files are put together of others."""

NEEDED = ("date-time", "event-id", "recipient-address")


@dataclass(frozen=True, slots=True)
class Footer:
    """What a closed file of ours says of its rows."""

    first: int
    last: int
    rows: int
    sha256: str


@dataclass(slots=True)
class Layout:
    """What the comment lines read so far have said. Comments may stand anywhere."""

    flavour: Flavour = Flavour.EXCHANGE
    fields: tuple[str, ...] = ()
    version: str = ""
    footer: Footer | None = None
    trailing: bool = False
    seen: int = field(default=0)

    def comment(self, line: bytes) -> None:
        """Take note of a comment line, with its line end."""
        self.seen += 1
        label, _, rest = line.partition(b" ")
        if label == b"#Software:" and rest.strip() == _OURS:
            self.flavour = Flavour.RELAY
        elif label == b"#Version:":
            self.version = rest.decode("utf-8", "replace").strip()
        elif (fields := self._fields_in(line)) is not None:
            self.fields = fields
        elif found := _FOOTER.fullmatch(line):
            self.footer = Footer(int(found[1]), int(found[2]), int(found[3]), found[4].decode())

    def renames(self, line: bytes) -> bool:
        """Do the rows below that comment line have other columns than those above?"""
        return bool(self.fields) and self._fields_in(line) not in (None, self.fields)

    def _fields_in(self, line: bytes) -> tuple[str, ...] | None:
        """The columns that a comment line names. A file of ours has one header."""
        label, _, rest = line.partition(b" ")
        if label != b"#Fields:" or (self.fields and self.flavour is Flavour.RELAY):
            return None
        names = rest.decode("utf-8", "replace").strip().split(",")
        return tuple(name.strip().lower() for name in names)

    @property
    def usable(self) -> bool:
        return all(name in self.fields for name in NEEDED)

    def closing_faults(self, name: str, sha256: str, rows: int) -> Iterator[Fault]:
        """Is the file of that name with so many rows as it was closed? Of numbers nothing is said here."""
        footer = self.footer
        if self.flavour is Flavour.RELAY and self.version and self.version not in SCHEMAS:
            yield Fault.VERSION
        if self.flavour is not Flavour.RELAY:
            if footer is not None or NAME.fullmatch(name):
                yield Fault.WRONG_HEADER
        elif footer is None:
            yield Fault.NO_FOOTER
        else:
            if self.trailing:
                yield Fault.TRAILING
            if footer.sha256 != sha256:
                yield Fault.WRONG_HASH
            if footer.rows != rows:
                yield Fault.WRONG_COUNT


def comments(head: bytes) -> Iterator[bytes]:
    """The comment lines at the beginning of a file, with their line ends.

    A line within quotes is none: a subject may have line breaks, and begin its lines as it likes.
    """
    within = False
    for line in head.splitlines(keepends=True):
        text = line.removeprefix(BOM)
        if not within and text.startswith(b"#"):
            yield text
        elif line.count(b'"') % 2:
            within = not within


_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


def encoding_of(head: bytes) -> str:
    """The encoding of a file, if it is not UTF-8; else empty. ``head``: the first octets of the file."""
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    half = [head[place::2] for place in (0, 1)]
    one, other = (bytes(len(part)) == part for part in half)
    return "UTF-16" if len(head) > 1 and one != other else ""
