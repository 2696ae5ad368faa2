"""xtext (RFC 3461 section 4): printable ASCII in which ``+``, ``=`` and all other octets are ``+XX``."""

from __future__ import annotations

import re

_UNCHANGED = re.compile(r"[!-*,-<>-~]*")
_PLAIN = frozenset(range(0x21, 0x7F)) - {0x2B, 0x3D}
_XTEXT = re.compile(r"(?:[!-*,-<>-~]|\+[0-9A-F]{2})*")


def is_xtext(text: str) -> bool:
    """Is the text well-formed xtext? The empty string is."""
    return _XTEXT.fullmatch(text) is not None


def encode_xtext(text: str) -> str:
    """The UTF-8 octets of the text as xtext."""
    if _UNCHANGED.fullmatch(text):
        return text
    return "".join(chr(octet) if octet in _PLAIN else f"+{octet:02X}" for octet in text.encode("utf-8"))


def decode_xtext(text: str) -> str:
    """The text that ``encode_xtext`` was given. Raises ValueError if it is not xtext, or not UTF-8."""
    if _UNCHANGED.fullmatch(text):
        return text
    if not is_xtext(text):
        raise ValueError("malformed xtext")
    octets = re.sub(r"\+([0-9A-F]{2})", lambda found: chr(int(found[1], 16)), text).encode("latin-1")
    return octets.decode("utf-8")


def typed_recipient(address: str) -> str:
    """An address as ORCPT has it (RFC 3461 4.2); one that is not ASCII as RFC 6533 3 spells it."""
    if address.isascii():
        return f"rfc822;{encode_xtext(address)}"
    escaped = (one if one.isascii() and one != "\\" else f"\\x{{{ord(one):X}}}" for one in address)
    return f"utf-8;{encode_xtext(''.join(escaped))}"
