"""Paths between sites, and where the one copy for several of them goes."""

from __future__ import annotations

from collections import deque
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.messages import Recipient
from shadowrelay.core.reception.sites import (
    SiteLink,
    SitePath,
    fanned_out,
    last_common,
    paths,
    site_hop,
    site_of,
    stops,
)
from shadowrelay.core.values import replace

# The sites of the page on Exchange 2010, and Paris.
LINKS = (
    SiteLink(("chicago", "ny"), 10),
    SiteLink(("atlanta", "ny"), 10),
    SiteLink(("ny", "london"), 20),
    SiteLink(("london", "dublin"), 10),
    SiteLink(("london", "paris"), 10),
)


def links(*costs: tuple[str, int]) -> tuple[SiteLink, ...]:
    """Links between sites whose names are letters."""
    return tuple(SiteLink(tuple(pair), cost) for pair, cost in costs)


def common(own: str, *destinations: str) -> dict[str, str]:
    ways = paths(own, LINKS)
    return last_common([ways[site] for site in destinations])


def test_the_path_of_least_cost_is_taken_though_it_has_more_hops() -> None:
    found = paths("a", links(("ab", 1), ("bc", 1), ("cd", 1), ("ad", 4)))
    assert found["d"] == SitePath(3, ("b", "c", "d"))


def test_of_equal_cost_the_path_with_the_fewest_hops_is_taken() -> None:
    assert paths("a", links(("ab", 1), ("bc", 1), ("ac", 2)))["c"] == SitePath(2, ("c",))
    assert paths("a", links(("ab", 1), ("bd", 3), ("ac", 1), ("ce", 1), ("ed", 2)))["d"].sites == ("b", "d")


def test_of_as_many_hops_the_path_with_the_lowest_name_is_taken_whatever_its_case() -> None:
    assert paths("a", links(("ac", 1), ("cd", 1), ("ab", 1), ("bd", 1)))["d"].sites == ("b", "d")
    assert paths("a", links(("aC", 1), ("Cd", 1), ("ab", 1), ("bd", 1)))["d"].sites == ("b", "d")


def test_what_no_link_leads_to_has_no_path() -> None:
    assert set(paths("a", links(("ab", 1), ("cd", 1)))) == {"b"}
    assert paths("a", ()) == {}


def test_a_link_connects_each_of_its_sites_and_of_two_links_the_cheaper_one_counts() -> None:
    found = paths("a", (SiteLink(("a", "b", "c"), 5), *links(("ac", 2), ("ac", 9))))
    assert (found["b"].cost, found["c"].cost) == (5, 2)


def test_recipients_behind_a_common_path_get_one_copy_to_its_last_site() -> None:
    assert common("chicago", "dublin", "paris") == {"dublin": "london", "paris": "london"}
    assert common("chicago", "dublin", "paris", "atlanta") == dict.fromkeys(
        ("dublin", "paris", "atlanta"), "ny"
    )


def test_a_site_that_forks_may_be_a_destination_itself() -> None:
    assert common("chicago", "london", "dublin") == {"london": "london", "dublin": "london"}


def test_a_single_site_and_one_that_shares_nothing_are_gone_to_straight() -> None:
    assert common("chicago", "dublin") == {"dublin": "dublin"}
    assert common("ny", "atlanta", "dublin", "paris") == {
        "atlanta": "atlanta",
        "dublin": "london",
        "paris": "london",
    }


def test_straight_to_the_end_else_back_along_the_path() -> None:
    assert stops(paths("chicago", LINKS)["dublin"]) == ("dublin", "london", "ny")


def test_the_first_hub_on_the_path_is_as_far_as_a_message_goes() -> None:
    way = paths("chicago", LINKS)["dublin"]
    assert stops(way, {"london", "ny"}) == ("ny",)
    assert stops(way, {"london"}) == ("london", "ny")
    assert stops(way, {"chicago", "dublin"}) == ("dublin", "london", "ny")


def test_the_next_hop_of_a_site_has_its_name() -> None:
    assert site_hop("london") == "site/london"
    assert site_of(site_hop("london")) == "london"
    assert site_of(NextHop("world/london")) is None
    assert site_of(NextHop("site")) is None


SITES = "abcdefg"


