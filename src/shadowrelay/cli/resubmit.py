"""``shadowrelay resubmit``: brings delivered mail back from Safety Net."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from shadowrelay.admin.client import AdminClient, ApiError
from shadowrelay.admin.guard import NO_SUCH_QUEUE
from shadowrelay.cli.selecting import CONDITIONS, selector_of, selector_options
from shadowrelay.cli.viewing import (
    JsonTree,
    NotClear,
    clean,
    console,
    counted,
    lasting,
    member_name,
    needs,
    node_options,
    operator_option,
    print_json,
    print_table,
)
from shadowrelay.shown.records import ResubmitChanged, ResubmitEntry, ResubmitPreview, ResubmitsPage

if TYPE_CHECKING:
    from rich.console import Console

TIMEOUT = 60.0
"""Seconds for an answer: a preview waits for members that count a million messages, or do not answer."""

_EVERY = 2.0  # seconds between two looks of --watch


@click.group(short_help="Bring delivered mail back from Safety Net.")
def resubmit() -> None:
    """Bring delivered mail back: deliver again what Safety Net keeps of it.

    Every node keeps what it delivered to mailbox servers (routes marked inside) for safety_net_hold_time. A
    request names a window of delivery time and a destination, sender, recipient or message. Every member of
    the boundary has the request, and each resubmits what it delivered. Mail that left the boundary is never
    sent again, and senders get no reports.

    \b
    Mail of two days for a mailbox server that lost its store:
      shadowrelay resubmit add --since 2d --until 10m --to mailbox1.example.net --reason "disk lost"
    Only say what a request would do:
      shadowrelay resubmit add --since 3h --until 1h --recipient '*@example.net' --reason test --dry-run
    See how far it is:
      shadowrelay resubmit show 1 --watch
    """


@contextmanager
def asking() -> Iterator[None]:
    """End the command with a sentence: status 2 if what was typed is refused, else 1."""
    try:
        yield
    except ApiError as error:
        if error.status in {400, 404, 409, NO_SUCH_QUEUE}:
            raise NotClear(clean(error)) from error
        raise click.ClickException(clean(error)) from error


@resubmit.command()
@selector_options(required=True)
@click.option("--all", "everything", is_flag=True, help="All mail of the window, without another condition.")
@click.option("--reason", required=True, metavar="TEXT", help="Why: every member shows and logs it.")
@click.option(
    "--now",
    "gone",
    metavar="MEMBER",
    multiple=True,
    help="This member is gone: its holders answer for it at once, not after unresponsive_primary_interval.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only say what the request would do.")
@operator_option
@node_options
def add(
    node: AdminClient,
    reason: str,
    gone: tuple[str, ...],
    operator: str,
    *,
    everything: bool,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Say what a request would do, ask, and make it.

    Any node will do: it gives the request to all others. TIME is a moment with its offset, or how long ago it
    was: 30m, 2h, 1d. Give at least one condition besides the window, or --all.

    \b
    All mail of a mailbox server, from yesterday until ten minutes ago:
      shadowrelay resubmit add --since 1d --until 10m --to mailbox1.example.net --reason "disk lost"
    One user's mail, by exact times:
      shadowrelay resubmit add --since 2026-11-26T09:00:00Z --until 2026-11-26T12:00:00Z \\
        --recipient anna@example.net --reason "mailbox restored from a backup of 9:00"
    A member is lost with its disk; its holders answer for it now:
      shadowrelay resubmit add --since 1d --until 10m --all --now mx2 --reason "store and mx2 lost" --yes

    Exit status 0: done. 1: the node failed, or you said no. 2: nothing was done, because something is missing
    or wrong.
    """
    if not everything and not any(given[name] for name in CONDITIONS):
        raise click.UsageError(
            "this would bring back all mail of the window: give --to, --sender, --recipient, --message-id or "
            "--network-message-id, or say --all"
        )
    if everything and any(given[name] for name in CONDITIONS):
        raise click.UsageError("--all brings back all mail of the window: give it without other conditions")
    if not reason.strip():
        raise click.UsageError("--reason is empty")
    node = replace(node, timeout=TIMEOUT)
    body = {
        "selector": selector_of(given),
        "gone": [member_name(node, name) for name in gone],
        "operator": operator,
    }
    with asking():
        found = node.post(ResubmitPreview, "resubmit", "preview", body=body)
    if not as_json:
        print_preview(console(), found)
    elif dry_run:
        print_json(found)
    if dry_run:
        return None
    if not yes:
        _confirm(found)
    with asking():
        made = node.post(ResubmitChanged, "resubmit", body=body | {"reason": reason})["request"]
    if as_json:
        return print_json({"preview": found, "request": made})
    click.echo(f"Request {made['number']} is made ({made['id']}). Every member gets it.")
    click.echo(f"See how far it is: shadowrelay resubmit show {made['number']} --watch")
    return None


