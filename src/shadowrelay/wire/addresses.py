"""Mailbox addresses and paths as MAIL and RCPT carry them (RFC 5321 section 4.1.2, RFC 6531 section 3.3).

Two things are allowed beyond the grammar: an underscore in a domain (some hosts are named so), and white
space before the opening bracket. A connector can be told to allow misplaced dots too.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from functools import lru_cache

MAX_LOCAL_PART = 64
MAX_DOMAIN = 255
MAX_PATH = 256
"""RFC 5321 section 4.5.3.1, in octets; a path includes its brackets."""

_UTF8 = "\u00a0-\ud7ff\ue000-\U0010ffff"
_ATEXT = rf"A-Za-z0-9!#$%&'*+/=?^_`{{|}}~{_UTF8}-"
_ATOM = rf"[{_ATEXT}]+"
_LABEL = rf"[A-Za-z0-9_{_UTF8}](?:[A-Za-z0-9_{_UTF8}-]*[A-Za-z0-9_{_UTF8}])?"
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_LOCAL_PART = re.compile(rf'{_ATOM}(?:\.{_ATOM})*|"(?:[ !#-\[\]-~{_UTF8}]|\\[ -~])*"')
_WITH_DOTS = re.compile(rf"[.{_ATEXT}]+")
_ROUTE = re.compile(rf"@{_LABEL}(?:\.{_LABEL})*(?:,@{_LABEL}(?:\.{_LABEL})*)*:")
_USUAL = re.compile(
    r"<(?=[^@]{1,64}@)(?=[^>]{1,254}>)"  # no longer than MAX_LOCAL_PART and MAX_PATH
    r"([A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
    r"@[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
    r"(?:\.[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*)>([ -~]*)"
)
"""A path as nearly all are: ASCII, with neither a source route nor a quote, and what follows it."""
_NEEDS_QUOTES = "Local part has a character that needs quotes"
_NOT_THERE = "Domain has a character where it cannot be"
_BREAKING = frozenset({"Cc", "Zl", "Zp", "Cs"})


class AddressError(ValueError):
    """The text is no address, or is too long to be one. The message may be sent to the client."""


def read_path(text: str, *, any_dots: bool = False) -> tuple[str, str, str]:
    """Split ``<path> rest`` into (source route, address, rest); the address of the null path is ''.

    The route is returned as it is (``@a,@b:``), so that the caller decides; '' if there is none.
    ``<Postmaster>`` needs no domain (RFC 5321 section 4.1.1.3). With ``any_dots`` a local part may have dots
    that the grammar forbids, such as ``user..name``; it is then returned in quotes, as the grammar spells it.
    Raises AddressError.
    """
    if found := _USUAL.fullmatch(text):
        return "", found[1], found[2]
    return read_any_path(text, any_dots=any_dots)


def read_any_path(text: str, *, any_dots: bool = False) -> tuple[str, str, str]:
    """As ``read_path``, by the grammar as a whole."""
    text = text.lstrip(" \t")
    if not text.startswith("<"):
        raise AddressError("Path must be enclosed in angle brackets")
    # Printable text has none of these characters, and is fast to recognise.
    if not text.isprintable() and any(unicodedata.category(character) in _BREAKING for character in text):
        raise AddressError("Control character in address")
    found = _ROUTE.match(text, 1)
    route = found[0] if found else ""
    begin = 1 + len(route)
    if text.startswith("<>"):
        return "", "", text[2:]
    local = _local_part(text, begin, any_dots=any_dots)
    end = middle = begin + len(local)
    if text.startswith("@", end):
        end = _end_of_domain(text, end + 1)
    elif text.startswith(">", end) and local.lower() != "postmaster":
        raise AddressError("Address needs a domain")
    if not text.startswith(">", end):
        raise AddressError(_unfinished(text, middle, end))
    if _octets(local) > MAX_LOCAL_PART:
        raise AddressError("Local part too long")
    if _octets(text[: end + 1]) > MAX_PATH:
        raise AddressError("Path too long")
    address = f'"{local}"{text[middle:end]}' if _misplaced_dots(local) else text[begin:end]
    return route, address, text[end + 1 :]


def _local_part(text: str, begin: int, *, any_dots: bool) -> str:
    if (found := _WITH_DOTS.match(text, begin)) and _misplaced_dots(found[0]):
        if not any_dots:
            raise AddressError("Local part has two dots in a row, or one at its beginning or end")
        return found[0]
    local = _LOCAL_PART.match(text, begin)
    if local is None:
        raise AddressError(_no_local_part(text[begin : begin + 1]))
    return local[0]


def _no_local_part(at: str) -> str:
    """Why no local part begins with that character, '' where the text ends."""
    match at:
        case "" | ">" | "@":
            return "Address needs a local part"
        case '"':
            return "Quoted local part has no end, or a character that it cannot have"
        case _:
            return _NEEDS_QUOTES


def _unfinished(text: str, middle: int, end: int) -> str:
    """Why the path goes on where its closing bracket should be. ``middle``: where the local part ends."""
    if text.find(">", end) < 0:
        return "Path has no closing bracket"
    if end > middle:
        return _NOT_THERE
    return "Quoted local part must be followed by @" if text[end - 1] == '"' else _NEEDS_QUOTES


def _misplaced_dots(local: str) -> bool:
    return not local.startswith('"') and (local.startswith(".") or local.endswith(".") or ".." in local)


def _end_of_domain(text: str, begin: int) -> int:
    if text.startswith("[", begin):
        end = text.find("]", begin) + 1
        if not end or not is_literal(text[begin:end]):
            raise AddressError("Malformed address literal")
        return end
    found = _DOMAIN.match(text, begin)
    if found is None:
        raise AddressError("Address needs a domain" if text[begin : begin + 1] in {"", ">"} else _NOT_THERE)
    if _octets(found[0]) > MAX_DOMAIN:
        raise AddressError("Domain too long")
    if any(len(label) > 63 for label in found[0].split(".")):
        raise AddressError("Label of the domain too long")
    return found.end()


def is_literal(text: str) -> bool:
    """Is the text an IPv4 or IPv6 address literal, ``[192.0.2.1]`` or ``[IPv6:2001:db8::1]``?"""
    if not (text.startswith("[") and text.endswith("]")):
        return False
    inner = text[1:-1]
    try:
        if inner[:5].lower() == "ipv6:":
            ipaddress.IPv6Address(inner[5:])
            if "::" in inner and _groups(inner[5:]) > 6:
                return False  # in SMTP, "::" stands for at least two groups (RFC 5321 4.1.3)
        else:
            ipaddress.IPv4Address(inner)
    except ValueError:
        return False
    return "%" not in inner


def _groups(address: str) -> int:
    """How many groups of an IPv6 address are written out; an IPv4 address at its end counts as two."""
    written = [group for group in address.split(":") if group]
    return len(written) + ("." in written[-1] if written else 0)


@lru_cache(maxsize=1024)
def is_domain(text: str) -> bool:
    """Is the text a domain name of at most 255 octets?"""
    return _DOMAIN.fullmatch(text) is not None and _octets(text) <= MAX_DOMAIN


def split(address: str) -> tuple[str, str]:
    """(local part without its quoting, domain in lower case); the domain of ``Postmaster`` is ''."""
    if not address.startswith('"'):
        local, _, domain = address.partition("@")
        return local, domain.lower()
    quoted, _, domain = address.rpartition("@") if not address.endswith('"') else (address, "", "")
    return re.sub(r"\\(.)", r"\1", quoted[1:-1]), domain.lower()


def is_routed(address: str) -> bool:
    """Does the local part name another destination: ``user%host``, ``host!user``, ``"user@host"``?

    Our next hop might obey it, and this relay would be an open relay by proxy.
    """
    local = split(address)[0] if address.startswith('"') else address.partition("@")[0]
    return "%" in local or "!" in local or "@" in local


def _octets(text: str) -> int:
    return len(text.encode("utf-8"))