@st.composite
def networks(draw: st.DrawFn) -> tuple[tuple[SiteLink, ...], frozenset[str]]:
    """Links that connect up to seven sites, at few costs so that many are equal, and some hubs."""
    sites = SITES[: draw(st.integers(2, len(SITES)))]
    costs = st.integers(1, 4)
    tree = [(site, sites[draw(st.integers(0, number))]) for number, site in enumerate(sites[1:])]
    more = draw(st.lists(st.sampled_from(list(combinations(sites, 2))), max_size=8))
    hubs = draw(st.frozensets(st.sampled_from(sites), max_size=3))
    return tuple(SiteLink(pair, draw(costs)) for pair in (*tree, *more)), hubs


@given(networks(), st.data())
def test_with_equal_settings_every_hop_comes_closer_to_each_recipient_and_each_gets_the_message_once(
    network: tuple[tuple[SiteLink, ...], frozenset[str]], data: st.DataObject
) -> None:
    """Whatever sites answer or not: the paths only ever get shorter, and no link is paid for twice."""
    made, hubs = network
    sites = sorted({site for link in made for site in link.sites})
    ways = {site: paths(site, made) for site in sites}
    start = data.draw(st.sampled_from(sites), "start")
    wanted = data.draw(st.frozensets(st.sampled_from(sites), min_size=1), "destinations")
    arrived: list[str] = []
    paid = 0
    under_way: deque[tuple[str, frozenset[str]]] = deque([(start, wanted)])
    while under_way:
        here, destinations = under_way.popleft()
        if here in destinations:
            arrived.append(here)
        onward = destinations - {here}
        next_sites = last_common([ways[here][site] for site in sorted(onward)])
        assert set(next_sites) == onward
        for site in sorted(set(next_sites.values())):
            behind = frozenset(to for to, by in next_sites.items() if by == site)
            there = data.draw(st.sampled_from(stops(ways[here][site], hubs)), "the first that answers")
            paid += ways[here][there].cost
            for to in behind:
                left = 0 if to == there else ways[there][to].cost
                assert left + ways[here][there].cost == ways[here][to].cost
                assert left < ways[here][to].cost
            under_way.append((there, behind))
    assert sorted(arrived) == sorted(wanted)
    assert paid <= sum(ways[start][site].cost for site in wanted - {start})


@given(networks())
def test_the_rest_of_a_path_is_the_path_of_each_site_on_it(
    network: tuple[tuple[SiteLink, ...], frozenset[str]],
) -> None:
    made, _ = network
    sites = sorted({site for link in made for site in link.sites})
    ways = {site: paths(site, made) for site in sites}
    for way in (way for found in ways.values() for way in found.values()):
        for number, site in enumerate(way.sites[:-1], 1):
            assert ways[site][way.sites[-1]].sites == way.sites[number:]


@given(networks())
def test_no_other_way_costs_less(network: tuple[tuple[SiteLink, ...], frozenset[str]]) -> None:
    made, _ = network
    for site, way in paths("a", made).items():
        for link in made:
            for one, other in (link.sites, link.sites[::-1]):
                before = 0 if one == "a" else paths("a", made)[one].cost
                assert other != site or way.cost <= before + link.cost


@pytest.mark.parametrize("hubs", [(), ("b",)])
def test_the_order_in_which_links_stand_changes_nothing(hubs: tuple[str, ...]) -> None:
    given = links(("ab", 1), ("bd", 1), ("ac", 1), ("cd", 1), ("de", 2))
    assert paths("a", given) == paths("a", given[::-1])
    assert stops(paths("a", given)["e"], hubs) == stops(paths("a", given[::-1])["e"], hubs)


def recipient(number: int, hop: str) -> Recipient:
    return Recipient(number, f"r{number}@example.net", NextHop(hop))


def test_only_the_recipients_of_several_sites_share_a_copy() -> None:
    given = [
        recipient(number, hop)
        for number, hop in enumerate(("out", "site/dublin", "site/paris", "site/dublin", "site/gone"), 1)
    ]
    found = fanned_out(given, paths("chicago", LINKS))
    hops = ["out", "site/london", "site/london", "site/london", "site/gone"]
    assert found == tuple(replace(one, next_hop=NextHop(hop)) for one, hop in zip(given, hops, strict=True))


def test_recipients_of_one_site_go_there_straight() -> None:
    given = (recipient(1, "site/dublin"), recipient(2, "site/dublin"), recipient(3, "out"))
    assert fanned_out(given, paths("chicago", LINKS)) == given
