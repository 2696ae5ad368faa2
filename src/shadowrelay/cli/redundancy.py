"""``shadowrelay redundancy``: switches shadow redundancy on a running cluster, for all members at once."""

from __future__ import annotations

import click

from shadowrelay.admin.client import AdminClient
from shadowrelay.cli.viewing import (
    JsonTree,
    console,
    counted,
    node_options,
    operator_option,
    print_json,
    print_table,
    reporting,
    say,
)
from shadowrelay.shown.records import RedundancyEntry


@click.group(short_help="Switch shadow redundancy on or off for all members, or show it.")
def redundancy() -> None:
    """Switch shadow redundancy on a running cluster.

    A switch is a record that every member has. A member that is away learns of it at its next contact.
    On each node the switch counts as long as the settings file says the same of shadow_redundancy_enabled as
    it said at the switch. If somebody changes that setting later, the file counts again on that node.
    """


@redundancy.command()
@click.option("--reason", required=True, help="Why; every member keeps it.")
@operator_option
@node_options
def on(node: AdminClient, reason: str, operator: str, *, as_json: bool) -> None:
    """Make second copies again: of new mail before its 250, and of all mail in the queues."""
    _turn(node, "on", reason, operator, as_json=as_json)


@redundancy.command()
@click.option("--reason", required=True, help="Why; every member keeps it.")
@operator_option
@node_options
def off(node: AdminClient, reason: str, operator: str, *, as_json: bool) -> None:
    """Accept mail without a second copy, and discard the copies that exist.

    A holder discards a copy only after the owner has said that it has the message itself. Copies of an owner
    that is away stay, and are promoted as usual.
    """
    _turn(node, "off", reason, operator, as_json=as_json)


@redundancy.command()
@node_options
def show(node: AdminClient, *, as_json: bool) -> None:
    """Show whether shadow redundancy is on, who switched it, and which members know of the switch."""
    with reporting():
        answer = node.get(RedundancyEntry, "redundancy")
    _print(answer, as_json=as_json)


def _turn(node: AdminClient, value: str, reason: str, operator: str, *, as_json: bool) -> None:
    with reporting():
        body = {"value": value, "reason": reason, "operator": operator}
        answer = node.post(RedundancyEntry, "redundancy", body=body)
    _print(answer, as_json=as_json)


def _print(answer: JsonTree, *, as_json: bool) -> None:
    if as_json:
        return print_json(answer)
    for sentence in _told(answer):
        say(sentence)
    if answer["members"]:
        rows = [[one["name"], one["has"], one["why"]] for one in answer["members"]]
        print_table(console(), ("member", "knows", "why not"), rows, "")
    return None


def _told(answer: JsonTree) -> list[str]:
    name, switch = answer["name"], answer["switch"]
    told = [f"Shadow redundancy is {_value(answer['on'])} on {name}"]
    if switch:
        told.append(
            f"Switched {_value(switch['on'])} at {switch['changed_at']} on {switch['changed_by']} "
            f"by {switch['operator']}: {switch['reason']}"
        )
    else:
        told.append("Nobody has switched it: the settings file counts")
    if answer["overruled"]:
        told.append(
            f"The settings file of {name} was changed since, and counts: {_value(answer['settings_file'])}"
        )
    if answer["on"]:
        told.append(f"{counted(answer['exposed'], 'message')} here without a second copy")
    else:
        told.append(
            f"{counted(answer['queued'], 'message')} here; {counted(answer['held'], 'copy', 'copies')} held "
            "until their owners have said that they have the messages"
        )
    return told


def _value(on: bool) -> str:  # noqa: FBT001
    return "on" if on else "off"
