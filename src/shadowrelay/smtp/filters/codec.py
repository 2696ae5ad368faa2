"""The octets of the milter protocol, version 6: what an MTA says to a filter, and what the filter answers.

A packet is its length in four octets, a letter, and what the letter takes. No I/O: ``session`` has that.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from enum import Enum, IntFlag
from typing import TypeAlias

from shadowrelay.core.values import dataclass
from shadowrelay.wire.replies import Reply, ReplyError, parse_reply

VERSION = 6
_OLDEST = 2
_DATA_SINCE = 4
LONGEST = 1 << 20  # octets of a packet of a filter: its body parts and header values have 64 KiB
PART = 65535  # octets of the body in one packet
HEAD = struct.Struct("!I")
_OPTIONS = struct.Struct("!III")
_NAME = re.compile(rb"[!-9;-~]{1,998}")


class Nonsense(ValueError):
    """The filter said something that the protocol does not have, or that no message may have."""


class May(IntFlag):
    """What a filter may do to a message."""

    ADD_FIELDS = 0x1
    REPLACE_BODY = 0x2
    ADD_RECIPIENTS = 0x4
    REMOVE_RECIPIENTS = 0x8
    CHANGE_FIELDS = 0x10
    QUARANTINE = 0x20
    CHANGE_SENDER = 0x40
    ADD_RECIPIENTS_WITH_PARAMETERS = 0x80


class Not(IntFlag):
    """What a filter is not told; from 0x80 on, what it does not answer; and two agreements."""

    CONNECT = 0x1
    HELO = 0x2
    MAIL = 0x4
    RCPT = 0x8
    BODY = 0x10
    FIELDS = 0x20
    END_OF_FIELDS = 0x40
    UNKNOWN = 0x100
    DATA = 0x200
    ANSWER_FIELDS = 0x80
    ANSWER_CONNECT = 0x1000
    ANSWER_HELO = 0x2000
    ANSWER_MAIL = 0x4000
    ANSWER_RCPT = 0x8000
    ANSWER_DATA = 0x10000
    ANSWER_UNKNOWN = 0x20000
    ANSWER_END_OF_FIELDS = 0x40000
    ANSWER_BODY = 0x80000
    REST_OF_BODY = 0x400  # it may answer a part of the body with "no more of it"
    LEADING_SPACE = 0x100000  # the value of a field begins right behind the colon, with its space


ALL_MAY = May(0xFF)
ALL_NOT = Not(0x1FF7FF)


class Said(Enum):
    """What a filter answers to a step of the transaction."""

    CONTINUE = b"c"
    ACCEPT = b"a"  # it wants to hear no more of this message
    REJECT = b"r"
    TEMPFAIL = b"t"
    DISCARD = b"d"
    REST_SKIPPED = b"s"
    REPLY = b"y"
    PROGRESS = b"p"


@dataclass(frozen=True, slots=True)
class Ruling:
    """An answer. ``reply``: the filter's own, for REPLY alone."""

    said: Said
    reply: Reply | None = None


@dataclass(frozen=True, slots=True)
class Agreed:
    """What MTA and filter agree on: what it may do, and what it is not told."""

    may: May
    is_not: Not


@dataclass(frozen=True, slots=True)
class FieldEdit:
    """A header field added (``index`` None), put in (``insert``), changed, or with an empty value removed.

    ``value`` has CRLF where it is folded. ``index``: for a change the how manieth of its name, from 1; for an
    insertion how many fields stand above it.
    """

    name: bytes
    value: bytes
    index: int | None = None
    insert: bool = False

    @property
    def longest(self) -> int:
        """The octets of its longest line, CRLF included."""
        return 2 + max(map(len, (self.name + b":" + self.value).split(b"\r\n")))


@dataclass(frozen=True, slots=True)
class BodyPart:
    """The next octets of the body that takes the place of the message's own."""

    data: bytes


@dataclass(frozen=True, slots=True)
class RecipientAdded:
    path: str  # as in RCPT, with or without brackets


@dataclass(frozen=True, slots=True)
class RecipientRemoved:
    path: str


@dataclass(frozen=True, slots=True)
class SenderChanged:
    path: str


@dataclass(frozen=True, slots=True)
class Quarantined:
    reason: str


Edit: TypeAlias = FieldEdit | BodyPart | RecipientAdded | RecipientRemoved | SenderChanged | Quarantined
FilterAnswer: TypeAlias = Ruling | Edit | Agreed


def packet(letter: bytes, data: bytes = b"") -> bytes:
    """One packet as it is sent."""
    return HEAD.pack(len(data) + 1) + letter + data


