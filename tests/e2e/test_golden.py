"""What users see stays as it was recorded: answers of the API, pages, what commands print, tables.

One lab: three nodes of two workers, mail in each state, a job, a resubmit request, a suspended queue,
a switch that was turned, and a member that is dead. ``SHADOWRELAY_RECORD=3`` in the environment records it
anew, from three labs: then read the difference, as of any change.
"""

from __future__ import annotations

import asyncio
import json
import os
import smtplib
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from golden_lines import Said, differences, lines, of_json, of_page, recorded, shared, values
from running_lab import INSIDE, OUTSIDE, RunningLab, text, typed, wait_until
from told_by_models import exact

from shadowlab import layout
from shadowrelay.admin.access import Access
from shadowrelay.admin.api import build_app
from shadowrelay.admin.node import RunningNode
from shadowrelay.admin.openapi import operations
from shadowrelay.core.identifiers import ServerName
from shadowrelay.workers.front import Supervising, build_front

KEPT = Path(__file__).parent / "golden"
RUNS = int(os.environ.get("SHADOWRELAY_RECORD", "0"))
WAITING = 60.0  # seconds
ASKED = "mx1"
ORPHANS = 8  # so many that each of the others takes some over
ENDLESS = {"/api/v1/events"}
PAGES = (
    "/login",
    "/",
    "/queues",
    "/queues/outside",
    "/messages",
    "/messages?state=queued",
    "/messages?q=anna",
    "/messages/{queued}",
    "/messages/{suspended}",
    "/messages/{delivered}",
    "/jobs",
    "/jobs/{job}",
    "/safety-net",
    "/safety-net/new",
    "/safety-net/{request}/change?act=remove",
    "/node",
    "/node/drain",
    "/node/reload",
    "/node/announce",
)
COMMANDS = (
    "status",
    "status --cluster",
    "status --workers",
    "queue list",
    "queue list --cluster",
    "queue list --workers",
    "queue show outside",
    "queue show outside --workers",
    "queue suspensions",
    "message list",
    "message list --state safety_net",
    "message list --state shadow",
    "message find {recipient}",
    "message find {recipient} --cluster",
    "message show {queued}",
    "message show {suspended}",
    "message show {delivered}",
    "message trace {delivered}",
    "message trace {delivered} --cluster",
    "message remove --sender *@outside.test --reason gone --dry-run",
    "job list",
    "job show {job}",
    "peer list",
    "peer list --workers",
    "member list",
    "shadow list",
    "shadow list --workers",
    "safety-net list --since 1h",
    "safety-net show {delivered}",
    "resubmit list",
    "resubmit show {request}",
    "redundancy show",
    "settings show",
    "settings show unreadable_answer_retry_count",
    "time show",
    "top --once",
    "top --once --workers",
    "reload --dry-run",
)


def printed(lab: RunningLab, *words: str) -> str:
    """What a command prints, after the status that it ends with."""
    done = typed(lab, ASKED, *words, columns=240)
    return f"exit {done.returncode}\n{done.stdout}{done.stderr}"


def in_json(lab: RunningLab, *words: str) -> list[dict]:
    """The values that a command prints as JSON. Its exit status may say that something is pending."""
    status, _, said = printed(lab, *words, "--json").partition("\n")
    assert status in {"exit 0", "exit 1"}, said
    return values(said)


def ids(lab: RunningLab, recipient: str, state: str) -> list[str]:
    found = in_json(lab, "message", "list", "--state", state)[0]["messages"]
    return [one["id"] for one in found if one["recipients"] == 1 and recipient in addresses(lab, one["id"])]


def addresses(lab: RunningLab, message_id: str) -> str:
    return json.dumps(in_json(lab, "message", "find", message_id))


def worker_at(lab: RunningLab, name: str, ours: tuple[str, int]) -> int:
    """The number of the worker that has the other end of a connection."""
    ends = f"{lab.cluster.node(name).smtp[1]:04X}", f"{ours[1]:04X}"
    sockets = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    (inode,) = {each[9] for each in sockets if (each[1][-4:], each[2][-4:]) == ends}
    for number, process in lab.cluster.workers(name).items():
        for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                if os.readlink(descriptor) == f"socket:[{inode}]":
                    return number
    return 0


