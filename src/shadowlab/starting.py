"""Starts processes until they answer, and stops them: several at a time, all or nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGTERM
from types import MappingProxyType

from shadowlab import layout, network, processes, workers
from shadowlab.clocks import LabClock
from shadowlab.errors import LabError
from shadowlab.guard import undisturbed
from shadowlab.layout import LINKS, MAILBOX, MAILBOX_HOSTNAME, Address, LabNode, Layout
from shadowlab.probing import mailbox_answers, node_answers, status
from shadowlab.processes import Process

_ANSWER_DEADLINE = 60.0  # seconds, for a small machine with other work
_KILL_DEADLINE = 10.0
_ABORT_GRACE = 5.0  # seconds to stop what was started in vain
_MEETING_DEADLINE = 5.0
_POLL = 0.05


@dataclass(frozen=True, slots=True)
class _Started:
    name: str
    process: Process
    log: Path
    since: int  # octets in the log before this start


def process_of(at: Layout, name: str) -> Process:
    """The last known process of a node (by its short name), of its worker (``w2.mx1``), of the mailbox server
    or of the links.
    """
    if name == LINKS and at.links:
        return Process(at.links.pid, ("shadowlab", "links", "--dir", str(at.directory)))
    if name == MAILBOX:
        box = at.mailbox
        return Process(
            box.pid,
            (
                "shadowmailbox",
                "--dir",
                str(box.dir),
                "--inside",
                _spelt(box.inside),
                "--outside",
                _spelt(box.outside),
                "--hostname",
                MAILBOX_HOSTNAME,
            ),
        )
    short, worker = workers.parted(name)
    node = at.node(short)
    arguments = ("shadowrelay", "run", str(node.config))
    if worker is None:
        return Process(node.pid, arguments)
    return workers.of(arguments).get(worker, Process(None, arguments))


def start(
    at: Layout,
    names: Sequence[str],
    environs: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    meet: Sequence[LabNode] = (),
) -> list[str]:
    """Start the processes of ``names`` that are down. Returns their names once all of ``names`` answer.

    If any was started, waits until the nodes of ``meet`` have seen one another. ``environs``: more variables
    for processes, by name. The caller holds the lab's lock. If a process does not answer, or on Ctrl-C, all
    that were started are stopped again. Raises LabError with the last lines of the log.
    """
    down = [name for name in names if not process_of(at, name).alive]
    started: list[_Started] = []
    current = at
    try:
        for name in down:
            with undisturbed():
                log = at.log(name)
                since = processes.size(log)
                environ = {**LabClock(at.directory, name).environ, **environs.get(name, {})}
                process = processes.start(process_of(at, name).arguments, log, environ)
                started.append(_Started(name, process, log, since))
                current = current.with_pid(name, process.pid or 0)
                layout.save(current)
        _see_answers(current, names, started)
        if started:
            see_one_another(meet)
        for one in started:
            if not one.process.alive:
                raise LabError(_with_log(f"{one.name} has answered, and ended", one.log, one))
    except BaseException:
        with undisturbed():
            stop({one.name: one.process for one in started}, grace=_ABORT_GRACE)
            for one in started:
                workers.killed(one.process.arguments)
        raise
    return down


def stop(running: Mapping[str, Process], *, grace: float) -> list[str]:
    """Send SIGTERM to all, and SIGKILL to those that still run ``grace`` seconds later. Returns their names.

    Thaws frozen processes, which could not stop. Raises LabError if a process survives SIGKILL.
    """
    for process in running.values():
        process.signal(SIGTERM)
        process.signal(SIGCONT)
    deadline = time.monotonic() + grace
    late = [
        name
        for name, process in running.items()
        if not process.wait(max(0.0, deadline - time.monotonic())) and process.signal(SIGKILL)
    ]
    for name in late:
        if not running[name].wait(_KILL_DEADLINE):
            raise LabError(f"{name} (pid {running[name].pid}) does not die")
    return late


def see_one_another(nodes: Sequence[LabNode]) -> None:
    """Wait a little until each node has reached every other node.

    If a member was not up at another's first heartbeat, that one passes it over until the next heartbeat:
    mail sent at once would find too few shadow servers. Gives up quietly: heartbeats may be set to be rare.
    """
    deadline = time.monotonic() + _MEETING_DEADLINE
    while time.monotonic() < deadline:
        found = [status(node) for node in nodes]
        if all(one and all(peer.get("state") == "reachable" for peer in one.peers) for one in found):
            return
        time.sleep(_POLL)


def _see_answers(at: Layout, names: Sequence[str], started: Sequence[_Started]) -> None:
    ours = {one.name: one for one in started}
    silent = list(names)
    deadline = time.monotonic() + _ANSWER_DEADLINE
    while True:
        silent = [name for name in silent if not _answers(at, name)]
        if not silent:
            return
        for name in silent:
            ended = not process_of(at, name).alive
            if ended or time.monotonic() > deadline:
                reason = "has ended" if ended else f"does not answer after {_ANSWER_DEADLINE:.0f} s"
                raise LabError(_with_log(f"{name} {reason}", at.log(name), ours.get(name)))
        time.sleep(_POLL)


def _answers(at: Layout, name: str) -> bool:
    if name == LINKS and at.links:
        return network.carried(at.links.control)
    if name == MAILBOX:
        return all(map(mailbox_answers, (at.mailbox.inside, at.mailbox.outside)))
    return node_answers(at.node(name))


def _with_log(problem: str, log: Path, started: _Started | None) -> str:
    lines = processes.last_lines(log, since=started.since if started else 0)
    return "\n".join([f"{problem}; the last lines of {log}:", *(f"  {line}" for line in lines or ["(none)"])])


def _spelt(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
