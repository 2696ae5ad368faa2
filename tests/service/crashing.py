"""``shadowrelay`` with a fault: the process ends while it delivers a message whose subject asks for it.

``abort``: by a fatal signal. ``error``: by an error that nobody handles. ``hang``: not at all, it waits.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from shadowrelay import __main__ as command
from shadowrelay.delivery.attempt import Sender
from shadowrelay.delivery.queue import Queue

_send, _dispatch = Sender.send, Queue._dispatch
_wanted = asyncio.Event()


async def _crash(self: Sender, claimed: Any, outbound: Any, heard: Any) -> Any:
    await asyncio.sleep(0.3)  # its sender has the 250 by now
    match claimed.copy.envelope.subject:
        case "abort":
            os.abort()
        case "error":
            _wanted.set()
            await asyncio.sleep(60)
        case "hang":
            await asyncio.sleep(60)
    return await _send(self, claimed, outbound, heard)


async def _fail(self: Queue) -> float:
    pause = await _dispatch(self)
    await asyncio.sleep(0.05)
    if _wanted.is_set():
        raise LookupError("nobody expected this")
    return pause


Sender.send, Queue._dispatch = _crash, _fail  # type: ignore[method-assign]

if __name__ == "__main__":
    command.main()
