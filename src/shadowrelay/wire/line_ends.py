"""Checks of line ends: a CR or LF outside a pair may end a line for one program and not for the next."""

from __future__ import annotations


def all_paired(data: bytes) -> bool:
    """Is every CR followed by an LF, and every LF preceded by a CR?

    The pairs are overwritten, which moves no octets and takes half the time of counting; a CR or LF that is
    left stands alone.
    """
    alone = data.replace(b"\r\n", b"  ")
    return b"\r" not in alone and b"\n" not in alone


def has_dot_line(data: bytes) -> bool:
    """Does any line except the first begin with a dot? Base64, like most large content, has no dot at all.

    The search runs from the end, which is faster in CPython.
    """
    return b"." in data and data.rfind(b"\r\n.") >= 0
