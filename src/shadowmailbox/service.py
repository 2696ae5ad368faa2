"""Runs a mailbox service: its store, its server and its admin interface, made from its settings."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from shadowmailbox.lmtp_store import LmtpOptions, LmtpStore
from shadowmailbox.maildir_store import MaildirStore
from shadowmailbox.server import MailboxCannotListen, MailboxOptions, MailboxServer
from shadowmailbox.settings import MailboxSettings
from shadowmailbox.store import Store
from shadowrelay import signals
from shadowrelay.settings.values import HostPort

log = structlog.get_logger(__name__)


async def run_mailbox(settings: MailboxSettings) -> None:
    """Serve until a signal stops it. Raises as ``MailboxServer.start`` does."""
    server = MailboxServer(options_of(settings))
    with signals.heard() as stop:
        async with _admin(server, settings) as admin:
            try:
                bound = await server.start()
                addresses = {name: str(HostPort(*address)) for name, address in bound.items()} | admin
                store = str(settings.deliver or settings.directory)
                log.info("mailbox_server_ready", store=store, table=str(settings.table), **addresses)
                if settings.ready_file is not None:
                    _write_whole(settings.ready_file, json.dumps(addresses) + "\n")
                await stop.wait()
                log.info("mailbox_server_stopping")
            finally:
                await server.stop(settings.drain_timeout.total_seconds())


def options_of(settings: MailboxSettings) -> MailboxOptions:
    """What the server is made of."""

    async def open_store() -> Store:
        if settings.deliver is None:
            if settings.directory is None:
                raise ValueError("there is no store")
            return await MaildirStore.open(settings.directory, settings.hostname)
        at = settings.deliver.at
        host, port = (str(at), 0) if isinstance(at, Path) else (at.host, at.port)
        return LmtpStore(
            LmtpOptions(
                host=host,
                port=port,
                hostname=settings.hostname,
                timeout=settings.store_timeout,
                max_sessions=settings.max_store_sessions,
            )
        )

    return MailboxOptions(
        open_store=open_store,
        table=settings.table,
        hostname=settings.hostname,
        inside=(settings.inside.host, settings.inside.port),
        outside=None if settings.outside is None else (settings.outside.host, settings.outside.port),
        track_duplicates=settings.track_duplicates,
        sweep_interval=settings.sweep_interval,
        patience=settings.store_timeout,
        max_message_size=settings.max_message_size,
        max_header_size=settings.max_header_size,
    )


@asynccontextmanager
async def _admin(server: MailboxServer, settings: MailboxSettings) -> AsyncIterator[dict[str, str]]:
    """Serve metrics and health, if that is set; yields the address."""
    listen = settings.admin.listen
    if listen is None:
        yield {}
        return
    # Imported here: labs do without, and start sooner.
    from shadowmailbox.admin import build_mailbox_app
    from shadowrelay.admin.server import bind, serve
    from shadowrelay.errors import NodeFailed

    token = settings.admin.token
    app = build_mailbox_app(server, token=token.get_secret_value() if token else None)
    try:
        sock = bind(listen.host, listen.port)
    except NodeFailed as error:
        raise MailboxCannotListen(str(error)) from None
    address = str(HostPort(*sock.getsockname()[:2]))
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(app, sock, stop), name="admin")
    try:
        yield {"admin": address}
    finally:
        stop.set()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


def _write_whole(path: Path, text: str) -> None:
    """Write a file so that no reader sees half of it."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, "utf-8")
    part.replace(path)
