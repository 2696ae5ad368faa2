"""A message as a next hop gets it: what it needs of the hop, its MAIL and RCPT commands, and its content.

The content leaves in large blocks, with dots stuffed and nothing else touched (RFC 5321 4.5.2). No line is
ever looked at on its own, and no line ending is rewritten: octets leave as they were accepted.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from functools import lru_cache
from typing import TypeAlias

from shadowrelay.core.delivery.settling import Ending
from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.messages import Envelope, Recipient, TlsWish
from shadowrelay.core.spelling import in_ascii
from shadowrelay.core.values import dataclass
from shadowrelay.smtp.sending.hop import RecipientResult
from shadowrelay.wire import addresses
from shadowrelay.wire.esmtp import MailFrom, RcptTo, format_mail, format_rcpt
from shadowrelay.wire.line_ends import all_paired, has_dot_line
from shadowrelay.wire.replies import Reply
from shadowrelay.wire.report import MOST_RETURNED, with_the_header_alone

LONGEST_REPORT = 2 * MOST_RETURNED
"""Octets: no report of ours is longer, whatever it returns."""

BLOCK = 256 * 1024
"""Octets handed to the transport at once: a delivery takes a few times this, whatever the message's size."""

ContentSource: TypeAlias = bytes | AsyncIterable[bytes]
"""A message at rest, or one that is read as it is sent; an iterator serves one attempt."""

Extensions = Mapping[str, str]
"""The extensions of the last EHLO (or LHLO): keyword in upper case to its arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentNeeds:
    """What the content asks for: its octets, whether any is above 127, and whether one of the header's is."""

    size: int
    eight_bit: bool
    utf8_header: bool


def refusals(
    envelope: Envelope, recipients: Sequence[Recipient], need: ContentNeeds, extensions: Extensions
) -> list[RecipientResult]:
    """Recipients that this hop cannot take, REJECTED without asking it."""
    everybody = _refusal_for_all(envelope, need, extensions)
    found = []
    for recipient in recipients:
        reply = everybody or _refusal_for_one(recipient, extensions)
        if reply:
            found.append(RecipientResult(recipient.number, Ending.REJECTED, str(reply), remote=False))
    return found


def mail_command(
    envelope: Envelope, need: ContentNeeds, extensions: Extensions, *, verified: bool = False
) -> bytes:
    """MAIL, CRLF included, with SIZE, BODY, SMTPUTF8, RET, ENVID, and in a verified session REQUIRETLS, as
    far as they are offered.
    """
    mail = MailFrom(
        sender=_spelt(envelope.sender, extensions),
        size=need.size,
        body="8BITMIME" if need.eight_bit else envelope.body,
        smtputf8=envelope.smtputf8,
        ret=envelope.ret,
        envid=envelope.envid,
        requiretls=verified and envelope.tls is TlsWish.REQUIRED,
    )
    return format_mail(mail, extensions)


def rcpt_command(recipient: Recipient, extensions: Extensions) -> bytes:
    """RCPT, CRLF included, with NOTIFY and ORCPT where DSN is offered.

    An ORCPT in UTF-8 goes only where SMTPUTF8 is offered too: it is a comment, not a reason to refuse.
    """
    orcpt = recipient.orcpt
    if orcpt and not orcpt.isascii() and "SMTPUTF8" not in extensions:
        orcpt = None
    address = _spelt(recipient.address, extensions)
    return format_rcpt(RcptTo(address, recipient.notify, orcpt), extensions)


def _spelt(address: str, extensions: Extensions) -> str:
    """The address as the hop takes it: where SMTPUTF8 is not offered, a domain in Unicode as A-labels."""
    return address if "SMTPUTF8" in extensions else (in_ascii(address) or address)


def _refusal_for_all(envelope: Envelope, need: ContentNeeds, extensions: Extensions) -> Reply | None:
    if exceeds(need, extensions):
        limit = size_limit(extensions)
        return Reply(552, "5.3.4", f"Message size {need.size} exceeds the next hop's limit of {limit}")
    if need.eight_bit and "8BITMIME" not in extensions:
        return Reply(554, "5.6.3", "The next hop does not take 8-bit content")
    if "SMTPUTF8" not in extensions:
        if in_ascii(envelope.sender) is None:
            return Reply(553, "5.6.7", "The next hop does not take non-ASCII addresses")
        if need.utf8_header:
            return Reply(554, "5.6.9", "The next hop does not take non-ASCII headers")
    if envelope.sender and not _is_address(_spelt(envelope.sender, extensions)):
        return Reply(553, "5.1.7", "The sender address cannot be written in SMTP")
    return None


def _refusal_for_one(recipient: Recipient, extensions: Extensions) -> Reply | None:
    if "SMTPUTF8" not in extensions and in_ascii(recipient.address) is None:
        return Reply(553, "5.6.7", "The next hop does not take non-ASCII addresses")
    if not _is_address(_spelt(recipient.address, extensions)):
        return Reply(553, "5.1.3", "The recipient address cannot be written in SMTP")
    return None


def size_limit(extensions: Extensions) -> int | None:
    """Octets (RFC 1870); None when there is no limit, or none is named."""
    return _limit(extensions["SIZE"]) if "SIZE" in extensions else None


@lru_cache(maxsize=256)
def _limit(limit: str) -> int | None:
    return int(limit) or None if limit.isascii() and limit.isdigit() and len(limit) <= 20 else None


