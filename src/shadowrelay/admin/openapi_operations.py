"""Every operation of the admin API, as data: its document comes from here (docs/reference/api.md says more).

A test compares this list with the routes that a node serves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from shadowrelay.admin import asked
from shadowrelay.database.views import MessageState
from shadowrelay.shown import messages, nodes, queues, records, status

_V1 = "/api/v1"
_PAGE: Mapping[str, Any] = {"after": str, "limit": Annotated[int, Field(ge=1, le=500)]}
"""The parameters of a list: where a page begins (the ``next`` of the page before), and how much it has."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What one method of one path does. ``answer``, ``body``, and the values of ``query``: models and types.
    ``statuses``: the refusals that only some operations have.
    """

    method: str
    path: str
    summary: str
    answer: Any
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    statuses: tuple[int, ...] = ()
    content: str = "application/json"
    open: bool = False  # without a token


def _get(path: str, summary: str, answer: Any, **more: Any) -> Operation:
    return Operation("GET", _V1 + path, summary, answer, **more)


def _post(path: str, summary: str, answer: Any, body: Any = asked.NothingAsked) -> Operation:
    return Operation("POST", _V1 + path, summary, answer, body=body)


def _delete(path: str, summary: str, answer: Any) -> Operation:
    return Operation("DELETE", _V1 + path, summary, answer, body=asked.NothingAsked)


_NODE = (
    _get("/status", "How this node is.", status.StatusAnswer),
    _get("/queues", "The queues.", queues.QueuesPage, query=_PAGE),
    _get("/shadow-queues", "Copies for other members.", queues.ShadowQueuesPage, query=_PAGE),
    _get(
        "/messages",
        "Messages by state, page by page.",
        messages.MessagesPage,
        query={"state": MessageState, **_PAGE},
    ),
    _get(
        "/messages/{id}",
        "All that this node knows of a message; a beginning of its id is enough.",
        messages.MessageAnswer,
        statuses=(400,),
    ),
    _post("/messages/{id}/resume", "Try a message that was set aside again.", messages.DidAnswer),
    _post("/messages/{id}/bounce", "Give a message that was set aside up.", messages.DidAnswer),
    _post("/messages/{id}/drop", "Forget a message whose rows are damaged.", messages.DidAnswer),
    _get("/peers", "The other members.", status.PeersAnswer),
    _post("/peers/{name}/retire", "Say that a member is gone for good.", records.RetiredAnswer),
    _get("/drain", "What is left of a drain.", status.DrainEntry),
    _post("/drain/begin", "Begin to empty this node.", status.DrainEntry),
    _post("/drain/end", "End the drain.", status.DrainEntry),
    _get("/redundancy", "The switch of shadow redundancy.", records.RedundancyEntry),
    _post(
        "/redundancy",
        "Switch shadow redundancy for all members.",
        records.RedundancyEntry,
        asked.RedundancyAsked,
    ),
    _get("/settings", "The settings that may be set for all members.", records.SettingsAnswer),
    _post(
        "/settings",
        "Set a setting for all members, or let each settings file count again.",
        records.SettingEntry,
        asked.SettingAsked,
    ),
    _get("/time", "What this node knows of the time.", status.TimeEntry),
    _post("/time/confirm", "Say that the wall clock is right.", status.TimeEntry, asked.ReasonAsked),
    _get("/redirect", "The redirect that runs, or ran last.", status.RedirectEntry),
    _post("/redirect/{name}", "Move the queue to a member.", status.RedirectEntry),
    _delete("/redirect", "Stop the redirect.", status.RedirectEntry),
    _get("/scrub", "The scrub of what is kept.", status.ScrubAnswer),
    _post("/scrub", "Read all that is kept now.", status.ScrubAnswer),
    _delete("/scrub", "Go on at the usual pace.", status.ScrubAnswer),
    _post(
        "/reload",
        "Read the settings file again.",
        status.ReloadEntry | nodes.ReloadsAnswer,
        asked.ReloadAsked,
    ),
    _get("/members", "The members, and where each is from.", records.MembersAnswer),
    _post(
        "/members",
        "Take a member that the authority announces.",
        records.AnnouncedAnswer,
        asked.AnnounceAsked,
    ),
    _get(
        "/events",
        "Tracking events as they are committed: server-sent events without end.",
        str,
        query={"after": str, "event": str},
        content="text/event-stream",
    ),
    _get("/openapi.json", "This document.", status.OpenApiAnswer),
)

_SAFETY_NET = (
    _get(
        "/safety-net",
        "Messages that may be resubmitted, page by page.",
        messages.SafetyNetPage,
        query={
            **dict.fromkeys(("since", "until", "to", "sender", "recipient"), str),
            **dict.fromkeys(("message_id", "network_message_id"), str),
            **_PAGE,
        },
    ),
    _get("/resubmit", "The resubmit requests.", records.ResubmitsPage, query=_PAGE),
    _post(
        "/resubmit",
        "Bring delivered mail back from Safety Net.",
        records.ResubmitChanged,
        asked.ResubmitAsked,
    ),
    _post(
        "/resubmit/preview",
        "What a request would do.",
        records.ResubmitPreview,
        asked.ResubmitPreviewAsked,
    ),
    _get("/resubmit/{id}", "One request.", records.ResubmitEntry, statuses=(409,)),
    *(
        _post(f"/resubmit/{{id}}/{verb}", f"{said} a request.", records.ResubmitChanged, asked.OperatorAsked)
        for verb, said in (("pause", "Pause"), ("resume", "Go on with"), ("remove", "Remove"))
    ),
    _post(
        "/resubmit/{id}/gone",
        "Say that a member is away for that request.",
        records.ResubmitChanged,
        asked.GoneAsked,
    ),
)

_JOBS = (
    _get("/jobs", "The jobs.", records.JobsPage, query=_PAGE),
    _post("/jobs", "Do a verb to all messages that match a filter.", records.JobEntry, asked.JobAsked),
    _post(
        "/jobs/preview",
        "How many messages match a filter, and some of them.",
        records.JobPreview,
        asked.JobPreviewAsked,
    ),
    _get("/jobs/{id}", "One job, and how far each member is.", records.JobEntry, statuses=(409,)),
    _post("/jobs/{id}/stop", "Stop a job.", records.JobEntry, asked.OperatorAsked),
    _get("/suspensions", "The suspended queues.", records.SuspensionsPage, query=_PAGE),
    _post("/suspensions", "Suspend or resume a queue.", records.SuspensionRecord, asked.SuspensionAsked),
)

_CLUSTER = (
    _get("/cluster/status", "How all nodes are.", nodes.StatusesAnswer),
    _get("/cluster/queues", "The queues of all nodes.", nodes.QueuesAnswer),
    _get("/cluster/queues/{hop}", "One next hop, as each node sees it.", nodes.HopAnswer, statuses=(400,)),
    _get(
        "/cluster/find",
        "Messages on all nodes, page by page.",
        messages.FoundAnswer,
        query={"q": str, **_PAGE},
    ),
    _get(
        "/cluster/trace/{id}",
        "The life of a message over all nodes.",
        messages.TraceAnswer,
        query={"after": str},
    ),
)

_OTHERS = (
    Operation("GET", "/metrics", "Metrics for Prometheus.", str, content="text/plain"),
    Operation("GET", "/healthz/live", "Whether the process lives.", status.LiveAnswer, open=True),
    Operation("GET", "/healthz/ready", "Whether the node takes mail.", status.ReadyAnswer, open=True),
    Operation(
        "POST",
        "/login",
        "Begin a session of a browser.",
        status.SessionAnswer,
        body=asked.LoginAsked,
        open=True,
    ),
    Operation("POST", "/logout", "End it.", status.LoggedOutAnswer, body=asked.LogoutAsked, open=True),
)

FRONT = (
    _get("/workers", "The workers of a node of several.", nodes.WorkersAnswer),
    _get("/workers/{number}", "One worker.", nodes.WorkerEntry),
    *(
        Operation(
            method,
            f"{_V1}/workers/{{number}}/{{path}}",
            "What one worker answers at that path of the API.",
            Any,
            body=dict[str, Any] if method == "POST" else None,
            statuses=(400, 409),
        )
        for method in ("GET", "POST", "DELETE")
    ),
)
"""What the admin address of a node of several workers answers besides (``workers/front.py``)."""

OPERATIONS: tuple[Operation, ...] = (*FRONT, *_NODE, *_SAFETY_NET, *_JOBS, *_CLUSTER, *_OTHERS)