def _confirm(found: JsonTree) -> None:
    if not (sys.stdin and sys.stdin.isatty()):
        raise click.UsageError("nobody is there to ask: nothing was done. Give --yes to make the request")
    most = "at most " if found["at_most"] else ""
    click.confirm(f"Resubmit {most}{counted(found['messages'], 'message')}?", abort=True, err=True)


@resubmit.command("list")
@node_options
def list_requests(node: AdminClient, *, as_json: bool) -> None:
    """One row per request, open ones first. "made" and "skipped" count messages of all nodes."""
    with asking():
        answer = node.get(ResubmitsPage, "resubmit")
    needs(answer, "requests")
    if as_json:
        return print_json(answer)
    rows = [list_row(one) for one in answer["requests"]]
    print_table(console(), LIST_COLUMNS, rows, "There are no resubmit requests.")
    return None


@resubmit.command()
@click.argument("request", metavar="N|UUID")
@click.option("--watch", is_flag=True, help="Look again until it is done. Ctrl-C ends the watch alone.")
@node_options
def show(node: AdminClient, request: str, *, watch: bool, as_json: bool) -> None:
    """Show a request: what it selects, who made it and why, and how far each node is.

    N is its number, UUID its id or the beginning of it. Two nodes that could not see each other may both have
    made a request with the same number: then give the UUID.

    "left" is what a node would still make; a dash if the node does not answer. "rate" is messages a second.
    """
    node = replace(node, timeout=TIMEOUT)
    answer = _shown(node, request)
    if watch and not as_json:
        return _watch(node, answer)
    while watch and _goes_on(answer):
        time.sleep(_EVERY)
        answer = _shown(node, answer["request"]["id"])
    if as_json:
        print_json(answer)
    else:
        print_request(console(), answer)
    return None


def _shown(node: AdminClient, request: str) -> JsonTree:
    with asking():
        return node.get(ResubmitEntry, "resubmit", request)


def _goes_on(answer: JsonTree) -> bool:
    return bool(answer["open"]) and not answer["done"]


def _watch(node: AdminClient, answer: JsonTree) -> None:
    from rich.console import Group
    from rich.live import Live

    out = console()
    if not out.is_terminal:
        said = ""
        while True:
            line = watched_line(answer)
            if line != said:
                click.echo(line)
                said = line
            if not _goes_on(answer):
                return
            time.sleep(_EVERY)
            answer = _shown(node, answer["request"]["id"])
    live = Live(Group(*_drawn(answer)), console=out, auto_refresh=False, vertical_overflow="visible")
    try:
        with live:
            while _goes_on(answer):
                time.sleep(_EVERY)
                answer = _shown(node, answer["request"]["id"])
                live.update(Group(*_drawn(answer)), refresh=True)
    finally:
        live.stop()  # also after a Ctrl-C while it began


