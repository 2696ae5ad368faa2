"""Reads queues and shadow queues for the admin API, part by part, so that a long queue delays no writer.

Each part is read in its own transaction; its numbers are consistent.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from shadowrelay.core.identifiers import FIRST, MessageId, NextHop, ServerName
from shadowrelay.core.messages import Role
from shadowrelay.core.values import dataclass
from shadowrelay.database import records
from shadowrelay.database.ledger import SQL as HOPS
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.views import SQL

PART = 20_000  # messages


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """Mail of this node for one next hop. ``due``: when its first recipient is due; None if all wait for
    answers of members. ``waiting``: messages that may be sent now, and are not being sent.
    """

    next_hop: NextHop
    messages: int
    recipients: int
    active: int  # active forks
    waiting: int
    asking: int  # recipients that wait until the members are asked
    exposed: int
    oldest: datetime
    due: datetime | None
    last_error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowQueue:
    """Copies held for one owner, in total and by next hop."""

    primary: ServerName
    messages: int
    oldest: datetime
    next_hops: tuple[tuple[NextHop, int, int], ...]  # next hop, messages, recipients


@dataclass(frozen=True, slots=True)
class HopQueue:
    """The shadow queue of a hop beyond the boundary. ``oldest``: when the hop took the first of it."""

    hop: ServerName
    messages: int
    oldest: datetime | None


def hop_queues(ledger: SqlLedger) -> list[HopQueue]:
    """The shadow queues of hops, in the order of their names."""
    found = []
    for hop, messages in sorted(ledger.hop_shadow_rows.counts.items()):
        row = ledger.connection.execute(HOPS["hop_shadow_oldest"], (hop,)).fetchone()
        found.append(HopQueue(hop, messages, records.maybe_moment(row[0])))
    return found


class _Parts:
    """Reads one kind of queue. Run ``read`` as work of ``TransportDatabase`` until it returns True."""

    def __init__(self, role: Role) -> None:
        self._role = role
        self._place = FIRST

    def read(self, ledger: SqlLedger) -> bool:
        """Read the next part. Returns whether it was the last."""
        asked = (self._role.value, self._place, PART - 1)
        last = ledger.connection.execute(SQL["part_of_queue"], asked).fetchone()
        self._part(ledger, {"after": self._place, "until": last[0] if last else "~"})
        if last is None:
            return True
        self._place = MessageId(last[0])
        return False

    def _part(self, ledger: SqlLedger, bounds: dict[str, Any]) -> None:
        raise NotImplementedError


class Queues(_Parts):
    """Mail of this node by next hop."""

    def __init__(self, now: datetime) -> None:
        super().__init__(Role.PRIMARY)
        self._now = records.micros(now)
        self._found: dict[str, list[Any]] = {}
        self._errors: dict[str, tuple[int, str]] = {}
        self._active: dict[str, int] = {}

    def _part(self, ledger: SqlLedger, bounds: dict[str, Any]) -> None:
        run = ledger.connection.execute
        self._active = dict(run(SQL["active"]).fetchall())
        for hop, error, at in run(SQL["last_errors"], bounds).fetchall():
            self._errors[hop] = max(self._errors.get(hop, (0, "")), (at, error))
        for hop, *row in run(SQL["queues"], {"now": self._now} | bounds).fetchall():
            before = self._found.get(hop)
            self._found[hop] = _together(before, row) if before else row

    def result(self) -> Iterator[QueueView]:
        for hop, found in sorted(self._found.items()):
            messages, recipients, due, asking, oldest, exposed, waiting = found
            yield QueueView(
                next_hop=NextHop(hop),
                messages=messages,
                recipients=recipients,
                active=self._active.get(hop, 0),
                waiting=waiting,
                asking=asking,
                exposed=exposed,
                oldest=records.moment(oldest),
                due=records.maybe_moment(due),
                last_error=self._errors.get(hop, (0, ""))[1],
            )


def _together(one: list[Any], other: list[Any]) -> list[Any]:
    """Combine two parts of a queue: add the numbers, keep the earliest times."""
    messages, recipients, due, asking, oldest, exposed, waiting = zip(one, other, strict=True)
    planned = [at for at in due if at is not None]
    return [
        sum(messages),
        sum(recipients),
        min(planned) if planned else None,
        sum(asking),
        min(oldest),
        sum(exposed),
        sum(waiting),
    ]


class ShadowQueues(_Parts):
    """Copies held for others, by owner."""

    def __init__(self) -> None:
        super().__init__(Role.SHADOW)
        self._owners: dict[str, tuple[int, int]] = {}
        self._hops: dict[tuple[str, str], tuple[int, int]] = {}

    def _part(self, ledger: SqlLedger, bounds: dict[str, Any]) -> None:
        run = ledger.connection.execute
        for owner, messages, oldest in run(SQL["held_for"], bounds).fetchall():
            before, at = self._owners.get(owner, (0, oldest))
            self._owners[owner] = before + messages, min(at, oldest)
        for owner, hop, messages, recipients in run(SQL["shadow_queues"], bounds).fetchall():
            one, each = self._hops.get((owner, hop), (0, 0))
            self._hops[owner, hop] = one + messages, each + recipients

    def result(self) -> Iterator[ShadowQueue]:
        for owner, (messages, oldest) in sorted(self._owners.items()):
            hops = sorted((hop, *found) for (whose, hop), found in self._hops.items() if whose == owner)
            yield ShadowQueue(
                primary=ServerName(owner),
                messages=messages,
                oldest=records.moment(oldest),
                next_hops=tuple((NextHop(hop), one, each) for hop, one, each in hops),
            )
