"""``shadowrelay message find`` and ``trace``: where messages are, and how they came there, over all nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from shadowrelay.admin.client import AdminClient
from shadowrelay.cli.viewing import (
    JsonTree,
    clean,
    console,
    counted,
    needs,
    node_options,
    print_lines,
    print_silent,
    print_table,
    reporting,
    shown,
    silent,
    where_options,
    zone,
)
from shadowrelay.core.spelling import logged
from shadowrelay.core.workers import label
from shadowrelay.shown.messages import FoundAnswer, TraceAnswer
from shadowrelay.shown.reading import is_told

if TYPE_CHECKING:
    from rich.console import Console

_COPIES = ("node", "has it as", "epoch", "open", "exposed", "holders")


@click.command()
@click.argument("text")
@click.option("--after", metavar="ID", help="Go on behind this message.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@where_options
@node_options
def find(
    node: AdminClient,
    text: str,
    after: str | None,
    limit: int,
    *,
    cluster: bool | None,
    as_json: bool,
) -> None:
    """Find messages, the newest first, each with where its copies are.

    TEXT is an address (anna@example.org), the addresses of a domain (*@example.org), a Message-ID header
    (<id@host>), an id or its beginning, or words, each a part of the subject or of an address (anna finds
    anna@example.org). A word before it overrules the guess: address:, domain:, message-id:, id:, subject: or
    words:. Queues, shadow queues and Safety Net are searched; by id also what nodes remember of messages that
    are gone.

    Words and domains are looked for message by message. A page may be short then, and says where to go on.
    With --json: one object a line, each with its kind (message, node for one that does not answer, next).
    """
    here = "true" if cluster is False else None
    with reporting():
        answer = node.get(FoundAnswer, "cluster", "find", q=text, after=after, limit=limit, here=here)
    needs(answer, "messages", "nodes")
    if as_json:
        print_lines("message", answer["messages"])
        print_lines("node", silent(answer))
        return print_lines("next", [{"after": answer["next"]}] if answer["next"] else [])
    out = console()
    for one in answer["messages"]:
        _message(out, one)
    print_silent(out, answer)
    if answer["next"]:
        click.echo(f"There may be more: --after {answer['next']}", err=True)
    elif not answer["messages"]:
        out.print("No message matches.")
    return None


def _message(out: Console, one: JsonTree) -> None:
    out.print(clean(one["id"]), style="bold")
    if one["received_at"]:
        more = ", …" if (one["recipients"] or 0) > len(one["addresses"] or ()) else ""
        told = [
            f"{shown(out, one['received_at'])}, {one['size']} octets, from {clean(one['sender'] or '<>')}",
            f"to {clean(one['addresses'])}{more}",
            clean(one["subject"]) if one["subject"] else "",
            _waits(one),
        ]
        for line in filter(None, told):
            out.print(f"  {line}", soft_wrap=not out.is_terminal)
    print_table(out, _COPIES, [_copy(each) for each in one["copies"]], "")
    out.print()


def _waits(one: JsonTree) -> str:
    """What the message waits for at its owner: next hop, reason, attempts."""
    owners = (copy for copy in one["copies"] if copy["role"] == "primary" and copy.get("doing"))
    if (own := next(owners, None)) is None:
        return ""
    why = f": {clean(own['reason'])}" if own["reason"] else ""
    tried = f" ({counted(own['attempts'], 'attempt')})" if own["attempts"] else ""
    return f"{own['doing']} for {clean(one['next_hops'])}{why}{tried}"


def _copy(one: JsonTree) -> list[object]:
    state = one["state"].replace("_", " ")
    if one["state"] == "gone":
        settled = one["outcome"] and f"settled: recipients {clean(one['outcome']['settled'])}"
        state = f"gone; {settled or 'revoked'}"
        epoch = (one["outcome"] or one["revoked"])["epoch"]
        return [one["node"], state, epoch, "", "", ""]
    if one["damage"]:
        state += f", damaged ({one['damage']})"
    statuses = one["statuses"] or {}
    total = sum(statuses.values())
    role = "" if one["role"] is None else f"{one['role']}, "
    return [
        one["node"],
        state if state == one["role"] else role + state,
        one["epoch"],
        f"{one['unsettled']}/{total}" if total else "",
        one["exposed"],
        one["holders"],
    ]


@click.command()
@click.argument("message_id", metavar="ID")
@click.option("--after", metavar="CURSOR", help="Go on with older files of the logs.")
@where_options
@node_options
def trace(
    node: AdminClient,
    message_id: str,
    after: str | None,
    *,
    cluster: bool | None,
    as_json: bool,
) -> None:
    """Tell the life of message ID over all nodes, from their tracking logs, open files included.

    One line per event, in the order of time; the events of a node in the order in which it wrote them. A
    unique beginning of the ID is enough while a node knows the message. Exit status 1: no log that could be
    read mentions it.

    With --json: one object a line, each with its kind (event, node for one that does not answer, next).
    """
    here = "true" if cluster is False else None
    with reporting():
        answer = node.get(TraceAnswer, "cluster", "trace", message_id, after=after, here=here)
    needs(answer, "events", "nodes")
    if as_json:
        print_lines("event", answer["events"])
        print_lines("node", silent(answer))
        print_lines("next", [{"after": answer["next"]}] if answer["next"] else [])
    else:
        out = console()
        if answer["events"]:
            _life(out, answer["id"], answer["events"])
        print_silent(out, answer)
        if answer["next"]:
            click.echo(f"Older files are left: --after '{answer['next']}'", err=True)
    if not answer["events"] and not answer["next"]:
        raise click.ClickException(f"no tracking log that answers mentions {clean(answer['id'])}")


def _life(out: Console, id_: str, events: Iterable[JsonTree]) -> None:
    from shadowrelay.cli.tables import laid_out

    events = list(events)
    subject = next((text for one in events if (text := one["columns"].get("message-subject"))), "")
    out.print(
        f"{clean(id_)}  {clean(logged(subject)) if subject else ''}".rstrip(), style="bold", soft_wrap=True
    )
    short = _short({one["node"] for one in events})
    rows: list[list[Any]] = []
    day = ""
    for one in events:
        moment = datetime.fromisoformat(one["at"]).astimezone(zone()) if one["at"] else None
        if moment and f"{moment:%Y-%m-%d}" != day:
            day = f"{moment:%Y-%m-%d}"
            rows.append([day, "", "", "", ""])
        at = moment.time().isoformat("milliseconds") if moment else ""
        name = short.get(one["node"], one["node"])
        rows.append([at, name, str(one["sequence"]), one["event"], _rest(one, short)])
    named = datetime.now(UTC).astimezone(zone()).tzname()
    columns = (f"time ({named})", "node", "row", "event", "with, recipients, answer")
    for line in laid_out(columns, [[clean(cell) if cell else "" for cell in row] for row in rows], out.width):
        out.print(line, soft_wrap=True)


def _short(nodes: set[str]) -> dict[str, str]:
    """Short names of the nodes and workers, where they tell them apart."""
    labels = {name: label(name) for name in nodes}
    return labels if len(set(labels.values())) == len(labels) else {}


def _rest(one: JsonTree, short: Mapping[str, str]) -> str:
    """The other side, the first recipients, and what was said."""
    other = next((name for name in (one["server"], one["client"]) if name and name != one["node"]), "")
    count = one["recipient_count"]
    more = "" if count <= len(one["recipients"]) else " …" if is_told(count) else f" of {count}"
    named = ", ".join(one["recipients"]) + more
    said = one["status"] or one["context"]
    if (operator := one["custom"].get("Operator")) and one["source"] == "ADMIN":
        reason = one["custom"].get("Reason")
        said = f"by {operator}: {reason}" if reason else f"by {operator}"
    return "; ".join(part for part in (short.get(other, other), named, said) if part)
