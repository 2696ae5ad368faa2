"""Failpoints: named in a variable, refused when unknown, inert when it is not set."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shadowrelay import failpoints
from shadowrelay.core import tracking
from shadowrelay.failpoints import POINTS, VARIABLE, Failpoint, Point, parse
from shadowrelay.settings import SettingsInvalid, load_settings

ROOT = Path(__file__).parents[1]


@pytest.fixture
def killed() -> list[Point]:
    return []


def armed(text: str, killed: list[Point]) -> Failpoint:
    return parse(text, killed.append)


def test_the_process_dies_at_the_named_passage_and_at_no_other(killed: list[Point]):
    failpoint = armed("before-250:3", killed)
    for _ in range(2):
        failpoint.passed("before-250")
        failpoint.passed("after-log-sync")
    assert killed == []
    failpoint.passed("before-250")
    failpoint.passed("before-250")
    assert killed == ["before-250"]


def test_without_a_number_the_first_passage_is_meant(killed: list[Point]):
    armed("before-log-footer", killed).passed("before-log-footer")
    assert killed == ["before-log-footer"]


def test_a_point_before_a_commit_kills_while_the_transaction_is_open(killed: list[Point]):
    failpoint = armed("before-record-commit:2", killed)
    failpoint.wrote("RECEIVE")
    failpoint.committed()
    failpoint.wrote("HAREDIRECT")
    assert killed == []
    failpoint.wrote("RECEIVE")
    assert killed == ["before-record-commit"]


def test_a_point_after_a_commit_kills_when_the_group_with_that_row_is_durable(killed: list[Point]):
    failpoint = armed("after-settling-commit:2", killed)
    failpoint.wrote("DELIVER")
    failpoint.committed()
    assert killed == []
    failpoint.wrote("SENDEXTERNAL")
    failpoint.wrote("RECEIVE")
    assert killed == []
    failpoint.committed()
    assert killed == ["after-settling-commit"]


async def test_a_point_after_a_reply_kills_once_the_loop_has_sent_it(killed: list[Point]):
    armed("after-shadow-reply", killed).soon("after-shadow-reply")
    assert killed == []
    async with asyncio.timeout(30):
        while not killed:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert killed == ["after-shadow-reply"]


@pytest.mark.parametrize("wrong", ["before-251", "before-250:0", "before-250:", "before-250:-1", ":1"])
def test_a_wrong_failpoint_is_refused_and_the_names_are_told(wrong: str, killed: list[Point]):
    with pytest.raises(ValueError, match=VARIABLE) as refusal:
        parse(wrong, killed.append)
    if not wrong.startswith("before-250"):
        assert all(point in str(refusal.value) for point in POINTS)


def test_rows_that_name_a_commit_are_rows_of_the_tracking_log():
    events = {getattr(thing, "event_id", "") for thing in vars(tracking).values()}
    assert set(failpoints._ROWS) - {failpoints.PENDING, failpoints.ARRIVING} <= events


def test_without_the_variable_a_passage_does_nothing_at_all():
    # Bound at import to functions of one empty line: no comparison, no look-up.
    assert {failpoints.passed, failpoints.soon, failpoints.wrote} == {failpoints._nothing}
    assert failpoints.committed is failpoints._nothing_either


def python(program: str, failpoint: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, VARIABLE: failpoint}
    return subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_kill_is_a_sigkill_that_tells_its_place_in_one_line():
    program = (
        "from shadowrelay.failpoints import passed\npassed('before-250')\nprint('here')\npassed('before-250')"
    )
    done = python(program, "before-250:2")
    assert done.returncode == -signal.SIGKILL
    told = json.loads(done.stderr)
    assert (told["event"], told["point"]) == ("failpoint_reached", "before-250")


def test_a_node_refuses_to_start_with_an_unknown_failpoint(tmp_path: Path):
    settings = tmp_path / "node.toml"
    settings.write_text('name = "mx1.example.net"\n', "utf-8")
    environ = {**os.environ, VARIABLE: "befor-250"}
    command = [sys.executable, "-m", "shadowrelay", "run", str(settings)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "befor-250" in done.stderr
    assert "before-250" in done.stderr


def test_the_variable_is_not_taken_for_a_misspelt_setting(tmp_path: Path):
    settings = tmp_path / "node.toml"
    settings.write_text(f'name = "mx1.example.net"\ndata_dir = "{tmp_path}"\n[receive.default]\n', "utf-8")
    with pytest.raises(SettingsInvalid) as refusal:
        load_settings(settings, {VARIABLE: "before-250", f"{VARIABLE}S": "before-250"})
    assert [one.key for one in refusal.value.errors if one.key.startswith(VARIABLE)] == [f"{VARIABLE}S"]


def test_every_point_stands_in_the_page_of_kill_points():
    page = (ROOT / "docs" / "kill-points.md").read_text("utf-8")
    assert [point for point in POINTS if f"`{point}`" not in page] == []
