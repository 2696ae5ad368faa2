"""strace: which write, sync and send calls a thread makes, and a fault at one of them."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

SYSTEM_CALLS = (
    "write,writev,pwrite64,pwritev,pwritev2,fsync,fdatasync,sync_file_range,msync,ftruncate,fallocate,"
    "rename,renameat,renameat2,unlink,unlinkat,send,sendto,sendmsg,sendmmsg,sendfile"
)
"""Everything that leaves the process: to a file, its directory, or a socket."""

_CALL = re.compile(r"(?:(?P<thread>\d+)\s+)?(?P<name>\w+)\((?P<rest>.*)")
_TARGET = re.compile(r"(?:AT_FDCWD<[^>]*>, )?(?:\d+<(?P<fd>[^>]*)>|\"(?P<path>[^\"]*)\")")
_ATTACHED = re.compile(r"Process \d+ attached")


class Fault(StrEnum):
    """What happens at the call, in the words of strace; ``{n}`` is its number within the thread."""

    KILL = "signal=KILL:when={n}"
    EIO = "error=EIO:when={n}"
    EIO_ON = "error=EIO:when={n}+"
    ENOSPC = "error=ENOSPC:when={n}"
    ENOSPC_ON = "error=ENOSPC:when={n}+"

    @property
    def label(self) -> str:
        return self.name.lower().replace("_on", ", and on")


@dataclass(frozen=True, slots=True)
class Call:
    """One line of strace: ``target`` is what it is about in a word; ``injected``: it was tampered with."""

    thread: int | None
    name: str
    target: str
    injected: bool

    @property
    def label(self) -> str:
        return f"{self.name} {self.target}".strip()


def parse(lines: Iterable[str]) -> Iterator[Call]:
    """The calls of a strace log (``-y``, with or without thread ids); what is no call is passed over.

    A call that was cut in two by another thread's counts once, at its beginning.
    """
    for line in lines:
        found = _CALL.match(line)
        if found is None:
            continue
        target = _TARGET.match(found["rest"])
        about = _about((target["fd"] or target["path"] or "") if target else "")
        thread = int(found["thread"]) if found["thread"] else None
        yield Call(thread, found["name"], about, "(INJECTED)" in line)


def _about(path: str) -> str:
    """A path or a descriptor's kind, without what differs from run to run."""
    kinds = (
        (r"transport\.db-wal$", "database log"),
        (r"transport\.db$", "database"),
        (r"\.eml$", "content"),
        (r"MSGTRK-", "tracking log"),
        (r"/(data|tracking|content)(/[^/.]+)?$", "directory"),
        (r"^(socket|TCP|UNIX)", "socket"),
        (r"eventfd|^pipe", "wake-up"),
        (r"/logs/[^/]+\.log$", "standard error"),
    )
    return next((kind for pattern, kind in kinds if re.search(pattern, path)), path and "other")


class Trace:
    """A strace that is attached. ``log`` has what it wrote so far."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self.log = log

    def calls(self) -> list[Call]:
        return list(parse(self.log.read_text("utf-8", "replace").splitlines()))

    def hit(self) -> Call | None:
        """The first call that was tampered with. After a KILL that is the last line, whatever it says."""
        return next((call for call in self.calls() if call.injected), None)

    def detach(self) -> None:
        """Let go; the process goes on undisturbed, if it still runs. Repeatable."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._process.wait(20)


@contextmanager
def attached(threads: Sequence[int], log: Path, *, fault: Fault | None = None, n: int = 0) -> Iterator[Trace]:
    """Trace these threads alone; with a fault, at the ``n``-th call that is made from now on.

    strace counts for each thread by itself: give one. Raises OSError, or RuntimeError when it cannot attach.
    """
    inject = [] if fault is None else ["-e", f"inject={SYSTEM_CALLS}:{fault.value.format(n=n)}"]
    which = [part for thread in threads for part in ("-p", str(thread))]
    command = ["strace", "-y", "-s", "0", "-e", "signal=none", "-e", f"trace={SYSTEM_CALLS}"]
    process = subprocess.Popen(
        [*command, *inject, "-o", str(log), *which],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        process_group=0,
    )
    assert process.stderr is not None
    said = b""
    missing = len(threads)
    while missing:
        line = process.stderr.readline()
        if not line:
            process.wait()
            raise RuntimeError(f"strace could not attach: {said.decode('utf-8', 'replace').strip()}")
        said += line
        missing -= bool(_ATTACHED.search(line.decode("utf-8", "replace")))
    # What it says from now on is of no interest, but must not fill the pipe.
    reader = threading.Thread(target=process.stderr.read, daemon=True)
    reader.start()
    trace = Trace(process, log)
    try:
        yield trace
    finally:
        trace.detach()
        reader.join(5)
        process.stderr.close()
