"""XSHADOW: the greeting of members, and the offer of a copy. Grammar: docs/reference/protocol.md.

::

    XSHADOW <name> <database-id> <mark> <incarnation>@<beginning>,... [KNOWN=<incarnation>]
    MAIL FROM:<...> XSHADOW=<message-id>;<epoch>;<rank>;<mark>;<received> ...
    RCPT TO:<...> XFORK=<number>;<xtext next hop> ...

A mark is ``<incarnation>:<sequence>``; ``<received>`` is Unix time in milliseconds, so that a takeover
does not reset a message's age.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from shadowrelay.core.conversation import Greeting
from shadowrelay.core.identifiers import (
    Beginning,
    DatabaseId,
    Incarnation,
    Lineage,
    Mark,
    MessageId,
    NextHop,
    ServerName,
)
from shadowrelay.core.values import dataclass
from shadowrelay.wire.xtext import decode_xtext, encode_xtext

VERSION = 1
MAX_LINE = 4096  # octets of a command or reply line between members, CRLF included

_INCARNATION = re.compile(r"[0-9a-f]{16}")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,253}[a-z0-9])?")
_NUMBER = re.compile(r"[0-9]{1,18}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Malformed(ValueError):
    """The text is not of the grammar. Its message may be shown to the peer."""


@dataclass(frozen=True, slots=True)
class OfferMark:
    """The XSHADOW parameter of MAIL: which message, in which ownership, and from which point of the owner."""

    message_id: MessageId
    epoch: int
    rank: int
    mark: Mark
    received_at: datetime


def number(text: str) -> int:
    """A decimal number of at most 18 digits."""
    if not _NUMBER.fullmatch(text):
        raise Malformed("bad number")
    return int(text)


def incarnation(text: str) -> Incarnation:
    if not _INCARNATION.fullmatch(text):
        raise Malformed("bad incarnation")
    return Incarnation(text)


def message_id(text: str) -> MessageId:
    if not _UUID.fullmatch(text):
        raise Malformed("bad message id")
    return MessageId(text)


def database_id(text: str) -> DatabaseId:
    if not _UUID.fullmatch(text):
        raise Malformed("bad database id")
    return DatabaseId(text)


def server_name(text: str) -> ServerName:
    if not _NAME.fullmatch(text):
        raise Malformed("bad server name")
    return ServerName(text)


def parse_mark(text: str) -> Mark:
    name, colon, sequence = text.partition(":")
    if not colon:
        raise Malformed("bad mark")
    return Mark(incarnation(name), number(sequence))


def format_mark(mark: Mark) -> str:
    return str(mark)


def format_greeting(greeting: Greeting) -> str:
    """The arguments of XSHADOW, also the text of its answer."""
    lineage = greeting.lineage
    beginnings = ",".join(f"{entry.incarnation}@{entry.sequence}" for entry in lineage.beginnings)
    text = f"{greeting.name} {lineage.database_id} {format_mark(lineage.mark)} {beginnings}"
    return f"{text} KNOWN={greeting.known}" if greeting.known else text


def parse_greeting(text: str) -> Greeting:
    """Read the arguments of XSHADOW. Raises Malformed."""
    words = text.split(" ")
    if len(words) not in (4, 5) or not _UUID.fullmatch(words[1]):
        raise Malformed("XSHADOW needs name, database id, mark and lineage")
    mark = parse_mark(words[2])
    beginnings = []
    for entry in words[3].split(","):
        name, at, sequence = entry.partition("@")
        if not at:
            raise Malformed("bad lineage")
        beginnings.append(Beginning(incarnation(name), number(sequence)))
    sequences = [beginning.sequence for beginning in beginnings]
    if beginnings[-1].incarnation != mark.incarnation or sequences != sorted(sequences):
        raise Malformed("lineage does not lead to the mark")
    if mark.sequence < sequences[-1]:
        raise Malformed("mark lies before its incarnation")
    known = None
    if len(words) == 5:
        if not words[4].startswith("KNOWN="):
            raise Malformed("unknown argument")
        known = incarnation(words[4].removeprefix("KNOWN="))
    lineage = Lineage(DatabaseId(words[1]), tuple(beginnings), mark.sequence)
    return Greeting(server_name(words[0]), lineage, known)


def format_offer(offer: OfferMark) -> str:
    """The value of MAIL's XSHADOW parameter."""
    received = (offer.received_at - _EPOCH) // timedelta(milliseconds=1)
    return f"{offer.message_id};{offer.epoch};{offer.rank};{format_mark(offer.mark)};{received}"


def parse_offer(text: str) -> OfferMark:
    """Read MAIL's XSHADOW parameter. Raises Malformed."""
    parts = text.split(";")
    if len(parts) != 5:
        raise Malformed("XSHADOW needs message id, epoch, rank, mark and time")
    received = number(parts[4])
    if received > 253_402_300_799_000:  # the year 9999, where datetime ends
        raise Malformed("bad time")
    return OfferMark(
        message_id(parts[0]),
        number(parts[1]),
        number(parts[2]),
        parse_mark(parts[3]),
        _EPOCH + timedelta(milliseconds=received),
    )


def format_fork(recipient: int, next_hop: NextHop) -> str:
    """The value of RCPT's XFORK parameter."""
    return f"{recipient};{encode_xtext(next_hop)}"


@lru_cache(maxsize=1024)  # read at each RCPT, with that of the one before, and again when the content comes
def parse_fork(text: str) -> tuple[int, NextHop]:
    """Read RCPT's XFORK parameter. Raises Malformed."""
    index, semicolon, hop = text.partition(";")
    if not semicolon:
        raise Malformed("XFORK needs number and next hop")
    position = number(index)
    if not 1 <= position <= 1_000_000:
        raise Malformed("bad recipient number")
    try:
        return position, NextHop(decode_xtext(hop))
    except ValueError as error:
        raise Malformed("bad next hop") from error
