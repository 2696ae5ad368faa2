"""Starts, breaks and heals a lab: what the lab's commands do."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM
from types import MappingProxyType

from shadowlab import layout, network, node_settings, starting, workers
from shadowlab.clocks import RIGHT, LabClock
from shadowlab.errors import LabError
from shadowlab.guard import locked, undisturbed, undone_on_failure
from shadowlab.layout import LINKS, MAILBOX, LabNode, Layout, Manner, Way
from shadowlab.ports import free_ports
from shadowlab.processes import Process, ProcessState
from shadowlab.starting import process_of
from shadowrelay import authority
from shadowrelay.core.identifiers import DatabaseId

DEFAULT_NODES = 3

_SIGNAL_DEADLINE = 10.0  # seconds until the kernel has acted on a signal that cannot be refused
_SOON = 3.0  # seconds in which most processes stop
_OLDER = timedelta(days=400)  # age of new certificates: clocks of a lab may be set back by a year
_LIFETIME = timedelta(days=1200)  # of them: or ahead
_LATE_WORKERS = 10.0  # seconds in which a supervisor gives up on workers that do not end
_GRACE = 15.0  # seconds beyond the drain timeout of a node that was asked to stop


class Cluster:
    """The lab in one directory. Names are full names, first labels, numbers, or ``mailbox``.

    It remembers nothing between calls: each call reads ``lab.json`` and asks the kernel, so that several
    commands and programs can work on one lab. Every method raises LabError.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()

    @property
    def layout(self) -> Layout:
        return layout.load(self.directory)

    def node(self, name: str) -> LabNode:
        return self.layout.node(name)

    def process(self, name: str) -> Process:
        """The last process of that name, alive or not. That of a node of several workers supervises them."""
        at = self.layout
        return process_of(at, _resolved(at, name))

    def workers(self, name: str) -> Mapping[int, Process]:
        """The processes of a node's workers that run now, by their numbers; none for a node that is one."""
        node = self.node(name)
        return workers.of(process_of(self.layout, node.short).arguments) if node.workers > 1 else {}

    def kill(self, name: str, *, missing_ok: bool = False) -> None:
        """SIGKILL a process, or all of a node; gone on return. ``missing_ok``: it may be gone already."""
        process = self.process(name) if missing_ok else self._alive(name)
        process.signal(SIGKILL)
        if not process.wait(_SIGNAL_DEADLINE):
            raise LabError(f"{name} (pid {process.pid}) does not die")
        if self._has_workers(name):
            workers.killed(process.arguments)

    def freeze(self, name: str) -> None:
        """SIGSTOP a process: it keeps its connections and answers nothing."""
        self._signalled(name, freeze=True)

    def thaw(self, name: str) -> None:
        self._signalled(name, freeze=False)

    def stop(self, name: str, late: Callable[[str], object] = str) -> None:
        """SIGTERM a process, and wait for its graceful end. ``late`` is told why it may take a while."""
        process = self._alive(name)
        if process.state is ProcessState.FROZEN:
            raise LabError(f"{name} is frozen and cannot stop gracefully: thaw it first, or kill it")
        process.signal(SIGTERM)
        if process.wait(_SOON):
            return
        patience = self._patience(name)
        late(
            f"{name} finishes what is under way and hands over its mail, which waits for members and next "
            f"hops that do not answer: {patience:.0f} s at most"
        )
        if not process.wait(patience):
            raise LabError(f"{name} (pid {process.pid}) has not stopped in time, and still runs")

    def wipe(self, name: str) -> Sequence[DatabaseId]:
        """Lose a node's disk: its data, and its open tracking files. Sealed tracking files count as shipped.

        Returns the ids of the lost databases, as far as they could be read: one for each worker.
        """
        # Imported here, because most commands do not need it.
        from shadowrelay.database.opening import database_in

        node = self.node(name)
        if self.process(name).alive:
            raise LabError(f"{node.short} runs: kill or stop it before its data is removed")
        with undisturbed():
            lost = [found for place in node.places if (found := database_in(place.data_dir))]
            with suppress(FileNotFoundError):
                shutil.rmtree(node.data_dir)
            for place in node.places:
                for unsealed in place.tracking_dir.glob(".*"):
                    unsealed.unlink()
            for each in lost:
                layout.note_lost(self.directory, each)
        return lost

    def start(self, name: str, environ: Mapping[str, str] = MappingProxyType({})) -> bool:
        """Start a node that is down, on its data; it answers on return. Returns False if it ran already.

        ``environ``: variables for this process, for this start.
        """
        with locked(self.directory):
            at = self.layout
            short = _resolved(at, name)
            _refuse_frozen(at, [short])
            return bool(starting.start(at, [short], {short: environ}))

    def cut(self, *ways: Way, manner: Manner = Manner.SILENT) -> None:
        """Cut more directions between nodes of a breakable lab."""
        with locked(self.directory):
            network.cut(self.layout, ways, manner)

    def heal(self) -> None:
        """Heal all cuts between the nodes."""
        with locked(self.directory):
            network.heal(self.layout)

    def set_clock(self, name: str, ahead: timedelta) -> None:
        """Set the wall clock of a node, in a lab with clocks; it takes effect within ``TAKES_EFFECT``."""
        clock = LabClock(self.directory, self.node(name).short)
        if not clock.there:
            raise LabError(f"the lab in {self.directory} was made without --clocks: take another --dir")
        clock.set(ahead)

    def refuse(self) -> None:
        """Make both ports of the mailbox server answer 4xx."""
        self._refusal.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._refusal.touch()

    def accept(self) -> None:
        self._refusal.unlink(missing_ok=True)

    @property
    def refusing(self) -> bool:
        return self._refusal.exists()

    def down(self) -> list[str]:
        """Stop everything, nodes first; kill what does not stop. Returns the names of killed processes."""
        with locked(self.directory):
            at = self.layout
            killed = starting.stop(
                {node.short: process_of(at, node.short) for node in at.nodes},
                grace=max(self._patience(node.short) for node in at.nodes),
            )
            for node in at.nodes:
                if node.workers > 1:  # a supervisor that was killed leaves them behind, for a while
                    workers.killed(process_of(at, node.short).arguments)
            others = [name for name in at.processes if name in (LINKS, MAILBOX)]
            return killed + starting.stop({name: process_of(at, name) for name in others}, grace=_GRACE)

    @property
    def _refusal(self) -> Path:
        # Imported here, because it imports the mailbox server, which most commands do not need.
        from shadowmailbox.maildir_store import REFUSE_FILE

        return self.layout.mailbox.dir / REFUSE_FILE

    def _has_workers(self, name: str) -> bool:
        """Is it a node of several workers?"""
        at = self.layout
        short = _resolved(at, name)
        return any(node.short == short and node.workers > 1 for node in at.nodes)

    def _alive(self, name: str) -> Process:
        process = self.process(name)
        if not process.alive:
            raise LabError(f"{name} is down already")
        return process

    def _signalled(self, name: str, *, freeze: bool) -> None:
        process = self._alive(name)
        others = workers.of(process.arguments) if self._has_workers(name) else {}
        for each in (process, *others.values()):
            each.signal(SIGSTOP if freeze else SIGCONT)
            if not each.wait_for(ProcessState.FROZEN if freeze else ProcessState.RUNNING, _SIGNAL_DEADLINE):
                raise LabError(f"{name} (pid {each.pid}) does not react")

    def _patience(self, name: str) -> float:
        """Seconds that a graceful stop may take."""
        at = self.layout
        if _resolved(at, name) == MAILBOX:
            return _GRACE
        node = at.node(workers.parted(name)[0])
        grace = _GRACE if node.workers == 1 else _GRACE + _LATE_WORKERS
        return node_settings.drain_timeout(node).total_seconds() + grace


