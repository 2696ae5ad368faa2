"""The second opinion on a silent member: which members are asked, and what it means if none answers.

A member that had contact with the silent one shows that it lives. Only an answer from another machine shows
that this node is not the one that is cut off, because members on one machine are cut off together. So two
machines are a boundary of two, however many members are on them; there, time alone decides.
"""

from __future__ import annotations

from collections.abc import Iterable

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.reception.shadow_servers import MemberPlace
from shadowrelay.core.values import dataclass


@dataclass(frozen=True, slots=True)
class Others:
    """All ``members`` except the silent one and this node.

    ``elsewhere``: those on other machines than ours. ``third``: is one of them on a machine that is neither
    ours nor the silent member's?
    """

    members: frozenset[ServerName]
    elsewhere: frozenset[ServerName]
    third: bool

    def none_of(self, answered: Iterable[ServerName]) -> bool:
        """Did no other machine answer, although there is a third one? Then this node may be cut off."""
        return self.third and self.elsewhere.isdisjoint(answered)


def others(own: MemberPlace, members: Iterable[MemberPlace], silent: ServerName) -> Others:
    """The members that can be asked about the silent one."""
    places = tuple(members)
    machines = {own.host, *(place.host for place in places if place.name == silent)}
    asked = [place for place in places if place.name not in (silent, own.name)]
    return Others(
        frozenset(place.name for place in asked),
        frozenset(place.name for place in asked if place.host != own.host),
        any(place.host not in machines for place in asked),
    )
