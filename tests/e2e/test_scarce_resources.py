"""Back pressure where resources are really short, under load: each refuses in its order, nothing that was
acknowledged is lost, and it is over without a restart.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from running_lab import INSIDE, RunningLab, text, wait_until
from scarce import FULL, mail_comes, reply_to_mail, slow_disk

from shadowlab.disks import Disk, lacking, mounted
from shadowlab.mail import token

sys.path.append(str(Path(__file__).parents[2]))
from tests.bench.quotas import MEMORY, missing, quotas

pytestmark = [pytest.mark.lab, pytest.mark.slow]

MIB = 1 << 20
TRUSTED = "127.0.0.2"
ENVELOPE = ("MAIL FROM:<sender@outside.test>", f"RCPT TO:<{INSIDE}>", "DATA")


def pressed(**marks: str) -> dict[str, str]:
    """Variables of a node with back pressure; that of the whole machine's disk and memory is left out."""
    given = {"enabled": "true", "data_disk": "100/100/100/100", "memory": "100/100/100/100", **marks}
    return {f"SHADOWRELAY_BACK_PRESSURE__{name.upper()}": value for name, value in given.items()}


def levels(lab: RunningLab, resource: str) -> list[str]:
    """What became of a resource of mx1, by its log; no other one may have changed."""
    changed = [row["source-context"].split(": ") for row in lab.events("mx1", "BACKPRESSURE")]
    assert {what for what, _ in changed} <= {resource}, changed
    return [change.rpartition(" ")[2] for _, change in changed]


def runs_on(lab: RunningLab, process: int | None) -> None:
    """It is the process that it was, and takes mail."""
    assert lab.cluster.process("mx1").alive
    assert lab.cluster.process("mx1").pid == process
    wait_until(lambda: lab.offer(to="mx1", recipients=(INSIDE,)), "it takes mail")


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Disk]:
    """What mx1 keeps its data on, or its log alone, in the lab of this test."""
    if reason := lacking():
        pytest.skip(f"mx1 needs a disk of its own, and {reason}")
    place = {"data_disk": "nodes/mx1/data", "log_disk": "tracking/mx1"}[request.param]
    with mounted(tmp_path / "disk.img", tmp_path / "lab" / place, 300 * MIB) as disk:
        yield disk


@pytest.mark.parametrize(
    ("disk", "resource"), [("data_disk", "data_disk"), ("log_disk", "log_disk")], indirect=["disk"]
)
def test_before_a_disk_is_full_strangers_are_refused_then_senders_and_copies_last(
    disk: Disk, lab: RunningLab, resource: str
) -> None:
    """Two workers go by one level."""
    lab.up(
        "minimum_free_disk=2MiB",
        "shadow_resubmit_time_span=1h",
        f'relay_networks=["{TRUSTED}/32"]',
        nodes=2,
        workers=2,
        environs={"mx1": pressed(**{resource: "50/70/60/40"})},  # mx2 has the disk of this machine
    )
    process = lab.cluster.process("mx1").pid
    size = shutil.disk_usage(disk.place).total

    def refused() -> tuple[bool, bool]:
        """Strangers, and others; asked often enough that each worker was."""
        asked = [[reply_to_mail(lab, "mx1", source) for _ in range(6)] for source in ("127.0.0.1", TRUSTED)]
        return asked[0] == [FULL] * 6, asked[1] == [FULL] * 6

    with mail_comes(lab):
        wait_until(lambda: refused() == (False, False), "all is taken")
        disk.leave(int(size * 0.45))
        wait_until(lambda: refused() == (True, False), "strangers are refused")
        disk.leave(int(size * 0.25))
        wait_until(lambda: refused() == (True, True), "all senders are refused")
        assert lab.offer(to="mx2", recipients=(INSIDE,)), "copies are taken"
        disk.leave(MIB)
        wait_until(lambda: not lab.offer(to="mx2", recipients=(INSIDE,)), "copies are refused last")
        assert refused() == (True, True)
        disk.clear()
        wait_until(lambda: lab.offer(to="mx2", recipients=(INSIDE,)), "copies are taken again")
        wait_until(lambda: refused() == (False, False), "it is over, without a restart")
    runs_on(lab, process)
    lab.verify()
    changed = levels(lab, resource)
    assert changed[0] == "medium"
    assert changed[-1] == "low"
    assert "high" in changed  # the floor may refuse copies before the next look finds the disk full
    assert lab.events("mx2", "BACKPRESSURE") == []


