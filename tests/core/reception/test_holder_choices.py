"""Holders that are chosen among few: as few as asked for, on as many machines as there are, nearly the same
ones when members come and go, and never only such that cannot be reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.shadow_servers import MemberPlace, healthy_turn, near, placed, preferred
from shadowrelay.core.workers import worker_name

SITES = ("here", "there")
OWN = MemberPlace(ServerName("own"), "here", "own-host")


def node(number: int, workers: int, site: str) -> list[MemberPlace]:
    name = ServerName(f"mx{number}")
    return [MemberPlace(worker_name(name, one), site, f"rack{number}") for one in range(1, workers + 1)]


@st.composite
def boundaries(draw: st.DrawFn) -> tuple[MemberPlace, ...]:
    """The other members of a boundary, some on our own machine."""
    nodes = draw(st.lists(st.tuples(st.integers(1, 5), st.sampled_from(SITES)), min_size=1, max_size=12))
    siblings = [
        MemberPlace(worker_name(OWN.name, n), OWN.site, OWN.host) for n in range(2, draw(st.integers(2, 4)))
    ]
    others = [one for number, (workers, site) in enumerate(nodes) for one in node(number, workers, site)]
    return (*siblings, *draw(st.permutations(others)))


def few(choices: int) -> Policy:
    return Policy(holder_choices=choices, max_retries_for_local_site_shadow=4)


def chosen(
    members: Sequence[MemberPlace], choices: int, skipped: frozenset[ServerName] = frozenset()
) -> set[ServerName]:
    """Whom messages are offered to first, over all turns."""
    order = near(OWN, members)
    found = set()
    for turn in range(61):
        if first := healthy_turn(preferred(placed(OWN, order), few(choices), turn=turn), (), skipped):
            found.add(first.to)
    return found


@given(boundaries(), st.integers(1, 20))
def test_no_more_members_than_asked_for_hold_copies_and_each_is_on_another_machine_while_there_is_one(
    members: tuple[MemberPlace, ...], choices: int
) -> None:
    first = chosen(members, choices)
    hosts = Counter(place.host for place in members if place.name in first)
    site = next(place.site for place in members if place.name in first)
    machines = {place.host for place in members if place.site == site} - {OWN.host}
    possible = sum(place.host in machines for place in members)
    assert len(first) == min(choices, possible)
    assert len(hosts) == min(choices, len(machines))
    assert OWN.host not in hosts


@given(boundaries(), st.integers(0, 20), st.data())
def test_a_member_that_can_be_reached_is_chosen_whoever_else_cannot(
    members: tuple[MemberPlace, ...], choices: int, data: st.DataObject
) -> None:
    elsewhere = [place.name for place in members if place.host != OWN.host]
    some = st.sampled_from(elsewhere)
    few = st.sets(some, min_size=1, max_size=2)
    reached = data.draw(few | st.sets(some, min_size=1))
    skipped = frozenset(elsewhere) - reached
    found = chosen(members, choices, skipped)
    assert found
    assert not found & skipped


@given(boundaries(), st.integers(1, 20), st.data())
def test_a_member_that_goes_takes_away_itself_alone_and_one_that_comes_displaces_one_at_most(
    members: tuple[MemberPlace, ...], choices: int, data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(members))
    rest = tuple(place for place in members if place is not gone)

    def first(places: tuple[MemberPlace, ...]) -> set[ServerName]:
        return {place.name for place in near(OWN, places)[:choices]}

    assert first(members) - first(rest) <= {gone.name}
    assert len(first(rest) - first(members)) <= 1


@given(boundaries(), st.integers(1, 20))
def test_the_choice_does_not_depend_on_the_order_of_the_settings(
    members: tuple[MemberPlace, ...], choices: int
) -> None:
    assert near(OWN, members)[:choices] == near(OWN, members[::-1])[:choices]


@pytest.mark.parametrize("choices", [4, 16])
def test_each_owner_has_its_own_choice_so_that_holders_share_the_load(choices: int) -> None:
    members = [one for number in range(40) for one in node(number, 4, "here")]
    held: Counter[ServerName] = Counter()
    for own in members:
        order = preferred(placed(own, near(own, members)), few(choices), turn=0)
        held.update(order[0].members[:choices])
    assert sum(held.values()) == len(members) * choices
    assert set(held) == {place.name for place in members} if choices == 16 else True
    assert max(held.values()) <= 3 * choices


def test_while_all_that_are_chosen_are_out_of_reach_the_next_ones_take_turns() -> None:
    members = [one for number in range(12) for one in node(number, 1, "here")]
    first = chosen(members, 3)
    second = chosen(members, 3, frozenset(first))
    assert len(first) == len(second) == 3
    assert not first & second


def test_workers_hold_for_the_worker_with_their_number() -> None:
    """So each holds for one, whatever the hash says."""
    names = {
        host: [worker_name(ServerName(f"{host}.test"), number) for number in range(1, 5)] for host in "ab"
    }
    here, there = ([MemberPlace(name, "site", host) for name in names[host]] for host in "ab")
    for own, counterpart in zip(here, there, strict=True):
        assert near(own, there)[0] == counterpart
