"""The grammar of XOPERATE: what a member does for an operator on another node (docs/reference/protocol.md).

::

    XOPERATE <job> <action> <scope> <arguments>
    250-2.0.0 <part>
    250 2.0.0 <part>

The arguments, and the parts of the answer one after the other, are base64url (RFC 4648 5) of JSON.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Sequence

from shadowrelay.core.identifiers import RequestId
from shadowrelay.core.operating import Act, ActAnswer, Scope, Told
from shadowrelay.wire.xshadow import MAX_LINE, Malformed, message_id

MAX_ANSWER = 1 << 18
"""Octets that the JSON of an answer may have."""

_PART = 3000  # octets of an answer in one line
_ACTION = re.compile(r"[a-z][a-z-]{0,31}")
_MOST_TEXT = 500  # characters of an operator's name, or a reason


class TooLong(ValueError):
    """The arguments do not fit into a line between members."""


def format_act(act: Act) -> str:
    """The arguments of XOPERATE. Raises TooLong."""
    told = {"operator": act.operator, "reason": act.reason, "arguments": act.arguments}
    text = f"{act.job} {act.action} {act.scope.value} {_encoded(told)}"
    if len(text) > MAX_LINE - len("XOPERATE \r\n"):
        raise TooLong("the arguments are too long")
    return text


def parse_act(text: str) -> Act:
    """Read the arguments of XOPERATE. Raises Malformed."""
    words = text.split(" ")
    if len(words) != 4 or not _ACTION.fullmatch(words[1]):
        raise Malformed("XOPERATE needs job, action, scope and arguments")
    if words[2] not in set(Scope):
        raise Malformed("unknown scope")
    told = _decoded(words[3])
    operator, reason, arguments = told.get("operator"), told.get("reason"), told.get("arguments")
    if not isinstance(operator, str) or not isinstance(reason, str) or not isinstance(arguments, dict):
        raise Malformed("bad arguments")
    if max(len(operator), len(reason)) > _MOST_TEXT:
        raise Malformed("operator or reason too long")
    return Act(
        job=RequestId(message_id(words[0])),
        action=words[1],
        scope=Scope(words[2]),
        operator=operator,
        reason=reason,
        arguments=arguments,
    )


def format_answer(told: Told) -> tuple[str, ...]:
    """The lines of an answer. Raises TooLong."""
    text = _encoded(told)
    if len(text) > MAX_ANSWER:
        raise TooLong("the answer is too long")
    return tuple(text[at : at + _PART] for at in range(0, len(text), _PART))


def parse_answer(lines: Sequence[str]) -> ActAnswer:
    """Read the lines of an answer, without their marks. Raises Malformed."""
    return ActAnswer(_decoded("".join(lines)))


def _encoded(told: Told) -> str:
    text = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode("utf-8", "surrogateescape")).decode("ascii")


def _decoded(text: str) -> Told:
    try:
        octets = base64.b64decode(text.encode("ascii"), b"-_", validate=True)
        told = json.loads(octets.decode("utf-8"))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise Malformed("not base64url of JSON") from error
    if not isinstance(told, dict):
        raise Malformed("not a JSON object")
    return told
