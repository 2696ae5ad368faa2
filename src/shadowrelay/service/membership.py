"""The members of a running node: those of its settings file, and those that were announced since.

Each worker of a node is one. How many there are, the node says itself; until then, the settings file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from shadowrelay.core.identifiers import RequestId, ServerName
from shadowrelay.core.reception.shadow_servers import MemberPlace
from shadowrelay.core.records import next_revision
from shadowrelay.core.retirements import RetiredMember
from shadowrelay.core.workers import node_of, number_of
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.ids import mint
from shadowrelay.members.boundary import Boundary
from shadowrelay.members.link import Link
from shadowrelay.members.pool import Members
from shadowrelay.operator.retire import retire
from shadowrelay.service.adapters import addresses, machines
from shadowrelay.service.live_settings import LiveSettings
from shadowrelay.settings import MemberSettings, Settings
from shadowrelay.settings.workers import with_counts
from shadowrelay.shown.records import RetiredAnswer

log = structlog.get_logger(__name__)


def place_of(member: MemberSettings) -> MemberPlace:
    return MemberPlace(ServerName(member.name), member.site, member.host)


@dataclass(slots=True, kw_only=True)
class Membership:
    """Takes members into the boundary, and lets them go, while the node runs.

    The settings file wins where both name a member. A member that was retired is never taken again. A worker
    that its node does not have any more leaves once this node holds nothing for it, nor it for this node:
    until then this node asks it, and promotes what it holds, as ever.

    ``links``: the conversation with each. ``announced``: members by announcement; ``counts``: the workers of
    each node that said how many it has. ``turn`` is held while settings, certificates or members are taken.
    ``changed`` wakes the queue.
    """

    name: ServerName
    current: LiveSettings
    clock: Callable[[], datetime]
    database: TransportDatabase
    boundary: Boundary
    members: Members
    new_link: Callable[[ServerName], Link]
    changed: Callable[[], None]
    links: dict[ServerName, Link] = field(init=False)
    announced: dict[ServerName, MemberSettings] = field(default_factory=dict)
    counts: dict[ServerName, int] = field(default_factory=dict)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _known: dict[ServerName, MemberSettings] = field(init=False)
    _retired: set[ServerName] = field(default_factory=set)
    _tasks: dict[ServerName, asyncio.Task[None]] = field(default_factory=dict)
    _group: asyncio.TaskGroup | None = None
    _waited_for: set[ServerName] = field(default_factory=set)  # workers that go, and still hold something

    def __post_init__(self) -> None:
        self._known = {ServerName(one.name): one for one in self.current.settings.members}
        self.links = {place.name: self.new_link(place.name) for place in self.boundary.places}

    def called_at(self, name: ServerName) -> str:
        """The address of a member, as settings or announcement have it."""
        return str(self._known[name].address)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return list(self._tasks.values())

    def start(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Begin to talk with every member that was not retired."""
        self._group = group
        for name in self.boundary.watches:
            self._talk(name)
        return self.tasks

    async def retire(self, name: ServerName, operator: str) -> RetiredAnswer:
        """An operator says here that the member is gone for good. The other members read it on record."""
        now = self.clock()
        record = RetiredMember(
            id=RequestId(mint(now)),
            member=name,
            operator=operator,
            reason="it is gone for good",
            revision=next_revision(0, now),
            changed_by=self.name,
            changed_at=now,
        )
        return await self._retire(name, record)

    async def follow(self, record: RetiredMember) -> None:
        """An operator said so on another node."""
        await self._retire(record.member, None, record.changed_by)

    async def _retire(
        self, name: ServerName, record: RetiredMember | None, told_by: ServerName | None = None
    ) -> RetiredAnswer:
        now = self.clock()
        done = await self.database.transact(lambda ledger: retire(ledger, name, now, record))
        log.warning(
            "member_retired",
            member=name,
            promoted=done["promoted"],
            lost=done["copies_lost"],
            events_dropped=done["events_dropped"],
            told_by=told_by,
        )
        self.retired(name)
        return done

    def retired(self, name: ServerName) -> None:
        """The member is gone for good."""
        self._retired.add(name)
        self._leave(name)
        self.changed()

    def of(self, settings: Settings) -> list[MemberSettings]:
        """All members by these settings and by what was announced."""
        named = {ServerName(one.name): one for one in settings.members}
        own = node_of(self.name)
        named |= {name: one for name, one in self.announced.items() if name not in named and name != own}
        having, tally = dict(self.counts), self.database.ledger.tally
        held = {*tally.held_for_each(), *tally.held_by_each()}
        for name in held:
            if (node := node_of(name)) in having:
                having[node] = max(having[node], number_of(name))
        found = {ServerName(one.name): one for one in with_counts(named.values(), having)}
        over = {name for name in found if number_of(name) > self.counts.get(node_of(name), number_of(name))}
        self._waited_for = over & held
        return [one for name, one in found.items() if name not in over - held]

    def may_leave(self) -> bool:
        """Whether a member that was leaving may go: neither side holds a copy for the other."""
        tally = self.database.ledger.tally
        return any(not (tally.held_for(name) or tally.held_by_each().get(name)) for name in self._waited_for)

    def renew(self) -> None:
        """The members are those of the settings of now, and what was announced since."""
        try:
            self.prepare(self.current.settings)()
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
            self.members.take(called)
            self.database.ledger.hosts = at
            self._become({name: one for name, one in found.items() if name not in self._retired})
            self.changed()

        return take

    def _become(self, wanted: Mapping[ServerName, MemberSettings]) -> None:
        boundary = self.boundary
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
        link = self.links.get(name)
        if link is None or task is not None:
            link = self.links[name] = self.new_link(name)
        if self._group is not None:
            self._tasks[name] = self._group.create_task(link.run(), name=f"link to {name}")

    def _leave(self, name: ServerName) -> None:
        self.boundary.retire(name)
        if task := self._tasks.pop(name, None):
            task.cancel()
