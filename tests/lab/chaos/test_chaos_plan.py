"""Same seed, same faults; every fault has its turn, on one node at a time or on all at once."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from shadowlab.chaos.catalogue import CATALOGUE
from shadowlab.chaos.faults import Cut, OldDisk
from shadowlab.chaos.plan import Planned, schedule
from shadowlab.layout import Manner, Way

NODES = ("mx1", "mx2", "mx3")
SPAN = 5.0


def planned(seed: int, count: int = 200, names: tuple[str, ...] = tuple(CATALOGUE)) -> list[Planned]:
    return list(islice(schedule(seed, names, NODES, SPAN), count))


def test_the_same_seed_gives_the_same_faults_and_another_one_others():
    assert planned(7) == planned(7)
    assert planned(7) != planned(8)


def test_every_fault_has_its_turn_before_one_comes_again():
    rounds = planned(3, 3 * len(CATALOGUE))
    assert set(Counter(one.name for one in rounds).values()) == {3}
    assert {one.name for one in rounds[: len(CATALOGUE)]} == set(CATALOGUE)


def test_every_node_is_struck_sometimes_with_mail_in_transit():
    struck = planned(5)
    assert {one.fault.node for one in struck} == {*NODES, "+".join(NODES)}
    assert {one.refusing for one in struck} == {True, False}


def test_copies_that_wait_are_damaged_and_those_of_one_node():
    spoiling = [one for one in planned(8, 400) if CATALOGUE[one.name].in_transit]
    assert len({one.name for one in spoiling}) == 12
    assert all(one.refusing for one in spoiling)
    assert {one.fault.node for one in spoiling} == set(NODES)


@pytest.mark.parametrize("name", ["all-killed", "all-power"])
def test_all_nodes_are_off_at_once(name: str):
    (one,) = planned(4, 1, (name,))
    assert one.fault.touched == NODES
    assert one.lasting < SPAN


def test_only_the_faults_that_were_asked_for_are_planned():
    assert {one.name for one in planned(1, names=("kill", "freeze"))} == {"kill", "freeze"}


def test_faults_past_the_time_span_outlast_it_and_the_others_do_not():
    for one in planned(9, 400):
        outlasting = one.name.endswith("-long") or one.name.endswith("away")
        assert (one.lasting > SPAN) is outlasting, one


def test_what_is_cut_is_always_a_link_of_the_node_that_is_struck():
    cuts = [one.fault for one in planned(2, 400) if isinstance(one.fault, Cut)]
    for fault in cuts:
        assert fault.ways
        assert all(fault.node in (way.source, way.target) for way in fault.ways)
        assert all(way.source != way.target for way in fault.ways)
    assert {fault.manner for fault in cuts} == {Manner.SILENT, Manner.RESET}


@pytest.mark.parametrize("name", ["cut-off", "cut-off-long"])
def test_a_node_that_is_cut_off_reaches_nobody_and_is_reached_by_nobody(name: str):
    (one,) = planned(4, 1, (name,))
    assert isinstance(one.fault, Cut)
    others = [other for other in NODES if other != one.fault.node]
    both = {Way(one.fault.node, other) for other in others} | {Way(other, one.fault.node) for other in others}
    assert set(one.fault.ways) == both


@pytest.mark.parametrize("name", ["one-way", "one-way-long"])
def test_one_way_leaves_the_way_back_open(name: str):
    for one in planned(4, 50, (name,)):
        assert isinstance(one.fault, Cut)
        assert not {way.back for way in one.fault.ways} & set(one.fault.ways)


def test_old_disks_are_copies_of_stopped_databases_and_of_running_ones():
    found = {one.name: one.fault for one in planned(6) if isinstance(one.fault, OldDisk)}
    assert {name: fault.live for name, fault in found.items()} == {"old-disk": False, "snapshot": True}
