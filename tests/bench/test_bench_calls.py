"""The gate on calls: what a file of budgets may say, what is over it, and where calls are counted."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from .budget import JUDGED, Budget, BudgetError, Cost, Limit, by_room, read
from .calls import BUDGET, FIRST, chosen
from .lives import HOOK, SHAPES, SIDES, asked
from .tracing import counts

COST = Cost("reused", "owner", {"database": 400.0, "wire": 100.0}, statements=20.0, commits=3.0)
BOUND = Budget("3.11", 2.0).recorded([COST], "")


def test_the_file_of_budgets_is_sound_and_has_a_budget_of_each_number():
    found = read(BUDGET.read_text("utf-8"))
    assert set(found.limits) == {(shape, side, what) for shape in SHAPES for side in SIDES for what in JUDGED}


def test_a_budget_that_is_written_is_read_as_it_was():
    assert read(BOUND.text()) == BOUND


@pytest.mark.parametrize("reason", ["", 'raised = ""', 'raised = "  "'])
def test_a_number_above_its_least_needs_a_reason(reason: str):
    number = f"[reused.owner.calls]\nmost = 510\nleast = 500\n{reason}\n"
    with pytest.raises(BudgetError, match=r"reused\.owner\.calls: 510 is more than 500"):
        read(f'python = "3.11"\ntolerance = 2\n{number}')


def test_a_number_above_its_least_with_a_reason_is_read():
    number = '[reused.owner.calls]\nmost = 510\nleast = 500\nraised = "a checksum more"\n'
    found = read(f'python = "3.11"\ntolerance = 2\n{number}')
    assert found.limits["reused", "owner", "calls"] == Limit(510, 500, "a checksum more")


@pytest.mark.parametrize("text", ["", "python =", 'python = "3.11"\ntolerance = 2\n[reused]\nowner = 3\n'])
def test_a_file_that_cannot_be_read_is_refused(text: str):
    with pytest.raises(BudgetError, match="cannot be read"):
        read(text)


def test_what_is_over_budget_names_the_rooms_that_grew():
    dearer = replace(COST, rooms={"database": 400.4, "wire": 111.0, "smtp": 7.0})
    (found,) = BOUND.over([dearer])
    assert (found.what, found.value, found.limit.most) == ("calls", pytest.approx(518.4), 500)
    assert found.rooms == [("wire", 100.0, 111.0), ("smtp", 0.0, 7.0)]


@pytest.mark.parametrize(("what", "within", "over"), [("statements", 21.8, 22.0), ("commits", 3.6, 3.7)])
def test_statements_and_commits_have_budgets_too(what: str, within: float, over: float):
    assert not list(BOUND.over([replace(COST, **{what: within})]))
    assert [one.what for one in BOUND.over([replace(COST, **{what: over})])] == [what]


def test_a_run_that_differs_by_two_per_cent_is_within_budget():
    assert not list(BOUND.over([replace(COST, rooms={"wire": 509.0})]))
    assert list(BOUND.over([replace(COST, rooms={"wire": 511.0})]))


def test_a_number_without_a_budget_is_not_judged_in_silence():
    with pytest.raises(BudgetError, match="there is no budget of calls"):
        list(BOUND.over([replace(COST, side="holder")]))


def test_what_became_less_lowers_its_budget_and_what_became_more_needs_a_reason():
    less, more = replace(COST, rooms={"wire": 450.0}), replace(COST, rooms={"wire": 550.0})
    lowered = BOUND.recorded([less], "")
    assert lowered.limits["reused", "owner", "calls"] == Limit(450, 450)
    assert lowered.rooms["reused", "owner"] == {"wire": 450.0}
    assert BOUND.recorded([more], "") == BOUND
    raised = BOUND.recorded([more], "a checksum more")
    assert raised.limits["reused", "owner", "calls"] == Limit(550, 500, "a checksum more")
    assert raised.recorded([less], "").limits["reused", "owner", "calls"] == Limit(450, 450)
    assert raised.recorded([COST], "").limits["reused", "owner", "calls"] == Limit(500, 500)


def test_calls_are_told_by_room():
    site = "/x/.venv/lib/python3.11/site-packages"
    calls = {
        "~:<built-in method builtins.len>": 9.0,
        "/x/src/shadowrelay/smtp/receiving/reading.py:read": 2.0,
        "/x/src/shadowrelay/database/rows.py:row": 3.0,
        "/x/src/shadowrelay/node_clock.py:now": 1.0,
        f"{site}/aiosmtpd/smtp.py:push": 4.0,
        f"{site}/typing_extensions.py:final": 0.5,
        "<string>:__init__": 5.0,
        "/usr/lib/python3.11/asyncio/queues.py:get": 6.0,
    }
    assert by_room(calls) == {
        "built-ins": 9.0,
        "stdlib": 6.0,
        "generated": 5.0,
        "aiosmtpd": 4.0,
        "database": 3.0,
        "smtp.receiving": 2.0,
        "shadowrelay": 1.0,
        "typing_extensions": 0.5,
    }


def test_a_summary_of_strace_is_read():
    summary = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 61.54    0.000800           8       100           epoll_wait
 38.46    0.000500           5        40         3 sendto
------ ----------- ----------- --------- --------- ----------------
100.00    0.001300           9       140         3 total
"""
    assert counts(summary) == (140, 100)


LIVES = """
import sqlite3, sys, threading
sys.stdin.readline()
def counted(): pass
def both():
    for _ in range(7):
        counted()
thread = threading.Thread(target=both); thread.start(); thread.join()
both()
connection = sqlite3.connect(":memory:", isolation_level=None)
for statement in ("CREATE TABLE a (b)", "BEGIN", "INSERT INTO a VALUES (1)", "COMMIT"):
    connection.execute(statement)
print("done", flush=True)
sys.stdin.readline()
"""


@pytest.mark.skipif(
    sys.version_info >= (3, 12),
    reason="there cProfile sees one thread alone; it is not the Python of the budget",
)
def test_a_process_counts_the_calls_of_all_its_threads_its_statements_and_commits(tmp_path: Path):
    script = tmp_path / "run"
    script.write_text(LIVES)
    living = subprocess.Popen(
        [sys.executable, script.name],
        cwd=tmp_path,
        env={"PYTHONPATH": str(HOOK), "COUNT_INTO": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with living:
        assert living.stdin is not None
        assert living.stdout is not None
        try:
            living.stdin.write(b"\n")
            living.stdin.flush()
            assert living.stdout.readline() == b"done\n"
            found = asked(tmp_path / str(living.pid))
        finally:
            living.kill()
    assert found[f"{script}:counted"] + found["run:counted"] == 14
    assert (found["statements"], found["commits"]) == (4, 1)


def test_the_same_shapes_are_drawn_for_the_same_commit_and_all_of_them_in_turn():
    drawn = [chosen((), 2, seed) for seed in range(40)]
    assert chosen((), 2, 7) == drawn[7]
    assert all(shapes[0] == FIRST and len(shapes) == 3 for shapes in drawn)
    assert {name for shapes in drawn for name in shapes} == set(SHAPES)
    assert chosen((), None, 1) == list(SHAPES)
    assert chosen(("large",), 2, 1) == ["large"]
