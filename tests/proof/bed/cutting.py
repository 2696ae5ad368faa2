"""Power cuts on a node under continuous mail; with the last one the other node loses its disk."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from shadowlab.disks import Disk

from .hop import Hop
from .nodes import Node, Nodes
from .post import Post, continuous
from .verdict import Told

CUTS = 10
"""Cuts of an epoch: with the last one the other node loses its disk, everything drains and is counted."""

_CLIENTS, _SIZE, _PAUSE = 8, 2_000, 0.002
_LARGE = 100_000  # octets: what one of the clients sends, content that is kept as a file
_MOST = 40  # messages that are accepted between the moment that all is whole again and the next cut
_LATEST = 2.0  # seconds within which that cut comes anyway
_WHILE_STARTING = 0.15  # of the cuts are followed by another one while the node starts
_CLOSED = 0.75  # of the epochs the next hop takes nothing, so that the queues fill

_LATE = 0.2  # seconds within which a client has surely read what was sent to it


class Role(StrEnum):
    """Of the node whose power is cut. ALONE: there is no other one, and it accepts exposed."""

    OWNER = "owner"
    HOLDER = "holder"
    ALONE = "alone"


@dataclass(slots=True)
class Cutter:
    """The node that loses power lives on ``disk``; it is the first of the nodes."""

    nodes: Nodes
    hop: Hop
    disk: Disk
    role: Role
    rng: random.Random
    post: Post = field(default_factory=Post)
    cuts: int = 0
    disks_lost: int = 0
    _dark: list[tuple[float, float]] = field(default_factory=list)

    @property
    def victim(self) -> Node:
        return self.nodes.members[0]

    @property
    def other(self) -> Node | None:
        return self.nodes.members[1] if len(self.nodes.members) > 1 else None

    def epoch(self, cuts: int, step: Callable[[], None]) -> None:
        """So many cuts, each when nothing is exposed any more; then all is delivered.

        While the victim is down for the last one, the other node loses its disk: what the victim's disk has
        is all that there is. ``step`` is called after each cut. Raises Stuck.
        """
        target = self.other if self.role is Role.HOLDER and self.other else self.victim
        self.hop.closed = self.rng.random() < _CLOSED
        small = continuous(self.post, target.at.smtp, clients=_CLIENTS - 1, size=_SIZE, pause=_PAUSE)
        large = continuous(self.post, target.at.smtp, clients=1, size=_LARGE, pause=20 * _PAUSE)
        last = self.cuts + cuts - 1
        with small, large:
            while self.cuts < last:
                self._cut_when_whole()
                step()
                while self.cuts < last and self.rng.random() < _WHILE_STARTING:
                    self.victim.launch()
                    time.sleep(self.rng.uniform(0.0, 0.2))
                    self._cut()
                    step()
                self.victim.started()
            self._cut_when_whole(self.other)
            step()
            for node in self.nodes.members:
                node.started()
        self.hop.closed = False
        self.nodes.wait_idle()

    def _cut_when_whole(self, loses_disk: Node | None = None) -> None:
        self.nodes.wait_whole()
        self._wait_for_mail()
        self._cut(loses_disk)

    def _wait_for_mail(self) -> None:
        """Until a seeded number of messages was accepted, and a seeded moment longer."""
        enough = self.post.accepted + self.rng.randint(1, _MOST)
        latest = time.monotonic() + _LATEST
        while self.post.accepted < enough and time.monotonic() < latest:
            time.sleep(0.001)
        time.sleep(self.rng.uniform(0.0, 0.03))

    def _cut(self, loses_disk: Node | None = None) -> None:
        began = time.monotonic()
        self.disk.cut()
        self.victim.killed()
        if loses_disk is not None:
            loses_disk.killed()
            loses_disk.wipe()
            self.disks_lost += 1
        if loses_disk is not None or self.role is not Role.HOLDER:
            self._dark.append((began, time.monotonic()))
        self.cuts += 1
        self.disk.restore()

    def told(self) -> dict[str, Told]:
        """What clients were told before the lights went out: a 250 from a machine without power is none.

        Nor is one that rests on the word of such a machine alone: the holder's, when the owner's disk is
        lost. As long as the owner has its disk, a holder whose word was not kept has to be found out.
        """
        return {
            token: before_the_cut(answer, at, self._dark) for token, (answer, at) in self.post.told.items()
        }


def before_the_cut(answer: Told, at: float, dark: list[tuple[float, float]]) -> Told:
    """``dark``: from each cut to the end of the process, on the clock of ``at``."""
    if answer is Told.ACCEPTED and any(begin <= at <= end + _LATE for begin, end in dark):
        return Told.NO_REPLY
    return answer
