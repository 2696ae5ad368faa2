"""``shadowrelay redirect``: empties a node's queue to one member, and says what went, what stayed and why."""

from __future__ import annotations

import sys
import time
from datetime import timedelta

import click

from shadowrelay.admin.client import AdminClient
from shadowrelay.cli.viewing import (
    act_options,
    clean,
    counted,
    duration,
    member_name,
    print_json,
    reporting,
    say,
)
from shadowrelay.shown.status import RedirectEntry
from shadowrelay.signals import INTERRUPTED

_POLL = 0.5  # seconds
_WHY = {
    "being_sent": "under way to a next hop",
    "asked": "waiting until the members have said who owns them",
    "journal": "waiting for their journal copy to be safe",
    "damaged": "damaged: they wait for a good copy",
    "refused": "refused by the member",
    "unreadable": "not readable now: the node's log says why",
}


@click.command(short_help="Move a node's queue to one member.")
@click.option("--to", metavar="MEMBER", help="The member that takes the queue.")
@click.option("--stop", is_flag=True, help="Stop the redirect that runs.")
@click.option(
    "--within",
    callback=duration,
    metavar="DURATION",
    default="10m",
    show_default=True,
    help="How long to wait. After that the redirect is stopped.",
)
@act_options
def redirect(node: AdminClient, to: str | None, within: timedelta, *, stop: bool, as_json: bool) -> None:
    """Give every message in the node's queue to one member, which delivers it.

    If the member has no copy of a message, the message is copied there first. This node keeps its own copy as
    the second one. Shadow copies and messages that are set aside stay here. Mail that arrives after the
    redirect began stays too, unless the node is being drained.

    Ctrl-C stops the redirect: each message then belongs to this node or to the member, and the command says
    how many. Exit status 0 if the member has taken all these messages, 1 if some are left.
    """
    if bool(to) == stop:
        raise click.UsageError("give --to MEMBER to begin, or --stop to end what runs")
    with reporting():
        if stop:
            answer = node.delete(RedirectEntry, "redirect")
        else:
            member = member_name(node, to or "")
            try:
                answer = node.post(RedirectEntry, "redirect", member)
                if answer["warning"]:
                    click.echo(f"Warning: {clean(answer['warning'])}", err=True)
                answer = _followed(node, answer, within)
            except KeyboardInterrupt:
                answer = node.delete(RedirectEntry, "redirect")
                _print(answer, as_json=as_json)
                sys.exit(INTERRUPTED)
    _print(answer, as_json=as_json)
    sys.exit(0 if stop or answer["done"] else 1)


def _followed(node: AdminClient, answer: RedirectEntry, within: timedelta) -> RedirectEntry:
    """Wait until the redirect is over; stop it after ``within``."""
    # Imported here, because it imports rich, which `--help` does not need.
    from shadowrelay.cli.progress import bar

    deadline = time.monotonic() + within.total_seconds()
    with bar("redirect", answer["queued"] + answer["handed_over"]) as shown:
        while answer["running"]:
            if time.monotonic() >= deadline:
                return node.delete(RedirectEntry, "redirect")
            left = sum(answer["left"].values())
            shown.tell(f"{answer['copied']} copied, {left} waiting", answer["handed_over"])
            time.sleep(_POLL)
            answer = node.get(RedirectEntry, "redirect")
    return answer


def _print(answer: RedirectEntry, *, as_json: bool) -> None:
    if as_json:
        return print_json(answer)
    for sentence in _told(answer):
        say(sentence)
    return None


def _told(answer: RedirectEntry) -> list[str]:
    name, to = answer["name"], answer["to"]
    if to is None:
        return [f"{name} redirects nothing"]
    how = str(answer["ended"])
    ended = {"done": "is over", "stopped": "was stopped"}.get(how, f"ended: {how}")
    by = f" by {answer['stopped_by']}" if how == "stopped" and answer.get("stopped_by") else ""
    told = [f"The redirect to {to} {ended}{by}"]
    if answer.get("operator"):
        told.append(f"{answer['operator']} began it at {answer['began_at']}")
    copied = f", {answer['copied']} copied there first" if answer["copied"] else ""
    told.append(f"{counted(answer['handed_over'], 'message')} handed over to {to}{copied}")
    if answer["not_yet_taken"]:
        told.append(f"{answer['not_yet_taken']} not yet taken by {to}: keep this node's disk until then")
    left = answer["queued"]
    told.append(
        f"{counted(left, 'message')} from before the redirect still in the queue of {name}"
        if left
        else f"No message from before the redirect is left in the queue of {name}"
    )
    told += [f"{count} {_WHY.get(why, why)}" for why, count in answer["left"].items() if left]
    if answer["reply"] and answer["left"].get("refused"):
        told.append(f"{to} said: {answer['reply']}")
    return told
