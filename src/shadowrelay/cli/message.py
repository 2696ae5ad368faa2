"""``shadowrelay message``: lists and shows messages, and does the verbs of operators to messages."""

from __future__ import annotations

from typing import Any

import click

from shadowrelay.admin.client import AdminClient, ApiError
from shadowrelay.cli.acting import filter_of, give, message_verb, until_option, with_report_option
from shadowrelay.cli.finding import find, trace
from shadowrelay.cli.viewing import (
    JsonTree,
    act_options,
    clean,
    console,
    list_messages,
    list_of_all,
    node_options,
    page_options,
    print_json,
    print_table,
    reporting,
    where_options,
)
from shadowrelay.shown.messages import DidAnswer, GoneMessage, MessageEntry

_STATES = (
    "queued",
    "exposed",
    "at_risk",
    "asking",
    "in_doubt",
    "set_aside",
    "damaged",
    "shadow",
    "safety_net",
)


@click.group(short_help="Find messages, show one or its life; retry, suspend, resume, remove or bounce some.")
def message() -> None:
    """Find messages on all nodes, show one or its life, or list those of a node.

    Retry, suspend, resume, remove or bounce messages on all nodes.
    """


@message.command("list")
@click.option("--state", type=click.Choice(_STATES), default="queued", show_default=True)
@click.option("--cluster", is_flag=True, help="List the messages of all nodes that answer.")
@page_options
@node_options
def list_some(
    node: AdminClient, state: str, after: str | None, limit: int, *, cluster: bool, as_json: bool
) -> None:
    """One row per message, oldest first. The column "open" shows unsettled recipients of all recipients.

    The list is that of the node that is asked; with --cluster that of all nodes.

    With --state damaged: messages whose content differs from what was accepted, or whose rows in the
    transport database are damaged. They wait for a good copy from another member. A damaged message that is
    set_aside waits for you, because no member has a good copy.
    """
    is_so = state.replace("_", " ")
    if cluster:
        list_of_all(node, state, after, limit, as_json=as_json, empty=f"No message is {is_so} at any node.")
    else:
        empty = f"No message is {is_so} at this node: --cluster lists those of all nodes."
        list_messages(node, state, after, limit, as_json=as_json, empty=empty)


message.add_command(find)
message.add_command(trace)


@message.command()
@click.argument("message_id", metavar="ID")
@where_options
@node_options
def show(node: AdminClient, message_id: str, *, cluster: bool | None, as_json: bool) -> None:
    """Show everything that is known of message ID. A unique beginning of the ID is enough.

    All nodes are asked, and the one that knows most tells: the owner of the message, if it answers. With
    --here: what this node knows. Exit status 1: no node that answers knows it.
    """
    print_message(node, message_id, cluster=cluster, as_json=as_json)


def _of_all(node: AdminClient, message_id: str) -> MessageEntry:
    """What the node says that knows most of a message; what this one says, if it is of an older version."""
    try:
        return node.get(MessageEntry, "cluster", "messages", message_id)
    except ApiError as error:
        if not str(error).startswith("there is nothing at"):
            raise
        return node.get(MessageEntry, "messages", message_id)


def print_message(node: AdminClient, message_id: str, *, cluster: bool | None = None, as_json: bool) -> None:
    """Print what is known of a message."""
    with reporting():
        answer = (
            node.get(MessageEntry, "messages", message_id) if cluster is False else _of_all(node, message_id)
        )
    if as_json:
        return print_json(answer)
    out = console()
    print_table(out, ("message", clean(answer["id"])), _facts(answer), "")
    if answer["state"] == "gone" or answer["damage"] == "rows":
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
    if hops := answer.get("hops"):
        out.print()
        kept: list[list[object]] = [
            [hop["name"], hop["recipients"], hop["since"], hop["database_id"], hop["mark"]] for hop in hops
        ]
        print_table(
            out, ("hop that has not delivered yet", "recipients", "since", "database", "at"), kept, ""
        )
    return None


@message.command()
@message_verb
def retry(node: AdminClient, ids: tuple[str, ...], *, as_json: bool, **given: Any) -> None:
    """Try messages now, on all nodes: those with these IDs, or all that match.

    Suspended messages stay suspended.
    """
    give(node, "retry", filter_of(ids, given), given, as_json=as_json)


@message.command()
@until_option
@message_verb
def suspend(node: AdminClient, ids: tuple[str, ...], *, as_json: bool, **given: Any) -> None:
    """Deliver messages no more until they are resumed, on all nodes: those with these IDs, or all that match.

    Suspended mail does not expire. A suspension is pending until every member that may hold a copy knows it.
    """
    give(node, "suspend", filter_of(ids, given), given, as_json=as_json)


@message.command()
@message_verb
def resume(node: AdminClient, ids: tuple[str, ...], *, as_json: bool, **given: Any) -> None:
    """Deliver suspended messages again, on all nodes: those with these IDs, or all that match.

    One ID of a message that is set aside puts it back into the queue of this node; its age begins anew, and
    no reason is needed. A node that was away for very long sets aside messages that no holder confirms: they
    may have been delivered. A damaged message is set aside when no member has a good copy of it. Then this
    command does not send it, but looks for a good copy again, on this node's disk and at every member. Use it
    after a disk was repaired.
    """
    wanted = filter_of(ids, given)
    if _set_aside(node, wanted, given):
        return _decide(node, ids[0], "resume", as_json=as_json)
    return give(node, "resume", wanted, given, as_json=as_json)