def send(lab: RunningLab, name: str, worker: int, token: str, recipient: str) -> None:
    """Send a message to one worker. The kernel chooses one for each connection: try until it is that."""
    for _ in range(200):
        with smtplib.SMTP(*lab.cluster.node(name).smtp, timeout=WAITING) as client:
            client.ehlo("client.outside.test")
            ours = client.sock.getsockname()
            if worker_at(lab, name, ours) == worker:
                client.sendmail("sender@outside.test", [recipient], text(token, f"X-Golden: {token}"))
                return
    raise AssertionError(f"no connection came to worker {worker} of {name}")


def prepared(lab: RunningLab) -> dict[str, str]:
    """Bring a lab to the state of which a recording tells; returns what paths and commands name."""
    waits = ("transient_failure_retry_interval", "queue_glitch_retry_interval")
    slow = [f"{one}=10m" for one in (*waits, "outbound_connection_failure_retry_interval")]
    lab.up(*slow, nodes=3, workers=2)
    for value in ("off", "on"):  # first: while it is off, copies are let go
        in_json(lab, "redundancy", value, "--reason", "a test")
    in_json(lab, "settings", "set", "unreadable_answer_retry_count", "2", "--reason", "a test")
    for worker in (1, 2):
        send(lab, ASKED, worker, f"delivered-{worker}", INSIDE)
    wait_until(lambda: lab.status(ASKED).safety_net == 2, "two are delivered", WAITING)
    lab.cluster.refuse()
    for worker, recipient in ((1, OUTSIDE), (1, OUTSIDE), (2, INSIDE), (2, OUTSIDE)):
        send(lab, ASKED, worker, f"waiting-{worker}", recipient)
    for worker in (1, 2):
        send(lab, "mx2", worker, f"elsewhere-{worker}", OUTSIDE)
    for _ in range(ORPHANS):
        send(lab, "mx3", 1, "orphan", OUTSIDE)
    waiting = {ASKED: 4, "mx2": 2, "mx3": ORPHANS}
    wait_until(lambda: all(lab.queued(name) == each for name, each in waiting.items()), "all wait", WAITING)
    queued, delivered = ids(lab, OUTSIDE, "queued"), ids(lab, INSIDE, "safety_net")
    named = {"recipient": OUTSIDE, "queued": queued[0], "suspended": queued[1], "delivered": delivered[0]}
    (job,) = in_json(lab, "message", "suspend", named["suspended"], "--reason", "it is looked at", "--yes")
    in_json(lab, "queue", "suspend", "outside", "--reason", "it loses mail")
    window = ("--since", "1h", "--until", "30m", "--all")
    (made,) = in_json(lab, "resubmit", "add", *window, "--reason", "a mailbox was lost", "--yes")
    named |= {"job": job["id"], "request": made["request"]["id"]}
    lab.cluster.kill("mx3")
    all_told = sum(waiting.values())
    wait_until(lambda: lab.peer(ASKED, "mx3")["state"] == "unreachable", "its loss is noticed", WAITING)
    explain = partial(printed, lab, "status", "--cluster")
    wait_until(
        lambda: lab.queued(ASKED) + lab.queued("mx2") == all_told, "mail is taken over", WAITING, explain
    )
    both = (ASKED, "mx2")
    wait_until(lambda: not any(lab.status(name).exposed for name in both), "it has holders", WAITING, explain)
    return named


def looked_at(lab: RunningLab, path: str) -> tuple[int, str]:
    """The status and the body of an answer at the admin address."""
    try:
        with urllib.request.urlopen(lab.cluster.node(ASKED).admin + path, timeout=WAITING) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def api(lab: RunningLab, named: dict[str, str]) -> Iterator[tuple[str, frozenset[str]]]:
    beside = {"/api/v1/cluster/find": f"?q={OUTSIDE}", "/api/v1/safety-net": "?since=1h"}
    of = {"resubmit": named["request"], "jobs": named["job"]}
    front, _ = build_front(
        ServerName("mx1"), Access(), cast(Supervising, SimpleNamespace(workers=list)), asyncio.Event()
    )
    described = operations(front.routes) | operations(build_app(cast(RunningNode, None)).routes)
    for (method, place), operation in described.items():
        if method != "GET" or place in ENDLESS:
            continue
        kind = place.split("/")[3] if place.count("/") > 2 else ""
        filled = {"id": of.get(kind, named["queued"]), "hop": "outside", "number": 2, "path": "status"}
        path = place.format(**filled, name="mx2.lab.test", address=INSIDE)
        status, body = looked_at(lab, path + beside.get(place, ""))
        read = of_json if operation.content == "application/json" else lines
        if read is of_json and status == 200 and operation.answer is not Any:
            exact(operation.answer, body)
        yield f"GET {place}", read(body) | {f"{status=}"}


