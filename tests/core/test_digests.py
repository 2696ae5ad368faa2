"""Digests of content and envelope: the same wherever they are made, and another for anything that differs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shadowrelay.core.digests import ContentDigest, is_digest, of_content, of_envelope
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.messages import Envelope, Recipient, Status

ENVELOPE = Envelope(sender="a@example.org", size=5, body="7BIT")
ONE = Recipient(1, "b@example.net", NextHop("inside"), ("FAILURE",), "rfc822;b@example.net")
TWO = Recipient(2, "c@example.net", NextHop("out"))


def test_the_algorithm_is_named_and_its_value_is_that_of_xxh3_with_128_bits() -> None:
    assert of_content(b"") == "xxh3-128:99aa06d3014798d86001c324468d497f"
    assert is_digest(of_content(b""))


@pytest.mark.parametrize(
    "text", ["", "xxh3-128", "xxh3-128:", "xxh3-128:0", "sha256:" + "0" * 32, "xxh3-128:" + "G" * 32]
)
def test_what_is_no_digest_is_told(text: str) -> None:
    assert not is_digest(text)


@pytest.mark.parametrize("blocks", [[b"hello world"], [b"hello", b" world"], [b"", b"h", b"ello world"]])
def test_a_content_has_one_digest_however_it_arrives(blocks: list[bytes]) -> None:
    found = ContentDigest()
    for block in blocks:
        found.update(block)
    assert found.value == of_content(b"hello world")


def test_one_bit_makes_another_digest() -> None:
    octets = bytes(range(256)) * 16
    digests = {of_content(octets)}
    for bit in range(0, 8 * len(octets), 37):
        changed = bytearray(octets)
        changed[bit // 8] ^= 1 << bit % 8
        digests.add(of_content(bytes(changed)))
    assert len(digests) == 1 + len(range(0, 8 * len(octets), 37))


@pytest.mark.parametrize(
    "changes",
    [
        {"sender": "A@example.org"},
        {"sender": ""},
        {"body": "8BITMIME"},
        {"smtputf8": True},
        {"ret": "FULL"},
        {"envid": "x"},
    ],
)
def test_whatever_never_changes_of_an_envelope_is_in_its_digest(changes: dict[str, Any]) -> None:
    assert of_envelope(replace(ENVELOPE, **changes), (ONE, TWO)) != of_envelope(ENVELOPE, (ONE, TWO))


@pytest.mark.parametrize(
    "recipients",
    [
        (ONE,),
        (ONE, replace(TWO, number=3)),
        (replace(ONE, address="b@example.com"), TWO),
        (replace(ONE, notify=()), TWO),
        (replace(ONE, notify=("FAILURE", "DELAY")), TWO),
        (replace(ONE, orcpt=None), TWO),
        (replace(ONE, address=TWO.address), replace(TWO, address=ONE.address)),
    ],
)
def test_whatever_never_changes_of_a_recipient_is_too(recipients: tuple[Recipient, ...]) -> None:
    assert of_envelope(ENVELOPE, recipients) != of_envelope(ENVELOPE, (ONE, TWO))


def test_what_a_node_decides_is_not_and_neither_is_the_order() -> None:
    """The next hop, the state, and what memory and headers say beside."""
    decided = replace(ONE, next_hop=NextHop("other"), status=Status.DELIVERED, attempts=3, last_reply="250")
    told = replace(ENVELOPE, size=9, subject="s", message_id="<m>")
    assert of_envelope(told, (TWO, decided)) == of_envelope(ENVELOPE, (ONE, TWO))


def test_no_value_can_stand_for_two() -> None:
    """A separator in a value makes no other envelope look like it."""
    one = replace(ENVELOPE, sender="a", envid='b","c')
    other = replace(ENVELOPE, sender='a","b', envid="c")
    assert of_envelope(one, (ONE,)) != of_envelope(other, (ONE,))