def strings(*values: bytes) -> bytes:
    """Values that each end with a NUL. A NUL inside would end it too early, so it is left out."""
    return b"".join([value.replace(b"\0", b"") + b"\0" for value in values])


def offer() -> bytes:
    """The first packet: all that this MTA can do."""
    return packet(b"O", _OPTIONS.pack(VERSION, ALL_MAY, ALL_NOT))


def macros(step: bytes, known: Mapping[str, str]) -> bytes:
    """The packet with the macros of a step. Those without a value are left out."""
    pairs = [part.encode() for name, value in known.items() if value for part in (name, value)]
    return packet(b"D", step + strings(*pairs)) if pairs else b""


def answer(data: bytes) -> FilterAnswer:
    """What a packet of the filter says, given without its length. Raises Nonsense."""
    try:
        return _READ[data[:1]](data[1:])
    except KeyError:
        raise Nonsense(f"unknown answer {data[:1]!r}") from None
    except (struct.error, UnicodeDecodeError) as error:
        raise Nonsense(f"answer {data[:1]!r} cannot be read") from error


def _options(data: bytes) -> Agreed:
    version, may, is_not = _OPTIONS.unpack_from(data)
    if version < _OLDEST or version > VERSION:
        raise Nonsense(f"it speaks version {version}")
    if may & ~int(ALL_MAY) or is_not & ~int(ALL_NOT):  # a flag's own complement has known bits alone
        raise Nonsense("it wants what was not offered")
    known = Not(is_not)
    return Agreed(May(may), known if version >= _DATA_SINCE else known | Not.DATA)


def _strings(data: bytes, count: int) -> list[bytes]:
    """As many values; an address may be followed by its parameters, which are not asked for here."""
    values = data.split(b"\0")
    if len(values) <= count or (len(values) > count + 1 and b"".join(values[count + 1 :])):
        raise Nonsense("a value has no end")
    return values[:count]


def _edit(name: bytes, value: bytes, *, index: int | None = None, insert: bool = False) -> FieldEdit:
    if _NAME.fullmatch(name) is None:
        raise Nonsense("a field has an impossible name")
    lines = value.replace(b"\r\n", b"\n").rstrip(b"\n").split(b"\n")
    if any(b"\r" in line for line in lines) or any(line[:1] not in (b" ", b"\t") for line in lines[1:]):
        raise Nonsense("the value of a field would end it")
    return FieldEdit(name, b"\r\n".join(lines), index, insert)


def _added(data: bytes) -> FieldEdit:
    return _edit(*_strings(data, 2))


def _at(data: bytes, *, insert: bool = False) -> FieldEdit:
    (index,) = HEAD.unpack_from(data)
    name, value = _strings(data[HEAD.size :], 2)
    return _edit(name, value, index=index, insert=insert)


def _reply(data: bytes) -> Ruling:
    """Its own reply: with 4yz or 5yz alone, and by the grammar. A per cent sign comes twice. 421 would
    announce the end of the session, which does not end: it becomes 451.
    """
    text = data.rstrip(b"\0\r\n").replace(b"%%", b"%")
    try:
        reply = parse_reply([line.removesuffix(b"\r") for line in text.split(b"\n")])
    except ReplyError as error:
        raise Nonsense(f"no reply: {error}") from error
    if not (reply.transient or reply.permanent):
        raise Nonsense(f"a reply with the code {reply.code}")
    code = 451 if reply.code == 421 else reply.code
    return Ruling(Said.REPLY, Reply(code, reply.enhanced or f"{code // 100}.7.1", reply.text))


def _address(data: bytes) -> str:
    """An address. What follows it are parameters of RCPT or MAIL, which are ignored."""
    path, end, _ = data.partition(b"\0")
    if not end:
        raise Nonsense("a value has no end")
    return path.decode()


def _verdict(letter: Said) -> Callable[[bytes], FilterAnswer]:
    return lambda _: Ruling(letter)


_READ: Mapping[bytes, Callable[[bytes], FilterAnswer]] = {
    b"O": _options,
    **{one.value: _verdict(one) for one in Said},
    b"y": _reply,
    b"h": _added,
    b"i": lambda data: _at(data, insert=True),
    b"m": _at,
    b"b": BodyPart,
    b"+": lambda data: RecipientAdded(_address(data)),
    b"2": lambda data: RecipientAdded(_address(data)),
    b"-": lambda data: RecipientRemoved(_address(data)),
    b"e": lambda data: SenderChanged(_address(data)),
    b"q": lambda data: Quarantined(_address(data)),
}