def _drawn(answer: JsonTree) -> list[Any]:
    return list(request_parts(answer))


@resubmit.command()
@click.argument("request", metavar="N|UUID")
@operator_option
@node_options
def pause(node: AdminClient, request: str, operator: str, *, as_json: bool) -> None:
    """Make no more messages for a request, on any member. What was made is delivered."""
    _change(node, request, "pause", operator, as_json=as_json)


@resubmit.command()
@click.argument("request", metavar="N|UUID")
@operator_option
@node_options
def resume(node: AdminClient, request: str, operator: str, *, as_json: bool) -> None:
    """Go on with a request that was paused."""
    _change(node, request, "resume", operator, as_json=as_json)


@resubmit.command()
@click.argument("request", metavar="N|UUID")
@operator_option
@node_options
def remove(node: AdminClient, request: str, operator: str, *, as_json: bool) -> None:
    """End a request for good, on every member. What was made is delivered."""
    _change(node, request, "remove", operator, as_json=as_json)


@resubmit.command()
@click.argument("request", metavar="N|UUID")
@click.argument("member")
@operator_option
@node_options
def now(node: AdminClient, request: str, member: str, operator: str, *, as_json: bool) -> None:
    """Say that MEMBER is gone: for this request its holders answer for it at once.

    It may come back later: nothing is made twice.
    """
    _change(node, request, "gone", operator, as_json=as_json, member=member_name(node, member))


def _change(
    node: AdminClient, request: str, verb: str, operator: str, *, as_json: bool, member: str | None = None
) -> None:
    body = {"operator": operator} | ({"member": member} if member else {})
    with asking():
        answer = node.post(ResubmitChanged, "resubmit", request, verb, body=body)
    if as_json:
        return print_json(answer)
    now = answer["request"]
    click.echo(
        f"Request {now['number']} ({now['id']}) is {now['state']}; gone: {clean(now['gone'])}. "
        f"It is about {clean(selector_text(now['selector']))}"
    )
    return None


LIST_COLUMNS = ("no.", "state", "made", "skipped", "by", "at", "selects", "reason", "uuid")

CAUSES = {
    "elsewhere": "made or delivered by another member",
    "outside": "recipients beyond the boundary",
    "resubmitted": "resubmitted by an earlier request",
    "damaged": "no good copy of the content",
    "gone": "expired before its turn",
    "untimed": "delivered at an unknown time",
    "in_transit": "still in a queue for other recipients",
}


def selector_text(selector: JsonTree) -> str:
    """What a selector selects, in one line."""
    names = {
        "to": "to",
        "sender": "from",
        "recipient": "for",
        "message_id": "Message-ID",
        "network_message_id": "message",
    }
    told = [f"{text} {clean(selector[name])}" for name, text in names.items() if selector[name]]
    return f"{selector['since']} … {selector['until']}, {', '.join(told) or 'all'}"


def state_text(answer: JsonTree) -> str:
    """``running``, ``done``, ``paused``, ``removed`` or ``ended`` (by its age)."""
    state = str(answer["request"]["state"])
    if state == "running" and answer["done"]:
        return "done"
    if state != "removed" and not answer["open"]:
        return "ended"
    return state


def list_row(answer: JsonTree) -> list[object]:
    request = answer["request"]
    return [
        request["number"],
        state_text(answer),
        answer["made"],
        sum(answer["skipped"].values()),
        f"{request['operator']} ({request['made_by']})",
        request["made_at"],
        selector_text(request["selector"]),
        request["reason"],
        request["id"],
    ]


