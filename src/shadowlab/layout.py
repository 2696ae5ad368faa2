"""Defines where things are in a lab: one directory with ``lab.json``, which other programs read too."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import permutations
from pathlib import Path
from typing import Any

from shadowlab.errors import LabError, NoSuchNode

DOMAIN = "lab.test"
MAILBOX = "mailbox"
LINKS = "links"
CLOCKS = "clocks"
"""A directory in the lab's, with a file for the clock of each node."""
MAILBOX_HOSTNAME = f"{MAILBOX}.{DOMAIN}"
INSIDE_DOMAIN, OUTSIDE_DOMAIN = "inside.test", "outside.test"
LOOPBACK = "127.0.0.1"
MOST_NODES = 16
MOST_WORKERS = 16  # of a node

PORTS_PER_NODE, PORTS_OF_MAILBOX = 3, 2
_ROOM_FOR = 4  # workers, if a node has several

LOST = "lost-databases"
"""A file in the lab's directory: ids of the databases whose disks were lost, one a line, for the audit."""

CONTENTS = ("lab.json", "ca", "nodes", "tracking", "logs", MAILBOX, LINKS, CLOCKS, LOST, "audit")
"""What the lab makes in its directory."""

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class WorkerDirectories:
    """The directories of one worker."""

    data_dir: Path
    tracking_dir: Path


@dataclass(frozen=True, slots=True)
class LabNode:
    """One node. ``pid`` is the last known one, None before the first start: verify it before use. ``peer``:
    the address of its first worker; the others have the ports above it.
    """

    name: str
    site: str
    host: str
    pid: int | None
    smtp: Address
    peer: Address
    admin: str  # URL without a slash at its end
    data_dir: Path
    tracking_dir: Path
    config: Path
    workers: int = 1

    @property
    def short(self) -> str:
        return self.name.partition(".")[0]

    @property
    def places(self) -> tuple[WorkerDirectories, ...]:
        """Where the database and the tracking log of each worker are."""
        below = (f"worker-{number}" for number in range(2, self.workers + 1))
        first = WorkerDirectories(self.data_dir, self.tracking_dir)
        return (first, *(WorkerDirectories(self.data_dir / one, self.tracking_dir / one) for one in below))


@dataclass(frozen=True, slots=True)
class Mailbox:
    """The mailbox server; ``pid`` as for a node."""

    pid: int | None
    inside: Address  # LMTP
    outside: Address  # SMTP
    dir: Path


class Manner(StrEnum):
    """How a link is cut: packets vanish silently, or connections are reset and refused."""

    SILENT = "silent"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class Way:
    """A direction of travel between two nodes, by their short names."""

    source: str
    target: str

    @property
    def back(self) -> Way:
        return Way(self.target, self.source)


@dataclass(frozen=True, slots=True)
class LabLink:
    """The address where ``source`` connects to reach ``target``."""

    source: str
    target: str
    address: Address

    @property
    def way(self) -> Way:
        return Way(self.source, self.target)


