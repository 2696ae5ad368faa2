"""CR and LF in pairs: every other one could end a line for one program and not for the next."""

from __future__ import annotations


def all_paired(data: bytes) -> bool:
    """Is every CR followed by an LF, and every LF preceded by a CR?

    What is left when the pairs are taken out stands alone. They are overwritten, which moves nothing: that
    takes half the time of counting.
    """
    alone = data.replace(b"\r\n", b"  ")
    return b"\r" not in alone and b"\n" not in alone


def has_dot_line(data: bytes) -> bool:
    """Does any line but the first begin with a dot? Base64, as most of what is large, has none at all.

    Searched from the end, which CPython does faster.
    """
    return b"." in data and data.rfind(b"\r\n.") >= 0