def print_preview(to: Console, found: JsonTree) -> None:
    """What a request would do."""
    most = "at most " if found["at_most"] else ""
    to.print(f"The request would resubmit {most}{_made_text(found)}.")
    rows: list[list[object]] = [
        [one["node"], "what it delivered", *_made(one), one["reaches_back_to"]] for one in found["nodes"]
    ]
    for one in found["held"]:
        for name, count in one["holders"].items():
            what = f"held for {one['owner']}: {one['why']}"
            rows.append([name, what, *_made(count), ""])
    to.print()
    to.print(_table(("node", "of", "messages", "recipients", "octets", "Safety Net begins"), rows))
    for one in found["unreachable"]:
        to.print()
        since = f" since {one['since']}" if one["since"] else ""
        to.print(clean(f"{one['member']} cannot be reached{since}: {one['why']}."))
        to.print(clean(_answered_text(one)))
    causes = {cause: number for cause, number in found["refused"].items() if number}
    if causes:
        to.print()
        to.print("Not resubmitted:")
        for cause, number in causes.items():
            to.print(f"  {number}  {CAUSES[cause]}")
    for warning in found["warnings"]:
        to.print()
        to.print(clean(f"Warning: {warning}."))
    to.print()


def _answered_text(one: JsonTree) -> str:
    held = one["held"]
    if not held["messages"]:
        return "No node that answers holds anything of it. What it has itself comes when it is back."
    most = "at most " if held["at_most"] else ""
    text = f"Of what it delivered, {clean(sorted(held['holders']))} would resubmit {most}{_made_text(held)}"
    if one["answered_in"] is None:
        return f"{text}: with --now {one['member']}, or when it is back."
    return f"{text}: in {lasting(round(one['answered_in']))}, or with --now {one['member']}."


def _made_text(found: JsonTree) -> str:
    messages, recipients = counted(found["messages"], "message"), counted(found["recipients"], "recipient")
    return f"{messages} to {recipients}, {found['octets']} octets"


def _made(found: JsonTree) -> list[object]:
    return [found["messages"], found["recipients"], found["octets"]]


def watched_line(answer: JsonTree) -> str:
    """How far a request is, in one line."""
    skipped = sum(answer["skipped"].values())
    left = "unknown" if answer["left"] is None else answer["left"]
    return f"{state_text(answer)}: {answer['made']} made, {skipped} skipped, {left} left"


def print_request(to: Console, answer: JsonTree) -> None:
    for part in request_parts(answer):
        to.print(part)


def request_parts(answer: JsonTree) -> Iterator[Any]:
    """A request, for printing or redrawing."""
    request = answer["request"]
    facts: list[list[object]] = [
        ["state", state_text(answer)],
        ["made by", f"{request['operator']} on {request['made_by']}, {request['made_at']}"],
        ["last change", _last_change(request)],
        ["reason", request["reason"]],
        ["selects", selector_text(request["selector"])],
        ["members that are gone", request["gone"]],
        ["made", answer["made"]],
        ["left", answer["left"]],
    ]
    facts += [[f"skipped: {CAUSES[cause]}", number] for cause, number in answer["skipped"].items()]
    yield _table((f"request {request['number']}", clean(request["id"])), facts)
    yield ""
    columns = ("node", "delivered by", "made", "skipped", "left", "rate", "reached", "done")
    yield _table(columns, [_progress_row(one) for one in answer["progress"]], "No node has begun.")
    yield ""
    rows = [[one["name"], one["has"], one["at"], one["why"]] for one in answer["members"]]
    yield _table(("member", "has the request", "as of", "why not"), rows, "This node has no members.")


def _last_change(request: JsonTree) -> str:
    by = f"{request['last_operator']} " if request["last_operator"] else ""
    return f"{by}on {request['changed_by']}, {request['changed_at']}"


def _progress_row(one: JsonTree) -> list[object]:
    skipped = [f"{number} {cause}" for cause, number in one["skipped"].items()]
    rate = None if one["rate"] is None else f"{one['rate']:.1f}/s"
    return [one["node"], one["owner"], one["made"], skipped, one["left"], rate, one["reached"], one["done"]]


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str = "") -> Any:
    from rich.table import Table

    if not rows:
        return empty
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(clean, row))
    return table
