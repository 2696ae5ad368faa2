"""The mailbox service before Debian's Dovecot, set as docs/neighbours.md says."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from mailbox_process import MailboxProcess, mailbox_process
from neighbourhood import PATIENCE, arrived, port, room
from running_lab import INSIDE, RunningLab, text, wait_until

from shadowlab import mail
from tests.neighbours import dovecot
from tests.neighbours.dovecot import Dovecot

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(dovecot.missing() is not None, reason=str(dovecot.missing())),
]

ANNA, BERTA, CARLA = INSIDE, "berta@inside.test", "carla@inside.test"
DROPPED = "250 2.0.0 Duplicate dropped, delivered before"


@contextmanager
def a_dovecot(directory: Path, *more: str) -> Iterator[Dovecot]:
    with dovecot.running(directory, port(), {ANNA: 0, BERTA: 4096, CARLA: 0}, *more) as instance:
        yield instance


@asynccontextmanager
async def before(instance: Dovecot, directory: Path, *options: str) -> AsyncIterator[MailboxProcess]:
    host, number = instance.address
    async with mailbox_process(directory, "--deliver", f"lmtp://{host}:{number}", *options) as service:
        yield service


async def commanded(*words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shadowmailbox", *words, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0
    return printed.decode()


def stored(instance: Dovecot) -> dict[str, int]:
    return {to: len(files) for to, files in arrived(instance.mailboxes).items()}


def lost(instance: Dovecot) -> None:
    """Its mail is gone, and it is empty when it is back."""
    instance.kill()
    for domain in instance.mailboxes.iterdir():
        shutil.rmtree(domain)
    instance.start()


@pytest.mark.parametrize("running", [True, False], ids=["while it runs", "while it does not"])
async def test_after_dovecots_data_is_lost_mail_comes_back_once_the_table_forgets_it(
    tmp_path: Path, running: bool
) -> None:
    letters = [text(mail.token("lost")) for _ in range(5)]
    service_at, table = tmp_path / "service", str(tmp_path / "service" / "table")

    async def everything(service: MailboxProcess) -> list[str]:
        return [reply for one in letters for reply in await service.send(one, ANNA, CARLA)]

    async def forgotten() -> object:
        return json.loads(await commanded("forget", "--table", table, "--all", "--yes", "--json"))

    async def comes_back(service: MailboxProcess) -> None:
        assert all(reply.startswith("250 2.0.0 <") for reply in await everything(service))
        assert stored(instance) == {ANNA: 5, CARLA: 5}
        assert await everything(service) == [DROPPED] * 10
        assert stored(instance) == {ANNA: 5, CARLA: 5}

    with room() as directory, a_dovecot(directory) as instance:
        async with before(instance, service_at) as service:
            await comes_back(service)
            lost(instance)
            assert await everything(service) == [DROPPED] * 10
            assert stored(instance) == {}, "answered 250, and nowhere"
            assert json.loads(await commanded("show", "--table", table, "--json"))["rows"] == 10
            if running:
                assert await forgotten() == {"forgotten": 10}
                await comes_back(service)
        if not running:
            assert await forgotten() == {"forgotten": 10}
            async with before(instance, service_at) as service:
                await comes_back(service)


@pytest.mark.parametrize(("more", "full"), [((), "552 5.2.2"), (("quota_full_tempfail = yes",), "452 4.2.2")])
async def test_what_dovecot_refuses_is_refused_by_the_service_with_the_same_words(
    tmp_path: Path, more: tuple[str, ...], full: str
) -> None:
    big = text(mail.token("refused"), body="\r\n".join(["x" * 70] * 200))
    with room() as directory, a_dovecot(directory, *more) as instance:
        async with before(instance, tmp_path) as service:
            replies = await service.send(big, ANNA, BERTA, "nobody@inside.test", CARLA)
            assert replies[1].startswith(f"{full} <{BERTA}> Quota exceeded"), replies
            assert replies[2].startswith("550 5.1.1 <nobody@inside.test> User doesn't exist"), replies
            assert [replies[0][:9], replies[3][:9]] == ["250 2.0.0"] * 2
            again = await service.send(big, ANNA, BERTA, CARLA)
            assert (again[0], again[1][:9], again[2]) == (DROPPED, full, DROPPED)
        assert stored(instance) == {ANNA: 1, CARLA: 1}


async def test_while_dovecot_is_down_mail_is_put_off_and_nothing_is_remembered(tmp_path: Path) -> None:
    letter = text(mail.token("down"))
    with room() as directory, a_dovecot(directory) as instance:
        async with before(instance, tmp_path) as service:
            instance.kill()
            [reply] = await service.send(letter, ANNA)
            assert reply.startswith("451 4.4.1 ")
            instance.start()
            [reply] = await service.send(letter, ANNA)
            assert reply.startswith("250 2.0.0 <")
        assert stored(instance) == {ANNA: 1}


@pytest.mark.lab
def test_what_two_nodes_send_is_in_dovecot_once(lab: RunningLab, tmp_path: Path) -> None:
    """The owner dies when it has heard the 250 and has no record of it; the holder sends all of it again."""
    count = 5
    with (
        room() as directory,
        a_dovecot(directory) as instance,
        in_the_background(instance, tmp_path) as inside,
    ):
        lab.mailboxes = instance.mailboxes
        lab.up(
            f"routes.inside.port={inside}",
            "shadow_resubmit_time_span=2s",
            nodes=2,
            environs={"mx1": {"SHADOWRELAY_FAILPOINT": f"after-next-hop-reply:{count}"}},
        )
        for _ in range(count):
            lab.offer(to="mx1", recipients=(ANNA, CARLA))
        wait_until(lambda: lab.events("mx2", "RESUBMIT"), "mx2 took over", PATIENCE)
        wait_until(lambda: lab.count().lost == 0 and lab.queued("mx2") == 0, "all delivered", PATIENCE)
        wait_until(
            lambda: lab.events("mx2", "DUPLICATEDELIVER"), "the service dropped a second copy", PATIENCE
        )
        times = mail.arrivals(instance.mailboxes)
        assert set(times.values()) == {1}
        assert len(times) >= 2 * len(lab.acknowledged) > 0


@pytest.mark.lab
def test_dovecot_loses_its_mail_and_a_request_brings_it_back(lab: RunningLab, tmp_path: Path) -> None:
    """The service keeps its disk: without ``forget`` all that is brought back would be dropped."""

    def asked(*words: str) -> str:
        admin = lab.cluster.node("mx2").admin
        command = [sys.executable, "-m", "shadowrelay", "resubmit", "add", "--admin", admin, "--since", "1h"]
        command += ["--until", "1s", "--to", "inside", "--reason", "Dovecot lost its mail", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    with (
        room() as directory,
        a_dovecot(directory) as instance,
        in_the_background(instance, tmp_path) as inside,
    ):
        lab.mailboxes = instance.mailboxes
        lab.up(f"routes.inside.port={inside}", "shadow_heartbeat_frequency=1s", nodes=2)
        lab.send(4, to="mx1", recipients=(ANNA, CARLA))
        wait_until(lambda: stored(instance) == {ANNA: 4, CARLA: 4}, "all delivered", PATIENCE)
        wait_until(lambda: lab.held("mx2") == 0, "all settled", PATIENCE)
        before_it = mail.arrivals(instance.mailboxes)
        lost(instance)
        time.sleep(1.1)  # the window ends a second ago
        assert "mailbox forget" in asked("--dry-run")
        forget = ["forget", "--table", str(tmp_path / "table"), "--all", "--yes"]
        subprocess.run([sys.executable, "-m", "shadowmailbox", *forget], check=True)
        assert "mailbox forget" not in asked("--yes")
        wait_until(lambda: mail.arrivals(instance.mailboxes) == before_it, "all is back", PATIENCE)
        wait_until(lambda: lab.queued("mx1") == lab.queued("mx2") == 0, "nothing is left", PATIENCE)
        assert mail.arrivals(instance.mailboxes) == before_it
        assert not lab.events("mx1", "DUPLICATEDELIVER")


@contextmanager
def in_the_background(instance: Dovecot, directory: Path) -> Iterator[int]:
    """A service for a lab; yields the port at which it takes LMTP."""
    host, number = instance.address
    ready = directory / "ready"
    words = ["--deliver", f"lmtp://{host}:{number}", "--table", directory / "table", "--ready-file", ready]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "shadowmailbox", "--inside", "127.0.0.1:0", *map(str, words)],
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(ready.exists, "the service is ready", PATIENCE)
        yield int(json.loads(ready.read_text())["inside"].rpartition(":")[2])
    finally:
        process.kill()
        process.wait()
