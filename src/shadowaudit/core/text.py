"""One row of text taken apart, whatever it holds: slow and careful, for what the fast parser refuses."""

from __future__ import annotations

import re
from datetime import datetime

_FIELD = re.compile(r'(?:"((?:[^"]++|"")*+)"|([^",\r\n]*+))(?=,|\Z)')
_LOOSE = re.compile(r'(?:"((?:[^"]++|"")*+)"|([^,]*+))(?=,|\Z)')
_SECRETS = re.compile(r"//[^/@]*@")
_FORMULA = re.compile("[\\s\"']*[=+\\-@\uff1d\uff0b\uff0d\uff20]")


def split_row(line: bytes, count: int, *, strict: bool) -> list[str] | None:
    """The fields of a row with or without its line end; None when it is not one of ``count`` fields.

    ``strict``: UTF-8, closed with CRLF, quotes as they should be. Otherwise odd octets are replaced, and
    quotes within a field are taken as they are.
    """
    if strict and not line.endswith(b"\r\n"):
        return None
    try:
        text = line.decode("utf-8", "strict" if strict else "replace").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        return None
    fields = _quoted(text, strict=strict) if '"' in text else text.split(",")
    if fields is None or (strict and '"' not in text and ("\r" in text or "\n" in text)):
        return None
    return fields if len(fields) == count else None


def _quoted(text: str, *, strict: bool) -> list[str] | None:
    pattern = _FIELD if strict else _LOOSE
    fields: list[str] = []
    at = 0
    while found := pattern.match(text, at):
        quoted, plain = found.groups()
        fields.append(plain if quoted is None else quoted.replace('""', '"'))
        at = found.end() + 1
        if found.end() == len(text):
            break
    return fields if at == len(text) + 1 else None


def restored(field: str) -> str:
    """A field without the apostrophe that keeps spreadsheets from taking it for a formula."""
    return field[1:] if field.startswith("'") and _FORMULA.match(field) else field


def number_in(text: str) -> int:
    """The number that ASCII digits write; -1 for any other text."""
    return int(text) if text.isascii() and text.isdigit() else -1


def moment_in(text: str) -> int | None:
    """The milliseconds since 1970 that a time of ISO 8601 with its zone writes; None for any other text."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if found.tzinfo is None else round(found.timestamp() * 1000)


def numbers_in(text: str) -> tuple[int, ...] | None:
    """Distinct numbers from 1 on, joined with ``+``; none of an empty text, None for any other text."""
    found = tuple(number_in(part) for part in text.split("+")) if text else ()
    return found if len(set(found)) == len(found) and min(found, default=1) > 0 else None


def without_secrets(text: str) -> str:
    """URIs in a text without user names and passwords."""
    return _SECRETS.sub("//", text)


def plain_uri(uri: str) -> str:
    """A URI as users may see it: without options or secrets."""
    return without_secrets(uri.partition("?")[0])
