"""``shadowrelay settings``: sets settings for all members of a running cluster."""

from __future__ import annotations

import click

from shadowrelay.admin.client import AdminClient
from shadowrelay.cli.viewing import (
    JsonTree,
    console,
    needs,
    node_options,
    operator_option,
    print_json,
    print_table,
    reporting,
    say,
)
from shadowrelay.shown.records import SettingEntry, SettingsAnswer

_REASON = click.option("--reason", metavar="TEXT", required=True, help="Why; every member keeps it.")


@click.group(short_help="Set settings for all members of a running cluster, or show them.")
def settings() -> None:
    """Set settings for all members of a running cluster.

    What is set is a record that every member has, and it counts over the settings file of each node until it
    is unset. A member that is away learns of it at its next contact.
    """


@settings.command()
@click.argument("key", required=False)
@node_options
def show(node: AdminClient, key: str | None, *, as_json: bool) -> None:
    """Show what is in force here, what was set for all members, by whom, and what the settings file says.

    With KEY, show which members have it.
    """
    with reporting():
        answer = node.get(SettingsAnswer, "settings")
    needs(answer, "settings")
    if key is None:
        return print_json(answer) if as_json else _print_all(answer)
    found = next((one for one in answer["settings"] if one["key"] == key), None)
    if found is None:
        known = ", ".join(one["key"] for one in answer["settings"])
        raise click.ClickException(f"{key} is not set for all members; these may be: {known}")
    return _print_one(found, as_json=as_json)


@settings.command("set")
@click.argument("key")
@click.argument("value")
@_REASON
@operator_option
@node_options
def set_(node: AdminClient, key: str, value: str, reason: str, operator: str, *, as_json: bool) -> None:
    """Set KEY to VALUE for all members, written as in the settings file."""
    _change(node, key, value, reason, operator, as_json=as_json)


@settings.command()
@click.argument("key")
@_REASON
@operator_option
@node_options
def unset(node: AdminClient, key: str, reason: str, operator: str, *, as_json: bool) -> None:
    """Let the settings file of each member count again for KEY."""
    _change(node, key, None, reason, operator, as_json=as_json)


def _change(
    node: AdminClient, key: str, value: str | None, reason: str, operator: str, *, as_json: bool
) -> None:
    with reporting():
        body = {"key": key, "value": value, "reason": reason, "operator": operator}
        answer = node.post(SettingEntry, "settings", body=body)
    _print_one(answer, as_json=as_json)


def _print_all(answer: JsonTree) -> None:
    rows = [
        [one["key"], _text(one["value"]), _set(one["set"]), _text(one["settings_file"]), *_who(one["set"])]
        for one in answer["settings"]
    ]
    print_table(console(), ("setting", "in force", "set for all", "settings file", "by", "reason"), rows, "")


def _print_one(one: JsonTree, *, as_json: bool) -> None:
    if as_json:
        return print_json(one)
    click.echo(
        f"{one['key']} is {_text(one['value'])} here; the settings file: {_text(one['settings_file'])}"
    )
    if one["pending"]:
        click.echo("A shorter span counts once every member has it, and the longer one has passed since")
    if last := one["set"]:
        did = "Unset" if last["value"] is None else f"Set to {_text(last['value'])}"
        told = (
            f"{did} at {last['changed_at']} on {last['changed_by']} by {last['operator']}: {last['reason']}"
        )
        say(told)
    else:
        click.echo("Nobody has set it for all members: each settings file counts")
    if one["members"]:
        rows = [[member["name"], member["has"], member["why"]] for member in one["members"]]
        print_table(console(), ("member", "knows", "why not"), rows, "")
    return None


def _set(last: JsonTree | None) -> str:
    return "–" if last is None or last["value"] is None else _text(last["value"])


def _who(last: JsonTree | None) -> tuple[str, str]:
    return ("–", "–") if last is None else (last["operator"], last["reason"])


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
