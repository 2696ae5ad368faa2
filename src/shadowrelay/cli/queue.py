"""``shadowrelay queue``: shows the backlog of a node, by next hop."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from shadowrelay.admin.client import AdminClient
from shadowrelay.cli.acting import give, queue_verb, until_option, with_report_option
from shadowrelay.cli.completing import hops_here
from shadowrelay.cli.viewing import (
    JsonTree,
    act_options,
    clean,
    console,
    counted,
    has_siblings,
    needs,
    node_options,
    of_all,
    of_this_node,
    print_json,
    print_lines,
    print_silent,
    print_table,
    reporting,
    say,
    silent,
    where_options,
    workers_option,
)
from shadowrelay.shown import nodes
from shadowrelay.shown.nodes import HopAnswer, QueuesAnswer
from shadowrelay.shown.queues import (
    AttemptEntry,
    HostEntry,
    QueueEntry,
    QueuesPage,
    SuspensionEntry,
    alike,
)
from shadowrelay.shown.records import SuspensionRecord, SuspensionsPage
from shadowrelay.shown.status import StatusEntry

if TYPE_CHECKING:
    from rich.console import Console

_COLUMNS = (
    "queue",
    "status",
    "messages",
    "due",
    "recipients",
    "exposed",
    "oldest",
    "a minute",
    "next attempt",
    "why it waits, or last reply",
)

_HOSTS = (
    "queue",
    "host",
    "route",
    "preference",
    "weight",
    "sessions",
    "failures",
    "rests until",
    "last error",
)


_SHADOWS = ("shadow queue", "hop", "messages", "oldest", "failed heartbeats", "last error")


@click.group(short_help="Show the queues of all nodes; retry, suspend, resume or empty one.")
def queue() -> None:
    """Show the queues of a node: the backlog. Shadow queues are not part of it."""


@queue.command("list")
@where_options
@workers_option
@node_options
def list_queues(node: AdminClient, *, cluster: bool | None, workers: bool, as_json: bool) -> None:
    """One row per node and next hop: its next attempt, and why its mail waits.

    The column "a minute" counts messages that the next hop took in the last minute; "due" counts messages
    that may be sent now and are not being sent. Mail that is due for more than five minutes though nothing
    keeps it is overdue: "why it waits" says since when.

    A second table shows the hosts of next hops that have several. A third shows shadow queues of hops: mail
    that they took and have not delivered yet. It is no backlog. A node that does not answer is a line that
    says so.

    With --json: one object a line, each with its kind (queue, hop_shadow_queue, or node for one that does not
    answer); with --here, the answer of the API in one document.
    """
    with reporting():
        everybody = of_all(node, QueuesAnswer, "queues", cluster=cluster)
        each: list[Any] = list(everybody["nodes"]) if everybody else []
        each = each if workers else nodes.queues(each)
        answer = _together(each) if everybody else _here(node, workers=workers)
    if as_json and everybody:
        print_lines("queue", answer["queues"])
        print_lines("hop_shadow_queue", answer["hop_shadow_queues"])
        return print_lines("node", _without_lists(silent({"nodes": each})))
    if as_json:
        return print_json(answer)
    out = console()
    print_table(out, _COLUMNS, [_row(found) for found in answer["queues"]], "The queues are empty.")
    hosts = [
        [found["identity"], *_host(host)]
        for found in answer["queues"]
        for host in found.get("hosts", ())
        if len(found["hosts"]) > 1
    ]
    if hosts:
        print_table(out, _HOSTS, hosts, "")
    hops = [
        [
            found["identity"],
            found["state"].replace("_", " "),
            found["messages"],
            found["oldest"],
            found["failures"],
            found["error"],
        ]
        for found in answer.get("hop_shadow_queues", ())
    ]
    if hops:
        print_table(out, _SHADOWS, hops, "")
    if everybody:
        print_silent(out, {"nodes": each})
    return None


def _here(node: AdminClient, *, workers: bool) -> JsonTree:
    """The queues of the node that is asked: of all its workers, unless ``workers`` are asked for."""
    if workers or not has_siblings(node.get(StatusEntry, "status")):
        found = node.get(QueuesPage, "queues")
        needs(found, "queues")
        return found
    return _together(nodes.queues(of_this_node(node, "queues")))


def _together(every: Sequence[JsonTree]) -> JsonTree:
    """The queues of all nodes that answer."""
    return {
        kind: [one for each in every for one in each.get(kind, ())]
        for kind in ("queues", "hop_shadow_queues")
    }


def _without_lists(nodes: Iterable[JsonTree]) -> Iterator[JsonTree]:
    for one in nodes:
        yield {key: one[key] for key in ("node", "answers", "why")}


def _row(found: QueueEntry) -> list[object]:
    return [
        found["identity"],
        found["status"],
        found["messages"],
        found["waiting"],
        found["recipients"],
        found["exposed"],
        found["oldest"],
        found.get("rate"),
        found["next_attempt"],
        found["why"] or found["last_error"] or found.get("last_reply"),
    ]


def _host(host: HostEntry) -> list[object]:
    return [
        host["host"],
        host["route"],
        host["preference"],
        host["weight"],
        host["sessions"],
        host["failures"],
        host["rests_until"],
        host["last_error"],
    ]


@queue.command("show")
@click.argument("hop", metavar="HOP", shell_complete=hops_here)
@where_options
@workers_option
@node_options
def show_queue(node: AdminClient, hop: str, *, cluster: bool | None, workers: bool, as_json: bool) -> None:
    """Show all that nodes know of one next hop: what its mail waits for, its hosts, its last attempts.

    HOP is a queue as queue list names it: world, world/example.net, or mx1.example.org\\world.
    """
    with reporting():
        answer = node.get(HopAnswer, "cluster", "queues", hop)
    needs(answer, "nodes")
    name = answer["next_hop"]
    each: list[Any] = list(answer["nodes"]) if workers else nodes.queue(answer["nodes"])
    shown: JsonTree = {**answer, "nodes": each[:1] if cluster is False else each}
    if as_json:
        return print_json(shown)
    out = console()
    for one in shown["nodes"]:
        if one["answers"]:
            _show(out, name, one)
    return print_silent(out, shown)


def _rate(one: JsonTree) -> str | None:
    return f"{counted(one['rate'], 'message')} in the last minute" if one.get("rate") is not None else None


def _last_reply(one: JsonTree) -> str | None:
    return f"{one['last_reply']} ({one['last_reply_at']})" if one.get("last_reply_at") else None


def _suspended(found: SuspensionEntry | None) -> str | None:
    if not found:
        return None
    until = f"until {found['until']}" if found["until"] else "until it is resumed"
    return f"by {found['operator']} since {found['since']}, {until}: {found['reason']}"


_ATTEMPTS = ("last", "times", "host", "outcome", "took", "message", "reply")


def _alike(attempts: Iterable[AttemptEntry]) -> list[list[object]]:
    """The last attempts as rows. Those with the same end at the same host are one, with the last of them."""
    rows: list[list[object]] = []
    for last, times, took in alike(attempts):
        what = (last["host"], last["outcome"], f"{took:.3g} s", last["message"], last["reply"])
        rows.append([last["at"], times, *what])
    return rows


def _show(out: Console, hop: str, one: JsonTree) -> None:
    found = one["queue"] or {}
    facts: list[list[object]] = [
        ["status", found.get("status") or "no mail waits here"],
        ["messages", found.get("messages")],
        ["due", found.get("waiting")],
        ["exposed", found.get("exposed")],
        ["took it, answer unreadable", found.get("unread") or None],
        ["oldest", found.get("oldest")],
        ["next attempt", found.get("next_attempt")],
        ["overdue since", found.get("overdue_since")],
        ["why it waits", found.get("why") or None],
        ["last error", found.get("last_error") or None],
        ["rate", _rate(one)],
        ["last reply", _last_reply(one)],
        ["sessions", f"{one['sessions']} of {one['places']}"],
        ["awaits", f"{one['awaits']}, since {one['awaits_since']}" if one["awaits"] else None],
        ["failures", one["failures"] or None],
        ["failed last", one.get("error") or None],
        ["rests until", one["rests_until"]],
        ["suspended", _suspended(one.get("suspension"))],
    ]
    print_table(out, ("queue", f"{one['node']}\\{hop}"), [fact for fact in facts if fact[1] is not None], "")
    if one["hosts"]:
        out.print()
        print_table(out, _HOSTS[1:], [_host(host) for host in one["hosts"]], "")
    if attempts := one.get("attempts"):
        out.print()
        print_table(out, _ATTEMPTS, _alike(attempts), "")
    out.print()


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
@act_options
def suspend(node: AdminClient, hop: str, reason: str, until: str | None, *, as_json: bool) -> None:
    """Deliver nothing to HOP until the queue is resumed, on all nodes. Its mail does not age meanwhile.

    The suspension is pending until every member has it, and no attempt to HOP is under way. Exit status 0 if
    it is in force everywhere, 1 if it is pending.
    """
    _act(node, {"queue": hop, "act": "suspend", "reason": reason, "until": until}, as_json=as_json)


@click.command()
@click.argument("hop", metavar="HOP")
@_REASON
@act_options
def resume(node: AdminClient, hop: str, reason: str, *, as_json: bool) -> None:
    """Deliver to HOP again, on all nodes."""
    _act(node, {"queue": hop, "act": "resume", "reason": reason}, as_json=as_json)


@click.command("suspensions")
@node_options
def list_suspensions(node: AdminClient, *, as_json: bool) -> None:
    """One row per queue that operators suspended or resumed: who, why, and until when."""
    with reporting():
        answer = node.get(SuspensionsPage, "suspensions")
    needs(answer, "suspensions")
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
            answer = next((one for one in found if one["queue"] == answer["queue"]), answer)
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{clean(answer['queue'])}: {_state(answer)}")
        for line in _awaited(answer):
            say(line)
    sys.exit(1 if answer["pending"] else 0)


for act in (retry, suspend, resume, remove, bounce, list_suspensions):
    queue.add_command(act)
