"""``shadowrelay message``: what a node knows of single messages."""

from __future__ import annotations

import click

from shadowrelay.admin.client import Client
from shadowrelay.cli.viewing import (
    Json,
    clean,
    console,
    list_messages,
    node_options,
    page_options,
    print_json,
    print_table,
    reporting,
)

_STATES = ("queued", "exposed", "asking", "in_doubt", "set_aside", "shadow", "safety_net")


@click.group(short_help="List messages of a node, or show one.")
def message() -> None:
    """List messages of a node, or show one."""


@message.command("list")
@click.option("--state", type=click.Choice(_STATES), default="queued", show_default=True)
@page_options
@node_options
def list_some(node: Client, state: str, after: str | None, limit: int, *, as_json: bool) -> None:
    """One row per message, oldest first. The column "open" is unsettled recipients of all recipients."""
    empty = f"No message is {state.replace('_', ' ')}."
    list_messages(node, state, after, limit, as_json=as_json, empty=empty)


@message.command()
@click.argument("message_id", metavar="ID")
@node_options
def show(node: Client, message_id: str, *, as_json: bool) -> None:
    """Everything that this node knows of message ID, which may be cut short while it stays unique."""
    with reporting():
        answer = node.get("messages", message_id)
    if as_json:
        return print_json(answer)
    out = console()
    print_table(out, ("message", clean(answer["id"])), _facts(answer), "")
    if answer["state"] == "gone":
        return None
    out.print()
    print_table(out, _RECIPIENT_COLUMNS, [_recipient_row(item) for item in answer["recipients"]], "")
    out.print()
    columns = ("holder", "state", "rank", "database", "at")
    rows = [
        [item["name"], item["state"], item["rank"], item["database_id"], item["mark"]]
        for item in answer["holders"]
    ]
    of_others = answer["role"] == "shadow"
    print_table(
        out, columns, rows, "Held for its owner." if of_others else "No other member is known to hold a copy."
    )
    return None


@message.command()
@click.argument("message_id", metavar="ID")
@node_options
def resume(node: Client, message_id: str, *, as_json: bool) -> None:
    """Let message ID go out that is set aside; its age begins anew.

    A node that was away for very long sets aside what no holder confirms: it may have been delivered.
    """
    _decide(node, message_id, "resume", as_json=as_json)


@message.command()
@click.argument("message_id", metavar="ID")
@node_options
def bounce(node: Client, message_id: str, *, as_json: bool) -> None:
    """Fail message ID that is set aside, and tell its sender."""
    _decide(node, message_id, "bounce", as_json=as_json)


def _decide(node: Client, message_id: str, verb: str, *, as_json: bool) -> None:
    with reporting():
        answer = node.post("messages", message_id, verb)
    if as_json:
        return print_json(answer)
    click.echo(f"{clean(answer['id'])}: {clean(answer['did'])}")
    return None


_RECIPIENT_COLUMNS = (
    "no.",
    "recipient",
    "next hop",
    "status",
    "now",
    "attempts",
    "next attempt",
    "last reply",
)


def _recipient_row(item: Json) -> list[object]:
    return [
        item["number"],
        item["address"],
        item["next_hop"],
        item["status"],
        item["why"] or item["doing"],
        item["attempts"],
        item["next_attempt"],
        item["last_reply"],
    ]


def _content_digest(digests: Json | None) -> str:
    if digests is None:
        return "none: a row of a version before them, not read since"
    late = " (made here, of what was stored: nobody had said what it is)" if digests["late"] else ""
    return f"{digests['content']}{late}"


def _facts(answer: Json) -> list[list[object]]:
    rows: list[list[object]] = [["state", answer["state"] + (", EXPOSED" if answer.get("exposed") else "")]]
    if answer["state"] != "gone":
        envelope = answer["envelope"]
        rows += [
            ["role", answer["role"]],
            ["owner", answer["owner"]],
            ["epoch, rank", f"{answer['epoch']}, {answer['rank']}"],
            ["confirmation", answer["confirmation"].replace("_", " ")],
            ["taken over from", answer["former_owner"]],
            ["sender", envelope["sender"] or "<>"],
            ["Message-ID", envelope["message_id"]],
            ["subject", envelope["subject"]],
            ["octets", envelope["size"]],
            ["received", answer["received_at"]],
            ["settled", answer["settled_at"]],
            ["reports on", answer["reports_on"]],
            ["digest of the content", _content_digest(answer["digests"])],
            ["damage", answer["damage"]],
        ]
        rows += [
            [f"refused by {one['name']}", f"{one['reply']} ({one['at']})"]
            for one in answer.get("refusals", ())
        ]
    if outcome := answer["outcome"]:
        settled = f"recipients {clean(outcome['settled'])} at epoch {outcome['epoch']}"
        rows.append(["remembered", f"settled: {settled}, until {outcome['kept_until']}"])
    if revoked := answer["revoked"]:
        rows.append(["revoked", f"epoch {revoked['epoch']}, rank {revoked['rank']} and below"])
    return [row for row in rows if row[1] is not None]
