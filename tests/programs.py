"""Programs that tests start beside a node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def process(*command: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """It runs as long as the block, or ends by itself before."""
    found = await asyncio.create_subprocess_exec(*command)
    try:
        yield found
    finally:
        if found.returncode is None:
            found.terminate()
        await found.wait()
