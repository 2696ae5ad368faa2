"""Nodes of several workers: each worker's log is read, and what is told is told of nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyarrow import parquet
from test_audit_histories import BEGIN, LOST, OTHER, begin, delivered, disk_lost, mail, stop
from test_audit_summary import SMALL, hour, summary_of
from test_audit_weighing import closing, file, told

from shadowaudit.cli import main
from shadowaudit.core.verdict import INCOMPLETE, PROVEN
from shadowaudit.core.weighing import weigh
from shadowaudit.core.workers import label, node_of, nodes_of
from shadowaudit.summary.gold import NoSuchNodeError
from shadowlab.generate.writing import NodeLog

MX1, SECOND, MX2 = "mx1.example.com", "w2.mx1.example.com", "mx2.example.com"
SECONDS = f"{'4' * 8}-0000-4000-8000-000000000000"


def two_workers(directory: Path) -> Path:
    """Each of two workers of mx1 delivered a message of which mx2 held the copy."""
    logs = []
    for name, place, database in (
        (MX1, "mx1", LOST),
        (SECOND, "mx1/worker-2", SECONDS),
        (MX2, "mx2", OTHER),
    ):
        (directory / place).mkdir(parents=True)
        logs.append(NodeLog(directory / place, name, database, database[0] * 16))
        begin(logs[-1], 0)
    first, second, holder = logs
    mail(1, 1000, first, holder, delivered)
    mail(2, 2000, second, holder, delivered)
    mail(3, 3000, second, holder, delivered)
    for one in logs:
        stop(one, 5000)
    return directory


def verify(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["verify", "--engine", "here", *map(str, arguments)])
    return done.exit_code, done.stdout if "--json" in arguments else done.output


def test_logs_of_workers_below_the_directory_of_their_node_are_read_and_nodes_are_counted(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    status, text = verify(two_workers(tmp_path / "logs"), "--out", out)
    assert status == PROVEN, text
    verdict = json.loads((out / "verdict.json").read_text("utf-8"))
    assert (verdict["files"], verdict["nodes"], verdict["workers"]) == (3, 2, 3)
    assert "3 files of 2 nodes (3 workers)" in text
    assert "2 nodes (3 workers)" in (out / "report.html").read_text("utf-8")


def test_the_directory_of_one_node_has_the_logs_of_all_its_workers(tmp_path: Path) -> None:
    logs = two_workers(tmp_path / "logs")
    _, text = verify(logs / "mx1", "--out", tmp_path / "out", "--json")
    assert json.loads(text)["files"] == 2


def test_the_latencies_of_workers_are_those_of_their_node(tmp_path: Path) -> None:
    out = tmp_path / "out"
    verify(two_workers(tmp_path / "logs"), "--out", out)
    rows = parquet.read_table(out / "stats.parquet").to_pylist()
    delivered_by = {row["node"]: row["count"] for row in rows if row["measure"] == "deliver"}
    assert delivered_by == {MX1: 3}


def test_nodes_of_one_worker_are_told_as_ever(tmp_path: Path) -> None:
    out = tmp_path / "out"
    verify(disk_lost(tmp_path / "logs", stopped=True), "--lost", LOST, "--out", out)
    verdict = json.loads((out / "verdict.json").read_text("utf-8"))
    assert verdict["nodes"] == 2
    assert "workers" not in verdict


def test_a_name_like_that_of_a_worker_is_one_if_its_node_is_there() -> None:
    assert [node_of(name) for name in (MX1, SECOND, "w1.mx1.test", "w100.mx1.test")] == [
        MX1,
        MX1,
        "w1.mx1.test",
        "w100.mx1.test",
    ]
    alone = ("w2.example.com", "ex1.example.com")
    assert nodes_of(alone) == dict(zip(alone, alone, strict=True))
    assert [label(name) for name in (MX1, SECOND)] == ["mx1", "w2.mx1"]


def worker_lost(directory: Path) -> Path:
    """Both workers of mx1 closed a file, were killed, lost their disk, and go on with new databases."""
    logs = disk_lost(directory, stopped=True)
    place = logs / "mx1" / "worker-2"
    place.mkdir()
    holder = NodeLog(logs / "mx2", "mx3.example.com", f"{'6' * 8}-0000-4000-8000-000000000000", "6" * 16)
    begin(holder, 0)
    before = NodeLog(place, SECOND, SECONDS, "4" * 16)
    begin(before, 0)
    mail(11, 1000, before, holder, delivered)
    before.close(BEGIN + 2000)
    now = NodeLog(place, SECOND, f"{'5' * 8}-0000-4000-8000-000000000000", "5" * 16)
    begin(now, 60_000)
    mail(12, 61_000, now, holder, delivered)
    for one in (now, holder):
        stop(one, 70_000)
    return logs


@pytest.mark.parametrize(
    ("lost", "status", "gaps"),
    [((), INCOMPLETE, 2), ((MX1,), PROVEN, 0), ((SECOND,), INCOMPLETE, 1), ((LOST, SECONDS), PROVEN, 0)],
    ids=["nothing", "the node", "one worker", "each database"],
)
def test_the_loss_of_the_disk_of_a_node_is_that_of_all_its_workers(
    tmp_path: Path, lost: tuple[str, ...], status: int, gaps: int
) -> None:
    declared = [argument for one in lost for argument in ("--lost", one)]
    found, text = verify(worker_lost(tmp_path / "logs"), *declared, "--out", tmp_path / "out", "--json")
    assert found == status, text
    verdict = json.loads(text)
    assert len(verdict["gaps"]) == gaps
    excused = {one for one in (LOST, SECONDS) if one in "".join(verdict["unprovable"])}
    assert excused == {0: {LOST, SECONDS}, 1: {SECONDS}, 2: set()}[gaps]
    if gaps == 1:
        assert verdict["gaps"][0]["where"].startswith(f"{MX1}, ")


def test_a_node_of_which_nothing_was_lost_is_not_believed_to_have_lost_its_disk() -> None:
    mx1 = closing(1, 20, node="mx1.test", database="one")
    other = closing(1, 5, node="mx2.test", database="two")
    assert told(weigh([mx1, other], lost=["mx1.test"])) == [
        "the disk of mx1.test was declared lost, and no row of another database agrees"
    ]


def test_a_worker_that_goes_on_is_not_declared_lost_with_its_node() -> None:
    gone = file(1, 10, node="mx1.test", database="one")
    going_on = closing(1, 20, node="w2.mx1.test", database="two")
    holder = closing(
        1, 5, node="mx2.test", database="three", promoted={"one": 3}, databases={"two": "w2.mx1.test"}
    )
    evidence = weigh([gone, going_on, holder], lost=["mx1.test"])
    assert told(evidence) == []
    assert (evidence.databases["one"].lost, evidence.databases["two"].lost) == (True, False)


def test_a_database_of_a_lost_node_may_have_no_log_at_all() -> None:
    holder = closing(
        1, 5, node="mx2.test", database="two", promoted={"one": 3}, databases={"one": "w2.mx1.test"}
    )
    assert told(weigh([holder], lost=["mx1.test"])) == []


def test_a_summary_lists_nodes_and_a_node_or_one_worker_can_be_asked_for() -> None:
    rows = SMALL | {
        "traffic": [*SMALL["traffic"], hour(20, 9, "w2.mx1", received=7, octets=70)],
        "promotions": [
            *SMALL["promotions"],
            {**SMALL["promotions"][0], "node": "mx2", "owner": "w2.mx1", "messages": 4},
        ],
    }
    summary = summary_of(rows)
    assert {name: flow.received for name, flow in summary.nodes.items()} == {"mx1": 117, "mx2": 50}
    assert [(one.node, one.owner, one.messages) for one in summary.promotions] == [("mx2", "mx1", 7)]
    assert summary_of(rows, node="mx1").totals.received == 117
    assert summary_of(rows, node="w2.mx1").totals.received == 7
    with pytest.raises(NoSuchNodeError, match=r"nodes are: mx1, mx2$"):
        summary_of(rows, node="mx9")
