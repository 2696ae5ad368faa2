"""A resubmit request, and messages in Safety Net that it may be about."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from ledger_at_hand import NOW, A, message

from shadowrelay.core.identifiers import RequestId
from shadowrelay.core.messages import Copy, Role, Stage, Status
from shadowrelay.core.requests import Request, Selector

WINDOW = Selector(since=NOW - timedelta(hours=2), until=NOW - timedelta(hours=1))
SETTLED = NOW - timedelta(minutes=90)
"""A moment in the window."""


def request_id(number: int) -> RequestId:
    return RequestId(f"01900000-0000-7000-9000-{number:012}")


REQUEST = request_id(1)


def request(number: int = 1, **changes: Any) -> Request:
    plain = Request(
        id=request_id(number),
        number=number,
        made_by=A,
        made_at=NOW,
        operator="ann",
        reason="the store of h is lost",
        selector=WINDOW,
        changed_by=A,
        changed_at=NOW,
    )
    return replace(plain, **changes)


def settled(role: Role = Role.PRIMARY, *, status: Status = Status.DELIVERED, **changes: Any) -> Copy:
    """A message in Safety Net whose recipients ended so, in the window."""
    plain = message(role, stage=Stage.SAFETY_NET, settled_at=SETTLED)
    done = tuple(replace(one, status=status, settled_at=SETTLED) for one in plain.recipients)
    return replace(plain, recipients=done, **changes)
