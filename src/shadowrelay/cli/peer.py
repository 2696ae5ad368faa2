"""``shadowrelay peer``: shows the other members of the boundary, and retires one."""

from __future__ import annotations

import click

from shadowrelay.admin.client import AdminClient
from shadowrelay.cli.status import PEER_COLUMNS, own_workers, peer_row
from shadowrelay.cli.viewing import (
    act_options,
    console,
    has_siblings,
    member_name,
    needs,
    node_options,
    print_json,
    print_table,
    reporting,
    say,
    workers_option,
)
from shadowrelay.core.workers import is_later_worker
from shadowrelay.shown.nodes import WorkersAnswer, node_name, statuses
from shadowrelay.shown.records import RetiredAnswer
from shadowrelay.shown.status import PeersAnswer, StatusEntry


@click.group(short_help="Show the members, or say that one is gone for good.")
def peer() -> None:
    """Show the members as one node sees them, or say that one is gone for good."""


@peer.command("list")
@workers_option
@node_options
def list_peers(node: AdminClient, *, workers: bool, as_json: bool) -> None:
    """One row per member: since when it cannot be reached, why, and what happens next.

    A node of several workers is one member: the counts are the sums, and the worst state is told.
    """
    with reporting():
        answer = node.get(PeersAnswer, "peers")
        needs(answer, "peers")
        if not workers and any(is_later_worker(one["name"]) for one in answer["peers"]):
            answer["peers"] = statuses(own_workers(node))[0]["status"]["peers"]
    if as_json:
        return print_json(answer)
    rows = [peer_row(found) for found in answer["peers"]]
    print_table(console(), PEER_COLUMNS, rows, "This node has no members.")
    return None


@peer.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@act_options
def retire(node: AdminClient, name: str, *, yes: bool, as_json: bool) -> None:
    """Say that member NAME is gone for good. Say it to one node that remains.

    NAME is a member's name (mx1.example.net), or its first label (mx1) if no other member has that label.

    The other nodes are told. Its copies no longer count. The copies that a node holds for it are promoted
    and delivered: this mail goes out twice if NAME is alive after all.

    The name of a node means all of its workers, w2.mx1.example.net or w2.mx1 one of them. All workers of the
    node that is asked are told.
    """
    name = member_name(node, name)
    if not yes:
        click.confirm(
            f"Is {name} gone for good? Mail held for it is delivered now: twice, if it is alive.",
            abort=True,
            err=True,
        )
    with reporting():
        answers = [
            node.post(RetiredAnswer, *path, "peers", one, "retire")
            for path in _workers_here(node)
            for one in _workers_of(node, name)
        ]
    if as_json:
        return print_json(answers[0] if len(answers) == 1 else {"name": name, "answers": answers})
    for sentence in dict.fromkeys(one for answer in answers for one in (*answer["did"], answer["to_do"])):
        say(sentence)
    return None


def _workers_of(node: AdminClient, name: str) -> list[str]:
    """The members that a name means: all workers of a node, if it is the node's."""
    if is_later_worker(name):
        return [name]
    known = (str(one["name"]) for one in node.get(PeersAnswer, "peers")["peers"])
    return [name, *(one for one in known if one != name and node_name(one) == name)]


def _workers_here(node: AdminClient) -> list[tuple[str, ...]]:
    """Where the API of each worker of the node that is asked begins; of a node of one worker, its own."""
    if not has_siblings(node.get(StatusEntry, "status")):
        return [()]
    workers = node.get(WorkersAnswer, "workers")["workers"]
    return [("workers", str(one["number"])) for one in workers if one["state"] in ("serving", "leaving")]
