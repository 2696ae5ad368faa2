"""Logs that were once said to prove that nothing is wrong: each thing wrong in them is found, once."""

from __future__ import annotations

from pathlib import Path

import pytest
from auditing import Auditor
from examples import EXAMPLES, taken
from plainly import judged
from resealing import copied, resealed
from resealing import logs as files_of

from shadowaudit.core.verdict import INCOMPLETE, PROVEN, VIOLATED
from shadowlab.generate.cluster import generate

_UNREADABLE = "fate-not-known"
"""The row of a delivery is none; its holder was told of it, and does not say how far that log had got."""

THREE = ("it arrived empty", "half of it arrived", "it is in the mailbox of another")


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("examples") / "clean"
    generate(directory, messages=40, faults={}, seed=11)
    return directory


def spoilt(clean: Path, target: Path, *names: str) -> Path:
    """A copy of the logs in which one message each is what that example says."""
    copied(clean, target)
    for message, name in zip(taken(clean), names, strict=False):
        for edit in EXAMPLES[name][0]:
            edit.apply(target, message)
    return target


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_is_found_once(clean: Path, tmp_path: Path, here: Auditor, name: str) -> None:
    """By the rows alone, and by an engine."""
    logs = spoilt(clean, tmp_path / "logs", name)
    expected = EXAMPLES[name][1]
    status = INCOMPLETE if _UNREADABLE in expected else VIOLATED
    for verdict in (judged(logs)[0], here(logs)):
        assert (verdict.status, dict(verdict.classes)) == (status, expected)
        assert bool(verdict.evidence.gaps) == (status == INCOMPLETE)


def test_of_six_messages_three_are_not_what_was_accepted(clean: Path, tmp_path: Path, here: Auditor) -> None:
    assert len(taken(clean)) >= 6
    assert judged(clean)[0].status == PROVEN
    verdict = here(spoilt(clean, tmp_path / "logs", *THREE))
    assert (verdict.status, dict(verdict.classes)) == (VIOLATED, {"altered": 2, "misdelivered": 1})


def test_all_at_once_add_up(clean: Path, tmp_path: Path, here: Auditor) -> None:
    names = [name for name in EXAMPLES if _UNREADABLE not in EXAMPLES[name][1]]
    verdict = here(spoilt(clean, tmp_path / "logs", *names))
    assert dict(verdict.classes) == {"altered": 5, "misdelivered": 1, "rows-contradict": 5}


@pytest.mark.parametrize("fault", ["unreported", "not-told"])
def test_a_bounce_without_its_report_is_found_for_each_message(
    tmp_path: Path, here: Auditor, fault: str
) -> None:
    generate(tmp_path / "logs", messages=40, faults={fault: 2}, seed=11)
    for verdict in (judged(tmp_path / "logs")[0], here(tmp_path / "logs")):
        assert (verdict.status, dict(verdict.classes)) == (VIOLATED, {"report-missing": 2})


def test_a_bounce_of_an_older_version_makes_the_proof_a_weaker_one(tmp_path: Path, here: Auditor) -> None:
    logs = tmp_path / "logs"
    generate(logs, messages=40, faults={"not-told": 2}, seed=11)
    for path in files_of(logs):
        path.write_bytes(path.read_bytes().replace(b"01.00.0001.000", b"01.00.0000.000"))
    resealed(logs)
    verdict = here(logs)
    found = {"report-not-known": 2}
    assert (verdict.status, verdict.strength, dict(verdict.classes)) == (PROVEN, "weaker", found)
