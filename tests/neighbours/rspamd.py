"""Instances of Debian's rspamd and OpenDKIM of our own, with a DKIM key of our own, and Redis for rspamd."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

_PATIENCE = 60.0  # seconds until it listens
RSPAMD, OPENDKIM, REDIS = (
    shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    for name in ("rspamd", "opendkim", "redis-server")
)
NEEDED = pytest.mark.skipif(
    RSPAMD is None or OPENDKIM is None or find_spec("dkim") is None,
    reason="rspamd, opendkim (apt-get install rspamd opendkim) or dkimpy is missing",
)
AS_ROOT = ["-i", "-u", "root", "-g", "root"] if os.geteuid() == 0 else []
GTUBE = b"XJS*C4JDBQADN1.NSBN3*2IDNEN*GTUBE-STANDARD-ANTI-UBE-TEST-EMAIL*C.34X"

_RSPAMD = """
lua = "/usr/share/rspamd/rules/rspamd.lua";
options {{
  pidfile = "{directory}/rspamd.pid";
  filters = "dkim";
  url_tld = "{directory}/tld";
  dns {{ nameserver = ["127.0.0.1:{names}:1"]; timeout = {patience}; retransmits = 1; }}
}}
logging {{ type = "file"; filename = "{directory}/rspamd.log"; level = "info"; }}
worker "rspamd_proxy" {{
  bind_socket = "127.0.0.1:{port}";
  milter = yes;
  count = 1;
  {more}
  upstream "local" {{ default = yes; self_scan = yes; }}
}}
actions {{ {actions} }}
modules {{ path = "/usr/share/rspamd/plugins/"; }}
dkim_signing {{
  sign_local = true;
  use_domain = "header";
  try_fallback = false;
  domain {{ "example.org" {{ path = "{key}"; selector = "s1"; }} }}
}}
milter_headers {{ use = ["x-spamd-bar"]; }}
multimap {{
  LATER {{ type = "header"; header = "Subject"; regexp = true; map = "{directory}/later.map";
           action = "soft reject"; message = "Try again later"; }}
}}
{modules}
"""

_OPENDKIM = """
Socket inet:{port}@127.0.0.1
Mode {mode}
Syslog no
Canonicalization simple/simple
Domain example.org
Selector s1
KeyFile {key}
RequireSafeKeys no
TestPublicKeys {directory}/public
InternalHosts {directory}/internal
AlwaysAddARHeader yes
AuthservID mx1.example.org
"""


class DkimKey:
    """A key, in a file; and its public half, as the DNS would have it."""

    def __init__(self, directory: Path) -> None:
        made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.path = directory / "s1.key"
        pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
        self.path.write_bytes(made.private_bytes(pem, form, serialization.NoEncryption()))
        public = made.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self.record = b"v=DKIM1; k=rsa; p=" + base64.b64encode(public)

    def txt(self, name: bytes, timeout: int = 5) -> bytes | None:
        del timeout
        return self.record if name.rstrip(b".") == b"s1._domainkey.example.org" else None

    def verifies(self, content: bytes) -> bool:
        """Whether the first DKIM-Signature of a message is right, as dkimpy sees it."""
        import dkim

        try:
            return bool(dkim.DKIM(content).verify(dnsfunc=self.txt))
        except dkim.ValidationError:
            return False


class Instance:
    """A daemon that listens at ``address``; its process group is ours."""

    def __init__(self, command: list[str], port: int, log: Path) -> None:
        self.address, self.port, self._log = f"inet:127.0.0.1:{port}", port, log
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        deadline = time.monotonic() + _PATIENCE
        while True:
            with suppress(OSError):
                return socket.create_connection(("127.0.0.1", self.port), 1).close()
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"it does not listen: {self._log.read_text()[-2000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL to all of it."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


@contextmanager
def started(instance: Instance) -> Iterator[Instance]:
    try:
        instance.start()
        yield instance
    finally:
        instance.kill()


def rspamd(
    directory: Path,
    port: int,
    key: DkimKey,
    more: str = "",
    *,
    modules: str = "",
    names: int = 0,
    actions: str = "reject = 15; add_header = 6;",
) -> Instance:
    """It signs for example.org, and puts off what has the subject *later*. ``more``: of the worker.
    ``modules``: the sections of others. ``names``: the port of its name server; without, it has none.
    ``actions``: what it does from how many points on.
    """
    (directory / "tld").write_text("net\norg\ntest\n")
    (directory / "later.map").write_text("/^later/\n")
    file = directory / "rspamd.conf"
    patience = "10s" if names else "0.1s"
    told = {"directory": directory, "port": port, "key": key.path, "more": more, "actions": actions}
    file.write_text(_RSPAMD.format(**told, modules=modules, names=names or 1, patience=patience))
    places = [f"--var={name}={directory}" for name in ("DBDIR", "RUNDIR", "LOGDIR", "LOCAL_CONFDIR")]
    command = [str(RSPAMD), "-f", *AS_ROOT, "-c", str(file), *places]
    return Instance(command, port, directory / "rspamd.out")


def redis(directory: Path, port: int) -> Instance:
    """It keeps nothing."""
    command = [str(REDIS), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(directory)]
    return Instance(command, port, directory / "redis.out")


def opendkim(directory: Path, port: int, key: DkimKey, mode: str) -> Instance:
    """``mode``: ``s`` signs, ``v`` verifies with the key of ours, and says so in a field."""
    (directory / "public").write_bytes(b"s1._domainkey.example.org " + key.record + b"\n")
    (directory / "internal").write_text("127.0.0.1\n" if mode == "s" else "192.0.2.1\n")
    file = directory / f"opendkim-{mode}.conf"
    file.write_text(_OPENDKIM.format(directory=directory, port=port, key=key.path, mode=mode))
    return Instance([str(OPENDKIM), "-f", "-x", str(file)], port, directory / f"opendkim-{mode}.out")