@lru_cache(maxsize=4096)
def _is_address(text: str) -> bool:
    """Whether the text can stand between angle brackets without becoming something else."""
    try:
        return text != "" and addresses.read_path(f"<{text}>") == ("", text, "")
    except addresses.AddressError:
        return False


class BareLineEnding(Exception):
    """A CR or LF that is not part of a CRLF: some receivers would end the message there (SMTP smuggling)."""


class DotStuffer:
    """Doubles each dot that begins a line, whatever the blocks' boundaries."""

    def __init__(self) -> None:
        self._tail = b"\r\n"  # the line end of the DATA command

    def feed(self, block: bytes) -> bytes:
        """The block, stuffed. Raises BareLineEnding, also for a CR at the end of the former block."""
        if not block:
            return block
        tail = self._tail
        split = tail.endswith(b"\r")
        if split != block.startswith(b"\n"):
            raise BareLineEnding
        if not all_paired(block[split : len(block) - block.endswith(b"\r")]):
            raise BareLineEnding
        self._tail = (tail + block[-2:])[-2:]
        stuffed = block.replace(b"\r\n.", b"\r\n..") if has_dot_line(block) else block
        if split and block.startswith(b"\n."):
            return b"\n.." + stuffed[2:]
        if tail == b"\r\n" and block.startswith(b"."):
            return b"." + stuffed
        return stuffed

    def end(self) -> bytes:
        """What ends the data; with a CRLF before it when the content had none at its end."""
        if self._tail.endswith(b"\r"):
            raise BareLineEnding
        return b".\r\n" if self._tail == b"\r\n" else b"\r\n.\r\n"


async def blocks(content: ContentSource) -> AsyncGenerator[bytes, None]:
    """The content in pieces of at most BLOCK octets."""
    if isinstance(content, bytes):
        for start in range(0, len(content), BLOCK):
            yield content[start : start + BLOCK]
        return
    async for piece in content:
        for start in range(0, len(piece), BLOCK):
            yield piece[start : start + BLOCK]


async def examine(
    envelope: Envelope,
    content: ContentSource,
    extensions: Extensions,
    *,
    eight_bit: bool | None,
    afresh: Callable[[], ContentSource] | None,
) -> tuple[ContentNeeds, ContentSource]:
    """What the content needs of a next hop, and the content to send in place of the one given.

    A message at rest is examined. For a streamed one, the size and BODY that the envelope declares are
    believed (``eight_bit`` overrules BODY when the caller knows better), until that would decide whether the
    hop can take it: then ``afresh`` is read once more, from its beginning to its end.
    """
    utf8_matters = envelope.smtputf8 and "SMTPUTF8" not in extensions
    if isinstance(content, bytes):
        high = not content.isascii()
        utf8_header = high and utf8_matters and not _header_of(content).isascii()
        return ContentNeeds(size=len(content), eight_bit=high, utf8_header=utf8_header), content
    unknown = eight_bit is None and "8BITMIME" not in extensions
    if afresh is not None and (unknown or utf8_matters):
        seen, utf8_header = await _seen(afresh())
        return ContentNeeds(
            size=envelope.size, eight_bit=seen, utf8_header=utf8_header and utf8_matters
        ), content
    declared = envelope.body == "8BITMIME" if eight_bit is None else eight_bit
    return ContentNeeds(size=envelope.size, eight_bit=declared, utf8_header=False), content


def exceeds(need: ContentNeeds, extensions: Extensions) -> bool:
    """Is the content longer than the SIZE that the hop has told?"""
    limit = size_limit(extensions)
    return limit is not None and need.size > limit


_TOO_LONG = re.compile(r"5\d\d 5\.(3\.4|2\.3)\b|552 (?!\d+\.\d+\.\d+)")


def found_too_long(results: Collection[RecipientResult]) -> bool:
    """Did the hop refuse the message, for everybody, because of its length?"""
    return bool(results) and all(
        one.ending is Ending.REJECTED and one.remote and _TOO_LONG.match(one.reply) for one in results
    )


async def shortened(
    need: ContentNeeds,
    content: ContentSource,
    report_id: MessageId,
    afresh: Callable[[], ContentSource] | None,
) -> tuple[ContentNeeds, bytes] | None:
    """A report of ours with the header in place of the whole message that it returns. None: it is no report
    of ours, or returns no whole message.
    """
    if need.size > LONGEST_REPORT:
        return None
    whole = content
    if not isinstance(whole, bytes):
        if afresh is None:
            return None
        async with aclosing(blocks(afresh())) as pieces:
            whole = b"".join([piece async for piece in pieces])
    shorter = with_the_header_alone(whole, report_id)
    if shorter is None:
        return None
    return ContentNeeds(size=len(shorter), eight_bit=False, utf8_header=False), shorter


async def _seen(content: ContentSource) -> tuple[bool, bool]:
    """Whether any octet is above 127, and whether one of the header's is."""
    eight_bit = utf8_header = past_header = False
    tail = b"\r\n"  # a message may begin with the empty line that ends its header
    async with aclosing(blocks(content)) as pieces:
        async for piece in pieces:
            eight_bit = eight_bit or not piece.isascii()
            if not past_header:
                header, end, _ = (tail + piece).partition(b"\r\n\r\n")
                utf8_header = utf8_header or not header.isascii()
                past_header, tail = bool(end), header[-3:]
    return eight_bit, utf8_header


def _header_of(content: bytes) -> bytes:
    """Up to the first empty line (all of it when there is none)."""
    return b"" if content.startswith(b"\r\n") else content.partition(b"\r\n\r\n")[0]
