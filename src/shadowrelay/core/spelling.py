"""How what strangers wrote is spelt: for people who read it, and for what is compared.

What a stranger wrote is kept as it came. It is decoded where it is read
(docs/decisions/0045-subjects-are-decoded-when-read.md).
"""

from __future__ import annotations

import re
from email.errors import HeaderParseError
from email.header import decode_header
from functools import lru_cache
from unicodedata import category, normalize

import idna

_LONGEST_LABEL = 63  # octets (RFC 1035 2.3.4)
_ENCODED = re.compile(r"=\?[^?\s]+\?[bq]\?.*?\?=(?:\s+=\?[^?\s]+\?[bq]\?.*?\?=)*", re.IGNORECASE | re.DOTALL)
_ADDRESS = re.compile(r"[^\s<>@,;:\"()]+@[^\s<>@,;:\"()]+")
EVERY_NAME = "*"
_JOINERS = "\u200c\u200d"  # invisible, and part of words and of emoji


@lru_cache(maxsize=4096)
def canonical(domain: str) -> str:
    """One spelling per domain: lower case, A-labels, no root dot.

    A name that has no A-labels is compared as it is, in lower case, so it still matches a route written the
    same way.
    """
    return _lower_labels(domain.removesuffix("."))


@lru_cache(maxsize=4096)
def specificity(domain: str, pattern: str) -> int:
    """0: no match. Otherwise higher for a longer name in the pattern, highest for the domain itself."""
    if pattern == EVERY_NAME:
        return 1
    if pattern.startswith((".", "*.")):
        parent = canonical(pattern.lstrip("*").lstrip("."))
        return 1 + len(parent) if parent and domain.endswith("." + parent) else 0
    # No domain is longer than 255 octets, so an exact match outweighs every parent.
    return 1000 if domain and domain == canonical(pattern) else 0


def _lower_labels(domain: str) -> str:
    plain = domain.lower()
    return plain if plain.isascii() else (_a_labels(plain) or plain)


@lru_cache(maxsize=4096)
def _a_labels(name: str) -> str | None:
    """The name as the DNS has it, by UTS 46 without transition, as browsers do: ``ß`` stays itself (IDNA
    2008). None: a character has no place in a name, or a label is too long.
    """
    try:
        labels = idna.uts46_remap(name, std3_rules=False).removesuffix(".").split(".")
    except idna.IDNAError:
        return None
    spelt = [
        label if label.isascii() else f"xn--{label.encode('punycode').decode('ascii')}" for label in labels
    ]
    confused = any(label.startswith("xn--") and not label.isascii() for label in labels)
    return None if confused or any(len(label) > _LONGEST_LABEL for label in spelt) else ".".join(spelt)


def in_ascii(address: str) -> str | None:
    """The address as a server without SMTPUTF8 takes it: a domain in Unicode as A-labels. None: there is no
    such spelling, since the local part is not ASCII or the domain has no A-labels.
    """
    if address.isascii():
        return address
    local, _, domain = address.rpartition("@")
    found = f"{local}@{canonical(domain)}"
    return found if found.isascii() else None


def in_unicode(address: str) -> str:
    """An address or a domain for people: its A-labels as U-labels. A label that is not the one spelling of
    what it stands for stays as it is.
    """
    if "xn--" not in address.lower():
        return address
    local, at, domain = address.rpartition("@")
    return local + at + ".".join(_u_label(label) for label in domain.split("."))


@lru_cache(maxsize=4096)
def _u_label(label: str) -> str:
    if not label.lower().startswith("xn--"):
        return label
    try:
        found = idna.ulabel(label.lower())
    except (UnicodeError, ValueError):  # nothing that the DNS may have
        return label
    return found if _a_labels(found) == label.lower() else label


def compared(address: str) -> str:
    """An address as it is compared: in lower case, its domain in A-labels. Text without a domain as well."""
    local, at, domain = address.rpartition("@")
    return f"{local.lower()}{at}{_lower_labels(domain)}" if at else address.lower()


def decoded(field: str) -> str:
    """A header field's text with its encoded words decoded (RFC 2047). One that is malformed, or of an
    unknown charset, stays as it came.
    """
    return field if "=?" not in field else _ENCODED.sub(_decoded, field)


def logged(cell: str) -> str:
    """The same of a cell of a tracking log, where an apostrophe may stand before the first sign."""
    return decoded(cell.removeprefix("'") if cell.startswith("'=?") else cell)


def _decoded(words: re.Match[str]) -> str:
    """Encoded words with nothing but space between them: a letter may begin in one and end in the next."""
    try:
        text = "".join(
            part if isinstance(part, str) else part.decode((charset or "us-ascii").partition("*")[0])
            for part, charset in decode_header(words[0])
        )
        text.encode()  # some codecs decode to half a letter
    except (HeaderParseError, LookupError, ValueError):
        return words[0]
    return text


def without_case(text: str) -> str:
    """Text without regard to case, and to how letters with marks are composed."""
    return text.lower() if text.isascii() else normalize("NFC", normalize("NFC", text).casefold())


@lru_cache(maxsize=16)
def read_without_case(field: str) -> str:
    """What a search compares of a header field. A few are kept: each word of a search asks anew."""
    return without_case(decoded(field))


def readable(text: str, kept: str = "") -> str:
    """Text as people are shown it. It does nothing to who looks at it: control characters and escapes are
    shown as such, other spaces as a space. Domains of addresses are in Unicode. ``kept``: what stays.
    """
    if "@" in text and "xn--" in text:
        text = _ADDRESS.sub(lambda found: in_unicode(found[0]), text)
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in kept else _shown(one) for one in text)


def _shown(letter: str) -> str:
    if letter in _JOINERS:
        return letter
    return " " if category(letter) == "Zs" else ascii(letter)[1:-1]