def pages(lab: RunningLab, named: dict[str, str]) -> Iterator[tuple[str, frozenset[str]]]:
    for page in PAGES:
        status, body = looked_at(lab, page.format(**named))
        yield page, of_page(body) | {f"{status=}"}


def commands(lab: RunningLab, named: dict[str, str]) -> Iterator[tuple[str, frozenset[str]]]:
    for command in COMMANDS:
        words = command.format(**named).split()
        for json_too, read in ((), lines), (("--json",), of_json):
            status, _, said = printed(lab, *words, *json_too).partition("\n")
            yield " ".join((command, *json_too)), read(said) | {status}


def tables(lab: RunningLab) -> Iterator[tuple[str, frozenset[str]]]:
    """The rows of both workers of a node that is down, column by column."""
    for file in sorted(lab.cluster.node(ASKED).data_dir.rglob("transport.db")):
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
            known = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
            for (table,) in known.fetchall():
                rows = connection.execute(f"SELECT * FROM {table}")
                columns = [column for column, *_ in rows.description]
                found = {
                    shared(f"{column}: {_kept(value)}")
                    for row in rows
                    for column, value in zip(columns, row, strict=True)
                }
                yield table, frozenset(found | set(columns))


def _kept(value: object) -> str:
    return f"<{len(value)} octets>" if isinstance(value, bytes) else repr(value)


def seen(directory: Path) -> dict[str, Said]:
    """What one lab shows, by family."""
    lab = RunningLab(directory)
    try:
        named = prepared(lab)
        found = {
            "api": dict(api(lab, named)),
            "pages": dict(pages(lab, named)),
            "commands": dict(commands(lab, named)),
        }
        lab.cluster.kill(ASKED)
        kept: dict[str, frozenset[str]] = {}
        for table, rows in tables(lab):
            kept[table] = kept.get(table, frozenset()) | rows
    finally:
        if layout.path_of(directory).exists():
            lab.cluster.down()
    return found | {"database": kept}


RUN = {"status": frozenset({"queued 0", "it is ready"})}
OTHER = {"status": frozenset({"queued 0", "it is ready", "late"})}


@pytest.mark.parametrize(
    ("said", "differs"),
    [
        ({"queued 0", "it is ready"}, []),
        ({"queued 0", "it is ready", "late"}, []),
        ({"queued 0"}, ["- it is ready"]),
        ({"queued 0", "it is ready", "held 0"}, ["+ held 0"]),
        ({"queued 0", "it is late"}, ["- it is ready", "+ it is late"]),
    ],
)
def test_a_line_that_is_missing_or_new_is_told_and_one_that_varied_is_not(said: set[str], differs: list[str]):
    kept = recorded([RUN, OTHER])
    found = differences(kept, {"status": frozenset(said)})
    assert found == [f"status {line}" for line in differs]


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.timeout(480 + 240 * RUNS)
def test_what_users_see_is_as_it_was_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SUDO_USER", "carol")  # whoever runs the tests
    if RUNS:
        runs = [seen(tmp_path / str(number) / "lab") for number in range(RUNS)]
        for family in runs[0]:
            (KEPT / f"{family}.txt").write_text(recorded([run[family] for run in runs]), "utf-8")
        return
    found = changed(tmp_path / "lab")
    if (
        found
    ):  # where the members' choices differ from those of all recorded runs, another lab differs elsewhere
        again = changed(tmp_path / "again" / "lab")
        found = [line for line in found if line in again]
    assert not found, "\n".join(found)


def changed(directory: Path) -> list[str]:
    return [
        f"{family}: {line}"
        for family, said in seen(directory).items()
        for line in differences((KEPT / f"{family}.txt").read_text("utf-8"), said)
    ]
