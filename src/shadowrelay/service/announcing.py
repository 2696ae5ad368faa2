"""Takes members that the cluster's authority announces to a running node, and tells the others of them.

The announcement is durable before the member is in the boundary. Every member verifies the signature itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import structlog

from shadowrelay.core.identifiers import Incarnation, RequestId, ServerName
from shadowrelay.core.operating import Act, Scope, Told
from shadowrelay.core.steps import Operate, Unanswered
from shadowrelay.core.workers import node_of
from shadowrelay.database import announced
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.ids import mint
from shadowrelay.members.boundary import Boundary
from shadowrelay.members.telling import Telling, incarnations
from shadowrelay.node_clock import NodeClock
from shadowrelay.operator.acts import Action, ActRefused
from shadowrelay.operator.announcing import AnnouncementRefused, MemberShown
from shadowrelay.operator.asking import AskMember
from shadowrelay.service.live_settings import LiveSettings
from shadowrelay.service.membership import Membership
from shadowrelay.settings import MemberSettings
from shadowrelay.settings.values import HostPort, parse_dialled
from shadowrelay.wire.announcements import Announcement, parse_signed, signed_octets
from shadowrelay.wire.json_fields import MOST_TEXT
from shadowrelay.wire.xshadow import Malformed

log = structlog.get_logger(__name__)

MEMBER = "member"
"""The action of XOPERATE that gives an announcement. Its right is the signature, so any scope will do."""

LOOK = 1.0
"""Seconds between two looks for members that have to be told."""

AGAIN = 60.0
"""Seconds after which a member is told again: its database may have been replaced."""

PATIENCE = 10.0
AHEAD = timedelta(days=1)
"""How far the authority's clock may be ahead."""

_PART = MOST_TEXT


@dataclass(slots=True, kw_only=True)
class Announcing:
    """One node's. ``ask``: asks members."""

    current: LiveSettings
    clock: NodeClock
    database: TransportDatabase
    boundary: Boundary
    membership: Membership
    ask: AskMember
    _signed: dict[ServerName, str] = field(default_factory=dict)
    _telling: Telling[frozenset[str]] = field(default_factory=lambda: Telling(AGAIN))
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def actions(self) -> dict[str, Action]:
        """What members may ask of this node."""
        return {MEMBER: Action(Scope.READ, self._given, quiet=True)}

    async def begin(self) -> None:
        """Read what is kept, before anybody is talked to. What cannot be verified any more is not taken."""
        for signed in await self.database.transact(announced.kept):
            try:
                announcement = self._verified(signed, later=True)
            except AnnouncementRefused as refused:
                log.error("announcement_not_taken", error=str(refused))
                continue
            self._remember(announcement, signed)
        if self._signed:
            self.membership.prepare(self.current.settings)()

    async def run(self) -> None:
        """Tell the members, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await self._wake.wait()
            self._wake.clear()
            await self._tell()

    async def take(self, signed: str) -> tuple[ServerName, bool]:
        """Verify it, keep it, take the member. Raises AnnouncementRefused."""
        announcement = self._verified(signed)
        name = ServerName(announcement.name)
        async with self.membership.turn:
            try:
                new = await self.database.transact(
                    lambda ledger: announced.keep(ledger, announcement, signed)
                )
            except announced.NotKept as error:
                raise AnnouncementRefused(str(error)) from error
            if new:
                self._remember(announcement, signed)
                self.membership.renew()
        if new:
            log.warning("member_announced", member=name, address=announcement.address)
            self._wake.set()
        return name, new

    def members(self) -> Sequence[MemberShown]:
        membership = self.membership
        named = {one.name for one in self.current.settings.members}
        return [
            MemberShown(
                name=place.name,
                address=membership.called_at(place.name),
                site=place.site,
                host=place.host,
                source="settings" if place.name in named else "announcement",
            )
            for place in sorted(self.boundary.places, key=lambda place: place.name)
        ]

    def _remember(self, announcement: Announcement, signed: str) -> None:
        name = ServerName(announcement.name)
        self._signed[name] = signed
        self.membership.announced[name] = _member(announcement)

    def _verified(self, signed: str, *, later: bool = False) -> Announcement:
        """The announcement, if the authority that this node trusts signed it. Raises AnnouncementRefused.

        ``later``: it was verified before, and only the signature counts.
        """
        from shadowrelay import authority  # here, because the import is slow

        peer = self.current.settings.peer
        if peer is None or peer.ca is None:
            raise AnnouncementRefused("this node trusts no authority (peer.ca)")
        try:
            announcement, signature = parse_signed(signed)
            _member(announcement)
        except ValueError as error:
            raise AnnouncementRefused(str(error)) from error
        now = self.clock.read().wall  # as the authority's machine has it
        try:
            known = authority.signed(signed_octets(announcement), signature, trusted=peer.ca, now=now)
        except authority.AuthorityError as error:
            raise AnnouncementRefused(str(error)) from error
        if not known:
            log.warning("announcement_forged", member=announcement.name, address=announcement.address)
            raise AnnouncementRefused("it is not signed by the authority of this node (peer.ca)")
        if not later and _made_at(announcement) > now + AHEAD:
            raise AnnouncementRefused("it was made in the future: set the clock of the authority's machine")
        return announcement

    async def _given(self, member: ServerName, act: Act) -> Told:
        """A member gives an announcement. Raises ActRefused."""
        del member
        parts = act.arguments.get("signed")
        if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
            raise ActRefused("signed is a list of texts")
        try:
            _, new = await self.take("".join(parts))
        except AnnouncementRefused as refused:
            raise ActRefused(str(refused)) from refused
        return {"new": new}

    async def _tell(self) -> None:
        """Give each member that can be reached what it was not given lately."""
        at, wanted = asyncio.get_running_loop().time(), frozenset(self._signed.values())
        runs = incarnations(self.database.ledger.known, self.boundary.reachable())
        due = self._telling.due(runs, wanted, at) if wanted else ()
        await asyncio.gather(*(self._give(name, wanted, runs[name], at) for name in due))

    async def _give(
        self, name: ServerName, wanted: frozenset[str], run: Incarnation | None, at: float
    ) -> None:
        for signed in sorted(wanted):
            act = Act(
                job=RequestId(mint(self.clock())),
                action=MEMBER,
                scope=Scope.READ,
                operator="",
                reason="a member was announced",
                arguments={"signed": [signed[at : at + _PART] for at in range(0, len(signed), _PART)]},
            )
            answer = await self.ask(Operate(name, act), PATIENCE)
            if isinstance(answer, Unanswered):
                return
            if answer.refused:
                log.info("announcement_refused_by_member", member=name, why=answer.refused)
        self._telling.told(name, wanted, run, at)


def _member(announcement: Announcement) -> MemberSettings:
    """Raises Malformed for an address that cannot be called, and for the name of a worker."""
    if node_of(ServerName(announcement.name)) != announcement.name:
        raise Malformed("a node is announced, and not one of its workers")
    try:
        address: HostPort = parse_dialled(announcement.address)
    except ValueError as error:
        raise Malformed(f"bad address: {error}") from error
    return MemberSettings.model_construct(
        name=ServerName(announcement.name), address=address, site=announcement.site, host=announcement.host
    )


def _made_at(announcement: Announcement) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=announcement.serial)
