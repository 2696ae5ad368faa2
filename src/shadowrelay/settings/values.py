"""Defines the types of setting values: each is read from text, checked, and written in the same notation."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, SecretStr, StringConstraints

from shadowrelay.core.identifiers import ServerName
from shadowrelay.wire import addresses

Network = IPv4Network | IPv6Network

_UNITS = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
_DURATION = re.compile(
    r"(?:(?P<d>[0-9.]+)d)?(?:(?P<h>[0-9.]+)h)?(?:(?P<m>[0-9.]+)m)?(?:(?P<s>[0-9.]+)s)?(?:(?P<ms>[0-9.]+)ms)?"
)
_SIZES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SIZE_NAMES = (
    ("TiB", 2**40),
    ("TB", 10**12),
    ("GiB", 2**30),
    ("GB", 10**9),
    ("MiB", 2**20),
    ("MB", 10**6),
    ("KiB", 2**10),
    ("KB", 10**3),
)
_SIZE = re.compile(r"([0-9]+)\s*([A-Za-z]*)")
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")
_PATTERN = re.compile(rf"\*|(?:\*\.)?{_LABEL}(?:\.{_LABEL})*\.?")


@dataclass(frozen=True, slots=True)
class Format:
    """The notation of a value: a phrase for errors and the reference, and a function back to text."""

    text: str
    render: Callable[[Any], str] = str


@dataclass(frozen=True, slots=True)
class HostPort:
    """An address to listen on or to call. In ``host`` an IPv6 address has no brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_duration(value: object) -> timedelta:
    """``500ms``, ``15s``, ``2m``, ``3h``, ``2d``, ``1h30m``: larger units first, each once.

    It rounds to a millisecond, as ``format_duration`` does. It refuses a bare number: without a unit, seconds
    and minutes get mixed up.
    """
    if isinstance(value, timedelta):
        return value
    found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or found.lastgroup is None:
        raise ValueError("not a duration")
    try:
        exact = sum(
            (float(count) * _UNITS[unit] for unit, count in found.groupdict("0").items()), timedelta()
        )
        return _whole_milliseconds(exact) * _UNITS["ms"]
    except OverflowError:
        raise ValueError("too long") from None


def _whole_milliseconds(value: timedelta) -> int:
    return (value + timedelta(microseconds=500)) // _UNITS["ms"]


def format_duration(value: timedelta) -> str:
    """The shortest exact notation, to the millisecond: ``1h30m``, ``2d``, ``0s``."""
    parts, rest = [], _whole_milliseconds(value)
    for unit, length in _UNITS.items():
        count, rest = divmod(rest, length // timedelta(milliseconds=1))
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def parse_size(value: object) -> int:
    """Octets: ``64MiB`` (powers of 1024), ``10MB`` (powers of 1000), or a bare integer."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or found[2].lower() not in _SIZES:
        raise ValueError("not a size")
    return int(found[1]) * _SIZES[found[2].lower()]


def format_size(value: int) -> str:
    """The largest unit that divides the size: ``64MiB``, ``10MB``, ``1000``."""
    for name, octets in _SIZE_NAMES:
        if value and value % octets == 0:
            return f"{value // octets}{name}"
    return str(value)


def parse_integer(value: object) -> int:
    """A TOML integer, or its digits in an environment variable; ``true`` is not 1."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]+", value.strip()):
        return int(value)
    raise ValueError("not an integer")


