"""Digests: how a node knows that a content or an envelope is the one that it was given.

A digest is text, ``<algorithm>:<hexadecimal>``, so that another algorithm can follow one day. It protects
against damage, not against forgers: a member that wants to lie needs no collision. XXH3 with 128 bits takes
a fiftieth of a millisecond for a megabyte, SHA-256 thirty times as long (docs/decisions/0023-good-copies.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from operator import attrgetter

import xxhash

from shadowrelay.core.identifiers import Digest
from shadowrelay.core.messages import Envelope, Recipient, TlsWish

ALGORITHM = "xxh3-128"

_NUMBER = attrgetter("number")
_FORM = re.compile(rf"{ALGORITHM}:[0-9a-f]{{32}}")


def is_digest(text: str) -> bool:
    """Is the text a digest that this version can compare?"""
    return _FORM.fullmatch(text) is not None


class ContentDigest:
    """The digest of a content that comes in parts."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state = xxhash.xxh3_128()

    def update(self, data: bytes | memoryview) -> None:
        self._state.update(data)

    @property
    def value(self) -> Digest:
        """The digest of all parts so far."""
        return Digest(f"{ALGORITHM}:{self._state.hexdigest()}")


def of_content(data: bytes) -> Digest:
    """The digest of a whole content."""
    return Digest(f"{ALGORITHM}:{xxhash.xxh3_128_hexdigest(data)}")


def of_envelope(envelope: Envelope, recipients: Iterable[Recipient]) -> Digest:
    """The digest of what the sender said: sender, BODY, SMTPUTF8, RET, ENVID, each recipient with its number,
    NOTIFY and ORCPT, and REQUIRETLS, if it was said.

    The form is canonical: a tuple in its ASCII spelling, recipients by number. It leaves out what nodes
    decide (next hops, states) and what the content says (size, subject).
    """
    said: tuple[object, ...] = (
        envelope.sender,
        envelope.body,
        envelope.smtputf8,
        envelope.ret,
        envelope.envid,
        tuple([(one.number, one.address, one.notify, one.orcpt) for one in sorted(recipients, key=_NUMBER)]),
    )
    if envelope.tls is TlsWish.REQUIRED:
        said = (*said, "REQUIRETLS")
    return of_content(f"{said!a}".encode())
