"""What replies of next hops mean for a whole attempt."""

from __future__ import annotations

import re

from shadowrelay.core.delivery.settling import Ending
from shadowrelay.smtp.sending.session import DeliveryResult

_CODES = re.compile(r"[45]\d\d(?: [45]\.\d{1,3}\.\d{1,3})?(?= |$)", re.ASCII)


def expired_reply(last: str) -> str:
    """The last reply of an expired recipient, with the codes of the actual problem if it is known.

    RFC 3463 3.5 wants *delivery time expired* only if nothing else is known.
    """
    codes = _CODES.match(last)
    if codes is None:
        return "451 4.4.7 Message expired in the queue"
    return f"{codes[0]} Message expired in the queue; last error: {last}"


def sent_away(result: DeliveryResult) -> bool:
    """Did the host end the session by 421, and take nothing?"""
    return all(
        one.ending is Ending.DEFERRED and one.remote and one.reply.startswith("421") for one in result.results
    )
