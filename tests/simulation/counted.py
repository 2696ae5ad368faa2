"""A large boundary, and how often its members talk: compared with docs/explanation/scale.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.policy import Policy
from shadowrelay.wire.xqdiscard import parse_query

from .clients import Client
from .hosts import workers
from .peers import Peers
from .seeds import make_boundary
from .world import World, seconds

WARM = 130.0
"""Seconds after which every pair of members has talked since the mail came: a heartbeat, and some delays."""


@dataclass(slots=True)
class Counted:
    """What members said to each other while somebody counted."""

    greetings: int = 0
    polls: int = 0
    checks: int = 0
    opinions: int = 0
    sessions: Counter[str] = field(default_factory=Counter)


class Large:
    """So many machines of so many workers, with the real timers of the policy."""

    def __init__(
        self, machines: int, each: int, *, choices: int, mail: int = 0, span: float = 10_800.0
    ) -> None:
        """``mail``: how many messages every member owns that nobody takes. ``span``: seconds of silence
        before promotion.
        """
        policy = replace(
            Policy(),
            holder_choices=choices,
            shadow_resubmit_time_span=seconds(span),
            reject_message_on_shadow_failure=True,
        )
        self.world = World(1, policy, workers(machines, each, sites=1))
        self.world.scrub = False
        self.checks = make_boundary(self.world, sql=False)
        for sink in self.world.hops.values():
            sink.closed_until = float("inf")
        self.sent = 0
        for place in self.world.places:
            for number in range(mail):
                self.sent += 1
                to = ((1, f"user{self.sent}@example.net", NextHop("example.net")),)
                client = Client(self.world, self.checks, self.sent, "me@example.org", to, (place.name,))
                self.world.after(1.0 + number / 10, client.submit)

    def sessions(self) -> int:
        """Sessions that members opened with each other, and have open."""
        peers = [node.peers for node in self.world.nodes.values() if node.up]
        return sum(len(one.open) + len(one.shadow) for one in peers)

    def lose(self, host: str) -> None:
        for node in self.world.nodes.values():
            if node.place.host == host:
                node.crash()

    @contextmanager
    def counting(self) -> Iterator[Counted]:
        counted = Counted()
        exchange, ask = Peers.exchange, Peers.ask

        def noted(peers: Peers, to: Any, session: int, lines: Any, *rest: Any) -> None:
            verb, _, text = str(lines[0]).partition(" ")
            counted.greetings += verb == "XSHADOW"
            if verb == "XQDISCARD":
                query = parse_query(text)
                counted.polls += query.most > 0
                counted.checks += len(query.questions)
            exchange(peers, to, session, lines, *rest)

        def asked(peers: Peers, step: Any, resume: Any) -> None:
            counted.opinions += step.query.sighting is not None
            ask(peers, step, resume)

        with patch.object(Peers, "exchange", noted), patch.object(Peers, "ask", asked):
            yield counted