def refuse_used(directory: Path, what: str) -> None:
    """Refuse a directory with a lab or anything else in it: ``what`` makes its own lab. Raises LabError."""
    if layout.path_of(directory).exists():
        raise LabError(f"there is a lab in {directory}: {what} needs its own directory")
    refuse_other_things(directory)


def refuse_other_things(directory: Path) -> None:
    """Refuse a directory with other things in it, unless it has a lab already. Raises LabError."""
    try:
        found = {path.name for path in directory.iterdir() if not path.name.startswith(".")}
    except FileNotFoundError:
        return
    except OSError as problem:
        raise LabError(f"{directory}: {problem.strerror}") from problem
    others = sorted(found.difference(layout.CONTENTS))
    if others and not layout.path_of(directory).exists():
        raise LabError(
            f"{directory} has other things in it, such as {others[0]}: "
            f"a lab needs its own directory: take another --dir"
        )


def up(
    directory: Path,
    *,
    nodes: int | None = None,
    options: Sequence[str] = (),
    breakable: bool = False,
    clocks: bool = False,
    workers: int | None = None,
    environs: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> list[str]:
    """Make a lab, or resume the one in the directory; every process answers on return.

    Returns the names of what it started: none if the lab runs already. ``nodes`` None means as many as the
    lab has, or three. ``breakable``: the links of a new lab can be cut. ``clocks``: nodes of
    a new lab have wall clocks of their own, which can be set. ``workers`` of each node: as many
    as the lab has, or one. ``options`` are KEY=VALUE for the
    settings of all nodes, also at later starts. ``environs``: variables for processes, by name, for this
    start. If a process does not come up, all that this call started is stopped, and a new lab is removed.
    Raises LabError, SettingsInvalid.
    """
    with locked(directory), _undone_if_new(directory):
        at = _planned(directory, nodes, workers, breakable=breakable, clocks=clocks)
        names = at.processes
        running = [name for name in names if process_of(at, name).alive]
        if running and options:
            node_settings.planned(at, options)  # report wrong options first
            raise LabError(
                f"{', '.join(running)} runs, and settings are read at a start only: "
                f"shadowlab down --dir {directory}, then up"
            )
        _refuse_frozen(at, running)
        with undisturbed():
            prepare(at, options)
            for node in at.nodes if clocks else ():
                if not (clock := LabClock(directory, node.short)).there:
                    clock.set(RIGHT)
        return starting.start(at, names, environs, meet=at.nodes)


def _undone_if_new(directory: Path) -> AbstractContextManager[None]:
    if layout.path_of(directory).exists():
        return nullcontext()
    return undone_on_failure(directory, layout.CONTENTS)


def _planned(
    directory: Path, nodes: int | None, workers: int | None, *, breakable: bool, clocks: bool
) -> Layout:
    """The lab in the directory, or a new one."""
    if layout.path_of(directory).exists():
        at = layout.load(directory)
        if nodes is not None and nodes != len(at.nodes):
            raise LabError(
                f"the lab in {directory} has {len(at.nodes)} nodes, not {nodes}: "
                f"leave --nodes out to resume it, or take another --dir"
            )
        if breakable and at.links is None:
            raise LabError(f"the lab in {directory} was made without --breakable: take another --dir")
        if clocks and not all(LabClock(directory, node.short).there for node in at.nodes):
            raise LabError(f"the lab in {directory} was made without --clocks: take another --dir")
        if workers not in (None, at.nodes[0].workers):
            raise LabError(
                f"the nodes of the lab in {directory} have {at.nodes[0].workers} workers, not {workers}: "
                f"leave --workers out to resume it, or take another --dir"
            )
        return at
    each = workers or 1
    if breakable and each > 1:
        raise LabError("links are made for nodes of one worker: leave --breakable or --workers out")
    wanted = DEFAULT_NODES if nodes is None else nodes
    ports = free_ports(layout.ports_needed(wanted, breakable=breakable, workers=each))
    return layout.plan(directory, nodes=wanted, ports=ports, breakable=breakable, workers=each)


def prepare(at: Layout, options: Sequence[str]) -> None:
    """Make certificates, settings files and lab.json if missing. Raises LabError, SettingsInvalid."""
    now = datetime.now(UTC) - _OLDER
    try:
        fresh = not _whole(authority.authority_pair(at.authority))
        if fresh:
            authority.init(at.authority, name="shadowrelay lab", now=now, force=True)
        for node in at.nodes:
            own = node_settings.certificate(node)
            if fresh or not _whole(own):
                authority.issue(
                    at.authority,
                    node.name,
                    now=now,
                    out=own.certificate.parent,
                    lifetime=_LIFETIME,
                    force=True,
                )
    except (authority.AuthorityError, OSError) as problem:
        raise LabError(f"no certificates: {problem}") from problem
    node_settings.write(at, options)
    if not layout.path_of(at.directory).exists():
        layout.save(at)


def _whole(pair: authority.Pair) -> bool:
    return pair.certificate.exists() and pair.key.exists()


def _resolved(at: Layout, name: str) -> str:
    if name.lower() in (MAILBOX, layout.MAILBOX_HOSTNAME):
        return MAILBOX
    node, number = workers.parted(name)
    return at.node(node).short if number is None else f"w{number}.{at.node(node).short}"


def _refuse_frozen(at: Layout, names: Sequence[str]) -> None:
    for name in names:
        if process_of(at, name).state is ProcessState.FROZEN:
            raise LabError(f"{name} is frozen: shadowlab thaw {name} --dir {at.directory}")
