"""Tells whether two messages are the same: by Message-ID and Date, or by all below the trace fields."""

from __future__ import annotations

import hashlib
import re

_TRACE = frozenset({b"received", b"return-path", b"delivered-to"})
_FIELD = re.compile(rb"([!-9;-~]+)[ \t]*:(.*)", re.DOTALL)
_LONGEST = 500
"""Most characters of a value that is kept; a longer value is kept as its hash."""


class Fingerprint:
    """Reads a message as it passes, and keeps only its header.

    The caller bounds the header; a message without an empty line is all header.
    """

    def __init__(self) -> None:
        self._header: bytearray | None = bytearray()
        self._hash = hashlib.sha256()
        self._message_id = self._date = ""

    def feed(self, data: bytes) -> None:
        if self._header is None:
            if not self._message_id:
                self._hash.update(data)
            return
        searched = max(0, len(self._header) - 3)
        self._header += data
        end = 0 if self._header.startswith(b"\r\n") else self._header.find(b"\r\n\r\n", searched)
        if end >= 0:
            self._read_header(bytes(self._header), end + 2)

    def result(self) -> tuple[str, str]:
        """(Message-ID, Date), or (hash, '') for a message without a Message-ID."""
        if self._header is not None:
            self._read_header(bytes(self._header), len(self._header))
        if self._message_id:
            return self._message_id, self._date
        return f"sha256:{self._hash.hexdigest()}", ""

    def _read_header(self, message: bytes, end: int) -> None:
        self._header = None
        fields = re.split(rb"\r\n(?![ \t])", message[:end])
        below = 0
        trace = True
        for text in fields:
            found = _FIELD.match(text)
            name = found[1].lower() if found else b""
            trace = trace and name in _TRACE
            if trace:
                below += len(text) + 2
            elif found and name == b"message-id":
                self._message_id = self._message_id or _value(found[2])
            elif found and name == b"date":
                self._date = self._date or _value(found[2])
        self._hash.update(message[below:])


def _value(raw: bytes) -> str:
    """A value unfolded, one character for each octet, and of bounded length."""
    text = b" ".join(raw.split()).decode("latin-1")
    return text if len(text) <= _LONGEST else f"sha256:{hashlib.sha256(text.encode('utf-8')).hexdigest()}"
