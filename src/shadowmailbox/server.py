"""Serves mailboxes: LMTP for the relays of the boundary, in labs also SMTP for everyone else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias, cast

import structlog

from shadowmailbox.control import ControlServer
from shadowmailbox.counts import MailboxCounts
from shadowmailbox.delivered_to import DeliveredTo, TableError
from shadowmailbox.receiving import MailboxReceiver, MailboxSession
from shadowmailbox.store import Store
from shadowrelay.node_clock import NodeClock
from shadowrelay.smtp.receiving.connector import Connector
from shadowrelay.smtp.receiving.contract import ConnectorOptions, Receiver
from shadowrelay.smtp.receiving.limits import Register
from shadowrelay.smtp.receiving.session import ReceiveSession

log = structlog.get_logger(__name__)

TABLE_FILE = ".delivered-to.sqlite"
"""The name begins with a dot; no domain's directory does."""

OpenStore: TypeAlias = Callable[[], Awaitable[Store]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MailboxOptions:
    """What a mailbox service stores mail in, and where it listens; port 0 is any free port.

    ``table``: the DeliveredTo table; large contents pass through its directory. ``outside`` takes one answer
    for all recipients, so only a store that takes all or none may have it.
    ``patience``: see ``MailboxReceiver``.
    """

    open_store: OpenStore
    table: Path
    hostname: str
    inside: tuple[str, int]  # LMTP
    outside: tuple[str, int] | None = None  # SMTP
    track_duplicates: timedelta = timedelta(hours=1)
    sweep_interval: timedelta = timedelta(seconds=60)
    patience: timedelta = timedelta(minutes=5)
    max_message_size: int = 128 * 2**20
    max_header_size: int = 2**20


class MailboxCannotListen(Exception):
    """A port is taken or not allowed; the text says which."""


class MailboxServer:
    """A mailbox service. Start and stop it once."""

    def __init__(self, options: MailboxOptions, clock: NodeClock | None = None) -> None:
        self.counts = MailboxCounts()
        self.clock = clock or NodeClock()  # a step of the wall clock forgets no delivery
        self.started_at = self.clock()
        self.store: Store | None = None
        self.table: DeliveredTo | None = None
        self._options = options
        self._connectors: list[Connector] = []
        self._control: ControlServer | None = None
        self._sweeping: asyncio.Task[None] | None = None

    @property
    def serving(self) -> bool:
        """Whether mail is taken."""
        return self._sweeping is not None

    async def start(self) -> dict[str, tuple[str, int]]:
        """Open the table and the store, and listen. Returns the addresses.

        Raises MailboxCannotListen, TableUnusable, ValueError, OSError.
        """
        options = self._options
        options.table.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The open table is also the lock on the store.
        self.table = table = await DeliveredTo.open(options.table, track=options.track_duplicates)
        bound = {}
        try:
            self.store = await options.open_store()
            receiver = MailboxReceiver(
                store=self.store,
                table=table,
                hostname=options.hostname,
                spool=options.table.parent,
                clock=self.clock,
                counts=self.counts,
                patience=options.patience,
            )
            self._control = ControlServer(options.table, table, self.counts)
            await self._control.start()
            for name, address in (("inside", options.inside), ("outside", options.outside)):
                if address is not None:
                    made = _connector_options(options, name, address)
                    connector = Connector(made, receiver, session=_session)
                    bound[name] = await _listen(connector)
                    self._connectors.append(connector)
        except BaseException:
            await self.stop(0)
            raise
        self._sweeping = asyncio.create_task(self._sweep(table))
        return bound

    async def stop(self, drain: float) -> None:
        """Let transactions finish for ``drain`` seconds, then close everything. Idempotent."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait({self._sweeping})
            self._sweeping = None
        await asyncio.gather(*(connector.stop(drain) for connector in self._connectors))
        self._connectors.clear()
        if self._control is not None:
            await self._control.stop()
            self._control = None
        if self.store is not None:
            await self.store.close()
            self.store = None
        if self.table is not None:
            await self.table.close()
            self.table = None

    async def _sweep(self, table: DeliveredTo) -> None:
        while True:
            now = self.clock()
            try:
                self.counts.swept += await table.sweep(now)
                self.counts.swept_at = now
            except TableError:
                self.counts.sweeps_failed += 1
                log.exception("delivered_to_not_swept")
            await asyncio.sleep(self._options.sweep_interval.total_seconds())


async def _listen(connector: Connector) -> tuple[str, int]:
    try:
        return await connector.start()
    except OSError as error:
        options = connector.options
        # The text for a taken port repeats the address; the error for an unknown host has no errno.
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else error.strerror or str(error)
        raise MailboxCannotListen(
            f"cannot listen on {options.host}:{options.port} ({options.name}): {reason}"
        ) from None


def _connector_options(options: MailboxOptions, name: str, address: tuple[str, int]) -> ConnectorOptions:
    """Options of a connector: a few relays send all their mail, so no tarpit and no limit per source. What
    they took from somebody they must get rid of: lines of any length, and any local part.
    """
    return ConnectorOptions(
        hostname=options.hostname,
        name=name,
        host=address[0],
        port=address[1],
        lmtp=name == "inside",
        connection_timeout=None,
        tarpit_interval=timedelta(0),
        max_junk_commands=None,
        max_inbound_connections_per_source=None,
        max_recipients_per_message=1000,
        max_message_size=options.max_message_size,
        max_header_size=options.max_header_size,
        max_text_line=None,
        any_dots=True,
    )


def _session(receiver: Receiver, options: ConnectorOptions, register: Register) -> ReceiveSession:
    return MailboxSession(cast(MailboxReceiver, receiver), options, register)
