"""The data source of states, and what tasks do with them, without Spark under it: octets in, octets out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from buckets import bucket
from pyarrow import fs, parquet

from shadowaudit.core.facts import Fault, FileFacts
from shadowaudit.core.weighing import weigh
from shadowaudit.engine.blocks import NAMES, unpacked
from shadowaudit.engine.exact import judged
from shadowaudit.engine.merge import merge, plain
from shadowaudit.engine.messages import bucket_of
from shadowaudit.engine.port import Asked
from shadowaudit.logs.file import digest_file
from shadowaudit.spark import places, states
from shadowaudit.spark.places import Log, Ranges
from shadowaudit.spark.states import States
from shadowaudit.spark.verdict import judging, merging
from shadowlab.generate.cluster import generate

BUCKETS = 3


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("logs") / "tracking"
    generate(target, messages=120, faults={"lost": 2, "promotion": 14}, seed=8, file_size=20_000)
    return target


def rows(found: list[Log], **options: Any) -> list[dict[str, Any]]:
    """All rows of a read, task by task."""
    given = {"logs": states.told(found), "buckets": str(BUCKETS)} | options
    source = States(given)
    reader = source.reader(source.schema())
    return [
        row
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()  # type: ignore[union-attr]
    ]


def facts_in(found: list[dict[str, Any]]) -> dict[int, FileFacts]:
    told = [(row["log"], FileFacts.from_json(row["facts"])) for row in found if row["facts"] is not None]
    assert len(dict(told)) == len(told), "each log once"
    return dict(told)


def states_in(found: list[dict[str, Any]]) -> Counter[tuple[int, ...]]:
    """All states, and each in the bucket of its message."""
    counted: Counter[tuple[int, ...]] = Counter()
    for row in found:
        if row["block"] is not None:
            block = unpacked([row["block"]])
            assert (bucket_of(block["high"], block["low"], BUCKETS) == row["bucket"]).all()
            counted.update(zip(*(block[name].tolist() for name in NAMES), strict=True))
    return counted


def expected(found: list[Log]) -> tuple[dict[int, FileFacts], Counter[tuple[int, ...]]]:
    facts, counted = {}, Counter[tuple[int, ...]]()
    for number, log in enumerate(found):
        facts[number], table = digest_file(Path(log.path))
        columns = [table.column(name).to_pylist() for name in NAMES[:-1]]
        counted.update(zip(*columns, [number] * len(table), strict=True))
    return facts, counted


@pytest.mark.parametrize("size", ["1", "50000", "1000000000"])
@pytest.mark.parametrize("together", [1, 100, 300_000])
def test_every_log_has_its_facts_and_every_state_is_in_a_block_of_its_bucket(
    logs: Path, monkeypatch: pytest.MonkeyPatch, size: str, together: int
) -> None:
    monkeypatch.setattr(states, "_TOGETHER", together)
    listed = places.find([str(logs)])
    found = rows(listed, maxPartitionBytes=size)
    assert (facts_in(found), states_in(found)) == expected(listed)


def test_the_number_of_a_log_is_its_place_in_the_list_whatever_the_order(logs: Path) -> None:
    listed = places.find([str(logs)])[::-1]
    assert facts_in(rows(listed))[0].path == listed[0].uri
    assert states_in(rows(listed, maxPartitionBytes="1")) == expected(listed)[1]


def test_a_task_has_few_blocks_for_many_logs(logs: Path) -> None:
    blocks = [row for row in rows(places.find([str(logs)])) if row["block"] is not None]
    assert [row["bucket"] for row in blocks] == list(range(BUCKETS))


def test_a_log_that_is_gone_is_a_fact(logs: Path) -> None:
    gone = Log(str(logs / "MSGTRK-x-y-1.LOG"), 5, 0, str(logs), str(logs / "MSGTRK-x-y-1.LOG"))
    (row,) = rows([gone])
    assert Fault.UNREADABLE_FILE in FileFacts.from_json(row["facts"]).faults


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with bucket("states") as query:
        yield query


def test_logs_in_a_bucket_have_the_states_that_they_have_in_a_directory(logs: Path, s3: str) -> None:
    system, _ = fs.FileSystem.from_uri(f"s3://states?{s3}")
    fs.copy_files(
        str(logs), "states/logs", source_filesystem=fs.LocalFileSystem(), destination_filesystem=system
    )
    there, here = places.find([f"s3://states/logs?{s3}"]), places.find([str(logs)])
    found, wanted = rows(there), rows(here)
    assert states_in(found) == states_in(wanted)
    for number, facts in facts_in(found).items():
        local = json.loads(facts_in(wanted)[number].to_json())
        assert json.loads(facts.to_json()) == local | {
            "path": there[number].uri, "modified": there[number].modified
        }  # fmt: skip
    with Ranges(there) as ranges:
        for log in here:
            uri = f"s3://states/logs/{Path(log.path).relative_to(logs)}"
            assert ranges.read(uri, 10, 40) == Path(log.path).read_bytes()[10:40]
        gone = Log("s3://states/none", 1, 0, there[0].place, "states/none")
        with pytest.raises(OSError) as told, Ranges([gone]) as none:  # noqa: PT011
            none.read(gone.uri, 0, 1)
    assert told.value.filename == gone.uri
    assert told.value.strerror


def test_ranges_of_more_files_than_stay_open_are_read(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ranges, "_OPEN", 2)
    listed = places.find([str(logs)])
    assert len(listed) > 3
    with Ranges(listed) as ranges:
        for log in [*listed, *listed[::-1], listed[0]]:
            begin = np.random.default_rng(log.size).integers(0, log.size)
            assert ranges.read(log.uri, begin, 1 << 30) == Path(log.path).read_bytes()[begin:]
            assert len(ranges._files) <= 2


def table(cell: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = parquet.read_table(pa.BufferReader(cell)).to_pylist()
    return found


def counted(found: Iterable[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in found)


def test_tasks_merge_each_bucket_and_judge_all_its_suspects_some_at_a_time(logs: Path) -> None:
    listed = places.find([str(logs)])
    told = rows(listed, maxPartitionBytes="50000")
    facts = [one for _, one in sorted(facts_in(told).items())]
    asked = Asked(files=plain(facts), evidence=weigh(facts), width=1000)
    names = [log.uri for log in listed]
    blocks = [row["block"] for row in told if row["block"] is not None]
    whole = merge(asked, unpacked(blocks), names)
    assert whole is not None
    messages: list[dict[str, Any]] = []
    findings: list[dict[str, Any]] = []
    chunks = []
    for number in range(BUCKETS):
        given = pa.RecordBatch.from_pylist(
            [{"block": row["block"]} for row in told if row["bucket"] == number]
        )
        for batch in merging(asked, names, 2)((pa.scalar(number),), iter([given])):
            (row,) = batch.to_pylist()
            assert row["bucket"] == number
            if row["suspects"] is None:
                messages += table(row["messages"])
                assert json.loads(row["tally"])["totals"]["messages"] == len(table(row["messages"]))
                continue
            chunks.append(len(json.loads(row["suspects"])))
            key = (pa.scalar(number), pa.scalar(row["part"]))
            (done,) = judging(asked, listed)(key, iter([batch.select(["suspects"])]))
            findings += table(done.to_pylist()[0]["findings"])
    assert counted(messages) == counted(whole.messages.to_pylist())
    assert max(chunks) == 2
    assert counted(findings) == counted(judged(whole.suspects, asked))
    assert len(chunks) > BUCKETS
