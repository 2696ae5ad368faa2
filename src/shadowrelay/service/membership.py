"""The members of a running node: those of its settings file, and those that were announced since.

Each worker of a node is one. How many there are, the node says itself; until then, the settings file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import structlog

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.reception.shadow_servers import MemberPlace
from shadowrelay.core.workers import node_of, number_of
from shadowrelay.service.adapters import addresses, machines
from shadowrelay.settings import MemberSettings, Settings
from shadowrelay.settings.workers import with_counts

if TYPE_CHECKING:
    from shadowrelay.service.node import Node

log = structlog.get_logger(__name__)


def place_of(member: MemberSettings) -> MemberPlace:
    return MemberPlace(ServerName(member.name), member.site, member.host)


class Membership:
    """Takes members into the boundary, and lets them go, while the node runs.

    The settings file wins where both name a member. A member that was retired is never taken again. A worker
    that its node does not have any more leaves once this node holds nothing for it, nor it for this node:
    until then this node asks it, and promotes what it holds, as ever. ``counts``: the workers of each node
    that said how many it has.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._known = {ServerName(one.name): one for one in node.settings.members}
        self._retired: set[ServerName] = set()
        self._tasks: dict[ServerName, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self.announced: dict[ServerName, MemberSettings] = {}
        self.counts: dict[ServerName, int] = {}
        self._waited_for: set[ServerName] = set()  # workers that go, and still hold something
        self.turn = asyncio.Lock()  # held while settings, certificates or members are taken

    def called_at(self, name: ServerName) -> str:
        """The address of a member, as settings or announcement have it."""
        return str(self._known[name].address)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return list(self._tasks.values())

    def start(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Begin to talk with every member that was not retired."""
        self._group = group
        for name in self._node.boundary.watches:
            self._talk(name)
        return self.tasks

    def retired(self, name: ServerName) -> None:
        """An operator said that the member is gone for good."""
        self._retired.add(name)
        self._leave(name)
        self._node.queue.wake.set()

    def of(self, settings: Settings) -> list[MemberSettings]:
        """All members by these settings and by what was announced."""
        named = {ServerName(one.name): one for one in settings.members}
        own = node_of(self._node.name)
        named |= {name: one for name, one in self.announced.items() if name not in named and name != own}
        having, tally = dict(self.counts), self._node.database.ledger.tally
        held = {*tally.held_for_each(), *tally.held_by_each()}
        for name in held:
            if (node := node_of(name)) in having:
                having[node] = max(having[node], number_of(name))
        found = {ServerName(one.name): one for one in with_counts(named.values(), having)}
        over = {name for name in found if number_of(name) > self.counts.get(node_of(name), number_of(name))}
        self._waited_for = over & held
        return [one for name, one in found.items() if name not in over - held]

    def may_leave(self) -> bool:
        """May one leave that was waited for, because nothing is held either way now?"""
        tally = self._node.database.ledger.tally
        return any(not (tally.held_for(name) or tally.held_by_each().get(name)) for name in self._waited_for)

    def renew(self) -> None:
        """The members are those of the settings of now, and what was announced since."""
        try:
            self.prepare(self._node.settings)()
        except OSError as error:  # a certificate is being replaced: the next look at it takes the members too
            log.error("member_joins_later", error=str(error))

    def prepare(self, settings: Settings) -> Callable[[], None]:
        """The members are to be those of the settings, and those that were announced. What is returned takes
        them, and cannot fail. Raises OSError if no TLS context can be made of the settings.
        """
        found = {ServerName(one.name): one for one in self.of(settings)}
        full = settings.model_copy(update={"members": [*found.values()]})
        called, at = addresses(full), machines(full)

        def take() -> None:
            self._node.members.take(called)
            self._node.database.ledger.hosts = at
            self._become({name: one for name, one in found.items() if name not in self._retired})
            self._node.queue.wake.set()

        return take

    def _become(self, wanted: Mapping[ServerName, MemberSettings]) -> None:
        boundary = self._node.boundary
        for name in [name for name in boundary.watches if name not in wanted]:
            self._leave(name)
            log.warning("member_left", member=name)
        for name, one in wanted.items():
            before = self._known.get(name) if name in boundary.watches else None
            self._known[name] = one
            if before == one:
                continue
            boundary.admit(place_of(one))
            what = "member_joined" if before is None else "member_moved"
            log.warning(what, member=name, address=str(one.address), site=one.site, host=one.host)
            if before is None or before.address != one.address:
                self._talk(name)

    def _talk(self, name: ServerName) -> None:
        """Begin to talk with a member, anew if that is done already."""
        if task := self._tasks.pop(name, None):
            task.cancel()
        link = self._node.links.get(name)
        if link is None or task is not None:
            link = self._node.links[name] = self._node.new_link(name)
        if self._group is not None:
            self._tasks[name] = self._group.create_task(link.run(), name=f"link to {name}")

    def _leave(self, name: ServerName) -> None:
        self._node.boundary.retire(name)
        if task := self._tasks.pop(name, None):
            task.cancel()
