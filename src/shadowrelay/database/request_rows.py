"""Converts resubmit requests and their progress to and from rows: what decides is one column of JSON."""

from __future__ import annotations

import json

from shadowrelay.core.identifiers import MessageId, NextHop, RequestId, ServerName
from shadowrelay.core.requests import Progress, Request, RequestState, Selector, Skipped
from shadowrelay.database.records import maybe_micros, maybe_moment, micros, moment
from shadowrelay.database.sums import SqlRow


def request_row(request: Request) -> SqlRow:
    wanted = request.selector
    told = {
        "number": request.number,
        "made_by": request.made_by,
        "made_at": micros(request.made_at),
        "operator": request.operator,
        "reason": request.reason,
        "since": micros(wanted.since),
        "until": micros(wanted.until),
        "next_hops": wanted.next_hops,
        "sender": wanted.sender,
        "recipient": wanted.recipient,
        "message_id": wanted.message_id,
        "network_message_id": wanted.network_message_id,
        "gone": request.gone,
        "state": request.state.value,
        "revision": request.revision,
        "changed_by": request.changed_by,
        "changed_at": micros(request.changed_at),
    }
    return request.id, json.dumps(told)


def request_of(row: SqlRow) -> Request:
    """Raises KeyError and what converting an impossible value raises."""
    told = json.loads(row[1])
    return Request(
        id=RequestId(row[0]),
        number=int(told["number"]),
        made_by=ServerName(told["made_by"]),
        made_at=moment(told["made_at"]),
        operator=told["operator"],
        reason=told["reason"],
        selector=Selector(
            since=moment(told["since"]),
            until=moment(told["until"]),
            next_hops=tuple(map(NextHop, told["next_hops"])),
            sender=told["sender"],
            recipient=told["recipient"],
            message_id=told["message_id"],
            network_message_id=told["network_message_id"],
        ),
        gone=tuple(map(ServerName, told["gone"])),
        state=RequestState(told["state"]),
        revision=int(told["revision"]),
        changed_by=ServerName(told["changed_by"]),
        changed_at=moment(told["changed_at"]),
    )


def progress_row(progress: Progress) -> SqlRow:
    told = {
        "at": maybe_micros(progress.at),
        "after": progress.after,
        "made": progress.made,
        "skipped": dict(progress.skipped),
        "done": progress.done,
    }
    return progress.request, progress.node, progress.owner, json.dumps(told)


def progress_of(row: SqlRow) -> Progress:
    """Raises KeyError and what converting an impossible value raises."""
    told = json.loads(row[3])
    return Progress(
        request=RequestId(row[0]),
        node=ServerName(row[1]),
        owner=ServerName(row[2]),
        at=maybe_moment(told["at"]),
        after=MessageId(told["after"]),
        made=int(told["made"]),
        skipped=tuple((Skipped(cause), int(count)) for cause, count in told["skipped"].items()),
        done=bool(told["done"]),
    )
