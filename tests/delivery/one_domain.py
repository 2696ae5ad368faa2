"""A node that sends mail to one domain, and whether it gets there."""

from __future__ import annotations

from dataclasses import dataclass

from sending import MESSAGE, sent
from stations import Station, eventually
from test_queue import settled

DOMAIN = "example.net"
TO = f"anna@{DOMAIN}"


@dataclass(kw_only=True)
class Sending:
    """``found``: the node."""

    found: Station

    async def send(self) -> None:
        assert (await sent(self.found, MESSAGE, TO)).startswith("250 ")

    async def delivered(self) -> None:
        await self.send()
        await eventually(lambda: settled(self.found))

    async def waits(self, why: str) -> None:
        """A message is deferred for that reason."""
        await self.send()

        async def deferred() -> bool:
            return why in (await self.found.copies())[-1].recipients[0].last_reply

        await eventually(deferred)
