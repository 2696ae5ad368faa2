"""What a scrape shows, and that docs/reference/metrics.md names all of it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from admin_node import (
    DATABASES,
    MARK,
    MX2,
    MX3,
    NOW,
    OURS,
    POLICY,
    FakeNode,
    a_node,
    ask,
    attempted,
    damaged,
    fill,
    held,
    kept_for_hop,
    meet,
    message_id,
    peer,
    received,
    serving,
    unbelievable,
)
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from shadowrelay.admin.node import MemberState
from shadowrelay.core.decisions import Content, Decision, SaveCopy
from shadowrelay.core.delivery.settling import Ending
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.members.damage import given
from shadowrelay.core.reception import holding
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.opening import Salvaged
from shadowrelay.measures import MOST_HOPS, ByHop

PARTS = re.compile("_(bucket|sum|count)$")
"""What a histogram consists of."""

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[FakeNode]:
    async with a_node(tmp_path) as made:
        await fill(made, meet(MX2), meet(MX3), received(1, MX2), received(2, None), held(3, MX2))
        await fill(made, received(4, MX3), attempted(4, Ending.ACCEPTED, "250 ok"), kept_for_hop(4))
        made.statuses = [peer(MX2, MemberState.UNREACHABLE, failures=3), peer(MX3)]
        yield made


def restored(number: int) -> Callable[[SqlLedger], object]:
    """Its holder gives a good copy of that message."""

    def work(ledger: SqlLedger) -> None:
        copy = ledger.copy(message_id(number))
        assert copy
        assert copy.digests
        offer = holding.ShadowCopyOffer(
            message_id=copy.id,
            epoch=copy.epoch,
            rank=1,
            owner=MX2,
            owner_database=DATABASES[MX2],
            mark=MARK,
            received_at=NOW,
            envelope=copy.envelope,
            recipients=copy.recipients,
            digests=copy.digests,
            given_for=OURS,
        )
        taken = ledger.apply(holding.hold(ledger, offer, Content(data=b"body"), POLICY, NOW))
        assert taken is holding.OfferAnswer.QUEUED

    return work


def to_hop(number: int, hop: str) -> Callable[[SqlLedger], object]:
    """A message that waits for that next hop."""

    def work(ledger: SqlLedger) -> None:
        received(number, MX2)(ledger)
        copy = ledger.copy(message_id(number))
        assert copy
        routed = tuple(replace(one, next_hop=NextHop(hop)) for one in copy.recipients)
        ledger.apply(Decision(None, (SaveCopy(copy, replace(copy, recipients=routed)),)))

    return work


async def scraped(node: FakeNode, accept: str = "") -> dict[str, float]:
    async with serving(node) as port:
        got = await ask(port, "/metrics", accept=accept)
    assert got.status == 200
    assert got.headers["content-type"].startswith("text/plain")
    return {
        f"{sample.name}{''.join(f'{{{value}}}' for value in sample.labels.values())}": sample.value
        for family in text_string_to_metric_families(got.text)
        for sample in family.samples
    }


async def test_the_backlog_does_not_include_shadow_copies_and_safety_net(node):
    found = await scraped(node)
    assert found["shadowrelay_queued_messages"] == 2
    assert found["shadowrelay_exposed_messages"] == 1
    assert found["shadowrelay_shadow_messages"] == 1
    assert found["shadowrelay_safety_net_messages"] == 1
    assert found["shadowrelay_discard_events"] == 1
    assert found["shadowrelay_oldest_queued_seconds"] == 120
    assert found["shadowrelay_commits_total"] == node.database.commits
    assert found["shadowrelay_ready"] == 1


async def test_the_disk_shows_how_far_it_is_from_refusing_mail(node):
    node.room.board.measured(300, 1.0)
    found = await scraped(node)
    assert found["shadowrelay_free_disk_bytes"] == 300
    assert found["shadowrelay_minimum_free_disk_bytes"] == 256 * 2**20


async def test_each_certificate_in_use_says_until_when_it_is_valid(node):
    node.certificates = {"peer.certificate": NOW + timedelta(days=9), "receive.default.tls_certificate": NOW}
    found = await scraped(node)
    name = "shadowrelay_certificate_expiry_timestamp_seconds"
    assert found[f"{name}{{peer.certificate}}"] == NOW.timestamp() + 9 * 86400
    assert found[f"{name}{{receive.default.tls_certificate}}"] == NOW.timestamp()


async def test_tracking_events_are_counted_by_event_id_from_zero(node):
    found = await scraped(node)
    assert found["shadowrelay_tracking_events_total{RECEIVE}"] == 3
    assert found["shadowrelay_tracking_events_total{HAREDIRECTFAIL}"] == 1
    assert found["shadowrelay_tracking_events_total{SENDEXTERNAL}"] == 1
    assert found["shadowrelay_tracking_events_total{RESUBMIT}"] == 0


async def test_logins_are_counted_by_what_became_of_them(node):
    found = await scraped(node)
    assert found["shadowrelay_extra_hops_total{taken}"] == 4
    assert found["shadowrelay_extra_hops_total{alone}"] == 1
    assert found["shadowrelay_logins_total{succeeded}"] == 3
    assert found["shadowrelay_logins_total{failed}"] == 2
    assert found["shadowrelay_logins_total{put_off}"] == 1


async def test_delayed_acknowledgements_are_counted_by_how_they_ended(node):
    found = await scraped(node)
    assert found["shadowrelay_delayed_acknowledgements_total{settled}"] == 4
    assert found["shadowrelay_delayed_acknowledgements_total{timed_out}"] == 1
    assert found["shadowrelay_waiting_acknowledgements"] == 2


async def test_damage_is_counted_by_what_it_is_and_by_whether_anybody_has_a_good_copy(node):
    await fill(node, damaged(1), damaged(3), damaged(2, aside=True), received(5, MX2), unbelievable(5))
    await fill(node, restored(1))
    found = await scraped(node)
    assert found["shadowrelay_damaged_messages{waiting}"] == 2
    assert found["shadowrelay_damaged_messages{set_aside}"] == 1
    assert found["shadowrelay_damage_found_total{content}"] == 3
    assert found["shadowrelay_damage_found_total{rows}"] == 1
    assert found["shadowrelay_damage_found_total{derived}"] == 0
    assert found["shadowrelay_good_copies_total{fetched}"] == 1
    assert found["shadowrelay_good_copies_total{given}"] == 0


async def test_a_copy_that_is_given_to_its_owner_is_counted_where_it_was_given(node):
    await fill(node, lambda ledger: ledger.apply(given(ledger, message_id(3), MX2, NOW)))
    found = await scraped(node)
    assert found["shadowrelay_good_copies_total{given}"] == 1
    assert found["shadowrelay_good_copies_total{fetched}"] == 0


async def test_the_scrub_shows_how_far_it_is_and_when_it_was_complete(node):
    before = await scraped(node)
    assert before["shadowrelay_scrub_complete_timestamp_seconds"] == 0
    assert before["shadowrelay_scrub_round_octets"] == 0
    await fill(node, lambda ledger: ledger.connection.execute("UPDATE recipient SET due_at = NULL"))
    scrubbing = asyncio.create_task(node.scrub.run())
    node.scrub.begin_at_once()
    while node.scrub.last is None:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    scrubbing.cancel()
    after = await scraped(node)
    assert after["shadowrelay_scrub_complete_timestamp_seconds"] == NOW.timestamp()
    assert after["shadowrelay_scrub_octets_total"] == 4 * len(b"body")
    assert after["shadowrelay_scrub_interval_seconds"] == 0
    assert after["shadowrelay_damage_found_total{derived}"] == 2


async def test_a_corrupt_database_is_a_gauge_until_the_next_start(node):
    assert (await scraped(node))["shadowrelay_corrupt_database{salvaged}"] == 0
    node.database.opened = replace(node.database.opened, salvaged=Salvaged(Path("x"), {}))
    found = await scraped(node)
    assert found["shadowrelay_corrupt_database{salvaged}"] == 1
    assert found["shadowrelay_corrupt_database{set_aside}"] == 0


async def test_each_member_that_is_not_retired_has_its_own_series(node):
    found = await scraped(node)
    assert found[f"shadowrelay_peer_reachable{{{MX2}}}"] == 0
    assert found[f"shadowrelay_peer_reachable{{{MX3}}}"] == 1
    assert found[f"shadowrelay_peer_failures{{{MX2}}}"] == 3
    assert found[f"shadowrelay_peer_shadow_messages{{{MX2}}}"] == 1
    assert found[f"shadowrelay_peer_holds_messages{{{MX2}}}"] == 1


async def test_durations_are_shown_as_histograms_of_what_was_no_longer_than_each_bound(node):
    node.measured.acknowledgement.observe(0.004)
    node.measured.acknowledgement.observe(0.005)
    node.measured.acknowledgement.observe(99.0)
    node.measured.delivery.observe("outside", 2.0)
    found = await scraped(node)
    assert found["shadowrelay_acknowledgement_seconds_bucket{0.0025}"] == 0
    assert found["shadowrelay_acknowledgement_seconds_bucket{0.005}"] == 2
    assert found["shadowrelay_acknowledgement_seconds_bucket{30.0}"] == 2
    assert found["shadowrelay_acknowledgement_seconds_bucket{+Inf}"] == 3
    assert found["shadowrelay_acknowledgement_seconds_count"] == 3
    assert found["shadowrelay_acknowledgement_seconds_sum"] == pytest.approx(99.009)
    assert found["shadowrelay_delivery_seconds_bucket{1.0}{outside}"] == 0
    assert found["shadowrelay_delivery_seconds_bucket{2.5}{outside}"] == 1
    assert found["shadowrelay_shadow_commit_seconds_count"] == 0


async def test_each_queue_of_the_settings_and_the_longest_others_are_shown_by_name(node):
    node.measured.delivery.fixed = frozenset({"outside", "never-used"})
    domains = [f"d{number:02}" for number in range(MOST_HOPS + 3)]
    numbers = iter(range(100, 200))
    for count, domain in enumerate(domains):
        for _ in range(2 if count == len(domains) - 1 else 1):
            await fill(node, to_hop(next(numbers), domain))
    found = await scraped(node)
    shown = {name for name in found if name.startswith("shadowrelay_queue_messages")}
    assert len(shown) == 2 + MOST_HOPS + 1
    assert found["shadowrelay_queue_messages{outside}"] == 2
    assert found["shadowrelay_queue_messages{never-used}"] == 0
    assert found[f"shadowrelay_queue_messages{{{domains[-1]}}}"] == 2
    assert found["shadowrelay_queue_messages{other}"] == 3  # of those with one message, the last by name
    assert f"shadowrelay_queue_messages{{{domains[-2]}}}" not in found
    assert found["shadowrelay_queue_oldest_seconds{outside}"] == 120
    assert found["shadowrelay_queue_oldest_seconds{never-used}"] == 0


def test_next_hops_past_the_bound_share_one_histogram():
    found = ByHop(("inside",), most=2)
    for hop in ("a", "b", "c", "d", "inside", "a", "c"):
        found.observe(hop, 0.1)
    assert {hop: one.number for hop, one in found.each.items()} == {"inside": 1, "a": 2, "b": 1, "other": 3}


async def test_metrics_stay_out_of_the_global_registry(node):
    await scraped(node)
    assert not [name for name in REGISTRY._names_to_collectors if name.startswith("shadowrelay")]


async def test_every_metric_is_in_the_reference_and_nothing_else(node):
    shown = {PARTS.sub("", name.partition("{")[0]) for name in await scraped(node)}
    rows = [
        line.split("`")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `shadowrelay_")
    ]
    of_workers = {row for row in rows if row.startswith("shadowrelay_worker_")}  # those of the front
    assert {row.partition("{")[0] for row in rows if row not in of_workers} == shown
    assert of_workers == {"shadowrelay_worker_serving{worker}", "shadowrelay_worker_restarts_total{worker}"}
