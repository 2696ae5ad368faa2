"""The verbs of ``shadowrelay queue``: what operators do to a queue, on all nodes."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from shadowrelay.admin.client import AdminClient
from shadowrelay.cli.acting import give, queue_verb, until_option, with_report_option
from shadowrelay.cli.viewing import (
    JsonTree,
    clean,
    console,
    node_options,
    print_json,
    print_table,
    reporting,
)
from shadowrelay.shown.records import SuspensionRecord, SuspensionsPage

_POLL = 0.5  # seconds
_PATIENCE = 5.0  # seconds that a command waits until a suspension is in force everywhere


@click.command()
@queue_verb
def retry(node: AdminClient, hop: str, *, as_json: bool, **given: Any) -> None:
    """Try all mail to HOP now, on all nodes; the rests of the next hop and of its hosts end.

    HOP is a next hop, or a route with all its next hops.
    """
    give(node, "retry", {"queue": hop}, given, as_json=as_json)


@click.command()
@queue_verb
@with_report_option
def remove(node: AdminClient, hop: str, *, as_json: bool, **given: Any) -> None:
    """Never deliver what is in the queue to HOP now, on all nodes."""
    give(node, "remove", {"queue": hop}, given, as_json=as_json)


@click.command()
@queue_verb
def bounce(node: AdminClient, hop: str, *, as_json: bool, **given: Any) -> None:
    """Fail what is in the queue to HOP now, on all nodes; the senders are told."""
    give(node, "bounce", {"queue": hop}, given, as_json=as_json)


_REASON = click.option(
    "--reason", metavar="TEXT", required=True, help="Why; it is in the tracking log with who did it."
)


@click.command()
@click.argument("hop", metavar="HOP")
@_REASON
@until_option
@node_options
def suspend(node: AdminClient, hop: str, reason: str, until: str | None, *, as_json: bool) -> None:
    """Deliver nothing to HOP until the queue is resumed, on all nodes. Its mail does not age meanwhile.

    The suspension is pending until every member has it, and no attempt to HOP is under way. Exit status 0 if
    it is in force everywhere, 1 if it is pending.
    """
    _act(node, {"queue": hop, "act": "suspend", "reason": reason, "until": until}, as_json=as_json)


@click.command()
@click.argument("hop", metavar="HOP")
@_REASON
@node_options
def resume(node: AdminClient, hop: str, reason: str, *, as_json: bool) -> None:
    """Deliver to HOP again, on all nodes."""
    _act(node, {"queue": hop, "act": "resume", "reason": reason}, as_json=as_json)


@click.command("suspensions")
@node_options
def list_suspensions(node: AdminClient, *, as_json: bool) -> None:
    """One row per queue that operators suspended or resumed: who, why, and until when."""
    with reporting():
        answer = node.get(SuspensionsPage, "suspensions")
    if as_json:
        return print_json(answer)
    rows = [
        [
            one["queue"],
            _state(one),
            one["until"],
            one["operator"],
            one["changed_at"],
            one["reason"],
            _awaited(one),
        ]
        for one in answer["suspensions"]
    ]
    print_table(console(), _SUSPENSIONS, rows, "No queue was suspended.")
    return None


_SUSPENSIONS = ("queue", "state", "until", "by", "at", "reason", "waits for")


def _state(one: SuspensionRecord) -> str:
    return ("pending" if one["pending"] else "suspended") if one["suspended"] else "resumed"


def _awaited(one: SuspensionRecord) -> list[str]:
    """The nodes on which the suspension is not in force yet, and why."""
    if not one["suspended"]:
        return []
    return [
        f"{each['node']}: {each['why'] or str(each['sending']) + ' under way'}"
        for each in one["nodes"]
        if not each["has"] or each["sending"]
    ]


def _act(node: AdminClient, body: JsonTree, *, as_json: bool) -> None:
    with reporting():
        given = {name: value for name, value in body.items() if value}
        answer = node.post(SuspensionRecord, "suspensions", body=given)
        deadline = time.monotonic() + _PATIENCE
        while answer["pending"] and time.monotonic() < deadline:
            time.sleep(_POLL)
            found = node.get(SuspensionsPage, "suspensions")["suspensions"]
            answer = next((one for one in found if one["queue"] == body["queue"]), answer)
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{clean(answer['queue'])}: {_state(answer)}")
        for line in _awaited(answer):
            click.echo(clean(line))
    sys.exit(1 if answer["pending"] else 0)


ACTS = (retry, suspend, resume, remove, bounce, list_suspensions)
