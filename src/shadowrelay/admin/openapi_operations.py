"""Every operation of the admin API, as data: its document comes from here (docs/reference/api.md says more).

A test compares this list with the routes that a node serves.
"""

from __future__ import annotations

from shadowrelay.admin.openapi_shapes import (
    ANY,
    COUNT,
    FLAG,
    MAYBE,
    NAMES,
    NUMBER,
    OBJECT,
    OBJECTS,
    PAGE,
    TEXT,
    Operation,
    Shape,
    answer,
    body,
    maybe,
    one_of,
)
from shadowrelay.core.jobs import Verb
from shadowrelay.database.views import MessageState

_V1 = "/api/v1"
_NOTHING = body()
_DID = answer(id=TEXT, did=TEXT)
_STATES = [str(state) for state in MessageState]

_SELECTOR: Shape = body(
    "since",
    "until",
    since=TEXT,
    until=TEXT,
    all=ANY,
    to={"anyOf": [TEXT, NAMES]},
    sender=MAYBE,
    recipient=MAYBE,
    message_id=MAYBE,
    network_message_id=MAYBE,
)
_FILTER: Shape = body(
    ids=NAMES,
    queue=MAYBE,
    sender=MAYBE,
    recipient=MAYBE,
    domain=MAYBE,
    subject=MAYBE,
    error=MAYBE,
    suspended={"type": ["boolean", "null"]},
    older=ANY,
    younger=ANY,
    larger=ANY,
    smaller=ANY,
)
_DRAIN = answer(name=TEXT, draining=FLAG, done=FLAG, queued=COUNT, exposed=COUNT, set_aside=COUNT)
_SCRUB = OBJECT
_REDIRECT = answer(name=TEXT, running=FLAG, to=MAYBE)
_REDUNDANCY = answer(
    name=TEXT,
    on=FLAG,
    settings_file=FLAG,
    overruled=FLAG,
    queued=COUNT,
    switch=maybe(OBJECT),
    members=OBJECTS,
)
_TIME = answer(
    name=TEXT,
    reckoned=TEXT,
    wall=TEXT,
    ahead=NUMBER,
    stepped=NUMBER,
    doubts=ANY,
    uncertain=NUMBER,
    members=OBJECTS,
)
_NODES = answer(nodes=OBJECTS)

