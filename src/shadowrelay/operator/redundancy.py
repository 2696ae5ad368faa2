"""Switches shadow redundancy on or off on a running cluster, for all members at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import structlog

from shadowrelay.core.identifiers import MessageId, RequestId, ServerName
from shadowrelay.core.switches import Switch, SwitchValue
from shadowrelay.core.switching import REDUNDANCY, flipped
from shadowrelay.core.values import dataclass, replace
from shadowrelay.database import views
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.members.effective_policy import EffectivePolicy
from shadowrelay.operator.acts import NO_ACTION
from shadowrelay.operator.resubmit import Having
from shadowrelay.shown.records import RedundancyEntry
from shadowrelay.shown.rendering import rendered

log = structlog.get_logger(__name__)

_OLDER = (NO_ACTION, "this node cannot switch ", "bad value", "bad against")


def _explained(one: Having) -> Having:
    if not any(text in one.why for text in _OLDER):
        return one
    return replace(one, why="it is of an older version, and goes by its settings file")


@dataclass(slots=True, kw_only=True)
class Switching:
    """One node's. ``share``: apply the record, and give it to members. ``having``: which members have it."""

    name: ServerName
    database: TransportDatabase
    in_force: EffectivePolicy
    having: Callable[[Switch], Sequence[Having]]
    share: Callable[[], Awaitable[None]]
    mint: Callable[[datetime], MessageId]
    clock: Callable[[], datetime]

    def members(self, switch: Switch | None) -> list[Having]:
        """Which members have the record as it is now, and why not."""
        return [_explained(one) for one in self.having(switch)] if switch else []

    async def change(
        self, key: str, value: SwitchValue, operator: str, reason: str, *, against: bool | None = None
    ) -> None:
        """Here and on every member that can be reached; the others learn it at their next contact."""
        now, file = self.clock(), self.in_force.file_policy
        switch = Switch(
            id=RequestId(self.mint(now)),
            name=key,
            value=value,
            against=against,
            operator=operator,
            reason=reason,
            changed_by=self.name,
            changed_at=now,
        )
        stored = await self.database.transact(lambda ledger: ledger.apply(flipped(ledger, switch, file)))
        log.warning(
            "switch_changed",
            key=key,
            value=value,
            operator=operator,
            reason=reason,
            revision=stored.revision,
        )
        await self.share()


@dataclass(slots=True, kw_only=True)
class RedundancySwitch(Switching):
    """What an operator may ask of shadow redundancy on this node."""

    async def show(self) -> RedundancyEntry:
        """Is shadow redundancy on here, and why; and which members have the record of the last switch."""
        counts = (await self.database.transact(views.snapshot)).counts
        return rendered(
            RedundancyEntry,
            self.in_force,
            name=self.name,
            switch=self.in_force.switch,
            members=self.members(self.in_force.switch),
            queued=counts.queued,
            exposed=counts.exposed,
            held=counts.shadow_held,
        )

    async def turn(self, *, on: bool, operator: str, reason: str) -> RedundancyEntry:
        """Switch, here and on every member that can be reached."""
        await self.change(REDUNDANCY, on, operator, reason, against=self.in_force.file)
        return await self.show()
