"""CR and LF in pairs: every other one could end a line for one program and not for the next."""

from __future__ import annotations

import re

_LONE_CR = re.compile(rb"\r(?!\n)")


def all_paired(data: bytes) -> bool:
    """Is every CR followed by an LF, and every LF preceded by a CR?

    If each CR has its LF, then an LF without a CR is one too many. Counting pairs would take twice as long:
    a search for one octet is much faster than one for two.
    """
    return len(data.replace(b"\r", b"")) == len(data.replace(b"\n", b"")) and _LONE_CR.search(data) is None


def has_dot_line(data: bytes) -> bool:
    """Does any line but the first begin with a dot? Searched from the end, which CPython does faster."""
    return data.rfind(b"\r\n.") >= 0
