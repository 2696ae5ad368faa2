"""The generator and the sink: smtp-source and smtp-sink, which come with Postfix."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shadowlab.layout import INSIDE_DOMAIN, LOOPBACK, OUTSIDE_DOMAIN, Address
from shadowlab.probing import greeting

SENDER, RECIPIENT = f"bench@{OUTSIDE_DOMAIN}", f"bench@{INSIDE_DOMAIN}"
CONNECTIONS = 10_000
"""Sessions that every party is told to allow: no limit of this kind is to be measured."""

_PATIENCE = 600.0  # seconds for one run of the generator
_ANSWER = 10.0
_BACKLOG = 4_096


class BenchError(Exception):
    """A bench cannot be made, or came to nothing: the text says why."""


@dataclass(frozen=True, slots=True)
class Load:
    """What smtp-source is asked for; ``size`` in octets of payload."""

    sessions: int
    messages: int
    size: int
    reused: bool  # -d: a session goes on with the next message; else each message has its own

    def arguments(self) -> list[str]:
        return [
            *("-s", str(self.sessions), "-m", str(self.messages), "-l", str(self.size)),
            *(["-d"] if self.reused else []),
        ]


def missing() -> str | None:
    """Which tool is not there, as a sentence."""
    for tool in ("smtp-source", "smtp-sink"):
        if shutil.which(tool) is None:
            return f"there is no {tool}: it comes with Postfix (apt-get install postfix)"
    return None


def generate(load: Load, to: Address) -> float:
    """Send it all; returns the seconds until everything was acknowledged. Raises BenchError at a refusal."""
    command = ["smtp-source", *load.arguments(), "-M", "client.lab.test", "-f", SENDER, "-t", RECIPIENT]
    began = time.perf_counter()
    try:
        done = subprocess.run(
            [*command, f"{to[0]}:{to[1]}"],
            capture_output=True,
            timeout=_PATIENCE,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BenchError(f"{' '.join(command)}: not done after {_PATIENCE:.0f} s") from None
    took = time.perf_counter() - began
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").splitlines()[-3:]
        raise BenchError(f"{' '.join(command)}: {'; '.join(said) or f'exit status {done.returncode}'}")
    return took


@dataclass(frozen=True, slots=True)
class Sink:
    """A running smtp-sink. It counts into a file: reading it costs nobody anything."""

    address: Address
    counters: Path

    def messages(self) -> int:
        """How many it has taken since its start."""
        with self.counters.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 200))
            return counted(file.read())


def counted(tail: bytes) -> int:
    """The last whole ``sess=… quit=… mesg=…`` of what smtp-sink -c writes; 0 before the first."""
    for record in reversed(tail.split(b"\r")[:-1]):
        _, found, count = record.rpartition(b"mesg=")
        if found:
            return int(count)
    return 0


@contextmanager
def sink(directory: Path, port: int) -> Iterator[Sink]:
    """An smtp-sink on a port of loopback, while the block runs. Raises BenchError."""
    counters, said = directory / f"sink-{port}.counters", directory / f"sink-{port}.log"
    unprivileged: Sequence[str] = ("-u", "nobody") if os.getuid() == 0 else ()
    command = ["smtp-sink", *unprivileged, "-c", "-m", str(CONNECTIONS), f"{LOOPBACK}:{port}", str(_BACKLOG)]
    with counters.open("wb") as out, said.open("ab") as err:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
    try:
        deadline = time.monotonic() + _ANSWER
        while not greeting((LOOPBACK, port)):
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"smtp-sink does not answer: {said.read_text('utf-8', 'replace').strip()}")
            time.sleep(0.02)
        yield Sink((LOOPBACK, port), counters)
    finally:
        process.kill()
        process.wait()
