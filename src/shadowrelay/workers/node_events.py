"""Answers ``GET /api/v1/events`` for a node of several workers: the streams of all of them as one.

An id of this stream has the place of each worker, ``1:<id>,2:<id>``. So whoever asks again goes on where the
stream was with each worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from dataclasses import replace
from urllib.parse import parse_qsl, urlencode

import httpx
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from shadowrelay.admin.answering import PRIVATE
from shadowrelay.admin.guard import RequestRefused
from shadowrelay.admin.streaming import until_gone
from shadowrelay.workers.proxy import PATIENCE, QUICK, SLOW, Call, WorkerGone, WorkerProxy
from shadowrelay.workers.worker import WorkerState

LOOK = 1.0
"""Seconds between two tries to hear a worker again, and between two looks for new workers."""

_WAITING = 64  # pieces of the streams that wait for the client
_PLACES = re.compile(r"[0-9]{1,3}:[^:,]+(,[0-9]{1,3}:[^:,]+)*")
_NEW = "this worker did not answer before: its events begin here"
_UNKNOWN = "the id given has no place of this worker: its events begin here"
_STOPS = "this node stops"


class NodeEvents(Response):
    """The answer that does not end before the subscriber or the node does. ``after``: an id of such a stream,
    or of a worker's.
    """

    media_type = "text/event-stream"

    def __init__(self, proxy: WorkerProxy, call: Call, after: str, stop: asyncio.Event) -> None:
        super().__init__(headers={**PRIVATE, "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._proxy, self._call, self._after, self._stop = proxy, call, after, stop
        self._places: dict[int, str] = {}
        if _PLACES.fullmatch(after):
            self._after = ""
            self._places = {
                int(number): id_ for number, _, id_ in (one.partition(":") for one in after.split(","))
            }
        self._resumes = bool(self._places)
        self._first: dict[int, httpx.Response] = {}  # the streams with which this one begins
        self._at_once: frozenset[int] = frozenset()  # the workers whose streams these are
        self._refused = ""
        self._parts: asyncio.Queue[bytes] = asyncio.Queue(_WAITING)

    async def begun(self) -> Response:
        """Ask all workers, and return this answer, or what a worker refuses. Those that are silent are asked
        again later. Raises RequestRefused if none answers.
        """
        workers = [one for one in self._proxy.workers() if one.state != "ended"]
        said = await asyncio.gather(*(self._ask(one) for one in workers))
        for one, answer in zip(workers, said, strict=True):
            if isinstance(answer, httpx.Response):
                self._first[one.number] = answer
        if refusing := next((one for one in self._first.values() if one.status_code != 200), None):
            body = b"".join([part async for part in refusing.aiter_raw()])
            await self._close()
            return Response(body, refusing.status_code, {**PRIVATE, "content-type": "application/json"})
        self._at_once = frozenset(self._first)
        if not self._first:
            raise RequestRefused(503, self._proxy.nobody([one for one in said if isinstance(one, str)]))
        return self

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        try:
            await until_gone(receive, self._send(scope, send))
        finally:
            await self._close()

    async def _close(self) -> None:
        for answer in self._first.values():
            await answer.aclose()

    async def _send(self, scope: AsgiScope, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if scope["method"] != "HEAD":
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_all())
                while part := await self._parts.get():
                    async with asyncio.timeout(SLOW):
                        await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _follow_all(self) -> None:
        """Until the node stops, or a worker refuses: each worker, also those that start meanwhile."""
        following: dict[int, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while not (self._stop.is_set() or self._refused):
                for worker in self._proxy.workers():
                    task = following.get(worker.number)
                    if worker.state != "ended" and (task is None or task.done()):
                        following[worker.number] = group.create_task(self._follow(worker.number))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), LOOK)
            for task in following.values():
                task.cancel()
        await self._parts.put(_event("end", {"why": self._refused or _STOPS}))
        await self._parts.put(b"")

    async def _follow(self, number: int) -> None:
        """One worker, until it has left: its stream, and again each time that it breaks off."""
        answer: httpx.Response | str = self._first.pop(number, "")
        silent = False
        while worker := self._there(number):
            answer = answer or await self._ask(worker)
            if isinstance(answer, httpx.Response):
                silent = False
                if answer.status_code != 200:  # the token was taken away
                    self._refused = f"worker {number} answers with HTTP status {answer.status_code}"
                await self._pass(worker, answer)
            elif not silent:
                silent = True
                await self._parts.put(_event("silent", {"worker": worker.name, "why": answer}))
            answer = ""
            await asyncio.sleep(LOOK)

    def _there(self, number: int) -> WorkerState | None:
        """The worker, unless it has left or nothing is wanted of it any more."""
        there = (one for one in self._proxy.workers() if one.number == number and one.state != "ended")
        return None if self._refused else next(there, None)

    async def _ask(self, worker: WorkerState) -> httpx.Response | str:
        """The head of a worker's stream after its place; or why there is none."""
        path, _, query = self._call.target.partition(b"?")
        given = [
            (key, value)
            for key, value in parse_qsl(query.decode("ascii"), keep_blank_values=True)
            if key != "after"
        ]
        if after := self._places.get(worker.number, self._after):
            given.append(("after", after))
        call = replace(self._call, target=path + b"?" + urlencode(given).encode("ascii"))
        try:
            async with asyncio.timeout(QUICK):
                return await self._proxy.ask(worker, call, PATIENCE)
        except WorkerGone as gone:
            return str(gone)
        except TimeoutError:
            return f"worker {worker.number} ({worker.name}) did not answer within {QUICK:g} s"

    async def _pass(self, worker: WorkerState, answer: httpx.Response) -> None:
        """Pass a worker's stream on, until it ends."""
        left = b""
        try:
            if why := self._misses(worker.number):
                await self._parts.put(_event("gap", {"worker": worker.name, "why": why}))
            async for part in answer.aiter_raw():
                *blocks, left = (left + part).split(b"\n\n")
                if told := b"".join(self._block(worker, one) for one in blocks):
                    await self._parts.put(told)
        except httpx.HTTPError:
            pass  # it broke off
        finally:
            await answer.aclose()

    def _misses(self, number: int) -> str:
        """Why events of a worker may be missing before its stream begins."""
        if self._after or number in self._places:
            return ""
        return _UNKNOWN if self._resumes else _NEW if number not in self._at_once else ""

    def _block(self, worker: WorkerState, block: bytes) -> bytes:
        """An event of a worker as one of the node. That one worker stops is no end."""
        if b"\nevent: end" in block:
            return b""
        name = worker.name.encode("ascii")
        return b"\n".join(self._line(worker.number, name, one) for one in block.split(b"\n")) + b"\n\n"

    def _line(self, number: int, name: bytes, line: bytes) -> bytes:
        key, _, value = line.partition(b": ")
        if key == b"data":
            return b'data: {"worker":"%s",' % name + value.removeprefix(b"{")
        if key != b"id":
            return line
        self._places[number] = value.decode("ascii")
        every = ",".join(f"{at}:{place}" for at, place in sorted(self._places.items()))
        return b"id: " + every.encode("ascii")


def _event(name: str, told: dict[str, str]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(told, separators=(',', ':'))}\n\n".encode("ascii")
