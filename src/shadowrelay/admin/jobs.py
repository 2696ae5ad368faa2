"""Answers the routes about jobs and suspended queues (docs/reference/api.md)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.routing import Route

from shadowrelay.admin import asked
from shadowrelay.admin.answering import Answers
from shadowrelay.admin.body import (
    address_pattern,
    body_of,
    listed,
    maybe_text_of,
    operator_of,
    reason_of,
    session_of,
    short_text,
    text_of,
)
from shadowrelay.admin.guard import NO_SUCH_QUEUE, RequestRefused
from shadowrelay.admin.node import NodeServices
from shadowrelay.admin.openapi import PAGE
from shadowrelay.admin.paging import paged
from shadowrelay.core.identifiers import MessageId, NextHop, is_uuid
from shadowrelay.core.jobs import Filter, Verb
from shadowrelay.core.spelling import canonical
from shadowrelay.operator.jobs import NoSuchJob
from shadowrelay.operator.queue_names import NoSuchQueue
from shadowrelay.operator.resubmit_estimate import CannotDo
from shadowrelay.shown.records import JobEntry, JobPreview, JobsPage, SuspensionRecord, SuspensionsPage
from shadowrelay.wire.json_fields import MOST_NAMES

CONDITIONS = {
    "ids",
    "queue",
    "sender",
    "recipient",
    "domain",
    "subject",
    "error",
    "suspended",
    "older",
    "younger",
    "larger",
    "smaller",
}
"""What a filter may have."""

_LONGEST = timedelta(days=36_500)
_ACTS = ("suspend", "resume")


class JobRoutes:
    """The handlers: each takes a request and returns JSON. Raise RequestRefused."""

    def __init__(self, api: Answers) -> None:
        self._api = api

    def routes(self) -> list[Route]:
        api, base = self._api, "/api/v1/jobs"
        return [
            api.read(base, self.list, "The jobs.", JobsPage, query=PAGE),
            api.change(
                base,
                self.add,
                "Do a verb to all messages that match a filter.",
                JobEntry,
                asked.JobAsked,
                statuses=(NO_SUCH_QUEUE,),
            ),
            api.change(
                f"{base}/preview",
                self.preview,
                "How many messages match a filter, and some of them.",
                JobPreview,
                asked.JobPreviewAsked,
                statuses=(NO_SUCH_QUEUE,),
            ),
            api.read(
                f"{base}/{{id}}",
                self.show,
                "One job, and how far each member is.",
                JobEntry,
                statuses=(409,),
            ),
            api.change(f"{base}/{{id}}/stop", self.stop, "Stop a job.", JobEntry, asked.OperatorAsked),
            api.read(
                "/api/v1/suspensions", self.suspensions, "The suspended queues.", SuspensionsPage, query=PAGE
            ),
            api.change(
                "/api/v1/suspensions",
                self.act_on_queue,
                "Suspend or resume a queue.",
                SuspensionRecord,
                asked.SuspensionAsked,
                statuses=(NO_SUCH_QUEUE,),
            ),
        ]

    @property
    def _services(self) -> NodeServices:
        return self._api.node.services

    async def list(self, request: HttpRequest) -> dict[str, Any]:
        return paged(request.query_params, {"jobs": await self._services.jobs.all()}, "jobs", "id")

    async def show(self, request: HttpRequest) -> JobEntry:
        with _refusing():
            return await self._services.jobs.show(request.path_params["id"], _asks(request))

    async def preview(self, request: HttpRequest) -> JobPreview:
        body = await body_of(request, {"filter", "operator"})
        with _refusing():
            return await self._services.jobs.preview(filter_of(body), operator_of(body))

    async def add(self, request: HttpRequest) -> JobEntry:
        body = await body_of(request, {"verb", "filter", "operator", "reason", "until", "with_report"})
        verb = text_of(body, "verb")
        if verb not in {*Verb}:
            raise RequestRefused(400, f"verb is one of {', '.join(Verb)}")
        with_report = body.get("with_report", False)
        if not isinstance(with_report, bool):
            raise RequestRefused(400, "with_report is true or false")
        operator, reason = operator_of(body), reason_of(body)
        wanted, until = filter_of(body), _until(body)
        with _refusing():
            return await self._services.jobs.add(
                Verb(verb), wanted, operator, reason, until=until, with_report=with_report
            )

    async def stop(self, request: HttpRequest) -> JobEntry:
        body = await body_of(request, {"operator"})
        with _refusing():
            return await self._services.jobs.stop(request.path_params["id"], operator_of(body))

    async def suspensions(self, request: HttpRequest) -> dict[str, Any]:
        found = {"suspensions": await self._services.suspensions.all(_asks(request))}
        return paged(request.query_params, found, "suspensions", "queue")

    async def act_on_queue(self, request: HttpRequest) -> SuspensionRecord:
        body = await body_of(request, {"queue", "act", "operator", "reason", "until"})
        queue, act = short_text(text_of(body, "queue"), "queue"), body.get("act")
        operator, reason = operator_of(body), reason_of(body)
        until = _until(body)
        if act not in _ACTS:
            raise RequestRefused(400, f"act is one of {', '.join(_ACTS)}")
        if act == "resume" and until is not None:
            raise RequestRefused(400, "until belongs to suspend, and not to resume")
        of = self._services.suspensions
        with _refusing():
            return (
                await of.suspend(queue, operator, reason, until)
                if act == "suspend"
                else await of.resume(queue, operator, reason)
            )


class _refusing:
    """Turns what an operator's verb refuses into an answer."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, NoSuchJob):
            raise RequestRefused(404, str(error)) from error
        if isinstance(error, NoSuchQueue):
            raise RequestRefused(NO_SUCH_QUEUE, str(error)) from error
        if isinstance(error, CannotDo):
            raise RequestRefused(409, str(error)) from error


