"""What an operator asks of a DeliveredTo table, whether or not a service has it open.

One process alone may have the table open (docs/dependencies.md, first row). A running service therefore
answers at a Unix socket beside the table: one line of JSON is asked, one is answered. Who may open the
socket may also open the table: both belong to the service's user.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from shadowmailbox.counts import MailboxCounts
from shadowmailbox.delivered_to import (
    MOST_TRACKING,
    DeliveredTo,
    Deliveries,
    Remembered,
    TableError,
    TableInUse,
    TableUnusable,
)

log = structlog.get_logger(__name__)

_Tree = dict[str, Any]

_LONGEST = 2**20  # octets of a line
_ANSWER_WITHIN = 120.0  # seconds
_STARTS_WITHIN = 5.0  # seconds until a process that has the table answers at its socket
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class ControlServer:
    """Answers for a table that this process has open."""

    def __init__(self, path: Path, table: DeliveredTo, counts: MailboxCounts) -> None:
        self._path, self._table, self._counts = _socket_of(path), table, counts
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Answer from now on. Without a socket (an odd file system) mail is taken all the same."""
        try:
            listening = _listening(self._path)
        except OSError as error:
            log.warning("control_socket_not_made", path=str(self._path), error=str(error))
            return
        self._server = await asyncio.start_unix_server(self._answer, sock=listening, limit=_LONGEST)

    async def stop(self) -> None:
        """Answer no more. Idempotent."""
        if self._server is not None:
            self._server.close()
            self._server = None
            self._path.unlink(missing_ok=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                request = json.loads(await reader.readline())
                answer = await performed(self._table, request)
                if request["do"] == "forget":
                    self._counts.forgotten += answer["rows"]
                    log.warning("deliveries_forgotten", **request, **answer)
        except TableError as error:
            answer = {"error": str(error)}
        except (ValueError, KeyError, TypeError, TimeoutError, ConnectionError) as error:
            answer = {"error": f"not understood: {error}"}
        with suppress(ConnectionError):
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()


async def asked(path: Path, request: Mapping[str, Any]) -> _Tree:
    """What ``performed`` returns for the table at ``path``, whoever has it open. Raises TableError.

    It does not make a table where there is none.
    """
    if not await asyncio.to_thread(path.is_file):
        raise TableUnusable(f"{path}: there is no such table")
    deadline = asyncio.get_running_loop().time() + _STARTS_WITHIN
    while True:
        try:
            table = await DeliveredTo.open(path, track=MOST_TRACKING)
        except TableInUse as error:
            in_use = error
        else:
            try:
                return await performed(table, request)
            finally:
                await table.close()
        try:
            return await _of_the_service(_socket_of(path), request)
        except OSError as error:
            # The service may be starting, or may have just ended.
            if asyncio.get_running_loop().time() > deadline:
                raise TableUnusable(f"{in_use}, which does not answer: {error.strerror or error}") from None
        await asyncio.sleep(0.05)


async def performed(table: DeliveredTo, request: Mapping[str, Any]) -> _Tree:
    """Do what is asked: ``{"do": "count" | "forget", "recipients": [ADDRESS] | null, "since": TIME | null,
    "until": TIME | null}``, or ``{"do": "show", "domains": MOST}``.

    Raises TableError; KeyError, TypeError and ValueError for what is none of this.
    """
    match request["do"]:
        case "count":
            return {"rows": await table.count(_which(request))}
        case "forget":
            return {"rows": await table.forget(_which(request))}
        case "show":
            found = await table.by_domain(int(request["domains"]))
            return {
                **_shown(await table.remembered()),
                "domains": [{"domain": name, **_shown(part)} for name, part in found.items()],
            }
        case _:
            raise ValueError(f"nothing is called {request['do']!r}")


def spelt(at: datetime) -> str:
    """A time as requests and answers have it (RFC 3339, UTC, milliseconds)."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _which(request: Mapping[str, Any]) -> Deliveries:
    recipients, since, until = request["recipients"], request["since"], request["until"]
    return Deliveries(
        recipients=None if recipients is None else tuple(map(str, recipients)),
        since=datetime.fromisoformat(since) if since else None,
        until=datetime.fromisoformat(until) if until else None,
    )


def _shown(part: Remembered) -> _Tree:
    return {
        "rows": part.rows,
        "oldest": spelt(part.oldest) if part.oldest else None,
        "newest": spelt(part.newest) if part.newest else None,
    }


def _socket_of(path: Path) -> Path:
    return path.with_name(path.name + ".control")


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """Another name of the path: the address of a Unix socket has 107 octets at most."""
    directory = os.open(path.parent, _DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def _listening(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX)
    try:
        path.unlink(missing_ok=True)  # of a service that was killed: this process has the table now
        with _short(path) as name:
            listening.bind(name)
        path.chmod(0o600)
        listening.listen(8)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


async def _of_the_service(path: Path, request: Mapping[str, Any]) -> _Tree:
    """Raises TableError with the service's refusal, OSError if it does not answer."""
    with _short(path) as name:
        reader, writer = await asyncio.open_unix_connection(name, limit=_LONGEST)
    try:
        writer.write(json.dumps(request).encode() + b"\n")
        async with asyncio.timeout(_ANSWER_WITHIN):
            line = await reader.readline()
    finally:
        writer.close()
    if not line:
        raise ConnectionResetError(None, "the service ended before it answered")
    answer: _Tree = json.loads(line)
    if "error" in answer:
        raise TableError(answer["error"])
    return answer
