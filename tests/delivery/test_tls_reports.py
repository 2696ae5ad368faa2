"""Results of TLS as a collector of reports gets them: tlsrpt-reporter's, and its report read back."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import socket
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from policy_host import policy
from programs import process
from stations import eventually
from test_mta_sts_delivery import DOMAIN, HOST, World, world

from shadowrelay.core.delivery.tls_policy import TlsResult
from shadowrelay.delivery.tls_reports import MOST_WAITING, TlsReporting

BIN = Path(sys.executable).parent
WANTED = ("_smtp._tls.example.net", "TXT")
RECORD = "v=TLSRPTv1; rua=mailto:reports@example.net"

collector = pytest.mark.skipif(
    not shutil.which("tlsrpt-collectd", path=str(BIN)), reason="there is no tlsrpt-reporter (PyPI)"
)


@asynccontextmanager
async def telling(found: World, to: Path, record: str = RECORD) -> AsyncIterator[None]:
    """The node tells that socket what became of TLS, for a domain with that record."""
    found.dns.zone[WANTED] = [json.dumps(record)]
    node = found.found.node
    node.tls_reports.to = lambda: to
    task = asyncio.create_task(node.tls_reports.run())
    try:
        yield
    finally:
        task.cancel()


@collector
async def test_the_report_of_a_collector_says_what_became_of_sessions(tmp_path: Path) -> None:
    short = Path(tempfile.mkdtemp(prefix="tlsrpt-"))  # a socket's path is short
    storage, to, reports = f"sqlite://{tmp_path}/collected", short / "socket", tmp_path / "reports"
    reports.mkdir()
    try:
        async with world(tmp_path, policy(HOST, mode="testing")) as found:
            arguments = (f"--storage={storage}", f"--socketname={to}", "--sockettimeout=1")
            async with process(str(BIN / "tlsrpt-collectd"), *arguments) as collectd, telling(found, to):
                await eventually(to.exists)
                await found.delivered()
                found.hop.tls = None
                closed = 0
                while not closed:  # a session that goes on has no other result
                    closed = len(waiting := idle(found))
                    await asyncio.gather(*(one.close() for one in waiting))
                    await asyncio.sleep(0.01)
                await found.delivered()
                counts = found.found.node.tls_reports.counts
                await eventually(lambda: counts["sent"] == 2)
                await eventually(lambda: sessions(tmp_path / "collected") == 2)  # nothing is on its way
                collectd.send_signal(signal.SIGUSR2)  # the day is over
                await eventually(lambda: 2 in map(sessions, tmp_path.glob("collected*yesterday*")))
                fetcher = f"{BIN}/tlsrpt-fetcher --storage={storage}"
                given = {
                    "dbname": tmp_path / "reportd",
                    "fetchers": fetcher,
                    "debug_send_file_dest": reports,
                    "organization_name": "example.org",
                    "contact_info": "postmaster@example.org",
                    "sender_address": "noreply@example.org",
                    "sendmail_script": "cat",
                    "spread_out_delivery": 1,
                    "interval_main_loop": 1,
                    "min_wait_domainlist": 0,
                    "max_wait_domainlist": 1,
                    "min_wait_domaindetails": 0,
                    "max_wait_domaindetails": 1,
                }
                async with process(
                    str(BIN / "tlsrpt-reportd"), *(f"--{name}={value}" for name, value in given.items())
                ):
                    await eventually(lambda: read(reports))
    finally:
        shutil.rmtree(short)
    (told,) = read(reports)["policies"]
    assert told["policy"] == {
        "policy-type": "sts",
        "policy-domain": DOMAIN,
        "policy-string": ["version: STSv1", "mode: testing", f"mx: {HOST}", "max_age: 604800"],
        "mx-host": [HOST],
    }
    assert told["summary"] == {"total-successful-session-count": 1, "total-failure-session-count": 1}
    assert told["failure-details"] == [
        {"receiving-mx-hostname": HOST, "result-type": "starttls-not-supported", "failed-session-count": 1}
    ]


def sessions(file: Path) -> int:
    """Those of which a day of the collector has results. It begins with a day before, which has none."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as found:
        return found.execute("SELECT total(cntrtotal) FROM finalresults").fetchone()[0]
    return 0


def read(reports: Path) -> Any:
    """The report, once the whole of it is there."""
    for file in reports.glob("*mailto*"):
        with suppress(ValueError):
            return json.loads(file.read_text())
    return None


def idle(found: World) -> list[Any]:
    """The sessions that wait for mail."""
    every = [session for hop in found.found.node.queue.hops.values() for session, _ in hop.idle]
    for hop in found.found.node.queue.hops.values():
        hop.idle.clear()
    return every


async def test_a_collector_that_is_gone_loses_reports_alone(tmp_path: Path) -> None:
    async with world(tmp_path, policy(HOST)) as found, telling(found, tmp_path / "nobody"):
        await found.delivered()
        counts = found.found.node.tls_reports.counts
        await eventually(lambda: counts["lost"] == 1)
        assert found.hop.taken == [True]


async def test_a_collector_that_reads_nothing_holds_nothing_up(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(path))
        async with world(tmp_path, policy(HOST)) as found, telling(found, path):
            await found.delivered()
            (result,) = found.found.node.tls_results.seen()
            counts = found.found.node.tls_reports.counts
            for _ in range(2 * MOST_WAITING):
                found.found.node.tls_results.note(result)
            await eventually(lambda: counts.total() == 2 * MOST_WAITING + 1)
            assert counts["lost"] >= MOST_WAITING
            await found.delivered()
        assert found.hop.taken == [True, True]


async def test_a_domain_whose_record_is_slow_hides_no_result_of_others(tmp_path: Path) -> None:
    released = asyncio.Event()

    async def texts(name: str) -> tuple[str, ...]:
        if name == "_smtp._tls.slow.test":
            await released.wait()
        return (RECORD,)

    async def nothing(_: str) -> None:
        return None

    def result(domain: str, host: str) -> TlsResult:
        return TlsResult(domain, host, "pkix", "mta-sts", "validation-failure", datetime.now(UTC))

    path, loop = tmp_path / "s", asyncio.get_running_loop()
    hosts = [f"mx{number}.{DOMAIN}" for number in range(4)]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as collects:
        collects.bind(str(path))
        collects.setblocking(False)

        async def host_told() -> str:
            told = json.loads(await asyncio.wait_for(loop.sock_recv(collects, 65536), 30))
            return str(told["policies"][0]["failure-details"][0]["n"])

        reporting = TlsReporting(lambda: path, texts, nothing)
        for one in [result("slow.test", "slow")] * 2 + [result(DOMAIN, host) for host in hosts]:
            reporting.heard(one)
        task = asyncio.create_task(reporting.run())
        assert [await host_told() for _ in hosts] == hosts
        released.set()
        assert [await host_told(), await host_told()] == ["slow", "slow"]
        task.cancel()


@pytest.mark.parametrize("record", ["v=spf1 -all", RECORD.replace("v1;", "v10;"), "v=TLSRPTv1"])
async def test_a_domain_that_wants_no_reports_is_in_none(tmp_path: Path, record: str) -> None:
    async with world(tmp_path, policy(HOST)) as found, telling(found, tmp_path / "nobody", record):
        await found.delivered()
        counts = found.found.node.tls_reports.counts
        await eventually(lambda: counts["unwanted"] == 1)
        assert not counts["lost"]
