"""Resubmit requests and their progress as JSON: between members, and in the transport database.

Times are microseconds since 1970.
"""

from __future__ import annotations

from typing import Any

from shadowrelay.core.identifiers import MessageId, NextHop, RequestId
from shadowrelay.core.requests import Place, Progress, Request, RequestState, Selector, Skipped
from shadowrelay.wire.told import (
    count_in,
    maybe_text_in,
    micros_of,
    moment_in,
    names_in,
    object_of,
    one_of,
    text_in,
)
from shadowrelay.wire.xshadow import message_id, server_name


def request_told(request: Request) -> dict[str, Any]:
    """A request as JSON; see ``request_from``."""
    return {
        "id": request.id,
        "number": request.number,
        "made_by": request.made_by,
        "made_at": micros_of(request.made_at),
        "operator": request.operator,
        "reason": request.reason,
        "selector": selector_told(request.selector),
        "gone": list(request.gone),
        "state": request.state.value,
        "revision": request.revision,
        "changed_by": request.changed_by,
        "changed_at": micros_of(request.changed_at),
    }


def selector_told(selector: Selector) -> dict[str, Any]:
    """A selector as JSON, without what it does not name."""
    told = {
        "since": micros_of(selector.since),
        "until": micros_of(selector.until),
        "next_hops": list(selector.next_hops),
        "sender": selector.sender,
        "recipient": selector.recipient,
        "message_id": selector.message_id,
        "network_message_id": selector.network_message_id,
    }
    return {name: value for name, value in told.items() if value not in (None, [])}


def request_from(told: object) -> Request:
    """Read a request. Raises Malformed."""
    found = object_of(told)
    return Request(
        id=RequestId(message_id(text_in(found, "id"))),
        number=count_in(found, "number"),
        made_by=server_name(text_in(found, "made_by")),
        made_at=moment_in(found, "made_at"),
        operator=text_in(found, "operator"),
        reason=text_in(found, "reason"),
        selector=selector_from(found.get("selector")),
        gone=tuple(server_name(name) for name in names_in(found, "gone")),
        state=one_of(RequestState, text_in(found, "state")),
        revision=count_in(found, "revision"),
        changed_by=server_name(text_in(found, "changed_by")),
        changed_at=moment_in(found, "changed_at"),
    )


def selector_from(told: object) -> Selector:
    """Read a selector. Raises Malformed."""
    found = object_of(told)
    named = maybe_text_in(found, "network_message_id")
    return Selector(
        since=moment_in(found, "since"),
        until=moment_in(found, "until"),
        next_hops=tuple(map(NextHop, names_in(found, "next_hops"))),
        sender=maybe_text_in(found, "sender"),
        recipient=maybe_text_in(found, "recipient"),
        message_id=maybe_text_in(found, "message_id"),
        network_message_id=None if named is None else message_id(named),
    )


def progress_told(progress: Progress) -> dict[str, Any]:
    """How far a node has come, as JSON; see ``progress_from``."""
    return {
        "request": progress.request,
        "node": progress.node,
        "owner": progress.owner,
        "at": None if progress.place.at is None else micros_of(progress.place.at),
        "after": progress.place.after,
        "made": progress.made,
        "skipped": {cause.value: count for cause, count in progress.skipped},
        "done": progress.done,
        "whole": progress.whole,
        "trusting": progress.trusting,
    }


def progress_from(told: object) -> Progress:
    """Read how far a node has come. Raises Malformed."""
    found = object_of(told)
    after = text_in(found, "after")
    skipped = object_of(found.get("skipped", {}))
    return Progress(
        request=RequestId(message_id(text_in(found, "request"))),
        node=server_name(text_in(found, "node")),
        owner=server_name(text_in(found, "owner")),
        place=Place(
            None if found.get("at") is None else moment_in(found, "at"),
            message_id(after) if after else MessageId(""),
        ),
        made=count_in(found, "made"),
        skipped=tuple((one_of(Skipped, cause), count_in(skipped, cause)) for cause in skipped),
        done=found.get("done") is True,
        whole=found.get("whole") is True,
        trusting=found.get("trusting") is True,
    )
