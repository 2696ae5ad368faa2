"""What a message needs of a next hop, what the hop offers, and the MAIL and RCPT commands that follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from shadowrelay.core.delivery.settling import Ending
from shadowrelay.core.messages import Envelope, Recipient
from shadowrelay.core.values import dataclass
from shadowrelay.smtp.send_hop import RecipientResult
from shadowrelay.wire import addresses
from shadowrelay.wire.esmtp import MailFrom, RcptTo, format_mail, format_rcpt
from shadowrelay.wire.replies import Reply

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
    """Recipients that this hop cannot be asked to take, REJECTED without a word to it."""
    everybody = _refusal_for_all(envelope, need, extensions)
    found = []
    for recipient in recipients:
        reply = everybody or _refusal_for_one(recipient, extensions)
        if reply:
            found.append(RecipientResult(recipient.number, Ending.REJECTED, str(reply), remote=False))
    return found


def mail_command(envelope: Envelope, need: ContentNeeds, extensions: Extensions) -> bytes:
    """MAIL, CRLF included, with SIZE, BODY, SMTPUTF8, RET and ENVID as far as they are offered."""
    mail = MailFrom(
        sender=envelope.sender,
        size=need.size,
        body="8BITMIME" if need.eight_bit else envelope.body,
        smtputf8=envelope.smtputf8,
        ret=envelope.ret,
        envid=envelope.envid,
    )
    return format_mail(mail, extensions)


def rcpt_command(recipient: Recipient, extensions: Extensions) -> bytes:
    """RCPT, CRLF included, with NOTIFY and ORCPT where DSN is offered.

    An ORCPT in UTF-8 goes only where SMTPUTF8 is offered too: it is a comment, not a reason to refuse.
    """
    orcpt = recipient.orcpt
    if orcpt and not orcpt.isascii() and "SMTPUTF8" not in extensions:
        orcpt = None
    return format_rcpt(RcptTo(recipient.address, recipient.notify, orcpt), extensions)


def _refusal_for_all(envelope: Envelope, need: ContentNeeds, extensions: Extensions) -> Reply | None:
    limit = size_limit(extensions)
    if limit is not None and need.size > limit:
        return Reply(552, "5.3.4", f"Message size {need.size} exceeds the next hop's limit of {limit}")
    if need.eight_bit and "8BITMIME" not in extensions:
        return Reply(554, "5.6.3", "The next hop does not take 8-bit content")
    if "SMTPUTF8" not in extensions:
        if not envelope.sender.isascii():
            return Reply(553, "5.6.7", "The next hop does not take non-ASCII addresses")
        if need.utf8_header:
            return Reply(554, "5.6.9", "The next hop does not take non-ASCII headers")
    if envelope.sender and not _is_address(envelope.sender):
        return Reply(553, "5.1.7", "The sender address cannot be written in SMTP")
    return None


def _refusal_for_one(recipient: Recipient, extensions: Extensions) -> Reply | None:
    if not recipient.address.isascii() and "SMTPUTF8" not in extensions:
        return Reply(553, "5.6.7", "The next hop does not take non-ASCII addresses")
    if not _is_address(recipient.address):
        return Reply(553, "5.1.3", "The recipient address cannot be written in SMTP")
    return None


def size_limit(extensions: Extensions) -> int | None:
    """Octets (RFC 1870); None when there is no limit, or none is named."""
    limit = extensions.get("SIZE", "")
    return int(limit) or None if limit.isascii() and limit.isdigit() and len(limit) <= 20 else None


@lru_cache(maxsize=4096)
def _is_address(text: str) -> bool:
    """Whether the text can stand between angle brackets without becoming something else."""
    try:
        return text != "" and addresses.read_path(f"<{text}>") == ("", text, "")
    except addresses.AddressError:
        return False
