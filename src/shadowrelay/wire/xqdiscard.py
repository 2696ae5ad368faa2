"""The grammar of XQDISCARD: events for the asker, questions about copies, and revocation.

::

    XQDISCARD <max> [AT=<mark>] [AFTER=<incarnation>:<event>]
              [CHECK=<message-id>;<epoch>[;<rank>][;damaged],...] [REVOKE=<message-id>;<epoch>;<rank>]
              [SEEN=<owner>;<database-id>;<mark>]
              [CLAIM=<owner>;<database-id>;<reason>,<message-id>;<epoch>;<rank>[;damaged],...]
              [FETCH=<message-id>[;<epoch>;<content digest>]]
    250-2.0.0 <event|-> <message-id> <epoch> <kind>[=<argument>] <recipients>
    250-2.0.0 seen <owner>

``AT`` is the asker's own mark. With a rank in CHECK the asker owns the message, with that rank; without a
rank it holds a copy. SEEN asks for a second opinion on an owner; a ``seen`` line answers it if there was
contact. CLAIM names copies, held for an owner that is gone, that the asker is about to promote. ``damaged``:
the asker's own copy is damaged. FETCH asks for a good copy in place of a damaged one. ``<event>`` is ``-`` in
answers to CHECK, CLAIM, FETCH and REVOKE. The argument is the owner's name for ``taken``, a rank for
``held``, ``superseded``, ``pending`` and ``damaged``, and the outcome for ``delivered``. From version 3 on
``@<milliseconds>`` follows the outcome: when those recipients were settled, since 1970. Version 4 brings the
outcome ``removed``, and the kinds ``suspended=[<end>]@<milliseconds>`` and ``resumed=@<milliseconds>``: an
operator ordered that, at that time. Version 5 brings ``unread=<tries>;<xtext host>``: that host took the
content, and its answer could not be read. A member of an earlier version hears ``failed``, and ``pending``.
Recipients are ``*`` or number ranges such as ``1-3,7``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from shadowrelay.core.decisions import Verdict, VerdictKind
from shadowrelay.core.events.discard_notices import unread_said
from shadowrelay.core.identifiers import MessageId, ServerName
from shadowrelay.core.members.claims import Claim, Sighting
from shadowrelay.core.members.conversation import MAX_LINES, MAX_QUESTIONS, Line, Query, Question, Revocation
from shadowrelay.core.members.damage import Wanted
from shadowrelay.core.messages import Reason
from shadowrelay.core.values import replace
from shadowrelay.wire.xshadow import (
    VERSION,
    Malformed,
    database_id,
    digest,
    format_mark,
    format_unread,
    message_id,
    milliseconds,
    moment,
    number,
    parse_mark,
    parse_unread,
    server_name,
)

_OWNER = re.compile(r"[a-z0-9.-]{1,255}")
_OUTCOME = re.compile(r"(?:relayed|failed|removed)(?:@[0-9]{1,15})?|@[0-9]{1,15}")
_SUSPENDED = re.compile(r"[0-9]{0,15}@[0-9]{1,15}")
_RESUMED = re.compile(r"@[0-9]{1,15}")
_UNREAD = re.compile(r"[0-9]{1,7};[!-~]{0,1000}")
_RANK = re.compile(r"[0-9]{1,18}")
_ARGUMENTS = {
    VerdictKind.TAKEN: _OWNER,
    VerdictKind.DELIVERED: _OUTCOME,
    VerdictKind.SUSPENDED: _SUSPENDED,
    VerdictKind.RESUMED: _RESUMED,
    VerdictKind.UNREAD: _UNREAD,
    VerdictKind.RECORDED: _RANK,
    VerdictKind.SUPERSEDED: _RANK,
    VerdictKind.PENDING: _RANK,
    VerdictKind.DAMAGED: _RANK,
}
_DELIVERED = re.compile(
    r"([0-9]{1,18}) ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}) ([0-9]{1,18}) "
    r"delivered=(relayed|failed|removed|)@([0-9]{1,15}) \*"
)
"""What is said of nearly every message: all its recipients are settled."""
_KEYWORDS = frozenset({"AT", "AFTER", "CHECK", "REVOKE", "SEEN", "CLAIM", "FETCH"})
_TIMED = frozenset({VerdictKind.DELIVERED, VerdictKind.SUSPENDED, VerdictKind.RESUMED})
_ORDERS = frozenset({VerdictKind.SUSPENDED, VerdictKind.RESUMED})
_SINCE = {VerdictKind.SUSPENDED: 4, VerdictKind.RESUMED: 4, VerdictKind.UNREAD: 5}
"""Kinds that members of earlier versions do not know."""
_ARGUED = _ORDERS | {VerdictKind.UNREAD}
_DAMAGED = "damaged"
_MAX_RECIPIENT = 1_000_000


def format_query(query: Query) -> str:
    """The arguments of XQDISCARD."""
    words = [str(query.most)]
    if query.at:
        words.append(f"AT={format_mark(query.at)}")
    if query.after:
        words.append(f"AFTER={format_mark(query.after)}")
    if query.questions:
        words.append("CHECK=" + ",".join(map(_spelt, query.questions)))
    if query.revoke:
        revoke = query.revoke
        words.append(f"REVOKE={revoke.message_id};{revoke.epoch};{revoke.rank}")
    if query.sighting:
        of = query.sighting
        words.append(f"SEEN={of.owner};{of.database_id};{format_mark(of.mark)}")
    if query.claim:
        claim = query.claim
        named = f"{claim.owner};{claim.database_id};{claim.reason}"
        words.append("CLAIM=" + ",".join((named, *map(_spelt, query.claimed))))
    if query.wanted:
        wanted = query.wanted
        known = f";{wanted.epoch};{wanted.content}" if wanted.content else ""
        words.append(f"FETCH={wanted.message_id}{known}")
    return " ".join(words)


def _spelt(question: Question) -> str:
    words = [question.message_id, str(question.epoch)]
    words += [] if question.rank is None else [str(question.rank)]
    return ";".join([*words, _DAMAGED] if question.damaged else words)


def parse_query(text: str) -> Query:
    """Read the arguments of XQDISCARD. Raises Malformed."""
    first, *rest = text.split(" ")
    most = number(first)
    given: dict[str, str] = {}
    for word in rest:
        keyword, equals, value = word.partition("=")
        if not equals or keyword not in _KEYWORDS or keyword in given:
            raise Malformed("unknown or repeated argument")
        given[keyword] = value
    questions = tuple(_question(item) for item in given["CHECK"].split(",")) if "CHECK" in given else ()
    claim, claimed = _claim(given["CLAIM"]) if "CLAIM" in given else (None, ())
    if len(questions) + len(claimed) > MAX_QUESTIONS:
        raise Malformed("too many questions")
    return Query(
        most=min(most, MAX_LINES),
        at=parse_mark(given["AT"]) if "AT" in given else None,
        after=parse_mark(given["AFTER"]) if "AFTER" in given else None,
        questions=questions,
        revoke=_revocation(given["REVOKE"]) if "REVOKE" in given else None,
        sighting=_sighting(given["SEEN"]) if "SEEN" in given else None,
        claim=claim,
        claimed=claimed,
        wanted=_wanted(given["FETCH"]) if "FETCH" in given else None,
    )


def _question(text: str) -> Question:
    parts = text.split(";")
    if damaged := len(parts) > 2 and parts[-1] == _DAMAGED:
        parts.pop()
    if len(parts) not in (2, 3):
        raise Malformed("CHECK needs message id and epoch")
    rank = number(parts[2]) if len(parts) == 3 else None
    return Question(message_id(parts[0]), number(parts[1]), rank, damaged)


def _wanted(text: str) -> Wanted:
    parts = text.split(";")
    if len(parts) not in (1, 3):
        raise Malformed("FETCH needs message id, or that with epoch and digest")
    named = message_id(parts[0])
    return Wanted(named, number(parts[1]), digest(parts[2])) if len(parts) == 3 else Wanted(named)


def _revocation(text: str) -> Revocation:
    parts = text.split(";")
    if len(parts) != 3:
        raise Malformed("REVOKE needs message id, epoch and rank")
    return Revocation(message_id(parts[0]), number(parts[1]), number(parts[2]))


def _sighting(text: str) -> Sighting:
    parts = text.split(";")
    if len(parts) != 3:
        raise Malformed("SEEN needs owner, database id and mark")
    return Sighting(server_name(parts[0]), database_id(parts[1]), parse_mark(parts[2]))


def _claim(text: str) -> tuple[Claim, tuple[Question, ...]]:
    head, *copies = text.split(",")
    parts = head.split(";")
    if len(parts) != 3 or not copies:
        raise Malformed("CLAIM needs owner, database id, reason and copies")
    try:
        reason = Reason(parts[2])
    except ValueError as error:
        raise Malformed("unknown reason") from error
    claimed = tuple(_question(copy) for copy in copies)
    if any(copy.rank is None for copy in claimed):
        raise Malformed("CLAIM needs the rank of each copy")
    return Claim(server_name(parts[0]), database_id(parts[1]), reason), claimed


def format_seen(owner: ServerName) -> str:
    """The line that tells that there was contact with that member."""
    return f"seen {owner}"


def parse_seen(text: str) -> ServerName | None:
    """The member that a ``seen`` line names; None for any other line. Raises Malformed."""
    word, _, name = text.partition(" ")
    return server_name(name) if word == "seen" else None


def format_line(line: Line, version: int = VERSION) -> str:
    """One line of the answer, without code and enhanced code, in that version of the protocol."""
    verdict = _in_version(line.verdict, version)
    event = "-" if line.event is None else str(line.event)
    argument = verdict.argument
    if verdict.kind is VerdictKind.UNREAD:
        argument = format_unread(unread_said(verdict))
    if verdict.settled_at and version > 2:
        argument = f"{argument}@{milliseconds(verdict.settled_at)}"
    kind = f"{verdict.kind}={argument}" if argument else str(verdict.kind)
    return f"{event} {verdict.message_id} {verdict.epoch} {kind} {format_recipients(verdict.recipients)}"


def _in_version(verdict: Verdict, version: int) -> Verdict:
    """The verdict in words that members of that version know: a removal settles as a failure does. Of a kind
    that they do not know the event must change nothing there, and still be acknowledged.
    """
    if version < _SINCE.get(verdict.kind, 0):
        return replace(verdict, kind=VerdictKind.PENDING, argument="", settled_at=None)
    if version < 4 and verdict.kind is VerdictKind.DELIVERED and verdict.argument == "removed":
        return replace(verdict, argument="failed")
    return verdict


def parse_line(text: str) -> Line:
    """Read one line of the answer. Raises Malformed; the caller skips only that line."""
    if found := _DELIVERED.fullmatch(text):
        event, of, epoch, outcome, at = found.groups()
        said = Verdict(MessageId(of), int(epoch), VerdictKind.DELIVERED, outcome, (), moment(at))
        return Line(int(event), said)
    return parse_any_line(text)


def parse_any_line(text: str) -> Line:
    """As ``parse_line``, of any kind. Raises Malformed."""
    words = text.split(" ")
    if len(words) != 5:
        raise Malformed("an answer has five words")
    event = None if words[0] == "-" else number(words[0])
    name, equals, argument = words[3].partition("=")
    try:
        kind = VerdictKind(name)
    except ValueError as error:
        raise Malformed("unknown kind") from error
    form = _ARGUMENTS.get(kind)
    if (equals or kind in _ARGUED) and not (form and form.fullmatch(argument)):
        raise Malformed("bad argument")
    if kind is VerdictKind.TAKEN:
        server_name(argument)
    settled_at: datetime | None = None
    if kind in _TIMED:
        argument, _, at = argument.partition("@")
        settled_at = moment(at) if at else None
    if kind is VerdictKind.SUSPENDED and argument:
        moment(argument)
    if kind is VerdictKind.UNREAD:
        found = parse_unread(argument)
        argument = f"{found.tries};{found.host}"
    recipients = parse_recipients(words[4])
    return Line(
        event, Verdict(message_id(words[1]), number(words[2]), kind, argument, recipients, settled_at)
    )


def format_recipients(numbers: Iterable[int]) -> str:
    """The numbers as ranges in ascending order; ``*``, for all, if there are none."""
    ranges: list[tuple[int, int]] = []
    for item in sorted(set(numbers)) if numbers else ():
        if ranges and ranges[-1][1] == item - 1:
            ranges[-1] = (ranges[-1][0], item)
        else:
            ranges.append((item, item))
    if not ranges:
        return "*"
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def parse_recipients(text: str) -> tuple[int, ...]:
    """The numbers, ascending; empty for ``*``. Raises Malformed."""
    if text == "*":
        return ()
    numbers: list[int] = []
    for part in text.split(","):
        low, dash, high = part.partition("-")
        first = number(low)
        last = number(high) if dash else first
        if not 1 <= first <= last <= _MAX_RECIPIENT or (numbers and first <= numbers[-1]):
            raise Malformed("bad recipient ranges")
        if last - first + len(numbers) > 10_000:
            raise Malformed("too many recipients")
        numbers.extend(range(first, last + 1))
    return tuple(numbers)
