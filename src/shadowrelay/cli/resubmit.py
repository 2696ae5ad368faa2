"""``shadowrelay resubmit``: brings delivered mail back from Safety Net."""

from __future__ import annotations

import getpass
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import click

from shadowrelay.admin.client import AdminClient, ApiError
from shadowrelay.cli.resubmit_text import (
    LIST_COLUMNS,
    list_row,
    print_preview,
    print_request,
    selector_text,
    watched_line,
)
from shadowrelay.cli.selecting import CONDITIONS, selector_of, selector_options
from shadowrelay.cli.viewing import (
    Command,
    JsonTree,
    clean,
    console,
    counted,
    member_name,
    node_options,
    print_json,
    print_table,
)
from shadowrelay.shown.records import ResubmitChanged, ResubmitEntry, ResubmitPreview, ResubmitsPage

TIMEOUT = 60.0
"""Seconds for an answer: a preview waits for members that count a million messages, or do not answer."""

_EVERY = 2.0  # seconds between two looks of --watch


class NotClear(click.ClickException):
    """What was typed is refused, and nothing was done."""

    exit_code = 2


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


def operator_option(command: Command) -> Command:
    return click.option(
        "--operator",
        default=_user,
        show_default="your user name here",
        help="Your name, for the logs of all members.",
    )(command)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without a name
        return "unknown"


@contextmanager
def asking() -> Iterator[None]:
    """End the command with a sentence: status 2 if what was typed is refused, else 1."""
    try:
        yield
    except ApiError as error:
        if error.status in {400, 404, 409}:
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
    from shadowrelay.cli.resubmit_text import request_parts

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
