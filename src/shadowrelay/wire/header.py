"""The header section of a message, as far as a relay reads it; and the Received field that a relay adds.

A message may have no header and begin with its text. Fields that are put above such a text need an empty line
below them.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from shadowrelay.core.messages import TlsWish
from shadowrelay.core.spelling import in_ascii

_UNFOLD = re.compile(rb"\r\n[ \t]+")
_FIELD = re.compile(rb"^([!-9;-~]+)[ \t]*:(.*)$")
_NO_FIELD = re.compile(
    rb"(?!\r\n|>?From )(?![!-9;-~]+[ \t]*:)."
)  # nor an empty line, nor the From line of a mailbox file
_NO_COMMENT = re.compile(r"[^!-'*-\[\]-~]")
_SUBJECT_LENGTH = 255  # characters kept for the tracking log
_ENCODED_LENGTH = 1_000  # the same of a subject with encoded words: of Japanese they take six times as many


LONGEST_FIELD_NAME = 1000
"""How many octets at the beginning of a message decide whether it has a header."""


def lacks_header(beginning: bytes | bytearray) -> bool:
    """Does a message with this beginning have no header field at all, because its first line is text?

    ``beginning``: its first line, or as much of it as a field name may take. More counts for nothing, so that
    it does not matter in which pieces a message comes.
    """
    return _NO_FIELD.match(beginning, 0, LONGEST_FIELD_NAME) is not None


class HeaderScan:
    """Collects the header section from the octets as they arrive.

    ``section``: the header section, without the empty line. ``rest``: what follows it, from the empty line
    on. If there is no header field, an empty line is added, so that fields put above end there.
    """

    __slots__ = (
        "_pending",
        "complete",
        "message_id",
        "names",
        "received",
        "rest",
        "section",
        "subject",
        "tls",
    )

    def __init__(self) -> None:
        self.complete = False
        self.section = b""
        self.rest = b""
        self.message_id = ""
        self.subject = ""
        self.tls: TlsWish | None = None  # as the field TLS-Required says (RFC 8689 section 3)
        self.received = 0  # how many Received fields
        self.names: set[str] = set()
        self._pending = bytearray()

    def feed(self, data: bytes) -> bool:
        """Take the next octets. True once the header section is complete; do not call it after that."""
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
        """The message has ended, perhaps without a body."""
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
        lines = _UNFOLD.sub(b" ", self.section).split(b"\r\n")
        fields = [found for found in map(_FIELD.match, lines) if found]
        names = str(b"\n".join([found[1] for found in fields]).lower(), "ascii").split("\n")
        self.names = set(names).difference(("",))
        self.received = names.count("received")
        if "message-id" in self.names:
            self.message_id = _text(fields[names.index("message-id")])[:_SUBJECT_LENGTH]
        if "subject" in self.names:
            self.subject = _kept(_text(fields[names.index("subject")]))
        if "tls-required" in self.names and names.count("tls-required") == 1:
            waived = _text(fields[names.index("tls-required")]).lower() == "no"
            self.tls = TlsWish.WAIVED if waived else None


def _text(field: re.Match[bytes]) -> str:
    return str(field[2].strip(), "utf-8", "replace")


def _kept(subject: str) -> str:
    """As much as is kept of a subject; of encoded words, whole ones."""
    if "=?" not in subject or len(subject) <= _SUBJECT_LENGTH:
        return subject[:_SUBJECT_LENGTH]
    beginning = subject[:_ENCODED_LENGTH]
    return beginning if beginning == subject else beginning.rpartition(" ")[0] or beginning


def came_by(section: bytes, names: Collection[str], address: str) -> bool:
    """Does a Received field say that one of these servers took the message for that address?

    Fields that ``received_field`` made say so, unless the message had several recipients.
    """
    taken = {f" for <{one}>;".lower() for one in (address, in_ascii(address)) if one}
    for line in _UNFOLD.sub(b" ", section).split(b"\r\n"):
        found = _FIELD.match(line)
        if found and found[1].lower() == b"received":
            said = found[2].decode("utf-8", "replace").lower()
            if any(one in said for one in taken) and any(
                f" by {name.lower()} with " in said for name in names
            ):
                return True
    return False


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
    """The Received field (RFC 5321 4.4), CRLF included. It may name a single recipient, and never several.

    The user who logged in is named in a comment; characters that are not ASCII or could end it become ``?``.
    """
    literal = f"IPv6:{address}" if ":" in address else address
    lines = [f"Received: from {helo} ([{literal}])"]
    if login:
        lines.append(f"\t(authenticated: {_NO_COMMENT.sub('?', login)})")
    lines += [f"\tby {by} with {protocol}", f"\tid {message_id}"]
    if recipient:
        lines.append(f"\tfor <{recipient}>")
    return ("\r\n".join(lines) + f";\r\n\t{date}\r\n").encode("utf-8")
