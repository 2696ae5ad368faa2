"""Makes the OpenAPI 3.1 document of the admin API from its operations (docs/reference/api.md)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Literal, TypeAlias

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from starlette.routing import BaseRoute, Route

from shadowrelay.admin.openapi_operations import OPERATIONS, Operation
from shadowrelay.shown.status import ErrorAnswer, ReadyAnswer

Shape: TypeAlias = Mapping[str, Any]

_WORDS = {
    400: "A parameter or the body is wrong.",
    401: "A token is required.",
    403: "The token may not do that, or a page of another site asks.",
    404: "There is no such thing.",
    405: "Another method is for this path.",
    409: "It cannot be done in this state.",
    413: "The body is too long.",
    415: "The body is not application/json.",
    500: "A defect: the node's log says why.",
    503: "The node is opening its database, cannot use it, or has too much to do.",
}
_PLACE = re.compile(r"\{(\w+)(:path)?\}")


class _Plain(GenerateJsonSchema):
    """Without a title for each field: it would be the field's name."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False


@cache
def _shapes() -> tuple[dict[Any, Shape], dict[str, Shape]]:
    """The schema of every model of the operations, and the definitions that these refer to.

    An answer may have more than its model: answers grow. A body has what is in its model alone.
    """
    answers = [ErrorAnswer, ReadyAnswer, *(one.answer for one in OPERATIONS)]
    answers += [kind for one in OPERATIONS for kind in one.query.values()]
    bodies = [one.body for one in OPERATIONS if one.body is not None]
    shapes, definitions = _schemas(answers, "serialization")
    asked, closed = _schemas(bodies, "validation")
    for shape in closed.values():
        if shape["type"] == "object":
            shape["additionalProperties"] = False
    return {**shapes, **asked}, {**definitions, **closed}


def _schemas(
    models: Iterable[Any], mode: Literal["serialization", "validation"]
) -> tuple[dict[Any, Shape], dict[str, dict[str, Any]]]:
    adapters = [(one, mode, TypeAdapter(one)) for one in dict.fromkeys(models)]
    found, definitions = TypeAdapter.json_schemas(
        adapters, ref_template="#/components/schemas/{model}", schema_generator=_Plain
    )
    return {model: shape for (model, _), shape in found.items()}, definitions.get("$defs", {})


def served(routes: Iterable[BaseRoute]) -> set[tuple[str, str]]:
    """Method and path of the routes, with paths as the document has them."""
    return {
        (method, _PLACE.sub(r"{\1}", route.path))
        for route in routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }


def document(version: str, routes: Iterable[BaseRoute]) -> dict[str, Any]:
    """The document of the operations that these routes serve."""
    there = served(routes)
    paths: dict[str, dict[str, Any]] = {}
    for one in OPERATIONS:
        if (one.method, one.path) in there:
            paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "shadowrelay admin API",
            "version": version,
            "description": "What is on a node, and what an operator does. Lists have limit and after; next "
            "is where the next page begins.",
        },
        "paths": paths,
        "components": {
            "schemas": _shapes()[1],
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "shadowrelay-NODE"},
            },
        },
        "security": [{"token": []}, {"session": []}],
    }


def _operation(one: Operation) -> dict[str, Any]:
    places = [found[1] for found in _PLACE.finditer(one.path)]
    shapes = _shapes()[0]
    told: dict[str, Any] = {
        "operationId": _name(one),
        "summary": one.summary,
        "description": "Needs no token."
        if one.open
        else f"Needs the scope {'read' if one.method == 'GET' else 'operate'}.",
        "parameters": [
            *(
                {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
                for name in places
            ),
            *({"name": name, "in": "query", "schema": shapes[kind]} for name, kind in one.query.items()),
        ],
        "responses": {str(status): answer for status, answer in _answers(one, hop=bool(places))},
    }
    if one.body is not None:
        told["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": shapes[one.body]}},
        }
    if one.open:
        told["security"] = []
    return told


def _answers(one: Operation, *, hop: bool) -> Iterable[tuple[int, Mapping[str, Any]]]:
    shapes = _shapes()[0]
    yield 200, {"description": "Done.", "content": {one.content: {"schema": shapes[one.answer]}}}
    statuses = {405, 500, 503, *one.statuses}
    statuses |= set() if one.method == "GET" and one.open else {401, 403}
    statuses |= {404} if hop else set()
    statuses |= {400} if one.query else set()
    statuses |= {400, 409, 413, 415} if one.method != "GET" else set()
    for status in sorted(statuses):
        health = one.open and one.method == "GET" and status == 503
        content = {"application/json": {"schema": shapes[ReadyAnswer if health else ErrorAnswer]}}
        yield status, {"description": _WORDS[status], "content": content}


def _name(one: Operation) -> str:
    words = re.findall(r"[a-z]+", _PLACE.sub("", one.path.removeprefix("/api/v1")))
    about = [found[1] for found in _PLACE.finditer(one.path)]
    return "_".join([one.method.lower(), *words, *(["by", *about] if about else [])])
