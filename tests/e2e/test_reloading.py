"""A running node reads its settings again: a changed file is taken whole, or refused whole."""

from __future__ import annotations

import asyncio
import json
import signal
import smtplib
import ssl
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shadowlab.ports import free_ports
from shadowrelay import authority
from shadowrelay.settings import to_toml
from tests.service.test_service import Process, wait_for
from tests.smtp.scripted_hop import ScriptedHop

pytestmark = pytest.mark.lab


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path, delay="0s")
    yield process
    if process.running and process.running.poll() is None:
        process.running.kill()
        process.running.wait()


def change(node: Process, **changes: Any) -> None:
    """Write the settings file anew, with other values at the top."""
    node.file.write_text(to_toml(tomllib.loads(node.file.read_text()) | changes))


def reload(node: Process, *options: str) -> tuple[dict[str, Any], int]:
    """``shadowrelay reload``: what it answers, and its exit status."""
    typed = [sys.executable, "-m", "shadowrelay", "reload", "--json", *options]
    done = subprocess.run(
        [*typed, "--admin", f"http://127.0.0.1:{node.admin}"], capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout), done.returncode


def told(node: Process, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in node.text().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


def route(port: int) -> dict[str, Any]:
    return {"out": {"domains": ["*"], "host": "127.0.0.1", "port": port, "tls": "none"}}


def send(node: Process, subject: str) -> None:
    with node.client() as client:
        client.sendmail("a@example.org", ["b@example.net"], f"Subject: {subject}\r\n\r\nbody\r\n".encode())


@pytest.mark.slow
async def test_a_hangup_under_load_sends_new_mail_to_the_new_host_and_loses_nothing(node: Process) -> None:
    async with ScriptedHop() as old, ScriptedHop() as new:
        change(node, routes=route(old.port))
        await asyncio.to_thread(node.up)
        acknowledged: list[str] = []
        stop = threading.Event()

        def load() -> None:
            while not stop.is_set():
                send(node, f"load-{len(acknowledged)}")
                acknowledged.append(f"load-{len(acknowledged)}")

        sending = asyncio.create_task(asyncio.to_thread(load))
        await asyncio.to_thread(wait_for, lambda: len(old.contents) > 5)
        change(node, routes=route(new.port))
        node.signal(signal.SIGHUP)
        await asyncio.to_thread(wait_for, lambda: told(node, "reloaded"))
        before = len(acknowledged) + 1  # one may be under way
        await asyncio.to_thread(wait_for, lambda: len(acknowledged) > before + 5)
        stop.set()
        await sending
        await asyncio.to_thread(wait_for, lambda: len(old.contents) + len(new.contents) >= len(acknowledged))
        to_new = b"".join(new.contents)
        assert all(f"Subject: {name}\r".encode() in to_new for name in acknowledged[before:])
        everything = to_new + b"".join(old.contents)
        assert all(everything.count(f"Subject: {name}\r".encode()) == 1 for name in acknowledged)
    (change_told,) = told(node, "reloaded")
    assert [one.partition(":")[0] for one in change_told["now"]] == ["routes.out.port"]


def test_a_file_with_an_error_changes_nothing_and_the_node_goes_on(node: Process) -> None:
    node.up()
    change(node, accepted_domains=["inside.test"], drain_timeout="soon")
    answer, status = reload(node)
    assert status == 1
    assert not answer["taken"]
    assert any("drain_timeout" in one for one in answer["wrong"])
    with node.client() as client:
        client.ehlo()
        client.mail("a@example.org")
        assert client.rcpt("b@example.net")[0] == 250
    ready = _ready(node)
    assert ready["ready"]
    assert "the settings file was refused" in ready["warning"]


@pytest.mark.slow
def test_a_dry_run_says_what_would_change_and_changes_nothing(node: Process) -> None:
    node.up()
    change(node, relay_networks=[], receive={**_receive(node), "more": {"listen": "127.0.0.1:0"}})
    answer, _ = reload(node, "--dry-run")
    assert not answer["taken"]
    assert [one["key"] for one in answer["now"]] == ["relay_networks"]
    assert [one["key"] for one in answer["restart"]] == ["receive.more"]
    with node.client() as client:
        client.ehlo()
        client.mail("a@example.org")
        assert client.rcpt("b@example.net")[0] == 250, "a dry run changes nothing"


@pytest.mark.slow
def test_what_needs_a_restart_keeps_its_value_and_is_warned_of_until_then(node: Process) -> None:
    node.up()
    (other,) = free_ports(1)
    receive = _receive(node)
    receive["default"] |= {"listen": f"127.0.0.1:{other}", "max_message_size": "1KiB"}
    change(node, receive=receive, log={"format": "json", "level": "debug"})
    answer, status = reload(node)
    assert status == 0
    assert [one["key"] for one in answer["restart"]] == ["receive.default.listen"]
    assert {one["key"] for one in answer["now"]} == {"receive.default.max_message_size", "log.level"}
    with node.client() as client:
        client.ehlo()
        assert client.esmtp_features["size"] == "1024"
    assert "a restart is needed for receive.default.listen" in _ready(node)["warning"]
    receive["default"]["listen"] = f"127.0.0.1:{node.smtp}"
    change(node, receive=receive)
    assert reload(node)[0]["restart"] == []
    assert "warning" not in _ready(node)


@pytest.mark.slow
async def test_mail_whose_route_is_gone_waits_and_goes_when_there_is_one_again(node: Process) -> None:
    async with ScriptedHop(RCPT=[b"451 4.2.0 later\r\n"]) as busy, ScriptedHop() as hop:
        change(node, routes=route(busy.port), queue_glitch_retry_interval="1s")
        await asyncio.to_thread(node.up)
        await asyncio.to_thread(send, node, "waits")
        await asyncio.to_thread(wait_for, lambda: "DEFER" in node.tracked())
        gone = {"in": {"domains": ["inside.test"], "host": "127.0.0.1", "port": 9, "tls": "none"}}
        change(node, routes=gone)
        assert (await asyncio.to_thread(reload, node))[1] == 0
        await asyncio.to_thread(wait_for, lambda: "No route to that domain" in node.tracked())
        change(node, routes={"world": route(hop.port)["out"]})
        assert (await asyncio.to_thread(reload, node))[1] == 0
        await asyncio.to_thread(wait_for, lambda: hop.contents)
        assert len(hop.contents) == 1


def certified(directory: Path, name: str) -> authority.Pair:
    """A certificate of an authority that is made if it is not there."""
    if not authority.authority_pair(directory).key.exists():
        authority.init(directory, name="test", now=datetime.now(UTC))
    return authority.issue(directory, name, now=datetime.now(UTC))


def shown_to(client: smtplib.SMTP) -> bytes:
    assert isinstance(client.sock, ssl.SSLSocket)
    found = client.sock.getpeercert(binary_form=True)
    assert found
    return found


def secured(node: Process) -> smtplib.SMTP:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    client = node.client()
    client.starttls(context=context)
    return client


@pytest.mark.slow
def test_a_certificate_that_is_replaced_is_shown_at_the_next_handshake_and_old_sessions_go_on(
    node: Process, tmp_path: Path
) -> None:
    first = certified(tmp_path / "ca", "mx1.example.org")
    second = certified(tmp_path / "ca", "new.example.org")
    receive = _receive(node)
    receive["default"] |= {"tls_certificate": str(first.certificate), "tls_key": str(first.key)}
    change(node, receive=receive)
    node.up()
    old = secured(node)
    was = shown_to(old)
    first.certificate.write_bytes(second.certificate.read_bytes())  # the key is still that of the old one
    wait_for(lambda: told(node, "certificates_not_taken"))
    with secured(node) as client:
        assert shown_to(client) == was, "a pair that does not fit is not taken"
    assert "changed certificates are not taken" in _ready(node)["warning"]
    first.key.write_bytes(second.key.read_bytes())
    wait_for(lambda: told(node, "certificate_taken"))
    with secured(node) as client:
        assert shown_to(client) == ssl.PEM_cert_to_DER_cert(second.certificate.read_text())
    assert told(node, "certificate_taken")[0]["valid_until"].startswith("20")
    assert "warning" not in _ready(node)
    assert old.noop()[0] == 250
    assert shown_to(old) == was


@pytest.mark.slow
def test_a_hangup_while_a_node_starts_does_not_end_it(node: Process) -> None:
    node.start()
    running = node.running
    assert running
    wait_for(lambda: _caught(running.pid) >> (signal.SIGHUP - 1) & 1)
    while "node_started" not in node.text():
        node.signal(signal.SIGHUP)
        assert running.poll() is None
    wait_for(lambda: told(node, "reloaded"))


def _caught(pid: int) -> int:
    """The signals that a process has a handler for, as a mask."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("SigCgt")), 16)


def _receive(node: Process) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(node.file.read_text())["receive"]
    return found


def _ready(node: Process) -> dict[str, Any]:
    import urllib.request

    with urllib.request.urlopen(f"http://127.0.0.1:{node.admin}/healthz/ready", timeout=10) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    return found
