"""Console, commands, API and metrics say the same of a lab, in each state, whichever node is asked."""

from __future__ import annotations

import html
import json
import re
import signal
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from running_lab import RunningLab, typed, typed_json, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

NODES = ("mx1", "mx2", "mx3")
KEPT = (
    "queue_glitch_retry_interval=5m",
    "transient_failure_retry_interval=5m",
    "outbound_connection_failure_retry_interval=5m",
    "shadow_resubmit_time_span=1h",
    "holder_loss_heartbeats=100",
)
"""What waits goes on to wait, and no copy is made again while a state is looked at."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What one node that was asked says of all nodes that answer."""

    queued: int
    at_risk: int
    held: int
    safe: bool


def got(lab: RunningLab, name: str, path: str) -> str:
    with urllib.request.urlopen(lab.cluster.node(name).admin + path, timeout=20) as answer:
        return str(answer.read().decode())


def by_console(lab: RunningLab, name: str) -> Told:
    page = got(lab, name, "/")

    def figure(title: str) -> int:
        found = re.search(rf"<dt>{title}</dt><dd>(.*?)</dd>", page, re.DOTALL)
        assert found, page
        return int(re.sub(r"<[^>]*>|,", "", html.unescape(found[1])))

    sentence = re.search(r"<h1>(.*?)</h1>", page)
    assert sentence
    return Told(
        queued=figure("Queued"),
        at_risk=figure("At risk now"),
        held=figure("Copies kept"),
        safe=html.unescape(sentence[1]) == "Every message is safe.",
    )


def by_status(lab: RunningLab, name: str) -> Told:
    code, answer, _ = typed_json(lab, name, "status")
    assert code == 0
    seen = [one["status"] for one in answer["nodes"] if one["answers"]]
    text = typed(lab, name, "status", columns=200).stdout
    own = next(one for one in seen if one["name"] == answer["name"])
    if own["at_risk"]:
        assert re.search(rf"^AT RISK: {own['at_risk']} messages? ha(s|ve) one copy", text, re.MULTILINE), text
    else:
        assert "\nAt risk: 0; " in text
    assert sum(one["messages"] for one in own["risks"]) == own["at_risk"]
    at_risk = sum(one.get("at_risk", one["exposed"]) for one in seen)  # an older node counts what is exposed
    away = {peer["name"] for one in seen for peer in one["peers"] if peer["state"] == "unreachable"}
    return Told(
        queued=sum(one["queued"] for one in seen),
        at_risk=at_risk,
        held=sum(one["shadow_held"] for one in seen),
        safe=not at_risk and len(away) < 2,
    )


def by_metrics(lab: RunningLab, answering: tuple[str, ...]) -> Mapping[str, int]:
    """Sums over the nodes that answer, as Prometheus makes them."""
    pages = [got(lab, name, "/metrics") for name in answering]

    def total(metric: str) -> int:
        pattern = rf"^shadowrelay_{metric}_messages(?:{{[^}}]*}})? (\S+)$"
        return sum(int(float(one)) for page in pages for one in re.findall(pattern, page, re.MULTILINE))

    return {"queued": total("queued"), "at_risk": total("at_risk"), "held": total("shadow")}


def queues(lab: RunningLab, name: str) -> list[dict[str, Any]]:
    """The queues of all nodes that answer."""
    done = typed(lab, name, "queue", "list", "--cluster", "--json")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [one for one in found if one["kind"] == "queue"]


def by_lists(lab: RunningLab, name: str) -> Mapping[str, int]:
    """What the lists of messages have, page after page."""
    return {"queued": sum(one["messages"] for one in queues(lab, name))}


def at_risk_listed(lab: RunningLab, answering: tuple[str, ...]) -> int:
    pages = [json.loads(got(lab, name, "/api/v1/messages?state=at_risk&limit=500")) for name in answering]
    return sum(len(one["messages"]) for one in pages)


def by_top(lab: RunningLab, answering: tuple[str, ...]) -> Mapping[str, int]:
    admins = [word for name in answering[1:] for word in ("--node", lab.cluster.node(name).admin)]
    done = typed(lab, answering[0], "top", "--once", "--json", *admins)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    return {"queued": answer["queued"], "at_risk": answer["at_risk"]}


def says(shown: Callable[[], Told], expected: Told) -> bool:
    return shown() == expected


def seen(shown: Callable[[], Told]) -> str:
    return str(shown())


def agree(lab: RunningLab, expected: Told, answering: tuple[str, ...] = NODES) -> None:
    """Every display of every node that answers says so."""
    for name in answering:
        shown = partial(by_console, lab, name)
        wait_until(partial(says, shown, expected), f"{name}: {expected}", 60, partial(seen, shown))
        assert by_status(lab, name) == expected, name
        assert by_lists(lab, name)["queued"] == expected.queued
    counted = {"queued": expected.queued, "at_risk": expected.at_risk, "held": expected.held}
    assert by_metrics(lab, answering) == counted
    assert at_risk_listed(lab, answering) == expected.at_risk
    assert by_top(lab, answering) == {key: counted[key] for key in ("queued", "at_risk")}


