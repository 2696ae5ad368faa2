"""Sets of recipients as sums: equal sets have equal sums, and unequal ones practically never.

A recipient is a whole number and an address: the number in our logs, and the hash of the address alone in
Exchange's. The sum over a message's receptions, less the sum over its ends, is zero exactly when every
recipient ended once, under the same address. Forty bits a recipient: the sum over a million of them fits 64
bits, and chance agrees once in 10^12.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

BITS = 40
LANE = (1 << 31) - 1
FIRST, SECOND = 0x2545F491, 0x4F6CDD1D
BY_FIRST, BY_SECOND = 0x1E3779B9, 0x7F4A7C15
"""Two lanes of 31 bits, and what they are multiplied by: no product has more bits than 64 with a sign."""


def mixed(lanes: tuple[int, int], *words: int) -> tuple[int, int]:
    """The lanes with words of 31 bits. ``loops.recipients`` computes the same."""
    one, other = lanes
    for word in words:
        one = ((one ^ word) * BY_FIRST) & LANE
        other = ((other ^ word) * BY_SECOND) & LANE
        one, other = one ^ (one >> 15), other ^ (other >> 13)
    return one, other


def weight(recipient: int, address: str = "", salt: int = 0) -> int:
    """The forty bits of one recipient with that address; another salt gives other bits."""
    lanes = mixed((FIRST, SECOND), *address.encode("utf-8", "replace"))
    one, other = mixed(lanes, recipient & LANE, recipient >> 31, salt & LANE, salt >> 31, 0)
    return one << 9 ^ other


def weights(recipients: Sequence[int], addresses: Iterable[str] = (), salt: int = 0) -> int:
    """The sum that stands for these recipients."""
    named = list(addresses) or [""] * len(recipients)
    return sum(weight(one, address, salt) for one, address in zip(recipients, named, strict=True))


def print_of(high: int, low: int) -> int:
    """The forty bits of a message id."""
    words = [word >> shift & LANE for word in (high, low) for shift in (0, 31, 62)]
    one, other = mixed((FIRST, SECOND), *words, 0)
    return one << 9 ^ other


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
    return dashed(high.to_bytes(8, "big", signed=True) + low.to_bytes(8, "big", signed=True))


def derived(text: str) -> str:
    """The id that the nodes derive from that text: a UUID of version 8."""
    raw = bytearray(hashlib.sha256(text.encode()).digest()[:16])
    raw[6] = 0x80 | (raw[6] & 0x0F)
    raw[8] = 0x80 | (raw[8] & 0x3F)
    return dashed(bytes(raw))


def dashed(octets: bytes) -> str:
    """Sixteen octets as a UUID is written."""
    text = octets.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
