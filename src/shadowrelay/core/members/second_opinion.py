"""A member is silent: who is asked about it, and what it means if none of them answers.

Contact that anybody had with it shows that it lives. That it is not this node which is cut off is shown by an
answer from another machine alone: members on one machine are cut off together. So two machines are a
boundary of two, however many members stand on them, and there time alone decides.
"""

from __future__ import annotations

from collections.abc import Iterable

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.reception.shadow_servers import MemberPlace
from shadowrelay.core.values import dataclass


@dataclass(frozen=True, slots=True)
class Others:
    """All ``members`` but the silent one and us. ``elsewhere``: those on other machines than ours. ``third``:
    is one of them on a machine that is neither ours nor that of the silent one?
    """

    members: frozenset[ServerName]
    elsewhere: frozenset[ServerName]
    third: bool

    def none_of(self, answered: Iterable[ServerName]) -> bool:
        """Did no other machine answer, though there is a third one? Then we may be cut off ourselves."""
        return self.third and self.elsewhere.isdisjoint(answered)


def others(own: MemberPlace, members: Iterable[MemberPlace], silent: ServerName) -> Others:
    """Who can be asked about that member."""
    places = tuple(members)
    machines = {own.host, *(place.host for place in places if place.name == silent)}
    asked = [place for place in places if place.name not in (silent, own.name)]
    return Others(
        frozenset(place.name for place in asked),
        frozenset(place.name for place in asked if place.host != own.host),
        any(place.host not in machines for place in asked),
    )
