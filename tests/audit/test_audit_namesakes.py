"""Two nodes with one name are never proven together; one node that lost its disk, or its time, is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from shadowaudit.cli import main
from shadowaudit.core.facts import FileFacts
from shadowaudit.core.namesakes import SET_BACK
from shadowaudit.core.weighing import weigh
from shadowlab.generate.cluster import generate

HOUR = 3_600_000
START = 1_795_000_000_000


def file(node: str, database: str, begins: float, ends: float, **more: Any) -> FileFacts:
    """Ten rows of a whole life between these hours, which name the databases ``knows``: id to server."""
    knows = more.pop("knows", {})
    facts: dict[str, Any] = {
        "path": f"{node}-{database}-{begins}",
        "node": node,
        "database": database,
        "boot": f"boot-{database}",
        "first": 1,
        "last": 10,
        "rows": 10,
        "begins": START + int(begins * HOUR),
        "ends": START + int(ends * HOUR),
        "first_is_snapshot": True,
        "last_closes_snapshot": True,
        "databases": knows,
    }
    return FileFacts(**facts | more)


def told(files: list[FileFacts], **more: Any) -> list[str]:
    return [gap.what for gap in weigh(files, **more).gaps if "name" in gap.what]


def cluster(
    tag: str, begins: float, ends: float, servers: tuple[str, ...] = ("mx1", "mx2")
) -> list[FileFacts]:
    names = {f"{tag}-{server}": server for server in servers}
    return [file(server, name, begins, ends, knows=names) for name, server in names.items()]


def test_two_clusters_whose_nodes_have_the_same_names_are_told_apart() -> None:
    found = told([*cluster("a", 0, 1), *cluster("b", 0.5, 1.5)])
    assert [what.partition(":")[0] for what in found] == ["two clusters have a node of this name"] * 2


def test_one_common_name_is_enough() -> None:
    assert len(told([*cluster("a", 0, 1), *cluster("b", 0.5, 0.6, ("mx2", "mx3"))])) == 1


def test_two_clusters_of_other_names_are_audited_together() -> None:
    assert told([*cluster("a", 0, 1), *cluster("b", 0, 1, ("mx3", "w2.mx1"))]) == []


HOLDER = {"a": "mx1", "b": "mx1", "h": "mx2"}


@pytest.mark.parametrize(
    "files",
    [
        [file("mx1", "a", 0, 5), file("mx1", "b", 6, 9)],
        [file("mx1", "a", 0, 5), file("mx1", "b", 4.1, 9)],
        [file("mx1", "a", 0, 5), file("mx1", "b", 4.1, 4.6)],
        [
            file("mx1", "a", 0, 5, last_closes_snapshot=False),
            file("mx1", "b", 6, 7),
            file("mx1", "a", 8, 9, boot="again", first=11, last=20),
        ],
        [
            file("mx1", "a", 500, 501),
            file("mx1", "a", 1, 5, first=11, last=20, first_is_snapshot=False),
            file("mx1", "b", 6, 400),
            file("mx1", "b", 400, 600, first=11, last=20, first_is_snapshot=False),
        ],
        [
            file("mx1", "a", 0, 50),
            file("mx1", "b", -400_000, 60),
            file("mx1", "b", 60, 70, first=11, last=20, first_is_snapshot=False),
        ],
        [file("w2.mx1", "a", 0, 9), file("mx1", "b", 0, 9), file("w3.mx1", "c", 0, 9)],
        [
            file("mx1", "a", 0, 5),
            file("mx1", "a", 6, 7, boot="back", first=5, last=14),
        ],
        [file("mx1", "exchange:mx1", 0, 9, flavour="exchange"), file("mx1", "a", 3, 12)],
    ],
    ids=[
        "wiped, and came back",
        "wiped, and its clock was set back an hour",
        "wiped, its clock was set back, and stopped soon",
        "its disk was put back after another",
        "its clock was ahead for a while",
        "it came back with a clock that began in 1980",
        "workers",
        "a backup was restored",
        "Exchange's logs of a server of that name",
    ],
)
def test_one_node_is_one_whatever_became_of_its_disk_and_its_clock(files: list[FileFacts]) -> None:
    with_holder = [*files, file("mx2", "h", 0, 600, knows=HOLDER)]
    for given in (files, files[::-1], with_holder):
        assert told(given) == []


LONG = [
    file("mx1", "a", 0, 24),
    file("mx1", "b", 24 - SET_BACK / HOUR - 1, 48),
]


def test_rows_among_each_other_for_longer_than_a_clock_is_set_back_are_of_two_nodes() -> None:
    evidence = weigh(LONG)
    (gap,) = (gap for gap in evidence.gaps if "name" in gap.what)
    assert gap.what.startswith("two nodes have this name: databases a and b ")
    assert "Audit the directory of each by itself" in gap.so
    assert len(told([*LONG, file("mx2", "h", 0, 48, knows=HOLDER)])) == 1


def test_of_a_clock_that_was_set_back_by_hours_lost_says_which_database_was_replaced() -> None:
    assert told(LONG, lost=["a"]) == []
    assert len(told([*cluster("a", 0, 1), *cluster("b", 0.5, 1.5)], lost=["a-mx1"])) == 2


def test_verify_says_what_to_do_with_the_logs_of_two_clusters(tmp_path: Path) -> None:
    for number in (5, 6):
        generate(tmp_path / "logs" / str(number), messages=40, faults={}, seed=number)
    arguments = ["verify", str(tmp_path / "logs"), "--out", str(tmp_path / "out"), "--engine"]
    both = CliRunner().invoke(main, [*arguments, "here"])
    assert both.exit_code == 3, both.output
    assert both.stdout.count("two clusters have a node of this name: databases ") == 3
    assert "Audit the directory of each by itself" in both.stdout
    for number in (5, 6):
        arguments[1] = str(tmp_path / "logs" / str(number))
        assert CliRunner().invoke(main, [*arguments, "here"]).exit_code == 0
