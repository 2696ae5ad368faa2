"""``shadowrelay reload``: a running node reads its settings file again."""

from __future__ import annotations

import sys
from typing import Any

import click

from shadowrelay.admin.client import AdminClient
from shadowrelay.cli.viewing import JsonTree, node_options, operator_option, print_json, reporting, say
from shadowrelay.shown.nodes import ReloadsAnswer
from shadowrelay.shown.status import ReloadEntry


@click.command(short_help="Read the settings file of a running node again, or of all nodes.")
@click.option("--cluster", is_flag=True, help="All members, each its own file, besides this node.")
@click.option("--dry-run", is_flag=True, help="Only say what the file would change.")
@operator_option
@node_options
def reload(node: AdminClient, operator: str, *, cluster: bool, dry_run: bool, as_json: bool) -> None:
    """Take the changed settings file whole, or refuse it whole, without a restart. SIGHUP does the same.

    Says what changes now, what needs a restart, and what is wrong. A file with an error changes nothing. What
    needs a restart keeps its value until then, and the status warns of it. Exit status 1 if a file was
    refused, or a node did not answer.
    """
    with reporting():
        body = {"cluster": cluster, "dry_run": dry_run, "operator": operator}
        model: Any = ReloadsAnswer if cluster else ReloadEntry
        answer = node.post(model, "reload", body=body)
    nodes = answer["nodes"] if cluster else [{"node": answer["name"], "answers": True, "why": "", **answer}]
    if as_json:
        print_json(answer)
    else:
        for one in nodes:
            for sentence in _told(one, dry_run=dry_run):
                say(sentence)
    sys.exit(0 if all(one["answers"] and not one["wrong"] for one in nodes) else 1)


def _told(one: JsonTree, *, dry_run: bool) -> list[str]:
    name = one["node"]
    if not one["answers"]:
        return [f"{name} does not answer: {one['why']}"]
    if one["wrong"]:
        return [f"{name} refuses its settings file, nothing changes:", *(f"  {why}" for why in one["wrong"])]
    verb = "would take" if dry_run else "has taken"
    told = [f"{name} {verb} its settings file"]
    told += ["  nothing changes now"] if not one["now"] else []
    told += [f"  now: {_change(each)}" for each in one["now"]]
    told += [f"  needs a restart: {_change(each)}" for each in one["restart"]]
    return told + [f"  warning: {warning}" for warning in one["warnings"]]


def _change(one: JsonTree) -> str:
    return f"{one['key']}: {one['was']} -> {one['now']}"
