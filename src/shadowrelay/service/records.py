"""The records that every member has: what members give this node, and who has which."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import datetime

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.operating import Act, Scope, Told
from shadowrelay.core.policy import Policy
from shadowrelay.core.requests import Request
from shadowrelay.core.safety_net.resubmission import Contacts
from shadowrelay.core.switches import Switch
from shadowrelay.core.values import dataclass
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.members.pool import seconds
from shadowrelay.members.sharing import (
    ACTION,
    JOB,
    SUSPENSION,
    SWITCH,
    Sharing,
    job_received,
    received,
    suspension_received,
    switch_received,
)
from shadowrelay.operator.acts import Action, ActRefused
from shadowrelay.operator.resubmit import Having
from shadowrelay.safety_net.resubmitting import Resubmitting
from shadowrelay.service import resubmit
from shadowrelay.wire.xshadow import Malformed


@dataclass(frozen=True, slots=True)
class SharedRecords:
    """One node's. ``policy``: as the settings file has it, without switches."""

    _database: TransportDatabase
    _resubmitting: Resubmitting
    _contacts: Callable[[], Contacts]
    _policy: Policy
    _clock: Callable[[], datetime]
    carry_out: asyncio.Event = field(default_factory=asyncio.Event)  # a job changed

    def actions(self) -> Mapping[str, Action]:
        """What members may ask of this node: to take a record."""
        return {
            ACTION: Action(Scope.OPERATE, self.take_request, quiet=True),
            SWITCH: Action(Scope.OPERATE, self.take_switch, quiet=True),
            JOB: Action(Scope.OPERATE, self.take_job, quiet=True),
            SUSPENSION: Action(Scope.OPERATE, self.take_suspension, quiet=True),
        }

    def having(self, record: Request | Switch) -> list[Having]:
        """Which members have it as it is now."""
        given, members = self._resubmitting.given, self._contacts().members
        return resubmit.having(record, given, members, self._clock(), seconds())

    async def take_request(self, member: ServerName, act: Act) -> Told:
        """Merge the request that a member gives. Raises ActRefused."""
        now = self._clock()
        try:
            told = await self._database.transact(
                lambda ledger: received(ledger, member, act.arguments, self._policy, now)
            )
        except Malformed as error:
            raise ActRefused(str(error)) from error
        self._resubmitting.wake.set()
        return told

    async def take_switch(self, member: ServerName, act: Act) -> Told:
        """Merge the switch that a member gives, and apply it. Raises ActRefused."""
        del member
        try:
            told = await self._database.transact(
                lambda ledger: switch_received(ledger, act.arguments, self._policy)
            )
        except Malformed as error:
            raise ActRefused(str(error)) from error
        await self.share()
        return told

    async def take_job(self, member: ServerName, act: Act) -> Told:
        """Merge the job that a member gives, and carry it out. Raises ActRefused."""
        about = self._about()
        try:
            told = await self._database.transact(
                lambda ledger: job_received(ledger, member, act.arguments, about)
            )
        except Malformed as error:
            raise ActRefused(str(error)) from error
        self._resubmitting.wake.set()
        self.carry_out.set()
        return told

    async def take_suspension(self, member: ServerName, act: Act) -> Told:
        """Merge the record of a suspended queue; it is in force before the member hears so. Raises
        ActRefused.
        """
        del member
        about = self._about()
        try:
            told = await self._database.transact(
                lambda ledger: suspension_received(ledger, act.arguments, about)
            )
        except Malformed as error:
            raise ActRefused(str(error)) from error
        await self.share()
        return told

    def _about(self) -> Sharing:
        return Sharing(self._policy, self._clock, lambda: self._contacts().members)

    async def share(self) -> None:
        """A record changed: apply it here, and give it to the members at once."""
        await self._resubmitting.look()
        self._resubmitting.wake.set()
