"""What a supervisor says to its workers, and when. Workers are stand-ins that write down what they hear."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from shadowlab.ports import free_ports
from shadowrelay.readings import WorkerPart
from shadowrelay.settings import Settings, settings_from_tree
from shadowrelay.workers import supervision
from shadowrelay.workers import supervisor as supervising
from shadowrelay.workers.supervision import State
from shadowrelay.workers.supervisor import Supervisor
from shadowrelay.workers.worker import ANSWER, ASK, Lifeline, board_in

pytestmark = pytest.mark.lab

STAND_IN = """
import os, signal, socket, sys, time
options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
place = sys.argv[1]
number = options["--worker"]
line = socket.socket(fileno=int(options["--lifeline"]))
if os.path.exists(f"{place}/deaf-{number}"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.makedirs(f"{place}/data/worker-{number}", exist_ok=True)
line.send(b"serving\\n")
if number == "2" and os.path.exists(f"{place}/a-member-asks"):
    line.send(b"reloaded\\n")
for word in line.makefile("r"):
    if word == "ask\\n":
        if not os.path.exists(f"{place}/hangs-{number}"):
            line.send(b"answer\\n")
        continue
    with open(f"{place}/heard-{number}", "a") as heard:
        heard.write(word)
    if word == "leave\\n":
        while not os.path.exists(f"{place}/empty-{number}"):
            time.sleep(0.02)
        line.send(b"empty\\n")
"""


class Node:
    def __init__(self, place: Path, workers: int) -> None:
        self.place = place
        smtp, self.admin, self.peer = sorted(free_ports(3))  # further workers: above the last one
        self.tree: dict[str, Any] = {
            "name": "mx1.example.org",
            "workers": workers,
            "data_dir": str(place / "data"),
            "drain_timeout": "0s",
            "receive": {"default": {"listen": f"127.0.0.1:{smtp}"}},
            "peer": {"listen": f"127.0.0.1:{self.peer}", "externally_secured": ["127.0.0.0/8"]},
            "admin": {"listen": f"127.0.0.1:{self.admin}"},
        }
        command = (sys.executable, "-S", "-c", STAND_IN, str(place))
        self.supervisor = Supervisor(self.read(), self.read, command)

    def read(self) -> Settings:
        return settings_from_tree(self.tree)

    def heard(self, number: int) -> list[str]:
        file = self.place / f"heard-{number}"
        return file.read_text().splitlines() if file.exists() else []

    def states(self) -> dict[int, State]:
        return {one.number: one.state for one in self.supervisor.workers()}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.supervisor.run())
        count = self.tree["workers"]
        await until(lambda: self.states() == dict.fromkeys(range(1, count + 1), State.SERVING))
        try:
            yield
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(task, 20.0)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30.0):
        while not condition():  # noqa: ASYNC110 – files and processes set no event
            await asyncio.sleep(0.02)


async def test_siblings_count_a_worker_that_goes_until_it_has_left(tmp_path: Path) -> None:
    """Else they, and the members that they tell, would forget a member that still has mail."""
    node = Node(tmp_path, 2)
    async with node.running():
        node.tree["workers"] = 1
        assert not await node.supervisor.reload()
        await until(lambda: "leave" in node.heard(2))
        assert node.states() == {1: State.SERVING, 2: State.LEAVING}
        await until(lambda: node.heard(1) == ["reload 2"])
        (tmp_path / "empty-2").touch()
        await until(lambda: node.states()[2] is State.ENDED)
        await until(lambda: node.heard(1) == ["reload 2", "reload 1"])
        assert (tmp_path / "data" / "worker-2" / "left").exists()


async def test_what_a_worker_had_of_scarce_resources_is_forgotten_when_its_process_has_ended(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, 2)
    async with node.running():
        assert node.supervisor._counts is not None
        boards = [board_in(node.supervisor._counts, number) for number in (1, 2)]
        for board in boards:
            board.say(WorkerPart(memory=100, queue=10, uncommitted=1), 5.0)
        os.kill(node.supervisor.workers()[1].pid or 0, signal.SIGKILL)
        await until(lambda: node.supervisor.workers()[1].restarts)
        assert boards[0].together() == WorkerPart(memory=100, queue=10, uncommitted=1)


async def test_siblings_hear_of_a_new_worker_before_it_serves(tmp_path: Path) -> None:
    node = Node(tmp_path, 2)
    async with node.running():
        node.tree["workers"] = 3
        await node.supervisor.reload()
        await until(lambda: node.states().get(3) is State.SERVING)
        await until(lambda: node.heard(1) == node.heard(2) == ["reload 3"])


async def test_a_worker_that_does_not_end_in_time_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervising, "GRACE", 0.3)
    (tmp_path / "deaf-2").touch()
    node = Node(tmp_path, 2)
    async with node.running():
        pids = [one.pid for one in node.supervisor.workers()]
    for pid in filter(None, pids):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.slow
async def test_a_worker_that_does_not_answer_is_killed_and_starts_again_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "ASK", 0.5)  # less, and a busy machine makes the others hang too
    node = Node(tmp_path, 2)
    async with node.running():
        first, second = node.supervisor.workers()
        (tmp_path / "hangs-2").touch()
        await until(lambda: node.supervisor.workers()[1].restarts)
        (tmp_path / "hangs-2").unlink()
        await until(lambda: node.states() == {1: State.SERVING, 2: State.SERVING})
        one, two = node.supervisor.workers()
        assert (one.pid, one.restarts) == (first.pid, 0)
        assert two.pid != second.pid
        assert two.why.startswith("it hung: no answer for 6 s; killed by SIGKILL")


async def test_a_worker_answers_its_supervisor() -> None:
    supervisor, worker = socket.socketpair()
    supervisor.setblocking(False)
    stop = asyncio.Event()
    hearing = asyncio.create_task(Lifeline(worker.detach(), 2).hear(stop, asyncio.Event()))
    loop = asyncio.get_running_loop()
    for _ in range(2):
        await loop.sock_sendall(supervisor, ASK)
        assert await asyncio.wait_for(loop.sock_recv(supervisor, 64), 10.0) == ANSWER
    assert not stop.is_set()
    supervisor.close()
    await asyncio.wait_for(hearing, 10.0)
    assert stop.is_set()


async def test_what_workers_listen_on_is_private_and_gone_at_the_end(tmp_path: Path) -> None:
    node = Node(tmp_path, 2)
    async with node.running():
        sockets = [one.socket for one in node.supervisor.workers()]
        assert all(one.is_socket() for one in sockets)
        assert {one.parent.stat().st_mode & 0o777 for one in sockets} == {0o700}
        assert all(len(os.fsencode(one)) <= 107 for one in sockets)
    assert not any(one.parent.exists() for one in sockets)


async def test_fewer_workers_wanted_while_they_start_are_no_error_and_none_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor had made its list of what to start before the settings were read again."""
    node, spawned = Node(tmp_path, 4), Supervisor._spawned

    async def read_again_meanwhile(supervisor: Supervisor, number: int, *rest: Any) -> Any:
        process = await spawned(supervisor, number, *rest)
        if number == 2 and supervisor.settings.workers > 1:
            node.tree["workers"] = 1
            await supervisor.reload()
        return process

    monkeypatch.setattr(Supervisor, "_spawned", read_again_meanwhile)
    (tmp_path / "empty-2").touch()
    task = asyncio.create_task(node.supervisor.run())
    try:
        await until(lambda: node.states() == {1: State.SERVING, 2: State.ENDED} or task.done())
        assert not task.done()
        assert "leave" in node.heard(2)
    finally:
        if not task.done():  # else nobody hears the signal but this process
            os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(task, 20.0)


async def test_a_worker_that_has_just_ended_keeps_no_other_from_being_told_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, told = Node(tmp_path, 2), []
    send = asyncio.subprocess.Process.send_signal

    def first_has_ended(process: asyncio.subprocess.Process, which: int) -> None:
        told.append(which)
        send(process, which)
        if len(told) == 1:
            raise ProcessLookupError

    async with node.running():
        monkeypatch.setattr(asyncio.subprocess.Process, "send_signal", first_has_ended)
    assert told == [signal.SIGTERM, signal.SIGTERM]


async def test_a_reload_that_a_member_asked_a_worker_for_is_the_whole_nodes(tmp_path: Path) -> None:
    """A token that is taken out of the file is taken out at the admin address too."""
    (tmp_path / "a-member-asks").touch()
    node = Node(tmp_path, 2)
    async with node.running():
        await until(lambda: node.heard(1) and node.heard(2))
        assert set(node.heard(1)) == {"reload 2"}
