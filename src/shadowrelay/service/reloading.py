"""Takes a changed settings file, whole or not at all, and changed certificates by themselves.

Everything new is made first. Then all of it is put in place in one step of the event loop: nobody sees one
half of the old settings and one half of the new ones. If something cannot be made, nothing has changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

import structlog

from shadowrelay import logs
from shadowrelay.errors import NodeFailed
from shadowrelay.operator.cluster_reload import Change, ReloadShown
from shadowrelay.reception.recipients import RecipientsFile
from shadowrelay.service import connectors
from shadowrelay.service.adapters import (
    log_limits,
    pressure_limits,
    resolver,
    servers,
    shaped,
    sts_fetcher,
    tls_routes,
)
from shadowrelay.service.certificates import Certificates
from shadowrelay.service.live_settings import recipients_of
from shadowrelay.service.node import Node
from shadowrelay.service.operating import listed
from shadowrelay.service.validating import validated
from shadowrelay.settings import Settings, SettingsInvalid, settings_warnings
from shadowrelay.settings.outputs import tokens_of
from shadowrelay.settings.routing import routes, standing
from shadowrelay.settings.sites import hop_groups
from shadowrelay.settings.switched import told
from shadowrelay.settings.when_changed import reloaded
from shadowrelay.smtp.receiving.connector import Connector
from shadowrelay.tracking.writer import TrackingWriter

log = structlog.get_logger(__name__)

LOOK = 2.0
"""Seconds between two looks at the files of certificates."""

_BOOK = ("recipients_file", "recipient_delimiter", "max_list_depth", "max_list_members")

Take = Callable[[], None]


class Reloading:
    """Reads the settings of one node again. ``read`` reads them; ``named``: its connectors by their keys;
    ``asked``: set when a signal asks for it, which may be before; ``alone``: the process has no supervisor.
    """

    def __init__(
        self,
        node: Node,
        read: Callable[[], Settings],
        named: Mapping[str, Connector],
        writer: TrackingWriter,
        asked: asyncio.Event,
        *,
        alone: bool = True,
    ) -> None:
        self._node = node
        self._alone = alone
        self._read = read
        self._named = named
        self._writer = writer
        self._turn = node.membership.turn
        self._restart: tuple[Change, ...] = ()
        self._refused: tuple[str, ...] = ()
        self._asked = asked
        self.certificates = Certificates(node.settings)

    @property
    def warning(self) -> str:
        """What the operator has to know: a restart is needed, or the file of the last reload was refused."""
        told = []
        if self._refused:
            told.append(f"the settings file was refused, the settings from before stand: {self._refused[0]}")
        if self._restart:
            told.append(f"a restart is needed for {', '.join(one.key for one in self._restart)}")
        return "; ".join(filter(None, [*told, self.certificates.warning]))

    async def run(self) -> None:
        """Until cancelled: reload when ``asked``, and look at certificates."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await self._asked.wait()
            if self._asked.is_set():
                self._asked.clear()
                await self.reload()
            await self.look_at_certificates()

    async def reload(self, *, dry_run: bool = False) -> ReloadShown:
        """Take the settings file whole, or refuse it whole."""
        async with self._turn:
            shown, take = await self._prepared()
            if dry_run:
                return shown
            self._refused = tuple(shown.wrong)
            if take is None:
                log.error("reload_refused", wrong=list(shown.wrong), consequence="nothing has changed")
                return shown
            take()
            self._restart = tuple(shown.restart)
            log.warning(
                "reloaded", now=[str(one) for one in shown.now], restart=[str(one) for one in shown.restart]
            )
            for warning in shown.warnings:
                log.warning("setting_odd", what=warning)
            return ReloadShown(taken=True, now=shown.now, restart=shown.restart, warnings=shown.warnings)

    async def _prepared(self) -> tuple[ReloadShown, Take | None]:
        """What the file comes to, and what puts it in place; None: it cannot be taken."""
        running = self._node.settings
        try:
            file = await asyncio.to_thread(self._read)
            in_force = self._node.in_force.with_file
            found = await asyncio.to_thread(reloaded, running, file, alone=self._alone, in_force=in_force)
        except SettingsInvalid as invalid:
            return ReloadShown(wrong=[str(error) for error in invalid.errors]), None
        except OSError as error:
            return ReloadShown(wrong=[str(error)]), None
        if found.wrong:
            wrong = [f"{error} (as long as the node is not restarted)" for error in found.wrong]
            return ReloadShown(restart=found.restart, wrong=wrong), None
        try:
            book = await asyncio.to_thread(self._book, running, found.settings)
            await validated(found.settings)
            take = self._made(found.settings, book)
            warnings = await asyncio.to_thread(settings_warnings, file)
            warnings += told(file, self._node.in_force.switches)
        except (OSError, ValueError, NodeFailed) as error:
            return ReloadShown(restart=found.restart, wrong=[str(error)]), None
        return ReloadShown(now=found.now, restart=found.restart, warnings=warnings), take

    def _book(self, running: Settings, settings: Settings) -> RecipientsFile | None:
        if all(getattr(running, key) == getattr(settings, key) for key in _BOOK):
            return self._node.current.recipients
        return recipients_of(settings)

    def _made(self, settings: Settings, book: RecipientsFile | None) -> Take:
        """Make all that is new. What is returned puts it in place, and cannot fail. Raises OSError,
        ValueError.
        """
        node, before = self._node, self._node.settings
        watched, tokens = Certificates(settings), tuple(tokens_of(settings.admin))
        current = node.current.prepare(settings, book)
        hops, ways = servers(settings), hop_groups(settings)
        names = resolver(settings) if _asked_otherwise(before, settings) else None
        members = node.membership.prepare(settings)
        becomes = self._connectors(settings)
        limits, pressed = log_limits(settings), pressure_limits(settings)
        shaping = shaped(settings)
        wanted, fetcher = tls_routes(settings), sts_fetcher(settings, lambda: node.hosts.resolver)

        def take() -> None:
            current()
            node.in_force.reread(settings.policy())
            if names is not None:
                node.hosts.resolver, node.resolver, former = names, names, node.resolver
                former.close()
            node.hosts.take(hops, ways)
            node.tls_policies.take(node.resolver, wanted)
            node.tls_policies.sts.fetcher = fetcher
            node.queue.shaping.take(*shaping)
            node.queue.rerouted(routes(settings))
            node.counting.servers = listed(node.routes, node.hosts)
            node.extra_hop.stand(standing(settings))
            members()
            for connector, other in becomes:
                connector.become(other)
            node.acts.most = settings.peer.peer_operate if settings.peer else node.acts.most
            node.draining.patience = settings.drain_timeout.total_seconds()
            node.scrub.interval = settings.scrub_interval
            node.room.minimum = settings.minimum_free_disk
            node.back_pressure.limits = pressed
            node.replication.wake.set()
            node.services.access.replace(tokens)
            self._writer.limit(limits)
            self.certificates = watched
            if settings.log != before.log:
                logs.configure(level=settings.log.level.value, format=settings.log.format.value)

        return take

    def _connectors(self, settings: Settings) -> list[tuple[Connector, Connector]]:
        """The connectors that listen, each with what it is to become. Raises OSError, ValueError."""
        node, made = self._node, []
        for name, each in settings.receive.items():
            if connector := self._named.get(f"receive.{name}"):
                made.append((connector, connectors.for_senders(node, name, each, settings, connector)))
        if settings.peer and (connector := self._named.get("peer")):
            made.append((connector, connectors.for_members(node, settings.peer)))
        return made

    async def look_at_certificates(self) -> None:
        """New sessions use the certificates that the files hold now, once they are whole and fit."""
        async with self._turn:
            if not self.certificates.changed():
                return
            node, settings = self._node, self._node.settings
            try:
                watched = Certificates(settings)
                hops = servers(settings)
                members = node.membership.prepare(settings)
                becomes = self._connectors(settings)
            except (OSError, ValueError) as error:
                self.certificates.refused(error)
                return
            node.hosts.take(hops, node.hosts.ways)
            node.queue.rerouted(node.routes)
            members()
            for connector, other in becomes:
                connector.become(other)
            self.certificates = watched
            watched.told()


def _asked_otherwise(before: Settings, settings: Settings) -> bool:
    """Are name servers asked in another way, or others?"""
    dane = [any(route.dane for route in one.routes.values()) for one in (before, settings)]
    return settings.dns != before.dns or dane[0] != dane[1]
