"""Sends an answer that may last, until it is whole or its client is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.types import Receive


async def until_gone(receive: Receive, send: Coroutine[Any, Any, None]) -> None:
    """Run ``send``, and cancel it once the client is gone. Raises what ``send`` raises."""
    gone = asyncio.ensure_future(_gone(receive))
    sending = asyncio.ensure_future(send)
    try:
        await asyncio.wait({gone, sending}, return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
    finally:
        for task in (gone, sending):
            task.cancel()
        await asyncio.gather(gone, sending, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
