"""Connects the records that every member has to a node: what members may give, and who has which."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.operating import Act, Scope, Told
from shadowrelay.core.records import Record
from shadowrelay.core.safety_net.resubmission import Contacts
from shadowrelay.core.values import dataclass
from shadowrelay.members.pool import seconds
from shadowrelay.members.replication import Replication
from shadowrelay.members.sharing import RULES
from shadowrelay.operator.acts import Action, ActRefused
from shadowrelay.operator.resubmit import Having
from shadowrelay.wire.xshadow import Malformed


@dataclass(frozen=True, slots=True)
class SharedRecords:
    """One node's. ``taken``: called with the kind of a record that a member gave."""

    _replication: Replication
    _contacts: Callable[[], Contacts]
    _clock: Callable[[], datetime]
    _taken: Callable[[str], None]

    def actions(self) -> Mapping[str, Action]:
        """What members may ask of this node: to take a record."""
        return {kind: Action(Scope.OPERATE, partial(self._take, kind), quiet=True) for kind in RULES}

    async def _take(self, kind: str, member: ServerName, act: Act) -> Told:
        """Merge the record that a member gives. Raises ActRefused."""
        try:
            told = await self._replication.take(kind, member, act.arguments)
        except Malformed as error:
            raise ActRefused(str(error)) from error
        self._taken(kind)
        return told

    def having(self, record: Record) -> list[Having]:
        """Which members have it as it is now."""
        found, now = [], self._clock()
        for name in sorted(self._contacts().members):
            known = self._replication.given.get(name)
            if known is None or known.at is None:
                found.append(Having(member=name, has=False, why="it cannot be reached, or was not told yet"))
                continue
            told = {(id_, revision) for id_, revision, _ in known.news}
            why = known.refused.get(record.id, "")
            if not why and (record.id, record.revision) not in told:
                why = "it was not told of the last change yet"
            heard = now - timedelta(seconds=max(0.0, seconds() - known.at))
            found.append(Having(member=name, has=not why, at=heard, why=why))
        return found
