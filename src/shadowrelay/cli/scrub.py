"""``shadowrelay scrub``: reads all that a node keeps now, and says what is damaged."""

from __future__ import annotations

import sys
import time

import click

from shadowrelay.admin.client import AdminClient
from shadowrelay.cli.viewing import (
    JsonTree,
    act_options,
    console,
    counted,
    lasting,
    needs,
    print_json,
    print_table,
    reporting,
)
from shadowrelay.shown.status import ScrubAnswer
from shadowrelay.signals import INTERRUPTED

_POLL = 0.2  # seconds


@click.command(short_help="Read all that a node keeps now, and say what is damaged.")
@act_options
def scrub(node: AdminClient, *, as_json: bool) -> None:
    """Read all that the node keeps, now and without rests, and say what is damaged.

    A scrub reads the queue, the shadow copies and Safety Net from the disk, and compares rows with their
    sums and contents with their digests. The node does not deliver a damaged message: it asks the members
    for a good copy (shadowrelay message list --state damaged). Then the scrub compares every table with its
    indexes. If they differ, mail may be hidden: the node builds the index again, and finds the mail. Each
    node reads everything within scrub_interval anyway; use this command if you do not trust a disk, or before
    you remove another node.

    After Ctrl-C the round goes on at its usual pace. Exit status 0 if everything was read and is sound, 1 if
    damage was found or something could not be read.
    """
    with reporting():
        begun = node.post(ScrubAnswer, "scrub")
        try:
            last = _followed(node, begun)
        except KeyboardInterrupt:
            _leave(node.delete(ScrubAnswer, "scrub"))
    if as_json:
        print_json(last)
    else:
        names = ", ".join(last["rebuilt"])
        rows = [[name, last[field], _why(field, text, names)] for field, name, text in _ROWS]
        rows += [["begun by", last["operator"], " "]] if last.get("operator") else []
        print_table(console(), ("scrub", "count", ""), rows, "")
    sys.exit(1 if any(last[field] for field in _NOT_WELL) else 0)


_NOT_WELL = ("damaged_content", "damaged_rows", "damaged_indexes", "mended", "unreadable")
_ROWS = (
    ("messages", "messages", "in queue, shadow copies and Safety Net"),
    ("octets", "octets", "of their contents"),
    ("damaged_content", "damaged content", "messages: see shadowrelay message list --state damaged"),
    ("damaged_rows", "damaged rows", "messages, likewise"),
    ("mended", "mended", "messages: a derived column was wrong, and was corrected"),
    ("compared", "compared", "rows and entries of all tables and indexes"),
    ("damaged_indexes", "damaged indexes", "they differed from their tables, and were built again"),
    ("unreadable", "unreadable for now", "contents: the node's log says why"),
    ("seconds", "seconds", ""),
)


def _why(field: str, text: str, names: str) -> str:
    return f"{text}: {names}" if field == "damaged_indexes" and names else text or " "


def _followed(node: AdminClient, begun: JsonTree) -> JsonTree:
    """Wait until the round that was ``begun``, or a later one, is complete. Returns that round."""
    # Imported here, because it imports rich, which `--help` does not need.
    from shadowrelay.cli.progress import bar

    under_way = False
    with bar("scrub", 100) as shown:
        while True:
            found = node.get(ScrubAnswer, "scrub")
            needs(found, "last", "round", "at_once")
            last: JsonTree | None = found["last"]
            if last and _complete(found, begun):
                return last
            if _runs(found, begun):
                under_way = True
                shown.tell(_doing(found), 100 * (found["progress"] or 0))
            elif under_way:
                raise click.ClickException("another command has told the round to go on at its usual pace")
            time.sleep(_POLL)


def _complete(found: JsonTree, begun: JsonTree) -> bool:
    """Is the round of the node complete: of each of its workers, if it has several?"""
    return all(one["last"] and one["last"]["round"] >= first["begun"] for one, first in _each(found, begun))


def _runs(found: JsonTree, begun: JsonTree) -> bool:
    return any(one["round"] == first["begun"] and one["at_once"] for one, first in _each(found, begun))


def _each(found: JsonTree, begun: JsonTree) -> list[tuple[JsonTree, JsonTree]]:
    """What is found beside what was begun: of a node, or of each worker that began."""
    if "begun" not in begun or any("begun" not in one for one in begun.get("workers", ()) if one["answers"]):
        raise click.ClickException("the node does not tell which round it began: is it of another version?")
    if "workers" not in found:
        return [(found, begun)]
    now = {one["worker"]: one for one in found["workers"]}
    pairs = [(now.get(one["worker"]), one) for one in begun.get("workers", ()) if one["answers"]]
    for one, first in pairs:
        if one is None or not one["answers"]:
            why = one["why"] if one else f"worker {first['worker']} has left"
            raise click.ClickException(f"{why}: what it keeps was not read to the end")
    there = [(one, first) for one, first in pairs if one is not None]
    for one, _ in there:
        needs(one, "last", "round", "at_once")
        needs(one["last"] or one, "round")
    return there


def _doing(found: JsonTree) -> str:
    bad = sum(found[field] for field in _NOT_WELL)
    return (
        f"{found['messages']} of {counted(found['messages_of'], 'message')}, "
        f"{_size(found['octets'])} of {_size(found['octets_of'])}, {bad} not sound"
    )


def _size(octets: int) -> str:
    return f"{octets / 2**20:,.1f} MiB"


def _leave(left: JsonTree) -> None:
    """Say how the round goes on after Ctrl-C, and exit."""
    if left["interval"]:
        within = lasting(left["interval"])
        told = f"The round goes on at its usual pace: everything is read within {within}"
    else:
        told = "The round ends here: scrub_interval is 0"
    click.echo(told, err=True)
    sys.exit(INTERRUPTED)
