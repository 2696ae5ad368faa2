"""XCLIENT: a host that is believed says for which client it speaks (Postfix's XCLIENT_README)."""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_address

from shadowrelay.core.reception.users import is_name
from shadowrelay.core.values import dataclass
from shadowrelay.wire.replies import Refused
from shadowrelay.wire.xtext import decode_xtext

ATTRIBUTES = ("NAME", "ADDR", "PORT", "PROTO", "HELO", "LOGIN")
"""What EHLO offers. NAME is taken and means nothing here: no decision rests on the name of an address."""

_UNKNOWN = frozenset({"[UNAVAILABLE]", "[TEMPUNAVAIL]"})
_HELO = re.compile(r"[\w.:\[\]-]{1,255}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Introduced:
    """The client as it was introduced; None: nothing was said about that, '' or 0: it is not known."""

    address: str | None = None
    port: int | None = None
    protocol: str | None = None  # SMTP or ESMTP
    helo: str | None = None
    login: str | None = None


def parse_xclient(argument: str) -> Introduced:
    """Read the attributes of the command. Raises Refused."""
    said: dict[str, str] = {}
    for pair in argument.split():
        name, equals, value = pair.partition("=")
        if not equals or name.upper() not in ATTRIBUTES:
            raise Refused(501, "5.5.4", f"Syntax: XCLIENT {' '.join(f'{one}=value' for one in ATTRIBUTES)}")
        try:
            said[name.upper()] = "" if value.upper() in _UNKNOWN else decode_xtext(value)
        except ValueError:
            raise _wrong(name) from None
    if not said:
        raise Refused(501, "5.5.4", "XCLIENT needs an attribute")
    protocol = said.get("PROTO")
    return Introduced(
        _address(said.get("ADDR")),
        _port(said.get("PORT")),
        None if protocol is None else _one_of("PROTO", protocol.upper(), re.compile("E?SMTP")) or "SMTP",
        _one_of("HELO", said.get("HELO"), _HELO),
        _login(said.get("LOGIN")),
    )


def _address(text: str | None) -> str | None:
    """An address as sessions have it: IPv6 without its prefix, and IPv4 as itself, never within IPv6."""
    if not text:
        return text
    try:
        parsed = ip_address(text[5:] if text[:5].upper() == "IPV6:" else text)
    except ValueError:
        raise _wrong("ADDR") from None
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(parsed)


def _port(text: str | None) -> int | None:
    if not text:
        return None if text is None else 0
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65_535):
        raise _wrong("PORT")
    return int(text)


def _one_of(name: str, text: str | None, form: re.Pattern[str]) -> str | None:
    if text and not form.fullmatch(text):
        raise _wrong(name)
    return text


def _login(text: str | None) -> str | None:
    if text and not is_name(text):
        raise _wrong("LOGIN")
    return text


def _wrong(name: str) -> Refused:
    return Refused(501, "5.5.4", f"{name.upper()} has no value that XCLIENT can have")
