"""Resubmit requests: how they are made, changed and merged, and what of Safety Net they keep."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from shadowrelay.core.decisions import Decision, Write
from shadowrelay.core.identifiers import RequestId, ServerName
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.policy import Policy
from shadowrelay.core.requests import Progress, Request, RequestState, Selector, newest
from shadowrelay.core.shared_records import ForgetRequest, next_revision
from shadowrelay.core.values import dataclass, replace

OFF = timedelta(seconds=15)
"""A ``safety_net_hold_time`` of this or less switches Safety Net off, as the field does."""

MOST_KEPT = 200
"""Requests that a node stores, ended ones included: what members can make it hold is bounded."""


@dataclass(frozen=True, slots=True)
class Declined:
    """A request is refused: a sentence for the operator."""

    why: str


def add(ledger: Ledger, request: Request, policy: Policy, now: datetime) -> Decision[Request | Declined]:
    """Store a new request. It gets the next number that this node knows of. Again with its id: no change."""
    if known := ledger.request(request.id):
        return Decision(known)
    if why := fault(request.selector, policy, now):
        return Decision(Declined(why))
    known_ones = ledger.requests()
    if sum(one.open(now, policy.resubmit_request_age) for one in known_ones) >= policy.resubmit_most_requests:
        most = policy.resubmit_most_requests
        return Decision(
            Declined(f"{most} requests are open (resubmit_most_requests): remove one of them first")
        )
    numbered = replace(request, number=max((one.number for one in known_ones), default=0) + 1)
    return Decision(numbered, (numbered,))


def fault(selector: Selector, policy: Policy, now: datetime) -> str:
    """What is wrong with a selector; empty if nothing is."""
    if policy.safety_net_hold_time <= OFF:
        return "Safety Net is off: safety_net_hold_time is 15 seconds or less"
    if selector.since >= selector.until:
        return "the window has to start before it ends"
    if selector.until > now:
        return "the window has to end in the past"
    return ""


def change(
    ledger: Ledger,
    request_id: RequestId,
    state: RequestState | None,
    by: ServerName,
    now: datetime,
    *,
    gone: Iterable[ServerName] = (),
) -> Decision[Request | None]:
    """Pause, resume or remove a request, or say that members are gone. The result: the request as it is now.

    ``state`` None: it stays. None if there is no such request. A removed request stays as it is.
    """
    known = ledger.request(request_id)
    if known is None:
        return Decision(None)
    after = known.changed(state or known.state, by, now, gone=tuple(gone))
    if after is known:
        return Decision(known)
    after = replace(after, revision=next_revision(known.revision, now))
    return Decision(after, (after,))


def merge(
    ledger: Ledger,
    given: Request,
    progress: Sequence[Progress],
    teller: ServerName,
    policy: Policy,
    now: datetime,
) -> Decision[Request | None]:
    """A member gave its record of a request, and its own progress. The result is the record as it is now.

    None: the request ended so long ago that it is not kept, or there are too many.
    """
    if forgotten(given, policy, now):
        return Decision(None)
    known = ledger.request(given.id)
    if known is None and len(ledger.requests()) >= MOST_KEPT:
        return Decision(None)
    after = newest(known, given) if known else given
    writes: list[Write] = [after] if after != known else []
    told = {(one.owner): one for one in ledger.progress(given.id) if one.node == teller}
    writes += [
        one
        for one in progress
        if one.node == teller and one.request == given.id and one != told.get(one.owner)
    ]
    return Decision(after, tuple(writes))


def forgotten(request: Request, policy: Policy, now: datetime) -> bool:
    """Did the request end so long ago that nobody needs its record any more?"""
    return now - request.made_at >= 2 * policy.resubmit_request_age


def forget(ledger: Ledger, policy: Policy, now: datetime) -> Decision[int]:
    """Forget the records of requests that ended long ago. The result: how many."""
    gone = [ForgetRequest(one.id) for one in ledger.requests() if forgotten(one, policy, now)]
    return Decision(len(gone), tuple(gone))


def kept(ledger: Ledger, policy: Policy, now: datetime) -> tuple[Selector, ...]:
    """The windows of Safety Net that open requests keep from expiring."""
    return tuple(one.selector for one in ledger.requests() if one.open(now, policy.resubmit_request_age))
