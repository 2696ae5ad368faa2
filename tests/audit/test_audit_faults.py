"""Logs with known faults: what is found equals the truth, message by message."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest
from auditing import Auditor
from plainly import judged
from pyarrow import parquet
from sums_by_sql import summed, totals, unlike

from shadowaudit.core.verdict import INCOMPLETE, PROVEN, VIOLATED, Verdict
from shadowlab.generate.cluster import Truth, generate
from shadowlab.generate.stories import FAULTS, FILE_FAULTS

NOTES = frozenset(
    [
        "exposed",
        "found-after-a-start",
        "promotion",
        "false-promotion",
        "false-promotion-dropped",
        "handover",
        "orphan",
        "late-discard",
        "dropped-duplicate",
        "in-doubt",
        "in-transit",
        "beside",
        "bounced",
        "damaged-copy",
        "restored",
        "refused",
        "resubmitted",
        "resubmitted-by-holder",
        "resubmitted-in-part",
        "resubmitted-alone",
        "resubmitted-by-two",
        "tracked-by-a-hop",
        "sent-again-past-a-hop",
        "journal-copy",
        "expanded",
        "rewritten",
        "removed",
        "removed-in-part",
        "removed-with-report",
        "removed-too-late",
        "bounced-by-hand",
        "suspended",
        "resumed",
        "resumed-by-another",
        "retried",
        "queue-suspended",
    ]
)
"""Faults that the promise allows: counted, and no violation."""


def logs(directory: Path, faults: Mapping[str, int], *, seed: int = 1, messages: int = 200) -> Truth:
    return generate(directory / "logs", messages=messages, faults=faults, seed=seed, file_size=40_000)


def found_in(out: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for row in parquet.read_table(out / "findings.parquet", columns=["id", "class"]).to_pylist():
        found[row["id"]].add(row["class"])
    return found


def agrees(verdict: Verdict, truth: Truth, out: Path) -> None:
    assert found_in(out) == {name: set(classes) for name, classes in truth.found.items()}
    assert dict(verdict.classes) == truth.classes
    assert verdict.evidence.gaps == ()
    assert (verdict.totals["messages"], verdict.totals["rows"]) == (
        truth.messages,
        _about_messages(truth, verdict),
    )


def _about_messages(truth: Truth, verdict: Verdict) -> int:
    """All rows but the closing rows of snapshots, two a node, and those of what was done to queues."""
    return truth.rows - 2 * verdict.nodes - 3 * truth.faults.get("queue-suspended", 0)


def test_a_clean_log_is_proven_and_nothing_is_found(here: Auditor, tmp_path: Path) -> None:
    truth = logs(tmp_path, {})
    verdict = here(tmp_path / "logs", out=tmp_path / "out")
    agrees(verdict, truth, tmp_path / "out")
    assert verdict.status == PROVEN
    assert verdict.totals["suspects"] == 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_alone_is_found_as_what_it_is(here: Auditor, tmp_path: Path, fault: str) -> None:
    truth = logs(tmp_path, {fault: 3})
    verdict = here(tmp_path / "logs", out=tmp_path / "out")
    agrees(verdict, truth, tmp_path / "out")
    assert verdict.status == (PROVEN if fault in NOTES else VIOLATED)


def mix(seed: int) -> dict[str, int]:
    chance = random.Random(seed)
    return {
        name: chance.randrange(1, 9)
        for name in chance.sample(sorted(FAULTS), chance.randrange(3, len(FAULTS)))
    }


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(12))
def test_faults_in_any_mix_are_found_exactly(here: Auditor, tmp_path: Path, seed: int) -> None:
    truth = logs(tmp_path, mix(seed), seed=seed, messages=600)
    agrees(here(tmp_path / "logs", out=tmp_path / "out"), truth, tmp_path / "out")


@pytest.mark.parametrize("seed", range(3))
def test_no_message_that_the_sums_clear_would_be_found_by_its_rows(
    tmp_path: Path, seed: int, here: Auditor
) -> None:
    """The sums pass over a message without a look at its rows: the exact pass over all finds nothing more."""
    truth = logs(tmp_path, mix(seed + 50), seed=seed, messages=300)
    _, found = judged(tmp_path / "logs")
    assert {name: {str(one) for one in classes} for name, classes in found.items()} == {
        name: set(classes) for name, classes in truth.found.items()
    }
    assert here(tmp_path / "logs", out=tmp_path / "out").classes == truth.classes


@pytest.mark.parametrize("fault", FILE_FAULTS)
def test_what_is_missing_in_files_prevents_the_proof(here: Auditor, tmp_path: Path, fault: str) -> None:
    logs(tmp_path, {fault: 1}, messages=400)
    verdict = here(tmp_path / "logs")
    assert verdict.status in (INCOMPLETE, VIOLATED)
    assert verdict.evidence.gaps


@pytest.mark.parametrize("fault", ["lost", "duplicate", "vanished-copy"])
def test_a_violation_is_told_even_when_evidence_is_missing(here: Auditor, tmp_path: Path, fault: str) -> None:
    logs(tmp_path, {fault: 2, "hash": 1}, seed=4)
    verdict = here(tmp_path / "logs")
    assert verdict.evidence.gaps
    assert verdict.status in (VIOLATED, INCOMPLETE)


@pytest.mark.parametrize("seed", [7, 8])
def test_the_sums_of_each_message_are_those_of_another_program(
    here: Auditor, tmp_path: Path, seed: int
) -> None:
    logs(tmp_path, mix(seed), seed=seed, messages=500)
    verdict = here(tmp_path / "logs", out=tmp_path / "out")
    theirs = summed(tmp_path / "logs")
    assert unlike(theirs, tmp_path / "out") == {}
    expected = totals(theirs)
    assert {name: verdict.totals[name] for name in expected} == expected


def test_same_seed_same_files(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for directory in (one, other):
        logs(directory, {"lost": 1, "gap": 1}, seed=9)
    files = sorted(path.relative_to(one) for path in one.rglob("*.LOG"))
    assert files == sorted(path.relative_to(other) for path in other.rglob("*.LOG"))
    assert all((one / path).read_bytes() == (other / path).read_bytes() for path in files)
    truth = json.loads((one / "logs" / "truth.json").read_text("utf-8"))
    assert truth["classes"] == {"lost": 1, "vanished-copy": 1}
