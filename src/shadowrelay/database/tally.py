"""Counts the messages in transit of each kind as they change, so that no query has to count a queue.

Messages are counted once, part by part, when a database is opened. From then on every change is added, except
for messages behind the place counted to: they will be counted later.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from shadowrelay.core.identifiers import FIRST, MessageId, NextHop, ServerName
from shadowrelay.core.messages import Confirmation, Copy, HolderState, Role, Stage, Status
from shadowrelay.core.values import dataclass
from shadowrelay.database.queries import load

SQL = load("views.sql")

Key: TypeAlias = tuple[str, ...]
Names: TypeAlias = Sequence[str]
EXPOSED: Key = ("exposed",)
PROMOTING: Key = ("promoting",)

FEW = 2
"""Recipients of most messages: their keys are made once."""

_HELD, _EACH_HELD = "held to", "each held to"
_MESSAGES, _RECIPIENTS, _ASKING, _EXPOSED = "to", "each to", "asking to", "exposed to"


@dataclass(frozen=True, slots=True)
class HopCounts:
    """Mail of this node for one next hop. ``asking``: recipients that wait for answers of members."""

    messages: int
    recipients: int
    asking: int
    exposed: int


class Tally:
    """Counts by kind. ``place``: the id up to which they are complete; None: all are. ``journal``: what came
    and went in the open transaction.
    """

    def __init__(self) -> None:
        self.place: MessageId | None = FIRST
        self._counts: Counter[Key] = Counter()
        self._floors: dict[str, MessageId] = {}  # by next hop: no queued message for it has a lower id
        self.journal: list[tuple[tuple[Key, ...], tuple[Key, ...]]] = []

    def changed(self, before: Copy | None, after: Copy | None) -> None:
        """Add a change: a copy was stored (``before`` None), replaced, or dropped (``after`` None)."""
        copy = after or before
        if copy is None or (self.place is not None and copy.id > self.place):
            return
        if before and after and before.stage is after.stage and _alike(before, after):
            return
        self._count(_kinds(after) if after else (), _kinds(before) if before else ())
        if after and after.owned:
            for one in after.recipients:
                if not one.settled and self._floors.get(one.next_hop, "~") > after.id:
                    self._floors[one.next_hop] = after.id

    def forget(self, connection: sqlite3.Connection, message_id: MessageId) -> None:
        """Stop counting a message with damaged rows: it was counted by what they say, so subtract that."""
        if self.place is not None and message_id > self.place:
            return
        for *kind, exposed, owner in connection.execute(SQL["kind_of"], (message_id,)):
            holders = [name for (name,) in connection.execute(SQL["holders_of"], (message_id,))]
            rows = connection.execute(SQL["hops_of"], (message_id,)).fetchall()
            hops, waits = [_text(hop) for hop, _ in rows], any(waits for _, waits in rows)
            self._count((), _kinds_of(tuple(kind), exposed, owner, holders, hops, waits))

    def _count(self, come: tuple[Key, ...], gone: tuple[Key, ...]) -> None:
        for key in come:
            self._counts[key] += 1
        for key in gone:
            self._counts[key] -= 1
        self.journal.append((come, gone))

    def undo(self, mark: int) -> None:
        """Take back every change but the first ``mark`` in the journal."""
        for come, gone in self.journal[mark:]:
            self._count(gone, come)
        del self.journal[mark:]

    def keep(self) -> None:
        """Keep the changes: the transaction is durable."""
        self.journal.clear()

    def count(self, connection: sqlite3.Connection, until: MessageId | None) -> None:
        """Count the messages behind ``place`` up to ``until`` (None: all), as they are now."""
        if self.place is None:
            return
        last = "~" if until is None else until
        rows = connection.execute(SQL["kinds"], (self.place, last)).fetchall()
        for role, stage, confirmation, exposed, owner, number in rows:
            for key in _keys(role, stage, confirmation, owner, exposed=bool(exposed)):
                self._counts[key] += number
        for holder, number in connection.execute(SQL["holders"], (self.place, last)).fetchall():
            self._counts["held by", _text(holder)] += number
        for names, number in connection.execute(SQL["holders_together"], (self.place, last)).fetchall():
            self._counts["held together", *sorted(json.loads(names))] += number
        for hop, messages, recipients, asking, alone, lowest in connection.execute(
            SQL["kinds_by_hop"], (self.place, last)
        ).fetchall():
            name = _text(hop)
            numbers = ((_MESSAGES, messages), (_RECIPIENTS, recipients), (_ASKING, asking), (_EXPOSED, alone))
            for kind, number in numbers:
                self._counts[kind, name] += number
            self._floors[name] = MessageId(min(self._floors.get(name, "~"), lowest))
        for owner, hop, messages, recipients in connection.execute(
            SQL["kinds_held_by_hop"], (self.place, last)
        ).fetchall():
            self._counts[_HELD, _text(owner), _text(hop)] += messages
            self._counts[_EACH_HELD, _text(owner), _text(hop)] += recipients
        self.place = until

    # Reading.

    def all(self) -> Mapping[Key, int]:
        return {key: number for key, number in self._counts.items() if number}

    def staged(self, role: Role, stage: Stage) -> int:
        return self._counts["in", role.value, stage.value]

    def confirming(self, confirmation: Confirmation) -> int:
        """How many queued messages of this node have that confirmation."""
        return self._counts["confirmation", confirmation.value]

    @property
    def exposed(self) -> int:
        return self._counts[EXPOSED]

    @property
    def promoting(self) -> int:
        """Copies held for others that are to be confirmed: all whose promotion is pending are among them."""
        return self._counts[PROMOTING]

    def held_for(self, owner: ServerName) -> int:
        return self._counts["held for", owner]

    def held_for_each(self) -> Mapping[ServerName, int]:
        return self._named("held for")

    def held_by_each(self) -> Mapping[ServerName, int]:
        return self._named("held by")

    def held_together(self) -> Mapping[tuple[ServerName, ...], int]:
        """How many messages of this node several members hold, by these members."""
        return {
            tuple(map(ServerName, key[1:])): number
            for key, number in self._counts.items()
            if key[0] == "held together" and number
        }

    def holds_none(self, holder: ServerName) -> bool:
        """Is it certain that no message counts on a copy of that holder? False until all are counted."""
        return self.place is None and not self._counts["held by", holder]

    def by_hop(self) -> Mapping[NextHop, int]:
        """How many messages of this node wait for each next hop."""
        return {NextHop(name): number for name, number in self._named(_MESSAGES).items()}

    def to(self, hop: NextHop) -> HopCounts:
        counts = self._counts
        return HopCounts(*(counts[kind, hop] for kind in (_MESSAGES, _RECIPIENTS, _ASKING, _EXPOSED)))

    def held_by_hop(self, owner: ServerName) -> list[tuple[NextHop, int, int]]:
        """Of what is held for an owner: messages and recipients by next hop, in the order of names."""
        return [
            (NextHop(key[2]), number, self._counts[_EACH_HELD, key[1], key[2]])
            for key, number in sorted(self._counts.items())
            if key[0] == _HELD and key[1] == owner and number
        ]

    def floor(self, hop: NextHop) -> MessageId:
        """An id that no message for that next hop is below."""
        return self._floors.get(hop, FIRST)

    def raise_floor(self, hop: NextHop, floor: MessageId) -> None:
        """The queue was read up to there. Call it in the transaction that read."""
        self._floors[hop] = floor

    def _named(self, kind: str) -> Mapping[ServerName, int]:
        return {
            ServerName(key[1]): number
            for key, number in sorted(self._counts.items())
            if key[0] == kind and number
        }


def _alike(before: Copy, after: Copy) -> bool:
    return (
        before.role is after.role
        and before.confirmation is after.confirmation
        and before.owner == after.owner
        and before.holders == after.holders
        and before.damage is after.damage
        and (
            before.recipients is after.recipients
            or [(one.settled, one.next_hop) for one in before.recipients]
            == [(one.settled, one.next_hop) for one in after.recipients]
        )
    )


def _kinds(copy: Copy) -> tuple[Key, ...]:
    if copy.stage is Stage.SAFETY_NET:
        return ()
    holders: tuple[ServerName, ...] = ()
    hops: tuple[NextHop, ...] = ()
    if copy.unfinished:  # a holder of what is set aside is missed like any other
        holders = tuple([one.name for one in copy.holders if one.state is HolderState.HOLDING])
    if copy.queued:
        hops = tuple([one.next_hop for one in copy.recipients if one.status is Status.READY])
    kind = copy.role._value_, copy.stage._value_, copy.confirmation._value_  # ``value`` is two calls
    kinds = _kinds_of if hops[FEW:] else _kinds_of_few
    waits = copy.confirmation is Confirmation.ASK or copy.damaged
    return kinds(kind, copy.exposed, copy.owner, holders, hops, waits)


def _kinds_of(
    kind: Key, exposed: int, owner: str, holders: Names, hops: Names, waits: int
) -> tuple[Key, ...]:
    """``holders``: all members that hold a copy. ``hops``: one of each recipient that is not settled. Holders
    count of what this node owns, and hops of what is in a queue.
    """
    role, stage, confirmation = kind
    keys = _keys(role, stage, confirmation, owner, exposed=bool(exposed))
    ours = role == Role.PRIMARY.value
    if ours and stage in {Stage.QUEUED.value, Stage.SET_ASIDE.value}:
        keys += _held_by(holders)
    if stage != Stage.QUEUED.value:
        return keys
    return keys + (_by_hop(hops, exposed=exposed, waits=waits) if ours else _held(_text(owner), hops))


def _held_by(names: Names) -> tuple[Key, ...]:
    """``names``: of all members that hold a copy; of most messages that is one."""
    each = tuple([("held by", _text(name)) for name in names])
    if len(names) < 2 or len(known := sorted(name for name in names if isinstance(name, str))) < 2:
        return each
    return (*each, ("held together", *known))


def _held(owner: str, hops: Names) -> tuple[Key, ...]:
    """``hops``: one of each recipient that is not settled."""
    return (*((_EACH_HELD, owner, hop) for hop in hops), *((_HELD, owner, hop) for hop in set(hops)))


def _by_hop(hops: Names, *, exposed: int, waits: int) -> tuple[Key, ...]:
    """``hops``: one of each recipient that is not settled."""
    keys: list[Key] = []
    for hop in hops:
        keys.append((_RECIPIENTS, hop))
        if waits:
            keys.append((_ASKING, hop))
    for hop in set(hops):
        keys.append((_MESSAGES, hop))
        if exposed:
            keys.append((_EXPOSED, hop))
    return tuple(keys)


_kinds_of_few = lru_cache(maxsize=1024)(_kinds_of)


def _keys(role: str, stage: str, confirmation: str, owner: str, *, exposed: bool) -> tuple[Key, ...]:
    keys: list[Key] = [("in", _text(role), _text(stage))]
    if stage == Stage.QUEUED.value:
        if role == Role.SHADOW.value:
            keys.append(("held for", _text(owner)))
            if confirmation != Confirmation.NONE.value:
                keys.append(PROMOTING)
        elif confirmation != Confirmation.NONE.value:
            keys.append(("confirmation", _text(confirmation)))
    if exposed:
        keys.append(EXPOSED)
    return tuple(keys)


def _text(value: object) -> str:
    """A value as text. A flipped bit may change its type: it counts apart until its row is found damaged."""
    return value if isinstance(value, str) else repr(value)
