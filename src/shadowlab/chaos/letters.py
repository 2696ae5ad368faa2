"""Composes mail that can be checked octet for octet where it arrives."""

from __future__ import annotations

import base64
import hashlib
import random
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime

from shadowlab.layout import INSIDE_DOMAIN, OUTSIDE_DOMAIN
from shadowlab.mail import Letter

DIGEST = "X-Lab-Digest"
_MOST_RECIPIENTS = 4
_SENDER = f"sender@{OUTSIDE_DOMAIN}"
_KIB = 1024

SIZES = ((80, 1, 8), (14, 8, 64), (5, 64, 512), (1, 1024, 4096))
"""(share in percent, least KiB, most KiB): kept in the row, in a file, streamed on arrival, and large."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """A letter and its octets, the same at every attempt; lines end with CRLF."""

    letter: Letter
    content: bytes


def compose(token: str, chance: random.Random) -> Parcel:
    """A message with a size and recipients that ``chance`` chooses."""
    (_, least, most) = chance.choices(SIZES, [share for share, _, _ in SIZES])[0]
    names = chance.sample(range(20), chance.choice((1, 1, 1, 2, 3, _MOST_RECIPIENTS)))
    recipients = tuple(
        f"user{name}@{INSIDE_DOMAIN if chance.random() < 0.5 else OUTSIDE_DOMAIN}" for name in names
    )
    letter = Letter(token, _SENDER, recipients)
    return sealed(letter, f"Chaos {token}", _body(chance.randint(least * _KIB, most * _KIB), chance))


def sealed(letter: Letter, subject: str, body: bytes) -> Parcel:
    """The letter with that body. Its first header field is a digest of everything after it."""
    header = {
        "Message-ID": letter.message_id,
        "Date": format_datetime(datetime.now(UTC)),
        "From": letter.sender,
        "To": ", ".join(letter.recipients),
        "Subject": subject,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in header.items())
    written = head.encode("ascii") + b"\r\n" + body
    return Parcel(letter, f"{DIGEST}: {hashlib.sha256(written).hexdigest()}\r\n".encode() + written)


def intact(content: bytes) -> tuple[str, bool]:
    """(Message-ID, whether all that was written is unchanged). Ignores trace fields of relays before it."""
    head = content.partition(b"\r\n\r\n")[0]
    fields = dict(line.split(": ", 1) for line in head.decode("latin-1").split("\r\n") if ": " in line)
    written = content.partition(f"{DIGEST}: ".encode())[2].partition(b"\r\n")[2]
    return fields.get("Message-ID", ""), fields.get(DIGEST) == hashlib.sha256(written).hexdigest()


def known_as(name: str, *, unchanged: bool) -> str:
    """The name of a message; a changed one counts as another message, which nobody sent."""
    return name if unchanged else f"{name} (changed on its way)"


def _body(size: int, chance: random.Random) -> bytes:
    """About ``size`` octets that do not compress, with lines that begin with a dot."""
    lines = base64.encodebytes(chance.randbytes(size * 3 // 4)).replace(b"\n", b"\r\n")
    return b".\r\n..\r\n" + lines + b".end\r\n"