def parse_workers(value: object) -> int:
    """An integer; ``auto``: as many as the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if value == "auto" else parse_integer(value)


def parse_flag(value: object) -> bool:
    """``true`` or ``false``; 1, yes and on are refused: in YAML they have caused mistakes."""
    if isinstance(value, bool):
        return value
    flag = {"true": True, "false": False}.get(value.strip().lower()) if isinstance(value, str) else None
    if flag is None:
        raise ValueError("not true or false")
    return flag


def parse_host_name(value: object) -> str:
    """A host name of letters, digits, hyphens and underscores (RFC 1123), at most 253, in lower case."""
    name = value.strip() if isinstance(value, str) else ""
    if len(name) > 253 or not _HOST_NAME.fullmatch(name):
        raise ValueError("not a host name")
    return name.lower().removesuffix(".")


def parse_host(value: object) -> str:
    """A host name or an IP address, without brackets."""
    text = value.strip() if isinstance(value, str) else ""
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    if text != text.strip():
        raise ValueError("not a host name")
    try:
        return str(ip_address(text))
    except ValueError:
        if re.fullmatch(r"[0-9.]+", text):
            raise ValueError("not an IP address") from None
        return parse_host_name(text)


def parse_host_port(value: object) -> HostPort:
    """``host:port``, with an IPv6 address in brackets."""
    if isinstance(value, HostPort):
        return value
    host, _, port = value.strip().rpartition(":") if isinstance(value, str) else ("", "", "")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError("an IPv6 address needs brackets")
    if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise ValueError("the port is not a number from 0 to 65535")
    return HostPort(parse_host(host), int(port))


def parse_dialled(value: object) -> HostPort:
    """A ``host:port`` that can be called: port 0 is for listeners only."""
    address = parse_host_port(value)
    if address.port == 0:
        raise ValueError("port 0 cannot be called")
    return address


def parse_domain_pattern(value: object) -> str:
    """``inside.test``, ``*.inside.test`` (every domain below) or ``*``, in lower case."""
    text = value.strip() if isinstance(value, str) else ""
    if len(text) > 255 or not _PATTERN.fullmatch(text):
        raise ValueError("not a domain")
    return text.lower().removesuffix(".")


def parse_network(value: object) -> Network:
    """An address or a network in CIDR notation; refused if host bits are set."""
    if isinstance(value, IPv4Network | IPv6Network):
        return value
    if not isinstance(value, str):
        raise ValueError("not a network")
    return ip_network(value.strip())


def parse_path(value: object) -> Path:
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("not a path")
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise ValueError("the home directory of an unknown user") from None


def parse_journal(value: object) -> str:
    """An address in ASCII, with a domain; ``''`` for no journal."""
    text = value.strip() if isinstance(value, str) else None
    if text == "":
        return ""
    if text is None or not text.isascii():
        raise ValueError("not an address in ASCII")
    try:
        route, address, rest = addresses.read_path(f"<{text}>")
    except addresses.AddressError:
        raise ValueError("not an address") from None
    if route or rest or "@" not in address:
        raise ValueError("not an address")
    return address


_TEXT = PlainSerializer(str, return_type=str)

Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    Format("a duration such as 500ms, 15s, 2m, 1h30m or 2d", format_duration),
]
Size = Annotated[
    int,
    BeforeValidator(parse_size),
    PlainSerializer(format_size, return_type=str),
    Format("a size such as 512KiB, 64MiB, 10MB or a number of octets", format_size),
]
Integer = Annotated[int, BeforeValidator(parse_integer), Format("an integer")]
Workers = Annotated[int, BeforeValidator(parse_workers), Format('an integer, or "auto"')]
Flag = Annotated[bool, BeforeValidator(parse_flag), Format("true or false", lambda flag: str(flag).lower())]
ListenAddress = Annotated[
    HostPort,
    BeforeValidator(parse_host_port),
    _TEXT,
    Format("host:port, such as 127.0.0.1:2525 or [::1]:25, port 0 for any free port"),
]
DialAddress = Annotated[
    HostPort, BeforeValidator(parse_dialled), _TEXT, Format("host:port, such as mx2.example.net:2526")
]
Fqdn = Annotated[ServerName, BeforeValidator(parse_host_name), Format("a host name, such as mx1.example.net")]
ZoneName = Annotated[
    str,
    StringConstraints(pattern=r"^(\.|([A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63})$", max_length=253),
    Format("a zone of the DNS, such as example.net, or . for the root"),
]
HostName = Annotated[str, BeforeValidator(parse_host), Format("a host name or an IP address")]
DomainPattern = Annotated[
    str,
    BeforeValidator(parse_domain_pattern),
    Format("a domain, *.domain or *; international ones as A-labels (xn--…)"),
]
Cidr = Annotated[
    Network, BeforeValidator(parse_network), _TEXT, Format("a network such as 10.1.0.0/16 or 2001:db8::/32")
]
WebAddress = Annotated[
    str,
    StringConstraints(pattern=r"^https?://[^\s/]+(/\S*)?$", max_length=1000),
    Format("an address such as http://127.0.0.1:4318/v1/traces"),
]
FilePath = Annotated[Path, BeforeValidator(parse_path), _TEXT, Format("a path")]
Label = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$"), Format("1 to 64 of letters, digits, and _ . -")
]
TableName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$"), Format("1 to 64 of letters, digits, _ and -")
]
JournalAddress = Annotated[
    str, BeforeValidator(parse_journal), Format('an address such as journal@archive.example, or ""')
]
Delimiter = Annotated[
    str, StringConstraints(pattern=r"^[+=_.#/~!-]$"), Format("one character of + - = _ . # / ~ !")
]
UserName = Annotated[
    str,
    StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{1,255}$"),
    Format("1 to 255 characters, none of them a control character"),
]
Secret = Annotated[
    SecretStr, Field(min_length=16), Format("a secret of at least 16 characters", lambda _: "********")
]
