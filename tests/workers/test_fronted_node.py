"""The admin address of a real node of two workers: what operators and scrapers see of it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from test_supervisor import SupervisedNode, wait_for

from shadowlab.ports import free_ports

pytestmark = [pytest.mark.lab, pytest.mark.slow]

TOKEN = "a token of sixteen"
RECEIVED = r'^shadowrelay_tracking_events_total\{(?=.*event="RECEIVE").*worker="\d".*\} (\S+)$'


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SupervisedNode]:
    made = SupervisedNode(tmp_path_factory.mktemp("node"), 2)
    (hop,) = free_ports(1)  # nobody listens: mail stays
    route = {"domains": ["*"], "host": "127.0.0.1", "port": hop, "tls": "none"}
    made.write(admin={"listen": f"127.0.0.1:{made.admin}", "token": TOKEN}, routes={"out": route})
    made.up()
    try:
        yield made
        made.signal(signal.SIGTERM)
        assert made.ended() == 0
    finally:
        made.end()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *redirect: object) -> None:
        return None


def ask(
    node: SupervisedNode, target: str, body: bytes | None = None, **headers: str
) -> tuple[int, Any, dict[str, str]]:
    """Status, text, headers."""
    given = {"authorization": f"Bearer {TOKEN}"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    request = urllib.request.Request(f"http://127.0.0.1:{node.admin}{target}", body, given)
    try:
        with urllib.request.build_opener(_NoRedirect()).open(request, timeout=20) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode(), dict(refused.headers)


def get(node: SupervisedNode, path: str) -> Any:
    status, text, _ = ask(node, path)
    assert status == 200, text
    return json.loads(text)


def command(node: SupervisedNode, *words: str) -> subprocess.CompletedProcess[str]:
    url = f"http://127.0.0.1:{node.admin}"
    return subprocess.run(
        [sys.executable, "-m", "shadowrelay", *words],
        env=os.environ | {"SHADOWRELAY_ADMIN": url, "SHADOWRELAY_ADMIN_TOKEN": TOKEN},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def metric(page: str) -> list[float]:
    """What each worker has received."""
    return [float(one) for one in re.findall(RECEIVED, page, re.MULTILINE)]


def test_the_node_answers_for_its_workers_at_one_address(node: SupervisedNode) -> None:
    assert json.loads(ask(node, "/healthz/ready")[1])["ready"]
    workers = get(node, "/api/v1/workers")["workers"]
    assert [(one["number"], one["name"], one["state"]) for one in workers] == [
        (1, node.name, "serving"),
        (2, f"w2.{node.name}", "serving"),
    ]
    assert [one["pid"] for one in workers] == [node.pid(1), node.pid(2)]
    for number in (1, 2):
        assert get(node, f"/api/v1/workers/{number}/status")["name"] == workers[number - 1]["name"]
    told = command(node, "status")
    assert told.returncode == 0, told.stderr
    assert node.name in told.stdout


def test_metrics_are_those_of_all_workers(node: SupervisedNode) -> None:
    before = sum(metric(ask(node, "/metrics")[1]))
    node.send(*(f"message {number}" for number in range(12)))
    found = metric(ask(node, "/metrics")[1])
    assert len(found) == 2
    assert sum(found) == before + 12


def test_a_drain_by_the_command_reaches_both_workers(node: SupervisedNode) -> None:
    told = command(node, "drain", "--within", "1s")
    assert f"{node.name} is being drained" in told.stdout, told.stderr
    assert [get(node, f"/api/v1/workers/{number}/drain")["draining"] for number in (1, 2)] == [True, True]
    assert ask(node, "/healthz/ready")[0] == 503
    assert "takes mail" in command(node, "drain", "--end").stdout
    assert wait_for(lambda: ask(node, "/healthz/ready")[0] == 200)


def test_a_reload_by_the_command_reaches_both_workers_and_the_supervisor(node: SupervisedNode) -> None:
    node.write(log={"format": "json", "level": "debug"})
    told = command(node, "reload")
    assert told.returncode == 0, told.stderr + told.stdout
    assert "log.level" in told.stdout
    assert told.stdout.count("log.level") == 1
    node.write(log={"format": "nothing"})
    told = command(node, "reload")
    assert told.returncode == 1
    assert "refuses" in told.stdout
    node.write(log={"format": "json"})
    assert command(node, "reload").returncode == 0


def test_a_scrub_by_the_command_reads_what_both_workers_keep(node: SupervisedNode) -> None:
    node.send(*(f"scrubbed {number}" for number in range(8)))
    told = command(node, "scrub", "--json")
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    rounds = [get(node, f"/api/v1/workers/{number}/scrub")["last"] for number in (1, 2)]
    assert found["messages"] == sum(one["messages"] for one in rounds) > 0


def test_a_browser_logs_in_at_the_console_and_its_forms_carry_the_csrf(node: SupervisedNode) -> None:
    form = {"content_type": "application/x-www-form-urlencoded", "authorization": ""}
    body = urlencode({"token": TOKEN, "operator": "Ann", "next": "/"}).encode()
    status, _, headers = ask(node, "/login", body, **form)
    assert status == 303
    cookie = headers["set-cookie"].partition(";")[0]
    status, page, _ = ask(node, "/", authorization="", cookie=cookie)
    assert status == 200
    assert "Ann" in page
    status, page, _ = ask(node, "/node/drain", authorization="", cookie=cookie)
    csrf = re.findall(r'name="csrf" value="([^"]+)"', page)[-1]
    wrong, right = (urlencode({"csrf": one}).encode() for one in ("wrong", csrf))
    assert ask(node, "/node/undrain", wrong, cookie=cookie, **form)[0] == 403
    assert ask(node, "/node/undrain", right, cookie=cookie, **form)[0] == 303
    assert ask(node, "/", authorization="")[0] == 401


def test_when_the_first_worker_is_killed_the_second_answers_and_the_list_says_why(
    node: SupervisedNode,
) -> None:
    pid = node.pid(1)
    url = f"http://127.0.0.1:{node.admin}/api/v1/events"
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=10) as events:
        assert b"retry" in events.readline()
        os.kill(pid, signal.SIGKILL)
        while events.readline() != b"event: silent\n":  # the others are heard on
            pass
        assert b'"worker 1 (' in (told := events.readline()), told
    assert get(node, "/api/v1/cluster/status")["node"] == f"w2.{node.name}"
    wait_for(lambda: get(node, "/api/v1/workers")["workers"][0]["restarts"])
    first = get(node, "/api/v1/workers")["workers"][0]
    assert (first["restarts"], first["why"]) == (1, "killed by SIGKILL")
    assert 'shadowrelay_worker_restarts_total{worker="1"} 1' in ask(node, "/metrics")[1]
    wait_for(lambda: get(node, "/api/v1/workers")["workers"][0]["state"] == "serving")
    assert get(node, "/api/v1/cluster/status")["node"] == node.name
    assert node.pid(1) != pid


def test_a_wrong_token_is_refused(node: SupervisedNode) -> None:
    for target in ("/metrics", "/api/v1/workers", "/api/v1/workers/2/status", "/api/v1/drain", "/"):
        assert ask(node, target, authorization="Bearer wrong")[0] == 401, target


@pytest.mark.parametrize("frozen", [1, 2])
def test_a_frozen_worker_is_named_as_silent_and_all_else_is_told_at_once(
    node: SupervisedNode, frozen: int
) -> None:
    wait_for(lambda: node.serving() == {1, 2})
    pid, named = node.pid(frozen), f"worker {frozen}"
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        metrics = ask(node, "/metrics")[1]
        assert f'shadowrelay_worker_serving{{worker="{frozen}"}} 0.0' in metrics
        assert f'shadowrelay_ready{{worker="{3 - frozen}"}} 1.0' in metrics
        status, ready, _ = ask(node, "/healthz/ready")
        assert (status, named in json.loads(ready)["warning"]) == (200, True)
        told = get(node, "/api/v1/status")
        assert [one["answers"] for one in told["workers"]] == [frozen != 1, frozen != 2]
        assert ask(node, "/healthz/live")[0] == 200
        assert "does not answer" in ask(node, "/", accept="text/html")[1]
        for words in (["status"], ["top", "--once", "--interval", "0.2s"]):
            done = command(node, *words)
            assert done.returncode == 0, done.stderr
            assert named in done.stdout, done.stdout
        assert time.monotonic() - began < 30  # 60 s before: each looked for as long as it may
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: f'shadowrelay_worker_serving{{worker="{frozen}"}} 1.0' in ask(node, "/metrics")[1])