@dataclass(frozen=True, slots=True)
class Links:
    """The process that carries the links of a breakable lab; ``pid`` as for a node."""

    pid: int | None
    control: Address
    ways: tuple[LabLink, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """A lab's directory, its nodes in the order of their numbers, and its mailbox server.

    ``links`` is None unless the links between the nodes can be cut.
    """

    directory: Path
    nodes: tuple[LabNode, ...]
    mailbox: Mailbox
    links: Links | None = None

    @property
    def authority(self) -> Path:
        return self.directory / "ca"

    def log(self, name: str) -> Path:
        """The log of a process: ``name`` is a node's short name, ``mailbox`` or ``links``."""
        return self.directory / "logs" / f"{name}.log"

    def node(self, name: str) -> LabNode:
        """The node with that full name, first label or number. Raises NoSuchNode."""
        for number, node in enumerate(self.nodes, 1):
            if name.lower() in (node.name, node.short, str(number)):
                return node
        raise NoSuchNode(f"no node {name!r} in this lab: it has {', '.join(n.short for n in self.nodes)}")

    def reached(self, source: LabNode, target: LabNode) -> Address:
        """The address where ``source`` connects to reach ``target``'s connector for members."""
        for link in self.links.ways if self.links else ():
            if (link.source, link.target) == (source.short, target.short):
                return link.address
        return target.peer

    @property
    def processes(self) -> tuple[str, ...]:
        """The names of all processes, in the order of their start."""
        links = (LINKS,) if self.links else ()
        return (MAILBOX, *links, *(node.short for node in self.nodes))

    def with_pid(self, name: str, pid: int) -> Layout:
        """The same lab after a start; ``name`` as for ``log``."""
        if name == LINKS and self.links:
            return replace(self, links=replace(self.links, pid=pid))
        if name == MAILBOX:
            return replace(self, mailbox=replace(self.mailbox, pid=pid))
        nodes = (replace(node, pid=pid) if node.short == name else node for node in self.nodes)
        return replace(self, nodes=tuple(nodes))


def lost_in(directory: Path) -> tuple[str, ...]:
    """The databases that were lost in that lab."""
    try:
        return tuple((directory / LOST).read_text("utf-8").split())
    except FileNotFoundError:
        return ()


def note_lost(directory: Path, database: str) -> None:
    """Note that this database was lost."""
    with (directory / LOST).open("a", encoding="utf-8") as book:
        book.write(f"{database}\n")


def path_of(directory: Path) -> Path:
    return directory / "lab.json"


def names(nodes: int) -> tuple[str, ...]:
    """The short names of that many nodes."""
    return tuple(f"mx{number}" for number in range(1, nodes + 1))


def home_of(directory: Path, short: str) -> Path:
    """The directory of a node's settings, certificate and data."""
    return directory / "nodes" / short


def ports_needed(nodes: int, *, breakable: bool, workers: int = 1) -> int:
    links = nodes * (nodes - 1) + 1 if breakable else 0
    return (PORTS_PER_NODE - 1 + _peer_ports(workers)) * nodes + PORTS_OF_MAILBOX + links


def _peer_ports(workers: int) -> int:
    """Of one node. A node of several may get more later."""
    return 1 if workers == 1 else max(workers, _ROOM_FOR)


def plan(
    directory: Path, *, nodes: int, ports: Sequence[int], breakable: bool = False, workers: int = 1
) -> Layout:
    """Plan a new lab on free ``ports``, as many as ``ports_needed`` says. Raises LabError.

    There are two sites, and the last node is alone in the second, so that copies leave the site. Each node
    gets its own host in the settings, or none could hold another's copies.
    """
    directory = directory.absolute()
    left = iter(ports)
    mailbox = Mailbox(None, (LOOPBACK, next(left)), (LOOPBACK, next(left)), directory / MAILBOX)
    made = []
    for number, short in enumerate(names(nodes), 1):
        own = home_of(directory, short)
        smtp, *peers, admin = (next(left) for _ in range(PORTS_PER_NODE - 1 + _peer_ports(workers)))
        if peers != list(range(peers[0], peers[0] + len(peers))):
            raise LabError(f"{short} needs {len(peers)} ports in a row for its workers: {peers} are free")
        made.append(
            LabNode(
                name=f"{short}.{DOMAIN}",
                site="site-b" if number == nodes > 1 else "site-a",
                host=f"host-{number}",
                pid=None,
                smtp=(LOOPBACK, smtp),
                peer=(LOOPBACK, peers[0]),
                admin=f"http://{LOOPBACK}:{admin}",
                data_dir=own / "data",
                # Outside the data: sealed files count as shipped, and survive a lost disk.
                tracking_dir=directory / "tracking" / short,
                config=own / "shadowrelay.toml",
                workers=workers,
            )
        )
    links = None
    if breakable:
        control = (LOOPBACK, next(left))
        pairs = permutations((node.short for node in made), 2)
        links = Links(
            None, control, tuple(LabLink(one, other, (LOOPBACK, next(left))) for one, other in pairs)
        )
    return Layout(directory, tuple(made), mailbox, links)


def save(layout: Layout) -> None:
    """Replace ``lab.json`` as a whole: readers see the old file or the new one."""
    tree = {
        "nodes": [_node_tree(node) for node in layout.nodes],
        "mailbox": {
            "pid": layout.mailbox.pid,
            "inside": list(layout.mailbox.inside),
            "outside": list(layout.mailbox.outside),
            "dir": str(layout.mailbox.dir),
        },
        "links": _links_tree(layout.links) if layout.links else None,
    }
    path = path_of(layout.directory)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(tree, indent=2) + "\n", "utf-8")
    fresh.replace(path)


def load(directory: Path) -> Layout:
    """The lab in a directory. Raises LabError if there is none, or it cannot be read."""
    path = path_of(directory)
    try:
        tree = json.loads(path.read_text("utf-8"))
        mailbox = tree["mailbox"]
        return Layout(
            directory.absolute(),
            tuple(_node(entry) for entry in tree["nodes"]),
            Mailbox(
                mailbox["pid"],
                _address(mailbox["inside"]),
                _address(mailbox["outside"]),
                Path(mailbox["dir"]),
            ),
            _links(tree["links"]) if tree.get("links") else None,
        )
    except FileNotFoundError:
        raise LabError(f"no lab in {directory}: shadowlab up --dir {directory}") from None
    except (ValueError, KeyError, TypeError) as problem:
        raise LabError(f"{path} cannot be read: {problem!r}") from problem
    except OSError as problem:
        raise LabError(f"{path} cannot be read: {problem.strerror}") from problem


def _node_tree(node: LabNode) -> dict[str, Any]:
    return {
        "name": node.name,
        "site": node.site,
        "host": node.host,
        "pid": node.pid,
        "smtp": list(node.smtp),
        "peer": list(node.peer),
        "admin": node.admin,
        "data_dir": str(node.data_dir),
        "tracking_dir": str(node.tracking_dir),
        "config": str(node.config),
        "workers": node.workers,
    }


def _node(tree: dict[str, Any]) -> LabNode:
    return LabNode(
        name=tree["name"],
        site=tree["site"],
        host=tree["host"],
        pid=tree["pid"],
        smtp=_address(tree["smtp"]),
        peer=_address(tree["peer"]),
        admin=tree["admin"],
        data_dir=Path(tree["data_dir"]),
        tracking_dir=Path(tree["tracking_dir"]),
        config=Path(tree["config"]),
        workers=int(tree.get("workers", 1)),
    )


def _links_tree(links: Links) -> dict[str, Any]:
    return {
        "pid": links.pid,
        "control": list(links.control),
        "ways": [
            {"from": link.source, "to": link.target, "address": list(link.address)} for link in links.ways
        ],
    }


def _links(tree: dict[str, Any]) -> Links:
    ways = tuple(LabLink(one["from"], one["to"], _address(one["address"])) for one in tree["ways"])
    return Links(tree["pid"], _address(tree["control"]), ways)


def _address(pair: Sequence[Any]) -> Address:
    host, port = pair
    return str(host), int(port)
