"""The hosts of a next hop: their order, their shares, and when they rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from shadowrelay.core.delivery.hosts import (
    Chance,
    Host,
    HostGroup,
    MxGroup,
    RouteHosts,
    Standing,
    failed,
    groups,
    next_try,
    pick,
)
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.policy import Policy

OUT, SPARE, WORLD = NextHop("out"), NextHop("spare"), NextHop("world")
NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
POLICY = Policy()


def host(name: str, preference: int = 0, weight: int = 1) -> Host:
    return Host(OUT, name, 25, preference, weight)


A, B, C, LAST = host("a"), host("b"), host("c"), host("last", preference=20)
NOTHING: Mapping[Host, Chance] = {}


def drawn(
    *hosts: Host, chances: Mapping[Host, Chance] = NOTHING, tried: tuple[Host, ...] = ()
) -> Counter[str]:
    """How often each host is picked in four hundred messages."""
    random = Random(7)
    found = (
        pick(hosts, tried, lambda one: chances.get(one, Chance()), 20, random.random) for _ in range(400)
    )
    return Counter(one.name if one else "none" for one in found)


def test_equal_hosts_are_drawn_by_their_weights() -> None:
    found = drawn(host("a", weight=3), host("b"))
    assert found["a"] + found["b"] == 400
    assert 260 < found["a"] < 340


def test_hosts_of_weight_zero_are_drawn_only_where_all_have_it() -> None:
    nobody = host("a", weight=0)
    assert drawn(nobody, host("b")) == {"b": 400}
    assert set(drawn(nobody, host("b", weight=0))) == {"a", "b"}


def test_a_less_preferred_host_has_its_turn_when_no_better_one_is_left() -> None:
    assert drawn(LAST, A) == {"a": 400}
    assert drawn(LAST, A, chances={A: Chance(rests=True)}) == {"last": 400}
    assert drawn(LAST, A, tried=(A,)) == {"last": 400}
    assert drawn(LAST, A, tried=(A, LAST)) == {"none": 400}


def test_a_host_that_another_session_tries_is_left_alone_while_there_is_another() -> None:
    assert drawn(A, B, chances={A: Chance(tried_now=True)}) == {"b": 400}
    assert drawn(A, LAST, chances={A: Chance(tried_now=True)}) == {"last": 400}
    assert drawn(A, chances={A: Chance(tried_now=True)}) == {"a": 400}


@pytest.mark.parametrize(("busy", "expected"), [(6, {"a", "b", "c"}), (7, {"b", "c"})])
def test_a_slow_host_gets_no_more_than_its_share_of_the_sessions(busy: int, expected: set[str]) -> None:
    """Twenty sessions, three hosts: seven each."""
    assert set(drawn(A, B, C, chances={A: Chance(sessions=busy)})) == expected


def test_the_share_is_of_the_hosts_that_do_not_rest() -> None:
    chances = {A: Chance(sessions=9), C: Chance(rests=True)}
    assert set(drawn(A, B, C, chances=chances)) == {"a", "b"}


def test_the_share_goes_by_weight() -> None:
    heavy = host("a", weight=3)
    assert set(drawn(heavy, B, chances={heavy: Chance(sessions=14), B: Chance(sessions=5)})) == {"a"}
    assert set(drawn(heavy, B, chances={heavy: Chance(sessions=15), B: Chance(sessions=4)})) == {"b"}


def test_the_share_of_a_slow_host_is_smaller_but_never_nothing() -> None:
    """One second against a ninth of one: a tenth of twenty sessions."""
    fast = Chance(sessions=15, pace=1 / 9)
    assert set(drawn(A, B, chances={A: Chance(sessions=1, pace=1.0), B: fast})) == {"a", "b"}
    assert set(drawn(A, B, chances={A: Chance(sessions=2, pace=1.0), B: fast})) == {"b"}
    assert set(drawn(A, B, chances={A: Chance(pace=1000.0), B: fast})) == {"a", "b"}


def test_a_host_of_unknown_pace_has_the_share_of_its_weight() -> None:
    """A third of twenty sessions, whatever the others do; so nobody waits for a host that never answers."""
    known = {B: Chance(sessions=19, pace=0.1), C: Chance(sessions=19, pace=0.2)}
    assert set(drawn(A, B, C, chances={A: Chance(sessions=6), **known})) == {"a"}
    assert "a" not in drawn(
        A, B, C, chances={A: Chance(sessions=7), **known, C: Chance(sessions=2, pace=0.2)}
    )


def test_a_short_silence_makes_no_host_the_fastest_and_a_long_one_makes_it_slow() -> None:
    known = {B: Chance(sessions=2, pace=0.1), C: Chance(sessions=2, pace=0.1)}
    for silent in (0.001, 0.05):
        assert "a" not in drawn(A, B, C, chances={A: Chance(sessions=7, silent=silent), **known})
    assert "a" not in drawn(A, B, C, chances={A: Chance(sessions=1, silent=10.0), **known})
    assert "a" in drawn(A, B, C, chances={A: Chance(sessions=6, silent=0.001), **known})


def test_if_all_have_their_share_the_one_with_the_fewest_sessions_takes_the_message() -> None:
    assert drawn(A, B, chances={A: Chance(sessions=11), B: Chance(sessions=10)}) == {"b": 400}


def test_a_host_that_wants_fewer_sessions_is_passed_over_while_another_takes_more() -> None:
    full = Chance(full=True)
    assert drawn(A, B, chances={A: full}) == {"b": 400}
    assert drawn(A, LAST, chances={A: full}) == {"last": 400}
    assert drawn(A, chances={A: full}) == {"a": 400}


def test_a_host_that_fails_rests_in_the_documented_retry_order() -> None:
    standing, now = Standing(), NOW
    rests = []
    for _ in range(6):
        standing = failed(standing, "connect", "refused", "4.4.1", now, POLICY)
        assert standing.rests_until
        rests.append(standing.rests_until - now)
        assert standing.resting(now)
        now = standing.rests_until
        assert not standing.resting(now)
    glitches = [POLICY.queue_glitch_retry_interval] * POLICY.queue_glitch_retry_count
    assert rests == [*glitches, *[POLICY.transient_failure_retry_interval] * (6 - len(glitches))]


def test_a_session_that_began_before_the_rest_counts_as_no_further_failure() -> None:
    once = failed(Standing(), "connect", "refused", "4.4.1", NOW, POLICY)
    again = failed(once, "greeting", "421 busy", "4.3.2", NOW + timedelta(seconds=1), POLICY)
    assert (again.failures, again.rests_until) == (once.failures, once.rests_until)
    assert (again.step, again.error, again.status) == ("greeting", "421 busy", "4.3.2")


def test_a_next_hop_without_any_host_left_is_tried_when_the_first_host_may_be() -> None:
    soon, late, pause = NOW + timedelta(minutes=1), NOW + timedelta(minutes=9), timedelta(minutes=5)
    assert next_try([late, soon], NOW, pause) == soon
    assert next_try([], NOW, pause) == NOW + pause
    assert next_try([NOW - pause], NOW, pause) == NOW


def test_a_route_leads_to_its_own_hosts_and_then_to_those_of_its_alternatives() -> None:
    own, spare = (A, B), (Host(SPARE, "s", 25),)
    routes = {
        OUT: RouteHosts(OUT, own, alternatives=(SPARE,)),
        SPARE: RouteHosts(SPARE, spare, alternatives=(OUT,)),
    }
    assert groups(OUT, routes) == (HostGroup(own), HostGroup(spare))
    assert groups(SPARE, routes) == (HostGroup(spare), HostGroup(own))


def test_a_domain_of_a_route_with_mx_leads_to_what_the_dns_has() -> None:
    routes = {
        WORLD: RouteHosts(WORLD, mx=True, port=26, alternatives=(OUT,)),
        OUT: RouteHosts(OUT, (A,)),
    }
    world = MxGroup(WORLD, "example.net", 26)
    assert groups(NextHop("world/example.net"), routes) == (world, HostGroup((A,)))


@pytest.mark.parametrize("name", ["gone", "world", "out/example.net", "gone/example.net", "site/east"])
def test_what_the_settings_do_not_know_leads_nowhere(name: str) -> None:
    routes = {WORLD: RouteHosts(WORLD, mx=True), OUT: RouteHosts(OUT, (A,))}
    assert groups(NextHop(name), routes) == ()
