"""A lab on a network of its own: each node in a network namespace, all on one switch that can drop packets.

The namespaces have no names: each lasts as long as somebody holds it or runs in it, and takes its interfaces
and rules with it. So nothing can be left behind, labs may use the same addresses side by side, and nothing
here touches the machine's own network.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

from running_lab import RunningLab

from shadowlab import layout, processes, starting
from shadowlab.cluster import prepare
from shadowlab.layout import MAILBOX, Layout

HUB = "hub"  # the switch, and on it the mailbox server and the test itself
NETWORK = "10.77.0"
_OWN = "/proc/thread-self/ns/net"
_CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)


@cache
def missing() -> str:
    """What this machine lacks for a network of one's own; empty when nothing is."""
    if os.geteuid() != 0:
        return "network namespaces take root"
    if lacking := [tool for tool in ("ip", "nft") if shutil.which(tool) is None]:
        return f"{' and '.join(lacking)} not installed (packages iproute2, nftables)"
    try:
        Network(["probe"]).close()
    except (OSError, subprocess.CalledProcessError) as problem:
        return f"no network namespaces here: {getattr(problem, 'stderr', '') or problem}"
    return ""


def address(name: str) -> str:
    """Of a node (``mx1``, ``mx2``, …) or the hub."""
    return f"{NETWORK}.{254 if name == HUB else int(name.removeprefix('mx') or 0)}"


class Network:
    """A switch with one namespace for each name. Raises OSError, CalledProcessError."""

    def __init__(self, names: list[str]) -> None:
        self._namespaces: dict[str, int] = {}
        try:
            for name in (HUB, *names):
                self._namespaces[name] = _new_namespace()
            with self.inside(HUB):
                _run("ip link add switch type bridge")
                _run(f"ip address add {NETWORK}.254/24 dev switch")
                _run("ip link set switch up")
                _run("ip link set lo up")
            for number, name in enumerate(names, 1):
                self._plug_in(name, number)
        except BaseException:
            self.close()
            raise

    def _plug_in(self, name: str, number: int) -> None:
        with self.inside(HUB):
            there = f"/proc/{os.getpid()}/fd/{self._namespaces[name]}"
            _run(f"ip link add port{number} type veth peer name eth0 netns {there}")
            _run(f"ip link set port{number} master switch up")
        with self.inside(name):
            _run(f"ip address add {NETWORK}.{number}/24 dev eth0")
            _run("ip link set lo up")
            _run("ip link set eth0 up")
            _run("nft add table inet cut")
            _run("nft add chain inet cut heard { type filter hook input priority 0 ; }")
            _run("nft add chain inet cut said { type filter hook output priority 0 ; }")

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """This thread, and the processes that it starts, live in that namespace."""
        before = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _enter(self._namespaces[name])
            yield
        finally:
            _enter(before)
            os.close(before)

    def mute(self, source: str, target: str, *, calls_only: bool = False) -> None:
        """Nothing that ``source`` sends arrives at ``target``; or, with ``calls_only``, no call does."""
        calls = "tcp flags & (syn | ack) == syn" if calls_only else ""
        with self.inside(target):
            _run(f"nft add rule inet cut heard ip saddr {address(source)} {calls} drop")

    def part(self, one: str, *others: str) -> None:
        """Neither hears the other any more."""
        for other in others:
            self.mute(one, other)
            self.mute(other, one)

    def isolate(self, name: str) -> None:
        """It hears nobody, mailbox server and test included, and nobody hears it."""
        with self.inside(name):
            _run("nft add rule inet cut heard iifname eth0 drop")
            _run("nft add rule inet cut said oifname eth0 drop")

    def heal(self) -> None:
        """Everybody hears everybody again."""
        for name in self._namespaces.keys() - {HUB}:
            with self.inside(name):
                _run("nft flush table inet cut")

    def close(self) -> None:
        for handle in self._namespaces.values():
            os.close(handle)
        self._namespaces.clear()


class NetworkLab(RunningLab):
    """A lab whose nodes are alone in their namespaces. Whoever uses it stays in the hub's."""

    def __init__(self, directory: Path, network: Network) -> None:
        super().__init__(directory)
        self.network = network

    def up(self, *options: str, nodes: int | None = 3) -> list[str]:
        """``nodes``: at most as many as the network has."""
        at = _placed(layout.plan(self.directory, nodes=nodes or 3, ports=[0] * 50))
        self.directory.mkdir(mode=0o700)
        prepare(at, [f'relay_networks=["{NETWORK}.0/24"]', *options])
        names = [MAILBOX, *(node.short for node in at.nodes)]
        for name in names:
            with self.network.inside(HUB if name == MAILBOX else name):
                process = processes.start(starting.process_of(at, name).arguments, at.log(name))
            at = at.with_pid(name, process.pid or 0)
            layout.save(at)
        starting.start(at, names)  # they run: this sees that they answer
        starting.see_one_another(at.nodes)
        return names


def _placed(planned: Layout) -> Layout:
    """The same lab, at the addresses of its namespaces."""
    nodes = tuple(
        replace(
            node,
            smtp=(address(node.short), 2525),
            peer=(address(node.short), 2526),
            admin=f"http://{address(node.short)}:8025",
        )
        for node in planned.nodes
    )
    mailbox = replace(planned.mailbox, inside=(address(HUB), 2424), outside=(address(HUB), 2425))
    return replace(planned, nodes=nodes, mailbox=mailbox)


def _new_namespace() -> int:
    before = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _checked(_LIBC.unshare(_CLONE_NEWNET))
        return os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
    finally:
        _enter(before)
        os.close(before)


def _enter(handle: int) -> None:
    _checked(_LIBC.setns(handle, _CLONE_NEWNET))


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True, text=True, timeout=30)
