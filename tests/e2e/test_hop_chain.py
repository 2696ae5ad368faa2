"""Three boundaries in a row: at each hop a node is killed, loses its disk, is cut off. Mail comes once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hop_chain import NAMES, PATIENCE, Chain, chain
from running_lab import wait_until

sys.path.append(str(Path(__file__).parents[1] / "audit"))
from plainly import judged

from shadowaudit.core.findings import Class
from shadowaudit.core.verdict import INCOMPLETE, PROVEN

pytestmark = [pytest.mark.lab, pytest.mark.slow]
COUNT = 5


@pytest.fixture
def row(tmp_path: Path) -> Iterator[Chain]:
    """The three nodes, up."""
    with chain(tmp_path / "chain") as made:
        made.up()
        yield made


def stop_before(row: Chain, name: str) -> None:
    """What is sent from now on comes as far as that node, and no farther."""
    row.end.shut() if name == "c" else row.cut(name)


def go_on(row: Chain, name: str) -> None:
    row.end.open() if name == "c" else row.join(name)


def wait_for(row: Chain, name: str, count: int = COUNT) -> None:
    """That node has them, and the nodes before it have heard that: a reply that a cut or a kill takes away
    would let a hop send once more, which is right, and no matter of these tests.
    """
    earlier = NAMES[: NAMES.index(name)]

    def has_them() -> bool:
        return row.waiting(name) == count and not any(row.waiting(before) for before in earlier)

    wait_until(has_them, f"{name} has them", PATIENCE, row.explained)


def settled(row: Chain) -> None:
    """All has settled, and each message came once."""
    row.settle()
    assert row.end.counts() == dict.fromkeys(row.sent, 1)


def audited(row: Chain) -> None:
    """The log of each boundary proves that it lost nothing. One that lost its only copies cannot prove it:
    the hop before has them, and its log says that it sent them again.
    """
    row.down()
    for name in NAMES:
        node = row[name]
        verdict = judged(node.tracking, lost=node.lost)[0]
        # Of what was on a lost disk, the log may have nothing at all.
        allowed = {PROVEN, INCOMPLETE} if node.lost else {PROVEN}
        assert verdict.status in allowed, (name, verdict.as_dict())
        classes = {what for what, found in verdict.classes.items() if found}
        assert classes <= {Class.EXPOSED, Class.UNPROVEN_LOSS} if node.lost else {Class.EXPOSED}


def test_each_copy_goes_when_the_next_hop_has_delivered(row: Chain) -> None:
    row.end.shut()
    row.send(COUNT)
    wait_for(row, "c")
    wait_until(lambda: row.kept("a") == 0, "b has handed on", PATIENCE, row.explained)
    wait_until(
        lambda: row.kept("b") == row.handed("b") == row.handed("c") == COUNT,
        "it is logged",
        PATIENCE,
        row.explained,
    )
    row.end.open()
    settled(row)
    audited(row)


def test_nodes_that_are_killed_while_they_have_mail_deliver_it_once(row: Chain) -> None:
    for name in NAMES:
        stop_before(row, name)
        row.send(COUNT)
        wait_for(row, name)
        row[name].kill()
        go_on(row, name)
        row[name].start()
        settled(row)
    audited(row)


def test_what_is_on_a_lost_disk_is_sent_again_by_the_hop_before(row: Chain) -> None:
    for name in ("b", "c"):
        stop_before(row, name)
        row.send(COUNT)
        wait_for(row, name)
        row[name].wipe()
        go_on(row, name)
        row[name].start()
        settled(row)
    audited(row)


def test_a_link_that_is_cut_for_a_while_costs_nothing_but_time(row: Chain) -> None:
    """The last hop has the mail, and delivers it; the one before the cut hears of that later."""
    for name in ("a", "b"):
        row.end.shut()
        row.send(COUNT)
        wait_for(row, "c")
        row.cut(name)
        row.end.open()
        wait_until(row.arrived, "delivered meanwhile", PATIENCE, row.explained)
        if name == "b":
            wait_until(lambda: row.kept("b") == COUNT, "b waits to hear of it", PATIENCE, row.explained)
        row.join(name)
        settled(row)
    audited(row)
