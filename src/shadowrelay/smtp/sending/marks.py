"""The marks at the ends of replies: a hop that tracks our messages says how far its database has come."""

from __future__ import annotations

from shadowrelay.core.identifiers import Mark
from shadowrelay.wire.replies import Reply
from shadowrelay.wire.xshadow import Malformed, parse_mark


def unmarked(reply: Reply) -> tuple[Reply, Mark | None]:
    """The reply without the mark that ends it, and the mark; the whole reply if there is none."""
    *before, last = reply.lines or ("",)
    text, _, word = last.rpartition(" ")
    try:
        mark = parse_mark(word)
    except Malformed:
        return reply, None
    return Reply(reply.code, reply.enhanced, (*before, text) if before else text), mark
