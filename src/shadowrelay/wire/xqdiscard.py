"""XQDISCARD: events for the asker, questions about copies, and revocation.

::

    XQDISCARD <max> [AT=<mark>] [AFTER=<incarnation>:<event>]
              [CHECK=<message-id>;<epoch>[;<rank>],...] [REVOKE=<message-id>;<epoch>;<rank>]
    250-2.0.0 <event|-> <message-id> <epoch> <kind>[=<argument>] <recipients>

``AT`` is the asker's own mark. A rank in CHECK says that the asker owns the message, by that rank; without
it the asker holds a copy. ``<event>`` is ``-`` in answers to CHECK and REVOKE. The argument is the owner's
name for ``taken``, a rank for ``held`` and ``superseded``, the outcome for ``delivered``. Recipients are
``*`` or number ranges such as ``1-3,7``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from shadowrelay.core.conversation import MAX_LINES, MAX_QUESTIONS, Line, Query, Question, Revocation
from shadowrelay.core.decisions import Kind, Verdict
from shadowrelay.wire.xshadow import Malformed, format_mark, message_id, number, parse_mark, server_name

_OWNER = re.compile(r"[a-z0-9.-]{1,255}")
_OUTCOME = re.compile(r"relayed|failed")
_RANK = re.compile(r"[0-9]{1,18}")
_ARGUMENTS = {Kind.TAKEN: _OWNER, Kind.DELIVERED: _OUTCOME, Kind.HELD: _RANK, Kind.SUPERSEDED: _RANK}
_MAX_RECIPIENT = 1_000_000


def format_query(query: Query) -> str:
    """The arguments of XQDISCARD."""
    words = [str(query.most)]
    if query.at:
        words.append(f"AT={format_mark(query.at)}")
    if query.after:
        words.append(f"AFTER={format_mark(query.after)}")
    if query.questions:
        asked = (
            f"{question.message_id};{question.epoch}" + ("" if question.rank is None else f";{question.rank}")
            for question in query.questions
        )
        words.append("CHECK=" + ",".join(asked))
    if query.revoke:
        revoke = query.revoke
        words.append(f"REVOKE={revoke.message_id};{revoke.epoch};{revoke.rank}")
    return " ".join(words)


def parse_query(text: str) -> Query:
    """Read the arguments of XQDISCARD. Raises Malformed."""
    first, *rest = text.split(" ")
    most = number(first)
    given: dict[str, str] = {}
    for word in rest:
        keyword, equals, value = word.partition("=")
        if not equals or keyword not in ("AT", "AFTER", "CHECK", "REVOKE") or keyword in given:
            raise Malformed("unknown or repeated argument")
        given[keyword] = value
    questions = tuple(_question(item) for item in given["CHECK"].split(",")) if "CHECK" in given else ()
    if len(questions) > MAX_QUESTIONS:
        raise Malformed("too many questions")
    return Query(
        most=min(most, MAX_LINES),
        at=parse_mark(given["AT"]) if "AT" in given else None,
        after=parse_mark(given["AFTER"]) if "AFTER" in given else None,
        questions=questions,
        revoke=_revocation(given["REVOKE"]) if "REVOKE" in given else None,
    )


def _question(text: str) -> Question:
    parts = text.split(";")
    if len(parts) not in (2, 3):
        raise Malformed("CHECK needs message id and epoch")
    rank = number(parts[2]) if len(parts) == 3 else None
    return Question(message_id(parts[0]), number(parts[1]), rank)


def _revocation(text: str) -> Revocation:
    parts = text.split(";")
    if len(parts) != 3:
        raise Malformed("REVOKE needs message id, epoch and rank")
    return Revocation(message_id(parts[0]), number(parts[1]), number(parts[2]))


def format_line(line: Line) -> str:
    """One line of the answer, without code and enhanced code."""
    verdict = line.verdict
    event = "-" if line.event is None else str(line.event)
    kind = f"{verdict.kind}={verdict.argument}" if verdict.argument else str(verdict.kind)
    return f"{event} {verdict.message_id} {verdict.epoch} {kind} {format_recipients(verdict.recipients)}"


def parse_line(text: str) -> Line:
    """Read one line of the answer. Raises Malformed: an error of that line alone, for the caller to skip."""
    words = text.split(" ")
    if len(words) != 5:
        raise Malformed("an answer has five words")
    event = None if words[0] == "-" else number(words[0])
    name, equals, argument = words[3].partition("=")
    try:
        kind = Kind(name)
    except ValueError as error:
        raise Malformed("unknown kind") from error
    form = _ARGUMENTS.get(kind)
    if equals and not (form and form.fullmatch(argument)):
        raise Malformed("bad argument")
    if kind is Kind.TAKEN:
        server_name(argument)
    recipients = parse_recipients(words[4])
    return Line(event, Verdict(message_id(words[1]), number(words[2]), kind, argument, recipients))


def format_recipients(numbers: Iterable[int]) -> str:
    """``*`` for all (no numbers), else ranges in ascending order."""
    ranges: list[tuple[int, int]] = []
    for item in sorted(set(numbers)):
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
