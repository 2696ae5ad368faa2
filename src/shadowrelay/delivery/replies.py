"""What replies of next hops mean for a whole attempt."""

from __future__ import annotations

import re

from shadowrelay.core.delivery.settling import Ending
from shadowrelay.core.messages import Recipient
from shadowrelay.smtp.sending.session import DeliveryResult

_CODES = re.compile(r"[45]\d\d(?: [45]\.\d{1,3}\.\d{1,3})?(?= |$)", re.ASCII)


def expired_reply(recipient: Recipient, why: str) -> str:
    """The reply of an expired recipient: its last one, or else ``why`` its mail waits, with the codes of the
    actual problem if that is known.

    RFC 3463 3.5 wants *delivery time expired* only if nothing else is known.
    """
    last = recipient.last_reply or why
    told = "Message expired in the queue"
    if recipient.unread is not None:
        told += ", and may have been delivered"
    codes = _CODES.match(last)
    return f"{codes[0]} {told}; last error: {last}" if codes else f"451 4.4.7 {told}"


def sent_away(result: DeliveryResult) -> bool:
    """Did the host end the session by 421, and take nothing?"""
    return all(
        one.ending is Ending.DEFERRED and one.remote and one.reply.startswith("421") for one in result.results
    )
