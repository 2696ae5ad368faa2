"""A signed zone on loopback: Knot DNS serves it, and unbound validates it by a trust anchor of ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dns.dnssec
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.rdatatype
import dns.rdtypes.ANY.RRSIG
import dns.rdtypes.ANY.TLSA
import dns.rrset
import dns.zone
from cryptography.hazmat.primitives.asymmetric import ec

from shadowlab.ports import free_ports

SIGNED, OPEN = "signed.test", "open.test"
_PATIENCE = 30.0
dns.rdtypes.ANY.TLSA.TLSA._cert_length_by_mtype = {}  # zones have records that are malformed
_TTL = 300
_HEAD = "@ {ttl} SOA ns root 1 3600 600 86400 60\n@ {ttl} NS ns\nns {ttl} A 127.0.0.1\n"

_KNOT = """
server:
    rundir: {directory}
    listen: 127.0.0.1@{port}
database:
    storage: {directory}
log:
  - target: stderr
    any: warning
zone:
  - domain: {signed}
    file: {directory}/signed.zone
  - domain: {open}
    file: {directory}/open.zone
"""

_UNBOUND = """
server:
    interface: 127.0.0.1
    port: {port}
    do-daemonize: no
    username: ""
    chroot: ""
    directory: "{directory}"
    pidfile: ""
    use-syslog: no
    do-ip6: no
    do-not-query-localhost: no
    local-zone: "test." nodefault
    module-config: "{modules}"
    trust-anchor: "{anchor}"
    domain-insecure: "{open}"
    num-threads: 1
    qname-minimisation: no
remote-control:
    control-enable: no
stub-zone:
    name: "{signed}"
    stub-addr: 127.0.0.1@{knot}
stub-zone:
    name: "{open}"
    stub-addr: 127.0.0.1@{knot}
"""


def missing() -> str | None:
    """Why there can be none, as a sentence."""
    for command, package in (("knotd", "knot"), ("unbound", "unbound")):
        if shutil.which(command, path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None:
            return f"there is no {command} (apt-get install {package})"
    return None


@dataclass(frozen=True)
class SignedDns:
    """``port``: of the resolver that validates. ``careless``: of one that does not."""

    port: int
    careless: int
    processes: Mapping[str, subprocess.Popen[bytes]]

    @property
    def setting(self) -> dict[str, object]:
        """The table ``dns`` of the settings of a node that asks it."""
        return {"servers": [f"127.0.0.1:{self.port}"], "timeout": "2s", "signed_zone": SIGNED}


class _Zone:
    def __init__(self, origin: str, lines: Sequence[str]) -> None:
        text = _HEAD.format(ttl=_TTL) + "\n".join(lines) + "\n"
        self.origin = dns.name.from_text(origin)
        self.zone = dns.zone.from_text(text, origin=self.origin, relativize=False)
        self._private = ec.generate_private_key(ec.SECP256R1())
        self._key = dns.dnssec.make_dnskey(
            self._private.public_key(), dns.dnssec.Algorithm.ECDSAP256SHA256, flags=257
        )

    def sign(self) -> str:
        """Sign all of it. Returns the trust anchor."""
        now = datetime.now(UTC)
        with self.zone.writer() as transaction:
            dns.dnssec.sign_zone(
                self.zone,
                transaction,
                keys=[(self._private, self._key)],
                dnskey_ttl=_TTL,
                inception=now - timedelta(days=1),
                expiration=now + timedelta(days=1),
            )
        return f"{self.origin} IN DNSKEY {self._key}"

    def expire(self, name: str) -> None:
        """The signature of a name's TLSA records ended yesterday."""
        now = datetime.now(UTC)
        at = dns.name.from_text(name)
        records = self.zone.find_rrset(at, dns.rdatatype.TLSA)
        old = dns.dnssec.sign(
            records,
            self._private,
            self.origin,
            self._key,
            inception=now - timedelta(days=3),
            expiration=now - timedelta(days=1),
        )
        signatures = self.zone.find_rdataset(at, dns.rdatatype.RRSIG, dns.rdatatype.TLSA)
        signatures.clear()
        signatures.add(old)

    def tamper(self, name: str, text: str) -> None:
        """The records are others than those that were signed."""
        at = dns.name.from_text(name)
        forged = dns.rrset.from_text(at, _TTL, "IN", "TLSA", text)
        self.zone.replace_rdataset(at, forged.to_rdataset())

    def write(self, path: Path) -> None:
        self.zone.to_file(str(path), relativize=False)


@contextmanager
def running(
    directory: Path,
    signed: Sequence[str],
    unsigned: Sequence[str] = (),
    *,
    expired: Sequence[str] = (),
    tampered: Mapping[str, str] = {},
) -> Iterator[SignedDns]:
    """Serves both zones, given as lines of zone files, while the block runs. ``expired``: names whose TLSA
    records were signed for too short a time. ``tampered``: names whose TLSA records are others now.
    """
    directory.mkdir(parents=True, exist_ok=True)
    zone = _Zone(SIGNED, signed)
    anchor = zone.sign()
    for name in expired:
        zone.expire(name)
    for name, text in tampered.items():
        zone.tamper(name, text)
    zone.write(directory / "signed.zone")
    _Zone(OPEN, unsigned).write(directory / "open.zone")
    knot, port, careless = free_ports(3)
    places = {"directory": directory, "signed": SIGNED, "open": OPEN, "knot": knot, "anchor": anchor}
    (directory / "knot.conf").write_text(_KNOT.format(port=knot, **places), "utf-8")
    for name, at, modules in (("strict", port, "validator iterator"), ("careless", careless, "iterator")):
        text = _UNBOUND.format(port=at, modules=modules, **places)
        (directory / f"{name}.conf").write_text(text, "utf-8")
    started: dict[str, subprocess.Popen[bytes]] = {}
    try:
        started["knot"] = _start(directory, "knotd", "-c", "knot.conf")
        _until_it_answers(knot, directory)
        for name, at in (("strict", port), ("careless", careless)):
            started[name] = _start(directory, "unbound", "-d", "-c", f"{directory}/{name}.conf")
            _until_it_answers(at, directory)
        yield SignedDns(port, careless, started)
    finally:
        for process in reversed(started.values()):
            process.terminate()
        for process in started.values():
            process.wait(_PATIENCE)


def _start(directory: Path, *command: str) -> subprocess.Popen[bytes]:
    path = shutil.which(command[0], path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    assert path
    with (directory / f"{command[0]}.log").open("ab") as log:
        return subprocess.Popen(
            [path, *command[1:]], cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )


def _until_it_answers(port: int, directory: Path) -> None:
    query = dns.message.make_query(SIGNED, "SOA")
    _eventually(lambda: _answers(query, port), lambda: _logs(directory))


def _answers(query: dns.message.QueryMessage, port: int) -> bool:
    try:
        return dns.query.udp(query, "127.0.0.1", port=port, timeout=1).rcode() == dns.rcode.NOERROR
    except (OSError, dns.exception.Timeout):
        time.sleep(0.05)
        return False


def _eventually(holds: Callable[[], bool], told: Callable[[], str]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"no answer: {told()}")


def _logs(directory: Path) -> str:
    return "".join(path.read_text("utf-8", "replace")[-2000:] for path in directory.glob("*.log"))
