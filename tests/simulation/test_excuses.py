"""What the checks excuse is as narrow as the sentence that excuses it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shadowrelay.core.events.reports import ReportKind, report_id
from shadowrelay.core.identifiers import MessageId, ServerName

from . import rot
from .clients import Client
from .seeds import PLACES, SCALED, make_boundary
from .world import World


def reported_on() -> tuple[World, Any, Any, MessageId, MessageId]:
    """A message that was refused, and its report, which waits with a second copy."""
    world = World(1, replace(SCALED, reject_message_on_shadow_failure=True), PLACES[:2])
    checks = make_boundary(world, sql=False)
    world.hops["back"].closed_until = float("inf")
    to = ((1, "bad@example.net", "example.net"),)
    client = Client(world, checks, 1, "sender@example.org", to, (ServerName("mx1"), ServerName("mx2")))
    world.after(1.0, client.submit)
    world.run(8.0)
    ((message, sent),) = world.submissions.items()
    report = report_id(message, 1, ReportKind.FAILED)
    node = world.nodes[ServerName(sent.node)]
    assert not node.ledger.state.copies[report].exposed
    return world, checks, node, message, report


@pytest.mark.parametrize("again", [False, True])
def test_a_damaged_report_is_excused_only_while_redundancy_is_off(again: bool) -> None:
    world, checks, node, message, report = reported_on()
    node.turn(False)
    world.run(12.0)
    assert node.ledger.state.copies[report].exposed
    if again:
        node.turn(True)
        world.run(18.0)
        assert not node.ledger.state.copies[report].exposed
    checks.rotted(node, [report], rot.ROW)
    assert world.excused == (set() if again else {message})


def test_a_damaged_report_that_has_a_second_copy_is_not_excused() -> None:
    world, checks, node, _, report = reported_on()
    checks.rotted(node, [report], rot.ROW)
    assert world.excused == set()


def test_an_operator_who_tries_again_changes_redundancy_in_the_order_of_his_wish() -> None:
    """No node runs when he turns it off: what he does next comes after that."""
    from .seeds import Run

    run = Run(34740)
    assert run.go().problems == []
    switches = [node.ledger.switch("shadow_redundancy_enabled") for node in run.world.nodes.values()]
    assert all(switch and switch.value for switch in switches)
