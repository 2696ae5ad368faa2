"""What ends by age, compared with the time of the world: nothing may end before so much time has passed.

The clocks of nodes may step. What they believe is not looked at here: only when something was first durable
anywhere, or on that disk, and when it ended.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf
from typing import TYPE_CHECKING, Any

from shadowrelay.core.events.discard import remembered_for
from shadowrelay.core.identifiers import MessageId, RequestId
from shadowrelay.core.messages import Copy, Stage
from shadowrelay.core.reckoning import TOLERANCE, Judgement
from shadowrelay.core.requests import Request
from shadowrelay.core.tracking import Fail, HaDiscard

from .world import Broken

if TYPE_CHECKING:
    from .memory_ledger import State
    from .node import Node
    from .world import World

EXPIRED = "550 5.4.7"
"""How a recipient that is too old is answered."""

RECORDS = ("events", "outcomes", "tombstones", "requests")
"""What a disk keeps for a while."""

A_LITTLE = 10.0
"""Seconds by which packets may be late."""

COMMIT = 0.4
"""Seconds from a decision until it is durable, at most: that is when it is looked at here."""


@dataclass(slots=True)
class Ages:
    """``born``: when a message was first durable. ``settled``: since when a disk has it in Safety Net.
    ``requested``: since when a disk has a request.
    """

    world: World
    born: dict[MessageId, float] = field(default_factory=dict)
    settled: dict[tuple[str, MessageId], float] = field(default_factory=dict)
    requested: dict[tuple[str, RequestId], float] = field(default_factory=dict)

    def committed(self, node: Node, touched: dict[MessageId, Copy | None], told: tuple[Any, ...]) -> None:
        policy = self.world.policy
        # What it decided before it froze becomes durable when it thaws.
        just_thawed = self.world.now - node.thawed_at <= COMMIT
        now = node.froze_at if just_thawed else self.world.now
        for kind, key in node.ledger.state.records:
            if kind is Request:
                self.requested.setdefault((node.name, RequestId(key)), now)
        for message_id, before in touched.items():
            self.born.setdefault(message_id, now)
            after = node.ledger.state.copies.get(message_id)
            was = before is not None and before.stage is Stage.SAFETY_NET
            if after is not None and after.stage is Stage.SAFETY_NET and not was:
                self.settled.setdefault((node.name, message_id), now)
            if after is not None and after.owned:
                self._planned(node, after)
            if was and after is None and (since := self.settled.pop((node.name, message_id), None)):
                self._old_enough(node, f"{message_id} in Safety Net", since, policy.safety_net_hold_time)
        for event in told:
            if isinstance(event, Fail) and event.reply.startswith(EXPIRED):
                since = self.born[event.copy.id]
                self._old_enough(node, f"{event.copy.id} expired", since, policy.message_expiration_timeout)
            elif isinstance(event, HaDiscard) and event.reason == "Expired":
                since = self.born[event.copy.id]
                self._old_enough(node, f"the copy of {event.copy.id}", since, remembered_for(policy))

    def looked(self, node: Node, found: Judgement) -> None:
        """It judged its wall clock. Whose clock is wrong knows it, if it or a member knew the right time."""
        if found.doubts or abs(node.machine.offset) < TOLERANCE.total_seconds() + A_LITTLE:
            return
        others = [one for one in self.world.machines.values() if one is not node.machine]
        told = found.reckoning.settled or node.time.differences()
        if told and not any(one.was_wrong for one in others):
            raise Broken(f"{node.name}: its clock is wrong by {node.machine.offset:.0f} s, and it trusts it")

    def _planned(self, node: Node, copy: Copy) -> None:
        """Nothing is tried again later than the longest interval says."""
        latest = node.clock() + self.world.policy.outbound_connection_failure_retry_interval
        for one in copy.unsettled:
            put_off = one.unread is not None  # the pauses after an answer that nobody can read grow
            if not put_off and one.next_attempt is not None and one.next_attempt > latest:
                raise Broken(f"{node.name}: {copy.id} is tried again at {one.next_attempt}")

    def gone(self, node: Node, disk: str) -> None:
        """Its disk is another one."""
        if disk == "lost":
            for key in [key for key in self.settled if key[0] == node.name]:
                del self.settled[key]

    def opened(self, node: Node) -> None:
        """Its disk may be another one, or an older state."""
        known = node.ledger.state.requests
        for asked in [key for key in self.requested if key[0] == node.name and key[1] not in known]:
            del self.requested[asked]

    def open(self, node: Node, request: Request) -> bool:
        """Has that disk not had it for so long yet that it may end there?"""
        since = self.requested.get((node.name, request.id), -inf)
        age = self.world.policy.resubmit_request_age.total_seconds()
        return not request.final and self.world.now - since < age - COMMIT

    def swept(self, node: Node, before: dict[str, Collection[Any]], state: State) -> None:
        """After a look for what goes by age: ``before`` has the keys of what was kept."""
        policy = self.world.policy
        kept_for = {
            "events": policy.shadow_message_auto_discard_interval,
            "outcomes": remembered_for(policy),
            "tombstones": remembered_for(policy),
            "requests": 2 * policy.resubmit_request_age,
        }
        for table, keys in before.items():
            for key in keys:
                if key not in getattr(state, table):
                    since = self.requested.pop((node.name, key)) if table == "requests" else 0.0
                    self._old_enough(node, f"{table} {key}", since, kept_for[table])

    def _old_enough(self, node: Node, what: str, since: float, least: timedelta) -> None:
        if (passed := self.world.now - since) < least.total_seconds() - COMMIT:
            raise Broken(f"{node.name}: {what} ended after {passed:.1f} s, not {least.total_seconds():.1f} s")


def kept(state: State) -> dict[str, Collection[Any]]:
    """The keys of what a disk keeps for a while."""
    return {table: tuple(getattr(state, table)) for table in RECORDS}
