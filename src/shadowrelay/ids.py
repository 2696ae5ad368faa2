"""Makes the ids of messages."""

from __future__ import annotations

import os
from datetime import datetime

from shadowrelay.core.identifiers import MessageId


def mint(now: datetime) -> MessageId:
    """A new message id: a UUID version 7 (RFC 9562 5.7)."""
    stamp = int(now.timestamp() * 1000).to_bytes(6, "big")
    raw = bytearray(stamp + os.urandom(10))
    raw[6] = 0x70 | (raw[6] & 0x0F)
    raw[8] = 0x80 | (raw[8] & 0x3F)
    text = raw.hex()
    return MessageId("-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])))
