"""What filters do in the run of one seed, drawn apart from everything else; and operators, who look after
what is in quarantine.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.jobs import Verb

from . import by_hand
from .filters import Filtered
from .world import World

if TYPE_CHECKING:
    from .node import Node

_KINDS = (
    *(Filtered.CHANGED,) * 4,
    *(Filtered.QUARANTINED,) * 4,
    Filtered.DISCARDED,
    Filtered.REFUSED,
    Filtered.PUT_OFF,
)


class Filtering:
    """The filters of one boundary. Where they are down, all is put off, or all is taken without them."""

    def __init__(self, world: World, draw: random.Random) -> None:
        self.world = world
        self.draw = draw
        self.when_down = draw.choice((Filtered.DOWN, Filtered.UNFILTERED))

    def becomes(self) -> Filtered:
        """What a client sends becomes that."""
        return self.draw.choice(_KINDS)

    def plan(self, start: float) -> None:
        """While a fault comes and goes, filters are down for a while, and operators look into quarantine."""
        draw, world, ahead = self.draw, self.world, start - self.world.now
        for _ in range(draw.randint(0, 2)):
            name, at = draw.choice([place.name for place in world.places]), ahead + draw.uniform(0.0, 4.0)
            world.after(at, world.filters_down.__setitem__, name, self.when_down)
            world.after(at + draw.uniform(0.5, 8.0), world.filters_down.pop, name, None)
        for _ in range(draw.randint(0, 6)):
            world.after(ahead + draw.uniform(1.0, 16.0), self._look)

    def finish(self) -> None:
        """All is healed: nothing stays in quarantine."""
        for node, message_id in self._waiting():
            node.attend(by_hand.give, node, Verb.RESUME, message_id, None)
        self.world.after(1.0, self.finish)

    def _look(self) -> None:
        """An operator finds a message there, and decides."""
        if found := self._waiting():
            node, message_id = self.draw.choice(found)
            verb = self.draw.choice((Verb.RESUME, Verb.RESUME, Verb.RESUME, Verb.REMOVE))
            node.attend(by_hand.give, node, verb, message_id, None)

    def _waiting(self) -> list[tuple[Node, MessageId]]:
        return [
            (node, copy.id)
            for node in self.world.nodes.values()
            if node.up and not (node.opening or node.frozen)
            for copy in node.ledger.state.copies.values()
            if copy.owned
            and copy.id in self.world.quarantined
            and any(one.suspended for one in copy.unsettled)
        ]
