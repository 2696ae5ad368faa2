"""Serves the admin address of a node of several workers, in the process of its supervisor."""

from __future__ import annotations

import asyncio
import socket

from shadowrelay.admin.access import Access
from shadowrelay.admin.front import Supervising, build_front
from shadowrelay.admin.server import bind, serve
from shadowrelay.core.identifiers import ServerName
from shadowrelay.service.hand import tokens_of
from shadowrelay.settings import Settings


class Fronting:
    """Binds the address when it is made: raises AdminCannotListen. ``take`` takes other tokens."""

    def __init__(self, settings: Settings, supervisor: Supervising) -> None:
        self._access = Access(tuple(tokens_of(settings)))
        self._app, self._passing = build_front(ServerName(settings.name), self._access, supervisor)
        self._listening: socket.socket = bind(settings.admin.listen.host, settings.admin.listen.port)

    def take(self, settings: Settings) -> None:
        self._access.replace(tuple(tokens_of(settings)))

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set."""
        try:
            await serve(self._app, self._listening, stop)
        finally:
            await self._passing.close()
