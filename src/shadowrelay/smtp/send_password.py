"""The password for a next hop: read from its file for each login, and taken out of what a server says."""

from __future__ import annotations

import base64
import re
import stat
from pathlib import Path

_LONGEST = 8 * 1024  # octets; an access token has a few thousand
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_MASK = "********"
_BEGINNING = 8  # characters of Base64 by which a secret is known: a server may cut what it repeats


class NoPassword(Exception):
    """The file holds none: the message says why, to follow its name."""


def read(path: Path) -> bytes:
    """The one line of the file, without its end. Raises NoPassword."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # who opens a pipe waits for a writer
            raise NoPassword("is not a regular file")
        with path.open("rb") as file:
            content = file.read(_LONGEST + 1)
    except OSError as error:
        raise NoPassword(f"cannot be read: {error.strerror}") from error
    password = content.removesuffix(b"\n").removesuffix(b"\r")
    if not password:
        raise NoPassword("is empty")
    if len(content) > _LONGEST:
        raise NoPassword(f"has more than {_LONGEST} octets")
    if _CONTROL.search(password):
        raise NoPassword("has more than one line, or control characters")
    return password


def masked(text: str, username: str, password: bytes) -> str:
    """The text without the password: some servers repeat what they refuse, as it is or in Base64."""
    name = username.encode()
    text = text.replace(password.decode("utf-8", "replace"), _MASK)
    for said in (
        b"\0" + name + b"\0" + password,  # PLAIN
        b"user=" + name + b"\1auth=Bearer " + password + b"\1\1",  # XOAUTH2
        password,  # LOGIN
    ):
        beginning = base64.b64encode(said).decode("ascii")[:_BEGINNING]
        text = re.sub(re.escape(beginning) + "[A-Za-z0-9+/=]*", _MASK, text)
    return text
