"""``shadowrelay drain``: empties a node before it is stopped, and says what is left and who has it."""

from __future__ import annotations

import sys
import time
from datetime import timedelta

import click

from shadowrelay.admin.client import AdminClient
from shadowrelay.cli.viewing import act_options, counted, duration, print_json, reporting, say
from shadowrelay.shown.safety_text import copies_reached
from shadowrelay.shown.status import DrainEntry

_POLL = 0.5  # seconds


@click.command(short_help="Empty a node before it is stopped.")
@click.option(
    "--within",
    callback=duration,
    metavar="DURATION",
    default="60s",
    show_default=True,
    help="How long to wait for an empty queue. The node goes on after that.",
)
@click.option("--end", is_flag=True, help="Take mail again, instead of draining.")
@act_options
def drain(node: AdminClient, within: timedelta, *, end: bool, as_json: bool) -> None:
    """Stop taking mail (421), deliver what can be delivered, and hand the rest over to other members.

    Waits until nothing is left, then says what became of the queue, and for which members it holds copies.
    These copies stay; their owners replace them when this node is gone. Exit status 0 if nothing is left in
    the queue, 1 if something is.
    """
    given = click.get_current_context().get_parameter_source("within")
    if end and given is not click.core.ParameterSource.DEFAULT:
        raise click.UsageError("--within is how long to wait for an empty queue: --end waits for nothing")
    with reporting():
        answer = node.post(DrainEntry, "drain", "end" if end else "begin")
        deadline = time.monotonic() + within.total_seconds()
        while not end and not answer["done"] and time.monotonic() < deadline:
            time.sleep(_POLL)
            answer = node.get(DrainEntry, "drain")
    if as_json:
        print_json(answer)
    else:
        for sentence in _told(answer):
            say(sentence)
    sys.exit(0 if end or answer["done"] else 1)


def _told(answer: DrainEntry) -> list[str]:
    by = (
        f", as {operator} ordered at {answer['drain_ordered_at']}"
        if (operator := answer["drain_operator"])
        else ""
    )
    if not answer["draining"]:
        return [f"{answer['name']} takes mail{by}"]
    told = [f"{answer['name']} is being drained{by}: it takes no mail"]
    for name, number in answer["handed_over"].items():
        waiting = answer["not_yet_taken"].get(name, 0)
        told.append(
            f"{counted(number, 'message')} handed over to {name}"
            + (f"; {waiting} not yet taken" if waiting else "")
        )
    told += [one["why"] for one in answer.get("workers", ()) if not one["answers"]]
    if answer["arriving"]:
        told.append(f"{counted(answer['arriving'], 'session')} under way: it may still take a message")
    left = counted(answer["queued"], "message")
    told.append(f"{left} left in its queue" if answer["queued"] else "Nothing is left in its queue")
    told += [f"{number} of them with a copy at {name}" for name, number in answer["held_by"].items()]
    if answer["not_yet_taken"]:
        takers = ", ".join(answer["not_yet_taken"])
        told.append(f"Do not remove its disk before {takers} has taken what was handed over")
    if alone := copies_reached(answer)[0]:
        told.append(f"{counted(alone, 'message')} here alone: do not remove its disk")
    if answer["set_aside"]:
        told.append(
            f"{counted(answer['set_aside'], 'message')} set aside for you: resume, bounce or drop them first"
        )
    for name, number in answer.get("kept_for_hops", {}).items():
        told.append(
            f"Keeps {counted(number, 'message')} until {name} has delivered: they stay on its disk, "
            "and nobody else sends them again"
        )
    for name, number in answer["held_for"].items():
        told.append(f"Holds the second copy of {counted(number, 'message')} of {name}")
    if answer["held_for"]:
        told.append(
            "Keep its disk until these members show At risk: 0. They make new copies when this node was gone"
            " for holder_loss_heartbeats, or at once when it is retired"
        )
    return told
