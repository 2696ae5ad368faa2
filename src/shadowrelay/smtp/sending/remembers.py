"""Asks a next hop from when on it drops what it delivered before (wire/delivered_to.py)."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import datetime

from shadowrelay.core.values import replace
from shadowrelay.smtp.sending.connection import SESSION_ERRORS, Lookup, open_connection
from shadowrelay.smtp.sending.hop import Awaited, ConnectionFailed, NextHopServer
from shadowrelay.wire.delivered_to import delivered_to_since


async def remembers_since(
    server: NextHopServer, timeout: float, lookup: Lookup | None = None
) -> datetime | None:
    """From when on; None if it drops nothing, or does not say. Asks in a short session without a login.

    Raises ConnectionFailed.
    """
    try:
        async with asyncio.timeout(timeout):
            connection = await open_connection(replace(server, login=None), Awaited(), lookup)
            try:
                with contextlib.suppress(*SESSION_ERRORS):
                    await connection.client.quit(timeout=server.timeouts.quit)
            finally:
                connection.protocol.abort()
            return delivered_to_since(connection.extensions)
    except TimeoutError:
        raise ConnectionFailed("ehlo", "no answer in time") from None
