"""The verdict on Spark is that of this machine's engine, to the last row of every table."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import test_audit_exchange as exchange
from auditing import Silent
from buckets import bucket
from pyarrow import fs
from resealing import logs as files_of
from test_audit_histories import LOST
from test_audit_settling import mix, rows_of
from test_audit_words import disk_lost, told

from shadowaudit.audit import Audit, Question
from shadowaudit.core.findings import Class
from shadowaudit.core.verdict import INCOMPLETE, Verdict
from shadowaudit.engine import merge
from shadowaudit.engine.here import Here
from shadowaudit.engine.pool import Pool
from shadowaudit.engine.port import EngineError, Log
from shadowaudit.logs.manifest import find
from shadowaudit.spark import engine as spark_engine
from shadowaudit.spark import places
from shadowaudit.spark.engine import SparkEngine
from shadowaudit.spark.planning import PART, SHUFFLE, merging_tasks
from shadowlab.generate.cluster import BEGIN, EVERY, generate

TABLES = ("messages", "findings", "violations", "stats", "copies")


@pytest.fixture(scope="module")
def engine(spark_session: Any) -> SparkEngine:
    return SparkEngine(spark_session)


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(Pool(1), tmp_path / "scratch")


def verdict(engine: Any, logs: list[Log], out: Path, **question: Any) -> Verdict:
    audit = Audit(engine, out, Silent())
    return audit.verify(audit.read(logs), Question(**question))


def same(one: Verdict, other: Verdict, out: Path, other_out: Path, moved: tuple[str, str] = ("", "")) -> None:
    """``moved``: where the logs of the one are, and those of the other."""
    told = [verdict.as_dict() for verdict in (one, other)]
    for words in told:
        del words["timings"], words["engine"]
    assert json.dumps(told[0]).replace(*moved) == json.dumps(told[1])
    for name in TABLES:
        assert rows_of(out / f"{name}.parquet") == rows_of(other_out / f"{name}.parquet"), name
    for name in ("findings", "violations"):
        lines = [sorted((where / f"{name}.csv").read_bytes().split(b"\r\n")) for where in (out, other_out)]
        assert lines[0] == lines[1]


def spread(source: Path, target: Path, chance: random.Random) -> list[Log]:
    """The files in directories of any number, some of them twice, in any order."""
    for path in files_of(source):
        for _ in range(1 + (chance.random() < 0.1)):
            place = target / str(chance.randrange(5)) / path.name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, place)
    exchange.log(
        target / "EX01",
        2013,
        [exchange.row(2013, "RECEIVE"), "no row", exchange.row(2013, "DELIVER")],
    )
    found: list[Log] = list(find([target]))
    return chance.sample(found, len(found))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_both_engines_say_the_same_of_any_files_in_any_order(
    engine: SparkEngine, here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(merge, "OCTETS", chance.choice([50_000, 300_000, 128 << 20]))
    monkeypatch.setattr(spark_engine, "_LEAST_A_TASK", chance.choice([1, 60_000, 8 << 20]))
    monkeypatch.setattr(spark_engine, "_SUSPECTS", chance.choice([3, 1000]))
    generate(
        tmp_path / "truth",
        messages=200,
        faults=mix(chance, spoilt=seed % 2 == 1),
        seed=seed,
        file_size=chance.choice([4000, 20_000, 100_000]),
    )
    logs = spread(tmp_path / "truth", tmp_path / "logs", chance)
    question: dict[str, Any] = {"allow_open": chance.random() < 0.5}
    if seed == 0:
        question |= {"since": BEGIN + 20 * EVERY, "until": BEGIN + 120 * EVERY}
    found = [verdict(one, logs, tmp_path / one.name[:5], **question) for one in (engine, here)]
    same(*found, tmp_path / engine.name[:5], tmp_path / here.name)
    assert found[0].engine == engine.name
    assert found[0].totals["suspects"] > 0


@pytest.mark.slow
def test_what_a_holder_was_told_is_weighed_alike(engine: SparkEngine, here: Here, tmp_path: Path) -> None:
    """By marks that the log of who told it denies, may lack, or that are not told (``test_audit_words``)."""
    logs: list[Log] = list(find([disk_lost(tmp_path / "logs", *map(told, (3, 14, 15, 40, None)))]))
    outs = [tmp_path / "spark", tmp_path / "plain"]
    found = [verdict(one, logs, out, lost=(LOST,)) for one, out in zip((engine, here), outs, strict=True)]
    same(*found, *outs)
    assert found[0].totals["suspects"] == 5
    counted = {Class.PREMATURE_DISCARD: 2, Class.HOLDERS_WORD: 2, Class.UNPROVEN_LOSS: 3}
    assert {what: found[0].classes.get(what, 0) for what in counted} == counted


@pytest.mark.slow
def test_two_clusters_with_the_same_names_are_not_proven_together(
    engine: SparkEngine, here: Here, tmp_path: Path
) -> None:
    for number in (5, 6):
        generate(tmp_path / "logs" / str(number), messages=30, faults={}, seed=number)
    logs: list[Log] = list(find([tmp_path / "logs"]))
    outs = [tmp_path / "spark", tmp_path / "plain"]
    found = [verdict(one, logs, out) for one, out in zip((engine, here), outs, strict=True)]
    same(*found, *outs)
    assert found[0].status == INCOMPLETE
    assert [gap.what.partition(":")[0] for gap in found[0].evidence.gaps] == [
        "two clusters have a node of this name"
    ] * 3


@pytest.mark.slow
def test_nothing_is_left_on_the_disks_of_executors_and_nothing_but_results_here(
    engine: SparkEngine, spark_session: Any, tmp_path: Path
) -> None:
    generate(tmp_path / "logs", messages=30, faults={"lost": 1}, seed=1)
    logs: list[Log] = list(find([tmp_path / "logs"]))
    verdict(engine, logs, tmp_path / "out")
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]
    engine.read(logs)
    engine.read(logs[:1])
    assert spark_session.sparkContext._jsc.sc().getPersistentRDDs().size() == 1


@pytest.mark.slow
def test_a_small_audit_is_a_few_tasks_also_where_a_session_has_those_of_a_cluster(
    spark_session: Any, tmp_path: Path
) -> None:
    generate(tmp_path / "logs", messages=30, faults={"lost": 1}, seed=1)
    was = spark_session.conf.get(SHUFFLE)
    spark_session.conf.set(SHUFFLE, "200")
    others = dict(spark_session.conf.getAll)
    before = tasks_done(spark_session)
    try:
        found = verdict(SparkEngine(spark_session), list(find([tmp_path / "logs"])), tmp_path / "out")
        kept = {name: spark_session.conf.get(name) for name in others}
    finally:
        spark_session.conf.set(SHUFFLE, was)
    assert found.status == 1
    assert kept == others, "the session is the user's: a larger audit in it has the tasks of a cluster"
    assert 0 < tasks_done(spark_session) - before < 50


def tasks_done(spark_session: Any) -> int:
    """Of all jobs of the session."""
    jobs = spark_session.sparkContext._jsc.sc().statusStore().jobsList(None)
    return sum(jobs.apply(number).numCompletedTasks() for number in range(jobs.size()))


@pytest.mark.parametrize(("octets", "tasks"), [(0, 1), (PART - 1, 1), (10 * PART, 11), (10**12, 200)])
def test_as_many_tasks_merge_as_there_is_to_merge_and_no_more_than_the_session_was_told(
    octets: int, tasks: int
) -> None:
    assert merging_tasks(octets, 200) == tasks


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with bucket("verdict") as query:
        yield query


@pytest.mark.slow
def test_logs_in_a_bucket_have_the_verdict_that_they_have_in_a_directory(
    engine: SparkEngine, here: Here, s3: str, tmp_path: Path
) -> None:
    generate(tmp_path / "logs", messages=60, faults={"lost": 2, "promotion": 2, "duplicate": 1}, seed=6)
    exchange.log(
        tmp_path / "logs" / "EX01", 2013, [exchange.row(2013, one) for one in ("RECEIVE", "DELIVER")]
    )
    (grown,) = (tmp_path / "logs" / "EX01").iterdir()
    early = b"".join(grown.read_bytes().splitlines(keepends=True)[:-1])
    (grown.parent / "MSGTRK-early.LOG").write_bytes(early)
    system, _ = fs.FileSystem.from_uri(f"s3://verdict?{s3}")
    fs.copy_files(
        str(tmp_path / "logs"), "verdict/logs",
        source_filesystem=fs.LocalFileSystem(), destination_filesystem=system,
    )  # fmt: skip
    there = verdict(engine, list(places.find([f"s3://verdict/logs?{s3}"])), tmp_path / "s3")
    local = verdict(here, list(find([tmp_path / "logs"])), tmp_path / "here")
    moved = ("s3://verdict/logs", str(tmp_path / "logs"))
    same(there, local, tmp_path / "s3", tmp_path / "here", moved)
    assert there.status == 1
    assert any("collected while it grew" in note for note in there.evidence.notes)


@pytest.mark.slow
def test_a_worker_that_cannot_do_it_is_told_in_a_line(
    engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate(tmp_path / "logs", messages=5, faults={}, seed=1)
    monkeypatch.setattr(spark_engine, "merging", lambda *_: failing)
    with pytest.raises(EngineError, match=r"^Spark failed: ModuleNotFoundError: No module named 'nothing'$"):
        verdict(engine, list(find([tmp_path / "logs"])), tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


failing: Callable[..., Any] = eval("lambda key, table: __import__('nothing')")
