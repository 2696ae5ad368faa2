"""Reads the JSON body of a request. Raises RequestRefused for what is not as it has to be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request as HttpRequest

from shadowrelay.admin.access import Session
from shadowrelay.admin.guard import FORM, RequestRefused, kind_of
from shadowrelay.wire.json_fields import MOST_TEXT, is_text

MOST_OCTETS = 64 * 1024
"""Octets that a request's body may have."""

_MOST_FIELDS = 200


def session_of(request: HttpRequest) -> Session:
    """Who asks, in a handler: ``Answers`` found that out before."""
    found: Session = request.state.session
    return found


async def octets_of(request: HttpRequest) -> bytes:
    """The body of a request. Raises RequestRefused 413."""
    octets = b""
    async for block in request.stream():
        octets += block
        if len(octets) > MOST_OCTETS:
            raise RequestRefused(413, f"the body has more than {MOST_OCTETS} octets")
    return octets


async def form_of(request: HttpRequest) -> dict[str, str]:
    """The fields of a form; of a field that is there twice, the last. It may be asked for again."""
    if (known := getattr(request.state, "form", None)) is not None:
        return dict(known)
    if kind_of(request.headers) != FORM:
        raise RequestRefused(415, f"send Content-Type: {FORM}")
    try:
        text = (await octets_of(request)).decode("ascii")
        found = dict(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS))
    except ValueError as error:
        raise RequestRefused(400, f"the body is no form: {error}") from error
    request.state.form = found
    return dict(found)


async def body_of(request: HttpRequest, known: set[str], *, names_operator: bool = True) -> Mapping[str, Any]:
    """The body as a JSON object that has these members alone.

    ``operator`` is then who it is by the token: a body names the operator only where a token is shared.
    Without ``names_operator`` it is what the body says.
    """
    octets = await octets_of(request)
    try:
        found = json.loads(octets or b"{}")
    except (ValueError, RecursionError) as error:
        raise RequestRefused(400, f"the body is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise RequestRefused(400, "the body is no JSON object")
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError) as error:
        raise RequestRefused(400, "the body has text that is no Unicode: half a character") from error
    if unknown := sorted(set(found) - known):
        raise RequestRefused(400, f"unknown: {', '.join(unknown)}; known are {listed(known)}")
    if not names_operator:
        return found
    request.state.body = found
    if "operator" in known:
        found = {**found, "operator": session_of(request).operator_named(maybe_text_of(found, "operator"))}
    return found


def text_of(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or not value.strip():
        raise RequestRefused(400, f"{name} has to be a text")
    if not is_text(value):
        raise RequestRefused(400, f"{name} has the character NUL, or half a character")
    return value


def maybe_text_of(found: Mapping[str, Any], name: str) -> str | None:
    return None if found.get(name) in (None, "") else text_of(found, name)


def operator_of(found: Mapping[str, Any]) -> str:
    """The operator in a body that ``body_of`` read."""
    return short_text(text_of(found, "operator"), "operator")


def reason_of(found: Mapping[str, Any]) -> str:
    """The reason in a body that ``body_of`` read."""
    return short_text(text_of(found, "reason"), "reason")


def short_text(text: str, name: str) -> str:
    """A text that a record can keep: what is longer would be no record. Raises RequestRefused."""
    if len(text) > MOST_TEXT:
        raise RequestRefused(400, f"{name} has {MOST_TEXT} characters at most")
    return text


def listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


def address_pattern(text: str | None, name: str) -> str | None:
    """An address, or ``*@DOMAIN``, in lower case; None for None. A ``sender`` may be ``<>``: empty text."""
    if text is None:
        return None
    if text == "<>" and name == "sender":
        return ""
    local, at, domain = text.rpartition("@")
    if not at or not local or not domain or ("*" in text and local != "*") or "*" in domain:
        raise RequestRefused(400, f"{name} is an address, or *@DOMAIN for all of a domain, and not {text}")
    return text.lower()
