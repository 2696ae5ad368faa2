"""A message as filters see it and change it: its header fields, its body in the spool, and its envelope."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

from shadowrelay.core.values import dataclass, replace
from shadowrelay.database.content import Spool
from shadowrelay.smtp.filters.codec import (
    BodyPart,
    Edit,
    FieldEdit,
    Quarantined,
    RecipientAdded,
    RecipientRemoved,
    SenderChanged,
)
from shadowrelay.smtp.receiving.content import ContentCheck
from shadowrelay.wire.esmtp import RcptTo, parse_mail, parse_rcpt
from shadowrelay.wire.replies import Refused

_END_OF_FIELD = re.compile(rb"\r\n(?![ \t])")
_FIELD = re.compile(rb"([!-9;-~]+)[ \t]*:(.*)", re.DOTALL)
_EMPTY_LINE = b"\r\n"
_REASON = 200  # characters of a filter's words that are kept


class NotPossible(ValueError):
    """A filter asked for what no message may have."""


@dataclass(frozen=True, slots=True)
class ContentLimits:
    """What a filter may make of a message, in octets: as a client may send it. ``pairs``: no CR or LF stands
    alone.
    """

    most: int
    header: int
    line: int | None
    pairs: bool
    recipients: int
    any_dots: bool = False  # local parts such as user..name

    def check(self) -> ContentCheck:
        """For a body alone: no part of it is a header."""
        return ContentCheck(most=self.most, most_header=self.most, most_line=self.line, pairs=self.pairs)


class Replacement:
    """Another body, as it comes from a filter. Raises NotPossible, and OSError of the disk."""

    def __init__(self, spool: Spool, limits: ContentLimits) -> None:
        self.spool = spool
        self._check = limits.check()
        self._last = _EMPTY_LINE

    def write(self, data: bytes) -> None:
        if fault := self._check.feed(data):
            raise NotPossible(f"another body: {fault}")
        self.spool.write(data)
        self._last = (self._last + data[-2:])[-2:]

    def end(self) -> None:
        if fault := self._check.end():
            raise NotPossible(f"another body: {fault}")
        if self._last != _EMPTY_LINE:
            self.spool.write(_EMPTY_LINE)
            self._last = _EMPTY_LINE


def fields_of(section: bytes) -> tuple[bytes, ...]:
    """The fields of a header section, each with its last line end. A line that is no field counts as one that
    no filter sees.
    """
    return tuple(field + b"\r\n" for field in _END_OF_FIELD.split(section.removesuffix(b"\r\n")) if field)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredMessage:
    """``trace``: our Received field, which no filter sees and which stays on top. ``body_at``: where in
    ``spool`` the body begins, behind the empty line. ``altered``: the content is not what the spool has.
    """

    trace: bytes
    fields: tuple[bytes, ...]
    spool: Spool
    body_at: int
    sender: str
    recipients: tuple[RcptTo, ...]
    smtputf8: bool
    limits: ContentLimits
    another: Callable[[], Spool]
    altered: bool = False
    quarantined: str = ""

    def replacement(self) -> Replacement:
        return Replacement(self.another(), self.limits)

    def shown(self) -> Iterator[tuple[bytes, bytes]]:
        """Name and value of each field that is one; the value begins right behind the colon."""
        for field in self.fields:
            if found := _FIELD.fullmatch(field[:-2]):
                yield found[1], found[2]

    async def body(self) -> AsyncIterator[bytes]:
        before = self.body_at
        async for block in self.spool.blocks():
            if part := block[before:]:
                yield part
            before = max(0, before - len(block))

    @property
    def header(self) -> bytes:
        return self.trace + b"".join(self.fields)

    def changed(self, edits: Sequence[Edit], replaced: Replacement) -> FilteredMessage:
        """The message with the edits of one filter, all of them. Raises NotPossible, OSError."""
        message = self
        for edit in edits:
            message = message._changed(edit, replaced)
        if len(message.header) > max(len(self.header), message.limits.header):
            raise NotPossible("a header that is too big")
        if len(message.recipients) > max(len(self.recipients), message.limits.recipients):
            raise NotPossible("too many recipients")
        return message

    def _changed(self, edit: Edit, replaced: Replacement) -> FilteredMessage:
        match edit:
            case FieldEdit():
                if (most := self.limits.line) is not None and edit.longest > most:
                    raise NotPossible("a line of a field that is too long")
                return replace(self, fields=_edited(self.fields, edit), altered=True)
            case BodyPart():
                replaced.end()
                return replace(self, spool=replaced.spool, body_at=0, altered=True)
            case RecipientAdded(path):
                return replace(self, recipients=(*self.recipients, self._recipient(path)))
            case RecipientRemoved(path):
                gone = self._recipient(path).address.lower()
                kept = tuple(one for one in self.recipients if one.address.lower() != gone)
                return replace(self, recipients=kept)
            case SenderChanged(path):
                return replace(self, sender=self._sender(path))
            case Quarantined(reason):
                return replace(self, quarantined=reason[:_REASON] or "quarantined")

    def _recipient(self, path: str) -> RcptTo:
        try:
            dots = self.limits.any_dots
            return parse_rcpt(f"TO:{_path(path)}", smtputf8=self.smtputf8, any_dots=dots)
        except Refused as refused:
            raise NotPossible(f"a recipient {path!r}: {refused.reply}") from None

    def _sender(self, path: str) -> str:
        try:
            argument, dots = f"FROM:{_path(path)}{' SMTPUTF8' * self.smtputf8}", self.limits.any_dots
            return parse_mail(argument, any_dots=dots).sender
        except Refused as refused:
            raise NotPossible(f"a sender {path!r}: {refused.reply}") from None

    async def write(self, to: Spool) -> None:
        """The whole content. Raises OSError."""
        to.write(self.header + _EMPTY_LINE)
        async for block in self.body():
            to.write(block)


def _edited(fields: tuple[bytes, ...], edit: FieldEdit) -> tuple[bytes, ...]:
    made = (edit.name + b":" + edit.value + b"\r\n",)
    if edit.index is None:
        return fields + made
    if edit.insert:
        seen = [at for at, field in enumerate(fields) if _FIELD.match(field)]
        at = seen[edit.index] if edit.index < len(seen) else len(fields)
        return fields[:at] + made + fields[at:]
    name = edit.name.lower()
    same = [
        at for at, field in enumerate(fields) if (found := _FIELD.match(field)) and found[1].lower() == name
    ]
    number = max(1, edit.index)
    if number > len(same):
        return fields + made if edit.value else fields
    at = same[number - 1]
    return fields[:at] + (made if edit.value else ()) + fields[at + 1 :]


def _path(path: str) -> str:
    return path if path.startswith("<") else f"<{path}>"
