"""The grammar of XSHADOW and XQDISCARD between hops (docs/reference/protocol.md, "Between hops").

::

    XSHADOW <name> <database-id> <mark> <incarnation>@<beginning>,... [KNOWN=<incarnation>]
    MAIL FROM:<...> XSHADOW=<message-id> ...
    RCPT TO:<...> XFORK=<number> ...
    XQDISCARD <max> [AFTER=<incarnation>:<event>]
    250-2.0.0 <event> <message-id> 1 delivered[=<outcome>] <recipients>

It is the members' grammar, with less in it: message ids and recipient numbers are the sender's, the only
kind of discard event is ``delivered``, and it always names its recipients: the hop knows only those it took.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from shadowrelay.core.decisions import VerdictKind
from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.members.conversation import Greeting, Line, Query
from shadowrelay.core.values import replace
from shadowrelay.wire import xqdiscard, xshadow
from shadowrelay.wire.xshadow import MAX_LINE, Malformed

VERSION = 1
KEYWORDS = (f"XSHADOW {VERSION}", "XQDISCARD")
"""What EHLO offers to a hop that may use the verbs."""

KEYWORDS_UNTRACKED = ("XSHADOW", "XQDISCARD")
"""The same while no message is tracked: the hop still tells what it delivered. XSHADOW names no version."""

MAIL_PARAMETER, RCPT_PARAMETER = "XSHADOW", "XFORK"

LINE_EXTENSIONS: Mapping[str, int] = MappingProxyType(
    {
        "MAIL": len(f" {MAIL_PARAMETER}=") + 36,
        "RCPT": len(f" {RCPT_PARAMETER}=1000000"),
        "XSHADOW": MAX_LINE - 512,
        "XQDISCARD": 0,
    }
)
"""How many octets the extension adds to the limit of a command line."""

_MOST_NUMBER = 1_000_000


def offered(extensions: Mapping[str, str]) -> bool:
    """Whether an answer to EHLO (``wire.esmtp.extensions``) offers to track messages, in our version."""
    return str(VERSION) in extensions.get("XSHADOW", "").split() and "XQDISCARD" in extensions


def answered(extensions: Mapping[str, str]) -> bool:
    """Whether an answer to EHLO offers to tell of messages that were tracked, at least."""
    return "XQDISCARD" in extensions and (extensions.get("XSHADOW") == "" or offered(extensions))


def format_greeting(greeting: Greeting) -> str:
    """The arguments of XSHADOW, also the text of its answer."""
    return xshadow.format_greeting(replace(greeting, version=1))


def parse_greeting(text: str) -> Greeting:
    """Read the arguments of XSHADOW. Raises Malformed."""
    greeting = xshadow.parse_greeting(text)
    if greeting.version != 1:
        raise Malformed("unknown argument")
    return greeting


def format_tracked(message_id: MessageId) -> str:
    """The value of MAIL's XSHADOW parameter: the sender's id of the message."""
    return message_id


def parse_tracked(text: str) -> MessageId:
    """Read MAIL's XSHADOW parameter. Raises Malformed."""
    return xshadow.message_id(text)


def format_fork(number: int) -> str:
    """The value of RCPT's XFORK parameter: the sender's number of the recipient."""
    return str(number)


def parse_fork(text: str) -> int:
    """Read RCPT's XFORK parameter, 1 to 1,000,000. Raises Malformed."""
    number = xshadow.number(text)
    if not 1 <= number <= _MOST_NUMBER:
        raise Malformed("bad recipient number")
    return number


def format_query(query: Query) -> str:
    """The arguments of XQDISCARD: ``most`` and ``after`` of a query; it may have nothing else."""
    return xqdiscard.format_query(Query(query.most, after=query.after))


def parse_query(text: str) -> Query:
    """Read the arguments of XQDISCARD. Raises Malformed, also for what only members may ask."""
    query = xqdiscard.parse_query(text)
    if query != Query(query.most, after=query.after):
        raise Malformed("between hops XQDISCARD has only AFTER")
    return query


def format_line(line: Line) -> str:
    """One line of the answer, without code and enhanced code."""
    return xqdiscard.format_line(line, version=1)


def parse_line(text: str) -> Line:
    """Read one line of the answer: an event of kind DELIVERED, with recipient numbers. Raises Malformed; the
    caller skips only that line.
    """
    line = xqdiscard.parse_line(text)
    if line.event is None or line.verdict.kind is not VerdictKind.DELIVERED or not line.verdict.recipients:
        raise Malformed("between hops an event says which recipients are delivered")
    return line
