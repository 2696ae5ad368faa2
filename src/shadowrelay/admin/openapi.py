"""Makes the OpenAPI 3.1 document of the admin API of its routes (docs/reference/api.md)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from shadowrelay.shown.status import ErrorAnswer, ReadyAnswer

Shape: TypeAlias = Mapping[str, Any]

PAGE: Mapping[str, Any] = {"after": str, "limit": Annotated[int, Field(ge=1, le=500)]}
"""The parameters of a list: where a page begins (the ``next`` of the page before), and how much it has."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What a route does. ``answer``, ``body``, and the values of ``query``: models and types. ``statuses``:
    the refusals that only some operations have.
    """

    summary: str
    answer: Any
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    statuses: tuple[int, ...] = ()
    content: str = "application/json"
    open: bool = False  # without a token


class DescribedRoute(Route):
    """A route of one method that the document describes."""

    def __init__(
        self,
        path: str,
        endpoint: Callable[[Request], Awaitable[Response]],
        operation: Operation,
        method: str = "GET",
    ) -> None:
        super().__init__(path, endpoint, methods=[method])
        self.operation = operation


_WORDS = {
    400: "A parameter or the body is wrong.",
    401: "A token is required.",
    403: "The token may not do that, or a page of another site asks.",
    404: "There is no such thing.",
    405: "Another method is for this path.",
    409: "It cannot be done in this state.",
    413: "The body is too long.",
    415: "The body is not application/json.",
    422: "A name is no queue's; the nearest are told.",
    500: "A defect: the node's log says why.",
    503: "The node is opening its database, cannot use it, or has too much to do.",
}
_PLACE = re.compile(r"\{(\w+)(:path)?\}")


class _Plain(GenerateJsonSchema):
    """Without a title for each field: it would be the field's name."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False


class _Shapes:
    """The schema of every model of some operations, and the ``definitions`` that these refer to.

    An answer may have more than its model: answers grow. A body has what is in its model alone.
    """

    def __init__(self, operations: Iterable[Operation]) -> None:
        known = list(operations)
        answers = [ErrorAnswer, ReadyAnswer, *(one.answer for one in known)]
        answers += [kind for one in known for kind in one.query.values()]
        bodies = [one.body for one in known if one.body is not None]
        shapes, definitions = _schemas(answers, "serialization")
        asked, closed = _schemas(bodies, "validation")
        for shape in closed.values():
            if shape["type"] == "object":
                shape["additionalProperties"] = False
        self.of: Mapping[Any, Shape] = {**shapes, **asked}
        self.definitions: Mapping[str, Shape] = {**definitions, **closed}


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


def operations(routes: Iterable[BaseRoute]) -> dict[tuple[str, str], Operation]:
    """The operations of these routes, by their methods and paths."""
    return {
        each: one.operation for one in routes if isinstance(one, DescribedRoute) for each in served([one])
    }


def document(version: str, routes: Iterable[BaseRoute]) -> dict[str, Any]:
    """The document of what these routes do."""
    described = operations(routes)
    shapes = _Shapes(described.values())
    paths: dict[str, dict[str, Any]] = {}
    for (method, path), one in described.items():
        paths.setdefault(path, {})[method.lower()] = _operation(method, path, one, shapes.of)
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
            "schemas": shapes.definitions,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "shadowrelay-NODE"},
            },
        },
        "security": [{"token": []}, {"session": []}],
    }


def _operation(method: str, path: str, one: Operation, shapes: Mapping[Any, Shape]) -> dict[str, Any]:
    places = [found[1] for found in _PLACE.finditer(path)]
    told: dict[str, Any] = {
        "operationId": _name(method, path),
        "summary": one.summary,
        "description": "Needs no token."
        if one.open
        else f"Needs the scope {'read' if method == 'GET' else 'operate'}.",
        "parameters": [
            *(
                {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
                for name in places
            ),
            *({"name": name, "in": "query", "schema": shapes[kind]} for name, kind in one.query.items()),
        ],
        "responses": {
            str(status): answer for status, answer in _answers(method, one, shapes, hop=bool(places))
        },
    }
    if one.body is not None:
        told["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": shapes[one.body]}},
        }
    if one.open:
        told["security"] = []
    return told


def _answers(
    method: str, one: Operation, shapes: Mapping[Any, Shape], *, hop: bool
) -> Iterable[tuple[int, Mapping[str, Any]]]:
    yield 200, {"description": "Done.", "content": {one.content: {"schema": shapes[one.answer]}}}
    statuses = {405, 500, 503, *one.statuses}
    statuses |= set() if method == "GET" and one.open else {401, 403}
    statuses |= {404} if hop else set()
    statuses |= {400} if one.query else set()
    statuses |= {400, 409, 413, 415} if method != "GET" else set()
    for status in sorted(statuses):
        health = one.open and method == "GET" and status == 503
        content = {"application/json": {"schema": shapes[ReadyAnswer if health else ErrorAnswer]}}
        yield status, {"description": _WORDS[status], "content": content}


def _name(method: str, path: str) -> str:
    words = re.findall(r"[a-z]+", _PLACE.sub("", path.removeprefix("/api/v1")))
    about = [found[1] for found in _PLACE.finditer(path)]
    return "_".join([method.lower(), *words, *(["by", *about] if about else [])])
