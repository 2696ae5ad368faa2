"""One row is taken out of clean logs, each in turn, or all that follow: that is seen, and nobody accused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from plainly import judged
from resealing import copied, each_row, logs, removed, resealed

from shadowaudit.cli import main
from shadowaudit.core.findings import MEANING, Class, Severity
from shadowaudit.core.verdict import INCOMPLETE, PROVEN, VIOLATED
from shadowlab.generate.cluster import generate
from shadowlab.generate.stories import FAULTS
from shadowlab.generate.writing import footer

STORIES = ("promotion", "handover", "exposed", "in-transit", "orphan")
"""What the promise allows, one message each, besides ordinary ones."""

TWICE = ("dropped-duplicate", "in-doubt", "false-promotion")
"""Of these any one delivery would do."""

GIVEN_BACK = ("resubmitted", "resubmitted-by-holder", "resubmitted-in-part", "journal-copy", "expanded")

HEAD = 5  # lines before the first row


@pytest.fixture
def clean(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    generate(tmp_path / "clean", messages=12, faults=dict.fromkeys(request.param, 1), seed=3)
    assert judged(tmp_path / "clean")[0].status == PROVEN
    return tmp_path / "clean"


@pytest.mark.parametrize(
    "clean", [STORIES, TWICE, GIVEN_BACK], ids=["", "delivered twice", "given back"], indirect=True
)
@pytest.mark.slow
def test_a_row_that_is_missing_is_seen_and_held_against_no_node(clean: Path, tmp_path: Path) -> None:
    for number in range(each_row(clean)):
        gone = removed(clean, tmp_path / "logs", number)
        verdict, found = judged(tmp_path / "logs")
        assert verdict.status == INCOMPLETE, (number, gone, verdict.as_dict())
        accused = {one for names in found.values() for one in names if MEANING[one][0] is Severity.VIOLATION}
        assert accused == set(), (number, gone)


@pytest.mark.slow
@pytest.mark.parametrize("clean", [(*STORIES, *TWICE), GIVEN_BACK[:2]], ids=["", "given back"], indirect=True)
def test_a_log_of_a_node_that_runs_may_end_with_any_row(clean: Path, tmp_path: Path) -> None:
    for path in logs(copied(clean, tmp_path / "logs")):
        whole = path.read_bytes()
        *lines, _ = whole.splitlines(keepends=True)
        for end in range(HEAD + 1, len(lines)):
            covered = b"".join(lines[:end])
            path.write_bytes(covered + footer(covered, 1, end - HEAD, end - HEAD))
            verdict, _ = judged(tmp_path / "logs", allow_open=True)
            unproven = {
                name for name in verdict.classes if verdict.severity(Class(name)) is not Severity.NOTE
            }
            assert unproven <= {Class.UNPROVEN_LOSS}, "a holder's word alone"
            rest = path.with_name(f".{path.name.rpartition('-')[0]}-{end - HEAD + 1}.LOG.open")
            rest.write_bytes(b"".join([*lines[:HEAD], *lines[end:]]))
            verdict, _ = judged(tmp_path / "logs", allow_open=True)
            assert verdict.status == PROVEN, (path, end - HEAD, verdict.as_dict())
            rest.unlink()
        path.write_bytes(whole)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("story", FAULTS)
def test_logs_of_a_node_that_are_missing_accuse_nobody(story: str, tmp_path: Path) -> None:
    generate(tmp_path / "clean", messages=6, faults={story: 2}, seed=1)
    before = _violations(tmp_path / "clean")
    for node in ("mx1", "mx2", "mx3"):
        for path in logs(copied(tmp_path / "clean", tmp_path / "logs")):
            if f"-{node}." in path.name:
                path.unlink()
        left = _violations(tmp_path / "logs")
        assert left <= before, node
        asked = ["--no-report", "--engine", "here", "--out", str(tmp_path / "out")]
        verdict = CliRunner().invoke(main, ["verify", str(tmp_path / "logs"), *asked])
        assert (verdict.exit_code == VIOLATED) == bool(left)


def _violations(directory: Path) -> set[Class]:
    found = judged(directory)[1].values()
    return {one for names in found for one in names if MEANING[one][0] is Severity.VIOLATION}


@pytest.mark.parametrize("clean", [STORIES], ids=[""], indirect=True)
@pytest.mark.slow
def test_a_row_that_is_missing_in_files_sealed_again_is_seen(clean: Path, tmp_path: Path) -> None:
    missed: Counter[str] = Counter()
    for number in range(each_row(clean)):
        gone = removed(clean, tmp_path / "logs", number)
        resealed(tmp_path / "logs")
        if judged(tmp_path / "logs")[0].status == PROVEN:
            missed[gone] += 1
    assert set(missed) <= {"DEFER", "HAREDIRECT", "HAREDIRECTFAIL"}
    assert missed["HAREDIRECT"] <= 1, "only that of the copy which was made again"


@pytest.mark.parametrize("clean", [GIVEN_BACK], ids=[""], indirect=True)
@pytest.mark.slow
def test_so_is_one_about_what_is_given_back(clean: Path, tmp_path: Path) -> None:
    """But for HAREDIRECT of what no sender was answered for: one copy was allowed, and is told as such."""
    for number in range(each_row(clean)):
        gone = removed(clean, tmp_path / "logs", number)
        resealed(tmp_path / "logs")
        if judged(tmp_path / "logs")[0].status == PROVEN:
            assert gone in ("DEFER", "HAREDIRECT"), number
