"""Serves mailboxes: LMTP for the relays of the boundary, SMTP for everyone else."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog

from shadowrelay import signals
from shadowrelay.database.delivered_to import DeliveredTo, TableError
from shadowrelay.mailbox.maildir import prepare
from shadowrelay.mailbox.receiving import MailboxReceiver
from shadowrelay.smtp.receiving.connector import Connector
from shadowrelay.smtp.receiving.contract import ConnectorOptions

log = structlog.get_logger(__name__)

TABLE_FILE = ".delivered-to.sqlite"
"""The name begins with a dot; no domain's directory does."""

_SWEEP = 60.0  # seconds between two sweeps of the DeliveredTo table
_ROOM_FOR_TRACE = 2  # times the limits of a relay: relays add trace fields to what they accept


@dataclass(frozen=True, slots=True, kw_only=True)
class MailboxOptions:
    """Where to keep mail and where to listen; port 0 is any free port."""

    directory: Path
    hostname: str
    inside: tuple[str, int]  # LMTP
    outside: tuple[str, int]  # SMTP
    track_duplicates: timedelta = timedelta(hours=1)
    drain: timedelta = timedelta(seconds=10)
    ready_file: Path | None = None


class MailboxCannotListen(Exception):
    """A port is taken or not allowed; the text says which."""


class MailboxServer:
    """A mailbox server. Start and stop it once."""

    def __init__(self, options: MailboxOptions) -> None:
        self._options = options
        self._connectors: list[Connector] = []
        self._table: DeliveredTo | None = None
        self._sweeping: asyncio.Task[None] | None = None

    async def start(self) -> dict[str, tuple[str, int]]:
        """Open the table and listen. Returns the addresses.

        Raises MailboxCannotListen, TableUnusable, ValueError, OSError.
        """
        options = self._options
        options.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        table = await DeliveredTo.open(options.directory / TABLE_FILE, track=options.track_duplicates)
        self._table = table
        # The open table is also the lock on the directory.
        await asyncio.to_thread(prepare, options.directory)
        receiver = MailboxReceiver(options.directory, options.hostname, table, _now)
        bound = {}
        try:
            for name, address in (("inside", options.inside), ("outside", options.outside)):
                connector = Connector(_connector_options(options, name, address), receiver)
                bound[name] = await _listen(connector)
                self._connectors.append(connector)
        except BaseException:
            await self.stop(0)
            raise
        self._sweeping = asyncio.create_task(self._sweep(table))
        return bound

    async def stop(self, drain: float) -> None:
        """Let transactions finish for ``drain`` seconds, then close everything. Idempotent."""
        await asyncio.gather(*(connector.stop(drain) for connector in self._connectors))
        self._connectors.clear()
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait({self._sweeping})
            self._sweeping = None
        if self._table is not None:
            await self._table.close()
            self._table = None

    async def _sweep(self, table: DeliveredTo) -> None:
        while True:
            try:
                await table.sweep(_now())
            except TableError:
                log.exception("delivered_to_not_swept")
            await asyncio.sleep(_SWEEP)


async def run(options: MailboxOptions) -> None:
    """Serve until a signal stops it. Raises as ``MailboxServer.start`` does."""
    server = MailboxServer(options)
    with signals.heard() as stop:
        try:
            bound = await server.start()
            addresses = {name: _spelt(*address) for name, address in bound.items()}
            log.info("mailbox_server_ready", directory=str(options.directory), **addresses)
            if options.ready_file is not None:
                _write_whole(options.ready_file, json.dumps(addresses) + "\n")
            await stop.wait()
            log.info("mailbox_server_stopping")
        finally:
            await server.stop(options.drain.total_seconds())


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
    """Options of a connector: a few relays send all their mail, so no tarpit and no limit per source."""
    defaults = ConnectorOptions(hostname=options.hostname)
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
        max_message_size=_ROOM_FOR_TRACE * defaults.max_message_size,
        max_header_size=_ROOM_FOR_TRACE * defaults.max_header_size,
    )


def _write_whole(path: Path, text: str) -> None:
    """Write a file so that no reader sees half of it."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, "utf-8")
    part.replace(path)


def _spelt(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _now() -> datetime:
    return datetime.now(UTC)
