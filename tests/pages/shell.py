"""One shell, in which the commands of a page are run one after the other, as its reader would."""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.pages.agreement import disagreement
from tests.pages.commands import Command


class Shell:
    """A bash that keeps its directory and variables between commands; a context manager.

    It is the leader of a session of its own, and everything that it started goes with it.
    """

    def __init__(self, directory: Path, environment: Mapping[str, str] | None = None) -> None:
        self._scripts = tempfile.TemporaryDirectory(prefix="page-")
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=directory,
            env={**os.environ, "COLUMNS": "160", "NO_COLOR": "1", **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def __enter__(self) -> Shell:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._scripts.cleanup()

    def run(self, text: str, *, within: float = 300) -> tuple[int, str]:
        """Exit status, and what was printed on both outputs. Raises TimeoutError."""
        end = f"-- end {secrets.token_hex(8)} "
        script = Path(self._scripts.name) / "command"
        script.write_text(text + "\n", "utf-8")
        assert self._process.stdin is not None
        self._process.stdin.write(f"source {script} </dev/null; printf '\\n%s%s\\n' {end!r} $?\n".encode())
        self._process.stdin.flush()
        return self._read(end.encode(), text, time.monotonic() + within)

    def _read(self, end: bytes, text: str, deadline: float) -> tuple[int, str]:
        assert self._process.stdout is not None
        printed = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while True:
                before, found, after = printed.partition(end)
                if found and b"\n" in after:
                    return int(after), before.decode("utf-8", "replace").removesuffix("\n")
                if not selector.select(max(0, deadline - time.monotonic())):
                    raise TimeoutError(f"{text}\n{printed.decode('utf-8', 'replace')}")
                block = os.read(self._process.stdout.fileno(), 65536)
                if not block:
                    raise EOFError(f"the shell ended during {text}\n{printed.decode('utf-8', 'replace')}")
                printed += block

    def follow(self, command: Command, *, status: int = 0, within: float = 300) -> str:
        """Run a command of a page. AssertionError if it fails, or prints what the page does not show."""
        found, printed = self.run(command.text, within=within)
        assert found == status, f"{command}\nexit status {found}\n{printed}"
        problem = disagreement(command.shown, printed.splitlines())
        assert not problem, f"{command}\n{problem}\nall that was printed:\n{printed}"
        return printed
