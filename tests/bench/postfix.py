"""An instance of Debian's Postfix of our own: a relay to the sink, with its queue in a directory of ours."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shadowrelay.lab.layout import LOOPBACK
from shadowrelay.lab.probing import greeting

from .proc import family
from .smtp_tools import CONNECTIONS, BenchError
from .subjects import wait_until

PROCESSES = 500
"""smtpd and smtp processes that it may have; as it ships 100."""

_QUEUES = ("maildrop", "incoming", "active", "deferred", "hold")
_MAIN = """\
compatibility_level = 3.6
queue_directory = {queue}
data_directory = {data}
myhostname = postfix.lab.test
mydestination =
mynetworks = 127.0.0.0/8
relayhost = [127.0.0.1]:{next_hop}
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
alias_maps =
alias_database =
local_recipient_maps =
disable_dns_lookups = yes
smtpd_peername_lookup = no
in_flow_delay = 0
default_destination_concurrency_limit = 50
default_process_limit = {processes}
smtpd_client_connection_count_limit = {connections}
smtpd_client_connection_rate_limit = 0
smtpd_client_message_rate_limit = 0
message_size_limit = 67108864
mailbox_size_limit = 0
queue_minfree = 0
"""
_MASTER = """\
{smtp}     inet  n  -  n  -     -  smtpd
pickup     unix  n  -  n  60    1  pickup
cleanup    unix  n  -  n  -     0  cleanup
qmgr       unix  n  -  n  300   1  qmgr
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
showq      unix  n  -  n  -     -  showq
error      unix  -  -  n  -     -  error
retry      unix  -  -  n  -     -  error
discard    unix  -  -  n  -     -  discard
anvil      unix  -  -  n  -     1  anvil
scache     unix  -  -  n  -     1  scache
"""


class Postfix:
    """It runs."""

    label = "Postfix"

    def __init__(self, directory: Path, port: int) -> None:
        self.address = (LOOPBACK, port)
        self._queue = directory / "queue"

    def queue_is_empty(self) -> bool:
        return not any(_holds_a_file(self._queue / name) for name in _QUEUES)

    def is_quiet(self) -> bool:
        return self.queue_is_empty()

    def pids(self) -> list[int]:
        """The master and its children."""
        return family(int((self._queue / "pid/master.pid").read_text("ascii")))


def version() -> str:
    return _postconf("-h", "mail_version")


def missing() -> str | None:
    """Why there can be no instance, as a sentence."""
    if shutil.which("postfix") is None:
        return "there is no Postfix (apt-get install postfix)"
    return "only root can start an instance of Postfix" if os.getuid() else None


@contextmanager
def postfix(directory: Path, *, port: int, next_hop: int) -> Iterator[Postfix]:
    """An instance that listens on ``port`` of loopback, while the block runs. Raises BenchError."""
    conf, queue, data = directory / "conf", directory / "queue", directory / "data"
    for one in (conf, queue, data):
        one.mkdir(parents=True)
    account = pwd.getpwnam("postfix")
    os.chown(data, account.pw_uid, account.pw_gid)
    (conf / "main.cf").write_text(
        _MAIN.format(queue=queue, data=data, next_hop=next_hop, processes=PROCESSES, connections=CONNECTIONS),
        "ascii",
    )
    (conf / "master.cf").write_text(_MASTER.format(smtp=f"{LOOPBACK}:{port}"), "ascii")
    running = Postfix(directory, port)
    try:
        _command(conf, "start")
        wait_until(lambda: greeting(running.address).startswith("220"), "Postfix answers", patience=30)
        yield running
    finally:
        if (queue / "pid/master.pid").exists():
            _command(conf, "stop")  # returns when the master has ended, or kills it


def _command(conf: Path, what: str) -> None:
    done = subprocess.run(
        ["postfix", "-c", str(conf), what],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        start_new_session=True,
        check=False,
    )
    if done.returncode:
        raise BenchError(f"postfix {what}: {done.stderr.decode('utf-8', 'replace').strip()}")


def _postconf(*arguments: str) -> str:
    return subprocess.run(
        ["postconf", *arguments], capture_output=True, text=True, check=False
    ).stdout.strip()


def _holds_a_file(directory: Path) -> bool:
    """Anywhere below; a directory that vanishes meanwhile holds none."""
    return any(files for _, _, files in os.walk(directory))
