"""The header section of a message, as far as a relay reads it. Nothing in it is changed.

A message may have none, and begin with its text. What is put above that needs an empty line below it.
"""

from __future__ import annotations

import re

_UNFOLD = re.compile(rb"\r\n[ \t]+")
_FIELD = re.compile(rb"^([!-9;-~]+)[ \t]*:(.*)$")
_NO_FIELD = re.compile(
    rb"(?!\r\n|>?From )(?![!-9;-~]+[ \t]*:)."
)  # and no empty line, nor that of a mailbox file
_NO_COMMENT = re.compile(r"[^!-'*-\[\]-~]")
_SUBJECT_LENGTH = 255  # characters kept for the tracking log


LONGEST_FIELD_NAME = 1000
"""Octets at the beginning of a message that say whether it has a header."""


def lacks_header(beginning: bytes | bytearray) -> bool:
    """Whether a message that begins so has no header field at all: its first line is text. ``beginning`` is
    its first line, or as much of it as a field name may take.
    """
    return _NO_FIELD.match(beginning) is not None


class HeaderScan:
    """Collects the header section out of the octets as they arrive.

    ``section`` is all that came before the body, the empty line excluded; ``rest`` what followed it. Where
    there was no header field the empty line is made, so that what is put above ends there.
    """

    __slots__ = ("_pending", "complete", "message_id", "names", "received", "rest", "section", "subject")

    def __init__(self) -> None:
        self.complete = False
        self.section = b""
        self.rest = b""
        self.message_id = ""
        self.subject = ""
        self.received = 0  # how many Received fields
        self.names: set[str] = set()
        self._pending = bytearray()

    def feed(self, data: bytes) -> bool:
        """Take the next octets; True once the header section is complete. Only before that."""
        searched = max(0, len(self._pending) - 3)
        self._pending += data
        if self._begins_with_text():
            self._pending[:0] = b"\r\n"
        if self._pending.startswith(b"\r\n"):
            self._split(0, 0)
        elif (end := self._pending.find(b"\r\n\r\n", searched)) >= 0:
            self._split(end + 2, end + 2)
        return self.complete

    def finish(self) -> None:
        """There is no more: a message without a body."""
        if not self.complete:
            if lacks_header(self._pending):
                self._pending[:0] = b"\r\n"
                return self._split(0, 0)
            self._split(len(self._pending), len(self._pending))
        return None

    def _begins_with_text(self) -> bool:
        known = len(self._pending) >= LONGEST_FIELD_NAME or b"\n" in self._pending
        return known and lacks_header(self._pending)

    def _split(self, end: int, body: int) -> None:
        self.section, self.rest = bytes(self._pending[:end]), bytes(self._pending[body:])
        self._pending.clear()
        self.complete = True
        for line in _UNFOLD.sub(b" ", self.section).split(b"\r\n"):
            if found := _FIELD.match(line):
                self._field(found[1].lower().decode("ascii"), found[2].strip())

    def _field(self, name: str, value: bytes) -> None:
        first = name not in self.names
        self.names.add(name)
        if name == "received":
            self.received += 1
        elif name == "message-id" and first:
            self.message_id = value.decode("utf-8", "replace")[:_SUBJECT_LENGTH]
        elif name == "subject" and first:
            self.subject = value.decode("utf-8", "replace")[:_SUBJECT_LENGTH]


def received_field(
    *,
    helo: str,
    address: str,
    by: str,
    protocol: str,
    message_id: str,
    date: str,
    recipient: str = "",
    login: str = "",
) -> bytes:
    """The trace field of RFC 5321 4.4, CRLF included. A single recipient may be named, several never are.

    Who logged in stands in a comment: in ASCII, and in nothing that ends one.
    """
    literal = f"IPv6:{address}" if ":" in address else address
    lines = [f"Received: from {helo} ([{literal}])"]
    if login:
        lines.append(f"\t(authenticated: {_NO_COMMENT.sub('?', login)})")
    lines += [f"\tby {by} with {protocol}", f"\tid {message_id}"]
    if recipient:
        lines.append(f"\tfor <{recipient}>")
    return ("\r\n".join(lines) + f";\r\n\t{date}\r\n").encode("utf-8")
