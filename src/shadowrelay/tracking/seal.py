"""Reads and makes the footer of a tracking log file, and finds the whole rows of a file without one."""

from __future__ import annotations

import hashlib
import re

from shadowrelay.core.values import dataclass
from shadowrelay.tracking.format import LINE_END, parse_row, row_identity

_FOOTER = re.compile(r"#Footer: first=(\d+) last=(\d+) rows=(\d+) sha256=([0-9a-f]{64})", re.ASCII)
_END = LINE_END.encode()


@dataclass(frozen=True, slots=True)
class Footer:
    """The footer of a closed file.

    ``sha256`` (hexadecimal) covers every byte before the footer line: header lines and rows, with their line
    ends.
    """

    first: int
    last: int
    rows: int
    sha256: str

    def line(self) -> str:
        """The footer line, with its line end."""
        return f"#Footer: first={self.first} last={self.last} rows={self.rows} sha256={self.sha256}{LINE_END}"


def footer_of(tail: bytes) -> Footer | None:
    """The footer in ``tail``, the last part of a file; None if there is none."""
    if not tail.endswith(_END):
        return None
    found = _FOOTER.fullmatch(tail[: -len(_END)].rpartition(b"\n")[2].decode("utf-8", "replace"))
    return found and Footer(int(found[1]), int(found[2]), int(found[3]), found[4])


@dataclass(frozen=True, slots=True)
class WholeRows:
    """The part of a left-over that can be trusted: ``content`` is its header and its whole rows."""

    content: bytes
    first: int
    last: int
    rows: int
    unexplained: bool  # more than a torn last line or a footer follows the content

    def footer(self) -> Footer:
        return Footer(self.first, self.last, self.rows, hashlib.sha256(self.content).hexdigest())


def whole_rows(data: bytes, incarnation: str) -> WholeRows | None:
    """The rows of ``incarnation`` from the start of a file to the first line that is not a whole row.

    None if there is no row. A power cut may leave more than a torn last line (such as blocks of zeros), so
    each line has to be a row with a rising sequence. What follows was never fsynced, and is still in the
    outbox.
    """
    end = first = last = rows = 0
    while (stop := data.find(_END, end)) >= 0:
        line = data[end:stop]
        if b"\n" in line or b"\r" in line:  # torn: no row contains half a line end
            break
        # The five comment lines come first; a footer, or a later comment, ends a file not yet renamed.
        if rows or not line.startswith(b"#") or line.startswith(b"#Footer:"):
            sequence = _sequence(line, incarnation)
            if sequence is None or sequence <= last:
                break
            first, last, rows = first or sequence, sequence, rows + 1
        end = stop + len(_END)
    if rows == 0:
        return None
    rest = data[end:]
    unexplained = _END in rest and footer_of(rest) is None
    return WholeRows(data[:end], first, last, rows, unexplained)


def _sequence(line: bytes, incarnation: str) -> int | None:
    if line.startswith(b"#"):  # a comment to every reader, whatever its fields
        return None
    try:
        sequence, boot = row_identity(parse_row(line.decode("utf-8")))
    except ValueError:
        return None
    return sequence if boot == incarnation else None
