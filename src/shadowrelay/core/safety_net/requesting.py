"""Resubmit requests: how they are made, changed and merged, and what of Safety Net they keep."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from shadowrelay.core.decisions import Decision
from shadowrelay.core.identifiers import RequestId, ServerName
from shadowrelay.core.ledger import Ledger, own_progress
from shadowrelay.core.policy import Policy
from shadowrelay.core.reckoning import Endings
from shadowrelay.core.records import next_revision
from shadowrelay.core.replicating import Merging, Rules
from shadowrelay.core.requests import Progress, Request, RequestState, Selector
from shadowrelay.core.shared_records import ForgetRecord
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
    ends = Endings(now)
    if (
        sum(one.open(ends, policy.resubmit_request_age) for one in known_ones)
        >= policy.resubmit_most_requests
    ):
        most = policy.resubmit_most_requests
        return Decision(
            Declined(f"{most} requests are open (resubmit_most_requests): remove one of them first")
        )
    number = max((one.number for one in known_ones), default=0) + 1
    numbered = replace(request, number=number, kept_at=now)
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
    operator: str,
    *,
    gone: Iterable[ServerName] = (),
) -> Decision[Request | None]:
    """Pause, resume or remove a request, or say that members are gone. The result: the request as it is now.

    ``state`` None: it stays. None if there is no such request. A removed request stays as it is.
    """
    known = ledger.request(request_id)
    if known is None:
        return Decision(None)
    after = known.changed(state or known.state, by, now, operator, gone=tuple(gone))
    if after is known:
        return Decision(known)
    after = replace(after, revision=next_revision(known.revision, now))
    return Decision(after, (after,))


def _room(ledger: Ledger, about: Merging) -> Sequence[ForgetRecord] | None:
    """None: the request has ended elsewhere, or there are too many."""
    ended = about.age >= about.policy.resubmit_request_age
    return None if ended or len(ledger.requests()) >= MOST_KEPT else ()


RULES = Rules(
    kind=Request,
    part=Progress,
    room=lambda ledger, _, about: _room(ledger, about),
    own=lambda ledger, request: own_progress(ledger, request.id),
    done=lambda parts: sum(part.done for part in parts),
    live=lambda *_: True,
)


def forget(ledger: Ledger, policy: Policy, ends: Endings) -> Decision[int]:
    """Forget the records of requests that this node has had for two of their lives. The result: how many.

    A node takes a request that it does not know up to the end of the first life (``_room``), and makes
    messages for it for one life. So whoever knows that a request was removed knows it until nobody makes
    messages for it any more.
    """
    before = ends.before(2 * policy.resubmit_request_age)
    gone = [ForgetRecord(Request, one.id) for one in ledger.requests() if one.since <= before]
    return Decision(len(gone), tuple(gone))


def kept(ledger: Ledger, policy: Policy, ends: Endings) -> tuple[Selector, ...]:
    """The windows of Safety Net that open requests keep from expiring."""
    return tuple(one.selector for one in ledger.requests() if one.open(ends, policy.resubmit_request_age))
