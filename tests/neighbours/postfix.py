"""An instance of Debian's Postfix of our own: its configuration, queue and log in a directory of ours."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from shadowlab.layout import LOOPBACK
from shadowlab.probing import greeting

_QUEUES = ("maildrop", "incoming", "active", "deferred", "hold")
_PATIENCE = 30.0  # seconds until it answers
_BASE: Mapping[str, object] = {
    "compatibility_level": "3.6",
    "myhostname": "postfix.lab.test",
    "mydestination": "",
    "mynetworks": "127.0.0.0/8",
    "inet_interfaces": LOOPBACK,
    "inet_protocols": "ipv4",
    "alias_maps": "",
    "alias_database": "",
    "local_recipient_maps": "",
    "disable_dns_lookups": "yes",
    "smtpd_peername_lookup": "no",
    "mailbox_size_limit": 0,
    "message_size_limit": 67108864,
    "queue_minfree": 0,
}
QUICK_RETRIES: Mapping[str, object] = {
    "minimal_backoff_time": "2s",
    "maximal_backoff_time": "2s",
    "queue_run_delay": "1s",
}
"""Mail that was put off is tried again soon. Within a second it would be tried while the failed attempt still
holds its lock at times: Postfix puts such a message aside for a minute, and then until the manager wakes.
"""

_MASTER = """\
{smtp}     inet  n  -  n  -     -  smtpd
postlog    unix-dgram n - n -   1  postlogd
pickup     unix  n  -  n  60    1  pickup
cleanup    unix  n  -  n  -     0  cleanup
qmgr       unix  n  -  n  5     1  qmgr
tlsmgr     unix  -  -  n  1000? 1  tlsmgr
rewrite    unix  -  -  n  -     -  trivial-rewrite
bounce     unix  -  -  n  -     0  bounce
defer      unix  -  -  n  -     0  bounce
trace      unix  -  -  n  -     0  bounce
verify     unix  -  -  n  -     1  verify
flush      unix  n  -  n  1000? 0  flush
proxymap   unix  -  -  n  -     -  proxymap
proxywrite unix  -  -  n  -     1  proxymap
smtp       unix  -  -  n  -     -  smtp
relay      unix  -  -  n  -     -  smtp
virtual    unix  -  n  n  -     -  virtual
showq      unix  n  -  n  -     -  showq
error      unix  -  -  n  -     -  error
retry      unix  -  -  n  -     -  error
discard    unix  -  -  n  -     -  discard
anvil      unix  -  -  n  -     1  anvil
scache     unix  -  -  n  -     1  scache
"""


class PostfixError(Exception):
    """It cannot be started or stopped: the text says why."""


class Postfix:
    """An instance, running or not. ``directory`` and what is above it can be entered by everybody."""

    def __init__(self, directory: Path, port: int, settings: Mapping[str, object]) -> None:
        self.address = (LOOPBACK, port)
        self.log = directory / "postfix.log"
        self._conf, self._queue, data = (directory / name for name in ("conf", "queue", "data"))
        for one in (self._conf, self._queue, data):
            one.mkdir(parents=True)
        self.log.touch()
        self.log.chmod(0o666)  # after a kill postsuper, which is not root by then, writes into it as well
        account = pwd.getpwnam("postfix")
        os.chown(data, account.pw_uid, account.pw_gid)
        places = {"queue_directory": self._queue, "data_directory": data}
        logging = {"maillog_file": self.log, "maillog_file_prefixes": directory}
        main = {**_BASE, **places, **logging, **settings}
        (self._conf / "main.cf").write_text(
            "".join(f"{key} = {value}\n" for key, value in main.items()), "utf-8"
        )
        (self._conf / "master.cf").write_text(_MASTER.format(smtp=f"{LOOPBACK}:{port}"), "ascii")

    def start(self) -> None:
        """It answers on return. Raises PostfixError."""
        self._command("start")
        deadline = time.monotonic() + _PATIENCE
        while not greeting(self.address).startswith("220"):
            if time.monotonic() > deadline:
                raise PostfixError(f"Postfix does not answer: {self.said()[-500:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Nothing of it is left on return; it may have ended before. Raises PostfixError."""
        if self._pid_file.exists():
            self._command("stop")  # returns when the master has ended, or kills it

    def kill(self) -> None:
        """SIGKILL to the master and all its children, which are the process group that it leads."""
        group = self.master
        if os.getpgid(group) != group:
            raise PostfixError(f"the master, {group}, does not lead its process group")
        os.killpg(group, signal.SIGKILL)
        deadline = time.monotonic() + _PATIENCE
        with suppress(ProcessLookupError):
            while time.monotonic() < deadline:
                os.killpg(group, 0)
                time.sleep(0.02)
            raise PostfixError(f"processes of the group {group} do not die")

    @property
    def master(self) -> int:
        return int(self._pid_file.read_text("ascii"))

    def said(self) -> str:
        """Its log so far."""
        return self.log.read_text("utf-8", "replace") if self.log.exists() else ""

    def queue_is_empty(self) -> bool:
        return not any(_holds_a_file(self._queue / name) for name in _QUEUES)

    @property
    def _pid_file(self) -> Path:
        return self._queue / "pid/master.pid"

    def _command(self, what: str) -> None:
        done = subprocess.run(
            ["postfix", "-c", str(self._conf), what],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            start_new_session=True,
            check=False,
        )
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()
            raise PostfixError(f"postfix {what}: {said or self.said()[-500:]}")


@contextmanager
def running(directory: Path, port: int, settings: Mapping[str, object]) -> Iterator[Postfix]:
    """An instance that listens on ``port`` of loopback, while the block runs. Raises PostfixError."""
    instance = Postfix(directory, port, settings)
    try:
        instance.start()
        yield instance
    finally:
        instance.stop()


def version() -> str:
    return subprocess.run(
        ["postconf", "-h", "mail_version"], capture_output=True, text=True, check=False
    ).stdout.strip()


def missing() -> str | None:
    """Why there can be no instance, as a sentence."""
    if shutil.which("postfix") is None:
        return "there is no Postfix (apt-get install postfix)"
    return "only root can start an instance of Postfix" if os.getuid() else None


def _holds_a_file(directory: Path) -> bool:
    """Anywhere below; a directory that vanishes meanwhile holds none. What is not executable is not complete:
    Postfix leaves it lying when it is killed before it answers 250.
    """
    return any(_is_complete(Path(place, file)) for place, _, files in os.walk(directory) for file in files)


def _is_complete(file: Path) -> bool:
    with suppress(FileNotFoundError):
        return bool(file.stat().st_mode & stat.S_IXUSR)
    return False