def test_commits_on_a_slow_disk_refuse_senders_until_they_are_through(lab: RunningLab) -> None:
    lab.up(
        "shadow_resubmit_time_span=1h",
        nodes=2,
        environs={"mx1": pressed(uncommitted="3/8/4/2")},
    )
    process = lab.cluster.process("mx1").pid
    over = threading.Event()

    def send() -> None:
        while not over.is_set():
            lab.offer(to="mx1", recipients=(INSIDE,))

    with ThreadPoolExecutor(40) as clients:
        try:
            with slow_disk(lab, "mx1"):
                for _ in range(40):
                    clients.submit(send)
                wait_until(lambda: "high" in levels(lab, "uncommitted"), "commits wait")
                assert lab.offer(to="mx2", recipients=(INSIDE,)), "copies are taken"
        finally:
            over.set()
    wait_until(lambda: levels(lab, "uncommitted")[-1:] == ["low"], "it is over, without a restart")
    runs_on(lab, process)
    lab.verify()


class Flood:
    """Clients that come all the time and each keep the node waiting for the end of a message."""

    def __init__(self, lab: RunningLab) -> None:
        self._lab = lab
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self.held = self.refused = 0

    async def _client(self) -> None:
        sent = token("flood")
        content = text(sent, body="\r\n".join(["x" * 998] * 60))
        reader, writer = await asyncio.open_connection(
            *self._lab.cluster.node("mx1").smtp, local_addr=(TRUSTED, 0)
        )
        try:
            for line in (
                "",
                "EHLO flood.test",
                "MAIL FROM:<sender@outside.test>",
                f"RCPT TO:<{INSIDE}>",
                "DATA",
            ):
                writer.write(f"{line}\r\n".encode() if line else b"")
                while (said := await reader.readline())[3:4] == b"-":
                    pass
                if said[:1] not in b"23":
                    self.refused += 1
                    return
            writer.write(content[:-2])
            await writer.drain()
            self.held += 1
            await self._over.wait()
            writer.write(b"\r\n.\r\n")
            if (await reader.readline()).startswith(b"250 "):
                self._lab.sent_otherwise(sent, INSIDE)
        finally:
            writer.close()

    async def _clients(self) -> None:
        async with asyncio.TaskGroup() as group:
            while not self._over.is_set():
                refused = self.refused
                for _ in range(5):
                    group.create_task(self._each())
                with suppress(TimeoutError):
                    async with asyncio.timeout(1 if self.refused > refused else 0.1):
                        await self._over.wait()

    async def _each(self) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await self._client()

    @contextmanager
    def coming(self) -> Iterator[None]:
        """Until the end of the block; then they end their messages."""
        thread = threading.Thread(target=self._loop.run_until_complete, args=(self._clients(),))
        thread.start()
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._over.set)
            thread.join()
            self._loop.close()


def killed(group: Path) -> bool:
    """Did the kernel kill what is in a group, for it had no memory left?"""
    told = [group / name for name in ("memory.oom_control", "memory.events")]
    lines = [line for file in told if file.exists() for line in file.read_text("ascii").splitlines()]
    return any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in lines)


def test_a_node_in_a_small_cgroup_refuses_a_flood_before_the_kernel_kills_it(lab: RunningLab) -> None:
    if reason := missing(MEMORY):
        pytest.skip(reason)
    lab.up("receive.default.max_inbound_connection_per_source=20000", "shadow_resubmit_time_span=1h", nodes=2)
    lab.cluster.stop("mx1")
    flood = Flood(lab)
    with quotas(MEMORY) as limits:
        with limits.begun_within(256 * MIB) as group:
            lab.cluster.start("mx1", pressed(memory="60/65/62/55"))
        process = lab.cluster.process("mx1").pid
        with flood.coming():
            wait_until(lambda: reply_to_mail(lab, "mx1", TRUSTED) == FULL, "senders are refused")
            refused = flood.refused
            wait_until(lambda: flood.refused > refused, "the flood, too")
        wait_until(lambda: levels(lab, "memory")[-1] == "low", "it is over, without a restart")
        assert not killed(group)
        runs_on(lab, process)
        lab.verify()
        lab.cluster.stop("mx1")
