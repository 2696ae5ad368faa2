"""The mailbox service as a process: what it shows of itself, and what follows when it is killed."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from mailbox_process import AFTER_COMMIT, BEFORE_COMMIT, MailboxProcess, mailbox_process
from mailboxes import MESSAGE
from prometheus_client.parser import text_string_to_metric_families
from scripted_hop import ScriptedHop

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "mailbox.md"
ANNA = "anna@inside.test"
STORED, DROPPED = "250 2.0.0 queued", "250 2.0.0 Duplicate dropped, delivered before"


async def asked(service: MailboxProcess, path: str, token: str = "") -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = Request(f"http://{service.addresses['admin']}{path}", headers=headers)

    def get() -> tuple[int, str]:
        try:
            with urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(get)


async def metrics(service: MailboxProcess) -> dict[str, float]:
    _, page = await asked(service, "/metrics")
    return {
        sample.name + sample.labels.get("class", ""): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


async def test_its_metrics_tell_what_it_did(tmp_path: Path) -> None:
    dot = [b"250 2.0.0 ok\r\n452 4.2.2 full\r\n552 5.2.2 full\r\n", b"421 4.3.2 bye\r\n"]
    async with (
        ScriptedHop(DOT=dot) as hop,
        mailbox_process(
            tmp_path, "--deliver", f"lmtp://127.0.0.1:{hop.port}", "--admin", "127.0.0.1:0"
        ) as service,
    ):
        await service.send(MESSAGE, ANNA, "b@x.test", "c@x.test")
        await service.send(MESSAGE, ANNA, ANNA)
        hop.script["GREETING"] = [b"554 5.3.2 no\r\n"]
        await service.send(b"Message-ID: <2@x>\r\n\r\n", ANNA)
        await service.send(b"Message-ID: <2@x>\r\n\r\n", ANNA)
        found = await metrics(service)
    name = "shadowrelay_mailbox_"
    expected = {"delivered_total": 1, "duplicates_total": 2, "refused_total4yz": 3, "refused_total5yz": 1}
    expected |= {"table_rows": 1, "ready": 1, "store_reachable": 0, "unrecorded_total": 0}
    assert {key: found[name + key] for key in expected} == expected
    assert found[name + "store_failures_total"] >= 1
    assert found[name + "sweep_timestamp_seconds"] > found[name + "start_time_seconds"] - 60
    described = set(re.findall(r"`(shadowrelay_mailbox_\w+)", PAGE.read_text("utf-8")))
    assert described == {key.removesuffix("4yz").removesuffix("5yz") for key in found}


async def test_its_health_is_open_and_its_metrics_want_the_token(tmp_path: Path) -> None:
    token, file = "0123456789abcdef", tmp_path / "mailbox.toml"
    file.write_text(f'[admin]\ntoken = "{token}"\nlisten = "127.0.0.1:0"\n')
    async with mailbox_process(tmp_path, "--config", file, "--dir", tmp_path / "mail") as service:
        assert await asked(service, "/healthz/live") == (200, '{"live":true}')
        assert await asked(service, "/healthz/ready") == (200, '{"ready":true,"reason":""}')
        assert (await asked(service, "/metrics"))[0] == 401
        assert (await asked(service, "/metrics", token))[0] == 200


async def test_a_signal_lets_a_transaction_finish_and_health_says_that_it_stops(tmp_path: Path) -> None:
    may = asyncio.Event()
    async with (
        ScriptedHop(pause=may.wait) as hop,
        mailbox_process(
            tmp_path, "--deliver", f"lmtp://127.0.0.1:{hop.port}", "--admin", "127.0.0.1:0"
        ) as service,
    ):
        sending = asyncio.create_task(service.send(MESSAGE, ANNA))
        await until(lambda: "DATA" in hop.verbs())
        service.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            while (await asked(service, "/healthz/ready"))[0] != 503:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert json.loads((await asked(service, "/healthz/live"))[1]) == {"live": True}
        may.set()
        assert await sending == [STORED]
        assert await service.process.wait() == 0


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - what another process does
            await asyncio.sleep(0.005)


KILLS: dict[str, Callable[[ScriptedHop], object]] = {
    "GREETING": lambda hop: hop.connections,
    "MAIL": lambda hop: "MAIL" in hop.verbs(),
    "DATA": lambda hop: "DATA" in hop.verbs(),
    "DOT": lambda hop: hop.contents,
}
"""What the store has not answered yet, and when the service waits for it."""


@pytest.mark.slow
async def test_killed_before_the_store_has_answered_nothing_is_remembered(tmp_path: Path) -> None:
    for verb, reached in KILLS.items():
        async with (
            ScriptedHop(**{verb: b""}) as hop,
            mailbox_process(tmp_path, "--deliver", f"lmtp://127.0.0.1:{hop.port}") as service,
        ):
            sending = asyncio.create_task(service.send(MESSAGE, ANNA))
            await until(partial(reached, hop))
            service.kill()
            assert await sending == [], verb
    async with (
        ScriptedHop() as hop,
        mailbox_process(tmp_path, "--deliver", f"lmtp://127.0.0.1:{hop.port}") as service,
    ):
        assert await service.send(MESSAGE, ANNA) == [STORED]
        assert len(hop.contents) == 1


@pytest.mark.parametrize(
    ("dies", "again", "times"),
    [(BEFORE_COMMIT, STORED, 2), (AFTER_COMMIT, DROPPED, 1)],
    ids=["before the row is on disk", "after it"],
)
async def test_killed_behind_the_stores_answer_only_the_row_decides_about_a_second_copy(
    tmp_path: Path, dies: str, again: str, times: int
) -> None:
    """Before the commit a second copy cannot be avoided (RFC 1047); mail is lost at no instant."""
    async with ScriptedHop() as hop:
        store = f"lmtp://127.0.0.1:{hop.port}"
        async with mailbox_process(tmp_path, "--deliver", store, dies=dies) as service:
            assert await service.send(MESSAGE, ANNA) == []
            assert await service.process.wait() == -signal.SIGKILL
        async with mailbox_process(tmp_path, "--deliver", store) as service:
            assert await service.send(MESSAGE, ANNA) == [again]
        assert len(hop.contents) == times


@pytest.mark.slow
async def test_a_large_message_needs_little_memory(tmp_path: Path) -> None:
    def most(service: MailboxProcess) -> int:
        """Octets of memory that the process has had at most."""
        text = Path(f"/proc/{service.process.pid}/status").read_text()
        return int(re.findall(r"^VmHWM:\s+(\d+) kB$", text, re.MULTILINE)[0]) * 1024

    large = MESSAGE + (b"x" * 70 + b"\r\n") * 1_000_000
    async with ScriptedHop() as hop:
        hop.keep_contents = False
        async with mailbox_process(tmp_path, "--deliver", f"lmtp://127.0.0.1:{hop.port}") as service:
            assert await service.send(MESSAGE, ANNA) == [STORED]
            before = most(service)
            assert await service.send(large.replace(b"<1@", b"<2@"), ANNA) == [STORED]
            assert most(service) - before < 16 * 2**20
        assert hop.octets > len(large)
