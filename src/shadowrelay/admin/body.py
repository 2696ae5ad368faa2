"""Reads the JSON body of a request. Raises RequestRefused for what is not as it has to be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request as HttpRequest

from shadowrelay.admin.guard import RequestRefused

MOST_OCTETS = 64 * 1024
"""Octets that a request's body may have."""

ADMIN = "admin token"
"""The operator, if a request names none."""


async def body_of(request: HttpRequest, known: set[str]) -> Mapping[str, Any]:
    octets = b""
    async for block in request.stream():
        octets += block
        if len(octets) > MOST_OCTETS:
            raise RequestRefused(413, f"the body has more than {MOST_OCTETS} octets")
    try:
        found = json.loads(octets or b"{}")
    except ValueError as error:
        raise RequestRefused(400, f"the body is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise RequestRefused(400, "the body is no JSON object")
    if unknown := sorted(set(found) - known):
        raise RequestRefused(400, f"unknown: {', '.join(unknown)}; known are {listed(known)}")
    return found


def text_of(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or not value.strip():
        raise RequestRefused(400, f"{name} has to be a text")
    return value


def maybe_text_of(found: Mapping[str, Any], name: str) -> str | None:
    return None if found.get(name) in (None, "") else text_of(found, name)


def operator_of(found: Mapping[str, Any]) -> str:
    return maybe_text_of(found, "operator") or ADMIN


def listed(names: set[str]) -> str:
    return ", ".join(sorted(names))
