"""A server that answers as large providers do to those who send too much at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any


class Provider:
    """It takes ``connections`` at a time, ``messages`` in any ``window`` seconds, and ``per_session`` in one
    session; to more it says ``crowded`` in place of the greeting, ``rate`` to MAIL, and ``spent`` to MAIL.
    """

    def __init__(
        self,
        *,
        connections: int = 1000,
        messages: int = 100_000,
        window: float = 1.0,
        per_session: int = 100_000,
        crowded: str = "421 4.7.0 Error: too many connections from 127.0.0.1",
        rate: str = "421 4.7.28 Gmail has detected an unusual rate of mail",
        spent: str = "421 4.4.2 Max message per connection reached, closing transmission channel",
        port: int = 0,
    ) -> None:
        self.connections, self.messages, self.window, self.per_session = (
            connections,
            messages,
            window,
            per_session,
        )
        self.crowded, self.rate, self.spent = crowded, rate, spent
        self.port = port
        self.open = self.most_open = self.sessions = 0
        self.taken: list[str] = []  # recipients
        self.refused: list[str] = []
        self.sizes: list[int] = []  # messages of each session that ended
        self.hold: asyncio.Event | None = None  # a content is answered when it is set
        self.hold_rcpt: asyncio.Event | None = None  # RCPT is answered when it is set
        self.hold_quit: asyncio.Event | None = None  # QUIT is answered when it is set
        self.asked = asyncio.Event()  # it was given an RCPT
        self.takes = 0.0  # seconds for a content
        self._times: deque[float] = deque()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Provider:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        self.open += 1
        self.sessions += 1
        self.most_open = max(self.open, self.most_open)
        try:
            await self._talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            writer.transport.abort()

    async def _say(self, writer: asyncio.StreamWriter, text: str) -> None:
        if text[0] == "4":
            self.refused.append(text)
        writer.write(f"{text}\r\n".encode())
        await writer.drain()

    def _takes(self) -> bool:
        now = asyncio.get_running_loop().time()
        while self._times and self._times[0] <= now - self.window:
            self._times.popleft()
        if len(self._times) >= self.messages:
            return False
        self._times.append(now)
        return True

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.open > self.connections:
            return await self._say(writer, self.crowded)
        await self._say(writer, "220 provider.example ESMTP")
        sent, to = 0, ""
        while line := (await reader.readline()).decode().strip():
            verb = line[:4].upper()
            if verb == "MAIL":
                if sent >= self.per_session or not self._takes():
                    await self._say(writer, self.spent if sent >= self.per_session else self.rate)
                    break
                await self._say(writer, "250 2.1.0 ok")
            elif verb == "RCPT":
                to = line.partition("<")[2].partition(">")[0]
                self.asked.set()
                if self.hold_rcpt is not None:
                    await self.hold_rcpt.wait()
                await self._say(writer, "250 2.1.5 ok")
            elif verb == "DATA":
                await self._say(writer, "354 go ahead")
                await reader.readuntil(b"\r\n.\r\n")
                if self.hold is not None:
                    await self.hold.wait()
                await asyncio.sleep(self.takes)
                sent += 1
                self.taken.append(to)
                await self._say(writer, "250 2.0.0 queued")
            else:
                if verb == "QUIT" and self.hold_quit is not None:
                    await self.hold_quit.wait()
                await self._say(writer, "221 2.0.0 bye" if verb == "QUIT" else "250 2.0.0 ok")
                if verb == "QUIT":
                    break
        self.sizes.append(sent)
        return None