def states(lab: RunningLab, name: str) -> set[str]:
    """How the queue is, by the list of queues, its page and its own answer."""
    listed = {one["status"] for one in queues(lab, name) if one["next_hop"] == "inside"}
    page = got(lab, name, "/queues")
    assert all(f">{status}<" in page for status in listed), page
    return listed


def test_every_display_says_the_same_in_each_state(lab: RunningLab):
    lab.up(*KEPT, nodes=3)
    agree(lab, Told(queued=0, at_risk=0, held=0, safe=True))

    lab.cluster.refuse()
    lab.send(4, to="mx1")
    lab.send(3, to="mx2")
    waiting = Told(queued=7, at_risk=0, held=7, safe=True)
    agree(lab, waiting)

    assert typed(lab, "mx3", "queue", "suspend", "inside", "--reason", "a test").returncode == 0
    agree(lab, waiting)
    assert {found for name in NODES for found in states(lab, name)} == {"suspended"}
    assert typed(lab, "mx3", "queue", "resume", "inside", "--reason", "a test").returncode == 0

    holders = {one["name"]: one["shadow_held"] for one in lab.status("mx1").peers}
    assert not any(holders.values()), "mx1 holds nothing"
    assert lab.held("mx3") == 7
    lab.cluster.kill("mx3")
    agree(lab, Told(queued=7, at_risk=7, held=0, safe=False), ("mx1", "mx2"))
    lab.cluster.start("mx3")
    agree(lab, waiting)

    lab.cluster.kill("mx1")
    agree(lab, Told(queued=3, at_risk=4, held=7, safe=False), ("mx2", "mx3"))
    lab.cluster.kill("mx2")
    agree(lab, Told(queued=0, at_risk=7, held=7, safe=False), ("mx3",))
    lab.cluster.start("mx1")
    lab.cluster.start("mx2")
    agree(lab, waiting)

    assert typed(lab, "mx2", "redundancy", "off", "--reason", "a test").returncode == 0
    wait_until(lambda: lab.status("mx1").exposed == 4, "all is exposed", 60)
    agree(lab, Told(queued=7, at_risk=7, held=0, safe=False))
    assert typed(lab, "mx2", "redundancy", "on", "--reason", "a test").returncode == 0
    agree(lab, waiting)

    lab.cluster.accept()
    assert typed(lab, "mx1", "drain", "--within", "30s").returncode == 0
    wait_until(lambda: lab.queued("mx1") == 0, "it is empty", 60)
    assert typed(lab, "mx2", "queue", "retry", "inside", "--reason", "a test", "--yes").returncode == 0
    agree(lab, Told(queued=0, at_risk=0, held=0, safe=True))
    lab.verify()


def test_every_display_says_the_same_while_a_worker_is_frozen(lab: RunningLab):
    lab.up(*KEPT, nodes=2, workers=2)
    lab.cluster.refuse()
    lab.send(12, to="mx1")

    def worker(number: int) -> int:
        return int(json.loads(got(lab, "mx1", f"/api/v1/workers/{number}/status"))["queued"])

    first, second = worker(1), worker(2)
    assert first + second == 12
    number, frozen = (1, first) if first > second else (2, second)
    agree(lab, Told(queued=12, at_risk=0, held=12, safe=True), NODES[:2])
    process = lab.cluster.workers("mx1")[number]
    process.signal(signal.SIGSTOP)
    try:
        agree(lab, Told(queued=12 - frozen, at_risk=frozen, held=12, safe=False), NODES[:2])
    finally:
        process.signal(signal.SIGCONT)
    lab.cluster.accept()
    agree(lab, Told(queued=12, at_risk=0, held=12, safe=True), NODES[:2])


def test_every_display_of_a_node_says_the_same_beside_an_older_member(lab: RunningLab, last_program: Path):
    """The other node runs the program before this one. What it does not tell is no zero."""
    lab.up(*KEPT, nodes=2, environs={"mx2": {"PYTHONPATH": str(last_program)}})
    lab.cluster.refuse()
    lab.send(4, to="mx1")
    lab.send(3, to="mx2")

    def both(expected: Told) -> None:
        shown = partial(by_console, lab, "mx1")
        wait_until(partial(says, shown, expected), str(expected), 60, partial(seen, shown))
        assert by_status(lab, "mx1") == expected
        assert by_lists(lab, "mx1")["queued"] == expected.queued

    both(Told(queued=7, at_risk=0, held=7, safe=True))
    lab.cluster.kill("mx2")
    both(Told(queued=4, at_risk=7, held=3, safe=False))
    lab.cluster.start("mx2")
    both(Told(queued=7, at_risk=0, held=7, safe=True))
