"""The sentence that says what happens next with a member, and its status out of a watch."""

from __future__ import annotations

from datetime import timedelta

from admin_node import MX2, MX3, NOW, POLICY, peer

from shadowrelay.admin.node import MemberState, member_status
from shadowrelay.admin.render import what_next
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.ownership.heartbeat import Watch
from shadowrelay.core.reception.shadow_servers import MemberPlace

PLACE = MemberPlace(MX2, "here", "rack2")
GONE = peer(MX2, MemberState.UNREACHABLE, losing_in=0, promoting_in=timedelta(minutes=3, seconds=5))


def test_in_a_boundary_of_two_time_alone_promotes():
    assert what_next(GONE, [GONE], (), 12, "rack1") == (
        "its copies of our messages do not count: they are made again elsewhere; "
        "its messages are promoted in 3 min 5 s"
    )


def test_a_node_that_reaches_nobody_is_told_that_it_does_not_promote():
    other = peer(MX3, MemberState.UNREACHABLE)
    assert "not promoted by time" in what_next(GONE, [GONE, other], (), 1, "rack1")
    assert "promoted in" in what_next(GONE, [GONE, other], (MX3,), 1, "rack1")


def test_a_member_beside_this_node_is_no_witness():
    beside, third = peer(MX3, host="rack1"), peer(ServerName("mx4"), MemberState.UNREACHABLE)
    assert "promoted in" in what_next(GONE, [GONE, beside], (), 1, "rack1")  # two machines
    assert "not promoted by time" in what_next(GONE, [GONE, beside, third], (), 1, "rack1")
    assert "promoted in" in what_next(GONE, [GONE, beside, peer(third.name)], (), 1, "rack1")


def test_a_member_that_has_contact_with_it_is_named():
    seen = peer(MX2, MemberState.UNREACHABLE, seen_by=MX3)
    assert what_next(seen, [seen], (), 2, "rack1").endswith(
        "its messages are not promoted by time: mx3.example.net is in contact with it"
    )


def test_a_retired_member_is_not_waited_for():
    assert what_next(GONE, [GONE], (MX2,), 12, "rack1").startswith("retired:")


def test_a_watch_becomes_a_status():
    watch = Watch(MX2)
    at = {"clock": 700.0, "now": NOW, "step": "connect"}
    untried = member_status(PLACE, "mx2:2526", watch, POLICY, **at)
    assert (untried.state, untried.since, untried.promoting_in) == (MemberState.UNTRIED, None, None)
    reached = member_status(PLACE, "mx2:2526", watch.answered(640.0), POLICY, **at)
    assert (reached.state, reached.last_contact) == (MemberState.REACHABLE, NOW - timedelta(minutes=1))
    failed, _ = watch.failed(100.0, "refused", POLICY)
    gone = member_status(PLACE, "mx2:2526", failed, POLICY, **at)
    assert (gone.state, gone.since) == (MemberState.UNREACHABLE, NOW - timedelta(minutes=10))
    assert (gone.step, gone.error, gone.failures, gone.losing_in) == ("connect", "refused", 1, 2)
    assert gone.promoting_in == timedelta(hours=2, minutes=50)
