"""Sets of recipients as sums: equal sets have equal sums, and unequal ones practically never.

A recipient is a whole number: its number in our logs, the hash of its address in Exchange's. The sum over a
message's receptions, less the sum over its ends, is zero exactly when every recipient ended once. Forty bits
a recipient: the sum over a million of them fits 64 bits, and chance agrees once in 10^12.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

BITS = 40
_GOLDEN = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1


def weight(recipient: int, salt: int = 0) -> int:
    """The forty bits of one recipient (splitmix64); another salt gives other bits."""
    word = (recipient + salt + _GOLDEN) & _WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return (word ^ (word >> 31)) >> (64 - BITS)


def weights(recipients: Iterable[int], salt: int = 0) -> int:
    """The sum that stands for these recipients."""
    return sum(weight(recipient, salt) for recipient in recipients)


def digest(text: str) -> int:
    """A name as a whole number of 62 bits: never negative, in 64 bits with a sign."""
    return (
        int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big") >> 2
    )


def key_of(message_id: str) -> tuple[int, int]:
    """A message id as two signed words: a UUID's own 128 bits, of anything else a hash of them."""
    plain = message_id.replace("-", "")
    try:
        if len(plain) != 32 or len(message_id) != 36:
            raise ValueError
        raw = bytes.fromhex(plain)
    except ValueError:
        raw = hashlib.blake2b(message_id.encode("utf-8", "replace"), digest_size=16).digest()
    return int.from_bytes(raw[:8], "big", signed=True), int.from_bytes(raw[8:], "big", signed=True)


def uuid_of(high: int, low: int) -> str:
    """The UUID that these two words are."""
    text = (high.to_bytes(8, "big", signed=True) + low.to_bytes(8, "big", signed=True)).hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
