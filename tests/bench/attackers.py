"""Clients that mean no good, in a process of their own: ``python -m tests.bench.attackers KIND PORT``.

Says ``ready`` when all of them are there, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from shadowlab.layout import LOOPBACK

from . import machine
from .smtp_tools import RECIPIENT, SENDER, BenchError

_HELLO = b"EHLO slow.lab.test\r\n"
_BEGUN = f"MAIL FROM:<{SENDER}>\r\nRCPT TO:<{RECIPIENT}>\r\n".encode("ascii")
_BEGINNINGS = (b"EHLO slo", _HELLO + _BEGUN + b"DATA\r\n", _HELLO + _BEGUN + b"BDAT 1000000\r\n")
_CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01"  # its first octets
_BATCH = 50


async def _drip(port: int, ready: Callable[[], None]) -> None:
    """1,000 clients that send an octet a second, a third each in EHLO, in DATA and in BDAT."""
    writers = []
    for number in range(1000):
        _, writer = await asyncio.open_connection(LOOPBACK, port)
        writer.write(_BEGINNINGS[number % 3])
        writers.append(writer)
        await asyncio.sleep(0)
    ready()
    while True:
        for number, writer in enumerate(writers):
            writer.write(b"w")
            if number % _BATCH == 0:
                await asyncio.sleep(_BATCH / len(writers))


async def _knock(port: int, ready: Callable[[], None]) -> None:
    """100 clients a second that connect, say EHLO and reset the connection."""
    ready()
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
            writer.write(_HELLO)
            await reader.read(1)
            writer.transport.abort()
        await asyncio.sleep(0.01)


async def _shake(port: int, ready: Callable[[], None]) -> None:
    """100 connections a second at the members' port that begin a handshake of TLS, and stall."""
    held = []
    ready()
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(LOOPBACK, port)
            writer.write(_CLIENT_HELLO)
            held.append(writer)
        await asyncio.sleep(0.01)


async def _err(port: int, ready: Callable[[], None]) -> None:
    """50 clients that send wrong commands as fast as they are answered, and come again when cut off."""

    async def one() -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(LOOPBACK, port)
                while await reader.readline():
                    writer.write(b"XYZZY\r\n")

    ready()
    await asyncio.gather(*(one() for _ in range(50)))


async def _guess(port: int, ready: Callable[[], None]) -> None:
    """50 clients that log in with wrong passwords as fast as they are answered, and come again when cut off.

    Every second one takes a name that nobody has.
    """
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE

    async def said(reader: asyncio.StreamReader) -> bytes:
        while (line := await reader.readline())[3:4] == b"-":
            pass
        return line

    async def one(number: int) -> None:
        name = b"alice" if number % 2 else b"mallory"
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(LOOPBACK, port)
                await said(reader)
                writer.write(b"STARTTLS\r\n")
                await said(reader)
                await writer.start_tls(trusting)
                writer.write(_HELLO)
                while await said(reader):
                    guess = b64encode(b"\0" + name + b"\0" + os.urandom(6).hex().encode())
                    writer.write(b"AUTH PLAIN " + guess + b"\r\n")
                writer.close()

    ready()
    await asyncio.gather(*(one(number) for number in range(50)))


ATTACKS: Mapping[str, Callable[[int, Callable[[], None]], Coroutine[None, None, None]]] = {
    "drip": _drip,
    "knock": _knock,
    "shake": _shake,
    "err": _err,
    "guess": _guess,
}


@contextmanager
def attackers(kind: str, port: int) -> Iterator[None]:
    """They are at that port of loopback while the block runs. Raises BenchError."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.attackers", kind, str(port)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        if process.stdout is None or process.stdout.readline() != b"ready\n":
            raise BenchError(f"the attackers ({kind}) did not come: see above")
        yield
        if process.poll() is not None:
            raise BenchError(f"the attackers ({kind}) gave up: see above")
    finally:
        process.kill()
        process.communicate()


def _end_with_input() -> None:
    """Whoever started us is gone, whatever became of it."""
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    machine.raise_descriptors()
    threading.Thread(target=_end_with_input, daemon=True).start()
    asyncio.run(ATTACKS[sys.argv[1]](int(sys.argv[2]), lambda: print("ready", flush=True)))