_NODE = (
    Operation(
        "GET",
        f"{_V1}/status",
        "How this node is.",
        answer(
            name=TEXT,
            site=TEXT,
            host=TEXT,
            version=TEXT,
            uptime=NUMBER,
            ready=FLAG,
            queued=COUNT,
            exposed=COUNT,
            shadow_held=COUNT,
            safety_net=COUNT,
            sequence=COUNT,
            peers=OBJECTS,
        ),
    ),
    Operation(
        "GET",
        f"{_V1}/queues",
        "The queues.",
        answer(queues=OBJECTS, hop_shadow_queues=OBJECTS, next=MAYBE),
        query=PAGE,
    ),
    Operation(
        "GET",
        f"{_V1}/shadow-queues",
        "Copies for other members.",
        answer(shadow_queues=OBJECTS, next=MAYBE),
        query=PAGE,
    ),
    Operation(
        "GET",
        f"{_V1}/messages",
        "Messages by state, page by page.",
        answer(messages=OBJECTS, next=MAYBE),
        query={"state": one_of(*_STATES), **PAGE},
    ),
    Operation(
        "GET",
        f"{_V1}/messages/{{id}}",
        "All that this node knows of a message; a beginning of its id is enough.",
        answer(id=TEXT, state=TEXT),
        statuses=(400,),
    ),
    Operation(
        "POST",
        f"{_V1}/messages/{{id}}/resume",
        "Try a message that was set aside again.",
        _DID,
        body=_NOTHING,
    ),
    Operation(
        "POST", f"{_V1}/messages/{{id}}/bounce", "Give a message that was set aside up.", _DID, body=_NOTHING
    ),
    Operation(
        "POST", f"{_V1}/messages/{{id}}/drop", "Forget a message whose rows are damaged.", _DID, body=_NOTHING
    ),
    Operation("GET", f"{_V1}/peers", "The other members.", answer(peers=OBJECTS)),
    Operation(
        "POST",
        f"{_V1}/peers/{{name}}/retire",
        "Say that a member is gone for good.",
        answer(name=TEXT, retired=FLAG, promoted=COUNT, did=ANY, to_do=TEXT),
        body=_NOTHING,
    ),
    Operation("GET", f"{_V1}/drain", "What is left of a drain.", _DRAIN),
    Operation("POST", f"{_V1}/drain/begin", "Begin to empty this node.", _DRAIN, body=_NOTHING),
    Operation("POST", f"{_V1}/drain/end", "End the drain.", _DRAIN, body=_NOTHING),
    Operation("GET", f"{_V1}/redundancy", "The switch of shadow redundancy.", _REDUNDANCY),
    Operation(
        "POST",
        f"{_V1}/redundancy",
        "Switch shadow redundancy for all members.",
        _REDUNDANCY,
        body=body("value", "reason", value=one_of("on", "off"), reason=TEXT, operator=MAYBE),
    ),
    Operation("GET", f"{_V1}/time", "What this node knows of the time.", _TIME),
    Operation(
        "POST",
        f"{_V1}/time/confirm",
        "Say that the wall clock is right.",
        _TIME,
        body=body("reason", reason=TEXT, operator=MAYBE),
    ),
    Operation("GET", f"{_V1}/redirect", "The redirect that runs, or ran last.", _REDIRECT),
    Operation("POST", f"{_V1}/redirect/{{name}}", "Move the queue to a member.", _REDIRECT, body=_NOTHING),
    Operation("DELETE", f"{_V1}/redirect", "Stop the redirect.", _REDIRECT, body=_NOTHING),
    Operation("GET", f"{_V1}/scrub", "The scrub of what is kept.", _SCRUB),
    Operation("POST", f"{_V1}/scrub", "Read all that is kept now.", _SCRUB, body=_NOTHING),
    Operation("DELETE", f"{_V1}/scrub", "Go on at the usual pace.", _SCRUB, body=_NOTHING),
    Operation(
        "POST",
        f"{_V1}/reload",
        "Read the settings file again.",
        OBJECT,
        body=body(dry_run=FLAG, cluster=FLAG, operator=MAYBE),
    ),
    Operation(
        "GET", f"{_V1}/members", "The members, and where each is from.", answer(name=TEXT, members=OBJECTS)
    ),
    Operation(
        "POST",
        f"{_V1}/members",
        "Take a member that the authority announces.",
        answer(name=TEXT, new=FLAG),
        body=body("signed", signed=TEXT),
    ),
    Operation(
        "GET",
        f"{_V1}/events",
        "Tracking events as they are committed: server-sent events without end.",
        TEXT,
        query={"after": TEXT, "event": TEXT},
        content="text/event-stream",
    ),
    Operation(
        "GET", f"{_V1}/openapi.json", "This document.", answer(openapi=TEXT, info=OBJECT, paths=OBJECT)
    ),
)

_SAFETY_NET = (
    Operation(
        "GET",
        f"{_V1}/safety-net",
        "Messages that may be resubmitted, page by page.",
        answer(messages=OBJECTS, next=MAYBE),
        query={
            **dict.fromkeys(("since", "until", "to", "sender", "recipient"), TEXT),
            **dict.fromkeys(("message_id", "network_message_id"), TEXT),
            **PAGE,
        },
    ),
    Operation(
        "GET", f"{_V1}/resubmit", "The resubmit requests.", answer(requests=OBJECTS, next=MAYBE), query=PAGE
    ),
    Operation(
        "POST",
        f"{_V1}/resubmit",
        "Bring delivered mail back from Safety Net.",
        answer(request=OBJECT),
        body=body("selector", "reason", selector=_SELECTOR, gone=NAMES, operator=MAYBE, reason=TEXT),
    ),
    Operation(
        "POST",
        f"{_V1}/resubmit/preview",
        "What a request would do.",
        OBJECT,
        body=body("selector", selector=_SELECTOR, gone=NAMES, operator=MAYBE),
    ),
    Operation("GET", f"{_V1}/resubmit/{{id}}", "One request.", OBJECT, statuses=(409,)),
    *(
        Operation(
            "POST",
            f"{_V1}/resubmit/{{id}}/{verb}",
            f"{said} a request.",
            answer(request=OBJECT),
            body=body(operator=MAYBE),
        )
        for verb, said in (("pause", "Pause"), ("resume", "Go on with"), ("remove", "Remove"))
    ),
    Operation(
        "POST",
        f"{_V1}/resubmit/{{id}}/gone",
        "Say that a member is away for that request.",
        answer(request=OBJECT),
        body=body("member", member=TEXT, operator=MAYBE),
    ),
)