def _asks(request: HttpRequest) -> str:
    return session_of(request).operator_named(None)


def filter_of(body: Mapping[str, Any]) -> Filter:
    """The filter in a body. Raises RequestRefused."""
    given = body.get("filter")
    if not isinstance(given, dict):
        raise RequestRefused(400, "filter has to be an object")
    if unknown := sorted(set(given) - CONDITIONS):
        raise RequestRefused(400, f"unknown condition {', '.join(unknown)}; known are {listed(CONDITIONS)}")
    queue = _text(given, "queue")
    domain = _text(given, "domain")
    suspended = given.get("suspended")
    if suspended is not None and not isinstance(suspended, bool):
        raise RequestRefused(400, "suspended is true or false")
    return Filter(
        ids=_ids(given.get("ids") or []),
        queue=None if queue is None else NextHop(queue),
        sender=address_pattern(_text(given, "sender"), "sender"),
        recipient=address_pattern(_text(given, "recipient"), "recipient"),
        domain=None if domain is None else canonical(domain.removeprefix("@")),
        subject=_text(given, "subject"),
        error=_text(given, "error"),
        suspended=suspended,
        older=_age(given, "older"),
        younger=_age(given, "younger"),
        larger=_octets(given, "larger"),
        smaller=_octets(given, "smaller"),
    )


def _ids(value: object) -> tuple[MessageId, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and is_uuid(one.lower()) for one in value):
        raise RequestRefused(400, "ids is a list of ids of messages, which are UUIDs")
    if len(value) > MOST_NAMES:
        raise RequestRefused(400, f"one job is about {MOST_NAMES} ids at most: make several jobs")
    return tuple(dict.fromkeys(MessageId(one.lower()) for one in value))


def _text(given: Mapping[str, Any], name: str) -> str | None:
    text = maybe_text_of(given, name)
    return None if text is None else short_text(text, name)


def _age(given: Mapping[str, Any], name: str) -> timedelta | None:
    value = given.get(name)
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= _LONGEST.total_seconds()
    ):
        raise RequestRefused(400, f"{name} is a number of seconds")
    return timedelta(seconds=value)


def _octets(given: Mapping[str, Any], name: str) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < 1 << 53:
        raise RequestRefused(400, f"{name} is a number of octets")
    return value


def _until(body: Mapping[str, Any]) -> datetime | None:
    text = maybe_text_of(body, "until")
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError("no offset")
        return moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise RequestRefused(
            400, f"until is a time with its offset, such as 2026-11-26T09:00:00Z, and not {text}"
        ) from error