@message.command()
@with_report_option
@message_verb
def remove(node: AdminClient, ids: tuple[str, ...], *, as_json: bool, **given: Any) -> None:
    """Never deliver messages, on all nodes: those with these IDs, or all that match.

    A removal is pending until no attempt is under way and every member that may hold a copy knows it.
    """
    give(node, "remove", filter_of(ids, given), given, as_json=as_json)


@message.command()
@message_verb
def bounce(node: AdminClient, ids: tuple[str, ...], *, as_json: bool, **given: Any) -> None:
    """Fail messages and tell their senders, on all nodes: those with these IDs, or all that match.

    One ID of a message that is set aside on this node fails without a reason. The report of a damaged message
    quotes nothing of it. If the rows of a message are damaged, its sender is unknown: see shadowrelay message
    drop.
    """
    wanted = filter_of(ids, given)
    if _set_aside(node, wanted, given):
        return _decide(node, ids[0], "bounce", as_json=as_json)
    return give(node, "bounce", wanted, given, as_json=as_json)


@message.command()
@click.argument("message_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@act_options
def drop(node: AdminClient, message_id: str, *, yes: bool, as_json: bool) -> None:
    """Forget message ID, whose rows are damaged and of which no member has a good copy.

    This node does not know its sender, so nobody is told. What is left of the message on this node is
    deleted, and the tracking log has a row DROP. Another member may hold a copy with sound rows and damaged
    content (shadowrelay message show ID --admin URL). Within about a minute that member sets the message
    aside. Bounce it there: then its sender is told.
    """
    if not yes:
        click.confirm(
            f"Forget {clean(message_id)}? What is left of it here is deleted, and nobody is told.",
            abort=True,
            err=True,
        )
    _decide(node, message_id, "drop", as_json=as_json)


def _set_aside(node: AdminClient, wanted: JsonTree, given: dict[str, Any]) -> bool:
    """Is one message meant, which is set aside on this node? Without a reason nothing else can be meant."""
    if set(wanted) != {"ids"} or len(wanted["ids"]) != 1 or given["dry_run"]:
        return False
    if not given["reason"]:
        return True
    try:
        return bool(node.get(GoneMessage, "messages", wanted["ids"][0])["state"] == "set_aside")
    except ApiError as error:
        if error.status == 404:  # another node may have it
            return False
        raise click.ClickException(clean(error)) from error


def _decide(node: AdminClient, message_id: str, verb: str, *, as_json: bool) -> None:
    with reporting():
        answer = node.post(DidAnswer, "messages", message_id, verb)
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


def _recipient_row(item: JsonTree) -> list[object]:
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


def _content_digest(digests: JsonTree | None) -> str:
    if digests is None:
        return "none: its row is from a version before digests, and was not read since"
    late = " (made here, from what was stored: no other node had told it)" if digests["late"] else ""
    return f"{digests['content']}{late}"


_DAMAGE = {
    "content": "content: the octets here differ from the digest, and do not leave this node",
    "rows": "rows: the rows of the message in the transport database are damaged",
    "other-maker": "another node made this report with other octets, and those count",
}


def _good_copy(answer: JsonTree) -> str | None:
    if answer["damage"] == "other-maker":
        return None
    if answer["state"] == "set_aside":
        ways = "drop" if answer["damage"] == "rows" else "bounce"
        return f"no member has one: resume asks them again, {ways} gives the message up"
    if answer["state"] == "safety_net":
        return "not needed: all recipients are settled"
    if answer["role"] == "shadow" and answer["pending"] is None:
        return "its owner makes another one; this one stays until then"
    waits_for = answer["waits_for"]
    return f"not yet asked: {clean(waits_for)}" if waits_for else "looked for"


def _facts(answer: JsonTree) -> list[list[object]]:
    rows: list[list[object]] = [["state", answer["state"] + (", EXPOSED" if answer.get("exposed") else "")]]
    rows += [["told by", answer["node"]]] if "node" in answer else []
    if answer["damage"] == "rows":
        done = [f"{one['number']}: {one['status']}" for one in answer["settled"]]
        rows.append(["settled recipients", clean(done)])
    elif answer["state"] != "gone":
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
            ["TLS", f"{tls} by its sender" if (tls := envelope.get("tls")) else None],
            ["received", answer["received_at"]],
            ["settled", answer["settled_at"]],
            ["reports on", answer["reports_on"]],
            ["made of", answer["content_of"]],
            ["resubmit request", answer["request"]],
            ["digest of the content", _content_digest(answer["digests"])],
        ]
        rows += [
            [f"refused by {one['name']}", f"{one['reply']} ({one['at']})"]
            for one in answer.get("refusals", ())
        ]
    if damage := answer["damage"]:
        rows += [["damage", _DAMAGE[damage]], ["found", answer.get("found_at")], ["what", answer.get("why")]]
        rows.append(["good copy", _good_copy(answer)])
    rows += [["crash with it in hand", one] for one in answer.get("crashes", ())]
    if handed := answer.get("handed_over_by"):
        rows.append(["handed over by", f"{handed['name']} as {handed['id']}"])
    if outcome := answer["outcome"]:
        settled = f"recipients {clean(outcome['settled'])} at epoch {outcome['epoch']}"
        rows.append(["remembered", f"settled: {settled}, until {outcome['kept_until']}"])
    if revoked := answer["revoked"]:
        rows.append(["revoked", f"epoch {revoked['epoch']}, rank {revoked['rank']} and below"])
    return [row for row in rows if row[1] is not None]
