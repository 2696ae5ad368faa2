"""Instances of Debian's Dovecot of our own: one takes mail by LMTP, another checks passwords for Postfix."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from shadowlab.layout import LOOPBACK
from shadowlab.probing import greeting

from .documented import block

_PATIENCE = 30.0  # seconds until it answers
_LMTP = Path("/usr/lib/dovecot/lmtp")
_NOBODY = 65534
S = TypeVar("S", bound="Server")
_PLACES = """
base_dir = {directory}/run
state_dir = {directory}/state
log_path = {directory}/dovecot.log
first_valid_uid = 1
ssl = no
"""


class DovecotError(Exception):
    """It cannot be started: the text says why."""


class Server:
    """An instance, running or not. ``documented``: the section of the page that has its settings, in which
    ``places`` are replaced; ``greets``: how what it says first begins.
    """

    def __init__(
        self,
        directory: Path,
        port: int,
        documented: str,
        places: Mapping[str, object],
        greets: str,
        *more: str,
    ) -> None:
        self.address = (LOOPBACK, port)
        self._greets = greets
        self._log, self._file = directory / "dovecot.log", directory / "dovecot.conf"
        text = block(documented, "conf")
        for place, ours in {"/etc/dovecot": directory, **places}.items():
            assert place in text
            text = text.replace(place, str(ours))
        self._file.write_text("\n".join((text, _PLACES.format(directory=directory), *more)) + "\n", "utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """It answers on return. Raises DovecotError."""
        self._process = subprocess.Popen(
            ["dovecot", "-F", "-c", str(self._file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + _PATIENCE
        while not greeting(self.address).startswith(self._greets):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise DovecotError(f"Dovecot does not answer: {self.said()[-500:]}")
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL to its process group: the master and all its children. It may have ended before."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def said(self) -> str:
        """Its log so far."""
        return self._log.read_text("utf-8", "replace") if self._log.exists() else ""


class Dovecot(Server):
    """Takes mail by LMTP. ``quotas``: its mailboxes, and how many octets each may hold; 0: any."""

    def __init__(self, directory: Path, port: int, quotas: Mapping[str, int], *more: str) -> None:
        self.mailboxes = directory / "mail"
        self.mailboxes.mkdir(parents=True)
        os.chown(self.mailboxes, _NOBODY, _NOBODY)
        (directory / "users").write_text("".join(map(_user, quotas, quotas.values())), "utf-8")
        places = {"/var/mail/vhosts": self.mailboxes, "port = 24": f"port = {port}"}
        super().__init__(directory, port, "Dovecot behind, by LMTP", places, "220", *more)


class Passwords(Server):
    """Checks passwords for Postfix. ``known``: the password of each name."""

    def __init__(self, directory: Path, port: int, known: Mapping[str, str]) -> None:
        directory.mkdir(parents=True)
        lines = (f"{name}:{password}::::::\n" for name, password in known.items())
        (directory / "relays").write_text("".join(lines), "utf-8")
        heading = "Postfix as a smart host, with names and passwords"
        super().__init__(directory, port, heading, {"port = 12345": f"port = {port}"}, "VERSION")


@contextmanager
def running(directory: Path, port: int, quotas: Mapping[str, int], *more: str) -> Iterator[Dovecot]:
    """An instance while the block runs; ``more``: further lines of its settings. Raises DovecotError."""
    with started(Dovecot(directory, port, quotas, *more)) as instance:
        yield instance


@contextmanager
def started(instance: S) -> Iterator[S]:
    """While the block runs. Raises DovecotError."""
    try:
        instance.start()
        yield instance
    finally:
        instance.kill()


def version() -> str:
    return subprocess.run(
        ["dovecot", "--version"], capture_output=True, text=True, check=False
    ).stdout.strip()


def missing() -> str | None:
    """Why there can be no instance, as a sentence."""
    if shutil.which("dovecot") is None:
        return "there is no Dovecot (apt-get install dovecot-core)"
    if not _LMTP.exists():
        return "Dovecot speaks no LMTP (apt-get install dovecot-lmtpd)"
    if not version().startswith("2.3."):
        return f"the settings are for Dovecot 2.3, this is {version()}"
    return "only root can start an instance of Dovecot" if os.getuid() else None


def _user(name: str, octets: int) -> str:
    quota = f"userdb_quota_rule=*:bytes={octets}" if octets else ""
    return f"{name}::{_NOBODY}:{_NOBODY}::/nonexistent::{quota}\n"
