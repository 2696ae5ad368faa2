"""A next hop as the admin API shows it: whether a session is free, and which limit is the reason if not."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shadowrelay.core.identifiers import NextHop, RequestId, ServerName
from shadowrelay.core.policy import Policy
from shadowrelay.core.suspensions import Suspension
from shadowrelay.delivery.attempt import Outbound
from shadowrelay.members.suspended import Suspended
from shadowrelay.service.node import hop_status
from shadowrelay.smtp.sending.session import Login, NextHopServer

NOW = datetime(2026, 11, 22, 6, 0, tzinfo=UTC)
OUTSIDE = NextHop("outside")
POLICY = Policy(max_per_domain_outbound_connections=3, max_outbound_connections=4)


def keeps(policy: Policy = POLICY, **hops: Outbound) -> str:
    by_name = {NextHop(name): hop for name, hop in hops.items()}
    return hop_status(by_name, OUTSIDE, policy, clock=100.0, now=NOW).keeps(NOW)


SUSPENDED = Suspension(
    id=RequestId("01900000-0000-7000-9000-0000000000aa"),
    next_hop=OUTSIDE,
    suspended=True,
    operator="op",
    reason="it is full",
    changed_by=ServerName("mx1"),
    changed_at=NOW - timedelta(hours=3),
)
RESUMED = replace(SUSPENDED, suspended=False, spans=((NOW - timedelta(hours=3), NOW - timedelta(hours=1)),))
LIFTED = replace(SUSPENDED, until=NOW - timedelta(hours=1))


@pytest.mark.parametrize(
    ("started", "record", "rested_until", "hours"),
    [
        (9, None, None, 9),
        (2, RESUMED, None, 1),
        (2, LIFTED, None, 1),
        (0.5, RESUMED, None, 0.5),
        (9, None, 0.25, 0.25),
    ],
    ids=["the node stood", "it is resumed", "its time is over", "it was resumed before the start", "a rest"],
)
def test_mail_could_be_sent_since_the_last_of_all_that_kept_it_ended(started, record, rested_until, hours):
    def ago(hours: float) -> datetime:
        return NOW - timedelta(hours=hours)

    suspended = Suspended(lambda: NOW)
    suspended.take([record] if record else [])
    hop = Outbound(None)
    hop.retry_at = rested_until and ago(rested_until)
    by_name = {OUTSIDE: hop}
    found = hop_status(by_name, OUTSIDE, POLICY, 100.0, NOW, started_at=ago(started), suspended=suspended)
    assert (found.keeps(NOW), found.free_since) == ("", ago(hours))


def test_of_two_suspensions_the_one_that_ends_last_is_told():
    route = replace(SUSPENDED, next_hop=NextHop("outside"), until=None, reason="the route is moved")
    own = replace(SUSPENDED, next_hop=NextHop("outside/example.net"), until=NOW + timedelta(hours=1))
    suspended = Suspended(lambda: NOW)
    suspended.take([own, route])
    assert suspended.by(own.next_hop) == route
    suspended.take([replace(own, until=None), replace(route, until=NOW + timedelta(hours=1))])
    assert suspended.by(own.next_hop) == replace(own, until=None)


def test_a_hop_that_nothing_was_sent_to_has_room():
    assert keeps() == ""
    assert keeps(outside=Outbound(None, workers=2)) == ""


def test_all_sessions_of_one_hop_are_in_use():
    told = "no session is free: 3 of 3 in use (max_per_domain_outbound_connections)"
    assert keeps(outside=Outbound(None, workers=3)) == told


def test_all_sessions_of_the_node_are_in_use_by_others_too():
    told = "no session is free: 1 of 1 in use (max_outbound_connections)"
    assert keeps(outside=Outbound(None, workers=1), inside=Outbound(None, workers=3)) == told


def test_a_hop_that_turned_one_session_away_takes_no_more_for_a_while():
    hop = Outbound(None, workers=2)
    hop.turned_away(99.0, POLICY)
    hop.workers = 1  # the one that was turned away has ended
    assert keeps(outside=hop) == "no session is free: 1 of 1 in use (the next hop takes no more)"


async def test_a_hop_that_wants_a_login_has_one_session_until_that_went_through():
    login = Login(username="relay", password_file=Path("password"))
    server = NextHopServer(
        name=OUTSIDE, host="hop", port=587, local_hostname="mx1.example.net", tls="required", login=login
    )
    hop = Outbound(server)
    assert keeps(outside=hop) == ""
    async with asyncio.TaskGroup() as group:
        hop.probes.add(group.create_task(asyncio.sleep(0)))
        hop.workers = 1
        assert keeps(outside=hop) == "no session is free: 1 of 1 in use (one session logs in first)"
        hop.let_in = True
        assert keeps(outside=hop) == ""


async def test_a_hop_that_failed_is_tried_by_one_session_besides_those_of_before():
    hop = Outbound(None, workers=2, failures=1, last_error="connect: refused", retry_at=NOW)
    assert keeps(outside=hop) == "", "both are of before: one may try"
    async with asyncio.TaskGroup() as group:
        probe = group.create_task(asyncio.sleep(0))
        hop.probes.add(probe)
        assert keeps(outside=hop) == (
            "one session tries the next hop first: it failed 1 time, at last connect: refused"
        )