_JOBS = (
    Operation("GET", f"{_V1}/jobs", "The jobs.", answer(jobs=OBJECTS, next=MAYBE), query=PAGE),
    Operation(
        "POST",
        f"{_V1}/jobs",
        "Do a verb to all messages that match a filter.",
        OBJECT,
        body=body(
            "verb",
            "filter",
            "reason",
            verb=one_of(*Verb),
            filter=_FILTER,
            reason=TEXT,
            operator=MAYBE,
            until=MAYBE,
            with_report=FLAG,
        ),
    ),
    Operation(
        "POST",
        f"{_V1}/jobs/preview",
        "How many messages match a filter, and some of them.",
        OBJECT,
        body=body("filter", filter=_FILTER, operator=MAYBE),
    ),
    Operation("GET", f"{_V1}/jobs/{{id}}", "One job, and how far each member is.", OBJECT, statuses=(409,)),
    Operation("POST", f"{_V1}/jobs/{{id}}/stop", "Stop a job.", OBJECT, body=body(operator=MAYBE)),
    Operation(
        "GET",
        f"{_V1}/suspensions",
        "The suspended queues.",
        answer(suspensions=OBJECTS, next=MAYBE),
        query=PAGE,
    ),
    Operation(
        "POST",
        f"{_V1}/suspensions",
        "Suspend or resume a queue.",
        OBJECT,
        body=body(
            "queue",
            "act",
            "reason",
            queue=TEXT,
            act=one_of("suspend", "resume"),
            reason=TEXT,
            operator=MAYBE,
            until=MAYBE,
        ),
    ),
)

_CLUSTER = (
    Operation("GET", f"{_V1}/cluster/status", "How all nodes are.", _NODES),
    Operation("GET", f"{_V1}/cluster/queues", "The queues of all nodes.", _NODES),
    Operation(
        "GET",
        f"{_V1}/cluster/queues/{{hop}}",
        "One next hop, as each node sees it.",
        answer(next_hop=TEXT, nodes=OBJECTS),
        statuses=(400,),
    ),
    Operation(
        "GET",
        f"{_V1}/cluster/find",
        "Messages on all nodes, page by page.",
        answer(by=TEXT, messages=OBJECTS, nodes=OBJECTS, next=MAYBE),
        query={"q": TEXT, **PAGE},
    ),
    Operation(
        "GET",
        f"{_V1}/cluster/trace/{{id}}",
        "The life of a message over all nodes.",
        answer(events=OBJECTS, nodes=OBJECTS, next=MAYBE),
        query={"after": TEXT},
    ),
)

_OTHERS = (
    Operation("GET", "/metrics", "Metrics for Prometheus.", TEXT, content="text/plain"),
    Operation(
        "GET",
        "/healthz/live",
        "Whether the process lives.",
        answer(live=FLAG),
        open=True,
    ),
    Operation(
        "GET",
        "/healthz/ready",
        "Whether the node takes mail.",
        answer(ready=FLAG, reason=TEXT),
        open=True,
    ),
    Operation(
        "POST",
        "/login",
        "Begin a session of a browser.",
        answer(operator=TEXT, scope=one_of("read", "operate"), csrf=TEXT),
        body=body("token", token=TEXT, operator=MAYBE, next=MAYBE),
        open=True,
    ),
    Operation("POST", "/logout", "End it.", answer(logged_out=FLAG), body=body(csrf=MAYBE), open=True),
)

_WORKER = answer(
    number=COUNT,
    name=TEXT,
    state=TEXT,
    pid={"type": ["integer", "null"]},
    since=TEXT,
    restarts=COUNT,
    why=TEXT,
)

FRONT = (
    Operation(
        "GET",
        f"{_V1}/workers",
        "The workers of a node of several.",
        answer(name=TEXT, workers={"type": "array", "items": _WORKER}),
    ),
    Operation("GET", f"{_V1}/workers/{{number}}", "One worker.", _WORKER),
    *(
        Operation(
            method,
            f"{_V1}/workers/{{number}}/{{path}}",
            "What one worker answers at that path of the API.",
            ANY,
            body=OBJECT if method == "POST" else None,
            statuses=(400, 409),
        )
        for method in ("GET", "POST", "DELETE")
    ),
)
"""What the admin address of a node of several workers answers besides (``admin/front.py``)."""

OPERATIONS: tuple[Operation, ...] = (*FRONT, *_NODE, *_SAFETY_NET, *_JOBS, *_CLUSTER, *_OTHERS)
