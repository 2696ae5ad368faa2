"""Resubmit requests and previews as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from shadowrelay.cli.viewing import JsonTree, clean, counted, lasting

if TYPE_CHECKING:
    from rich.console import Console

LIST_COLUMNS = ("no.", "state", "made", "skipped", "by", "at", "selects", "reason", "uuid")

CAUSES = {
    "elsewhere": "made or delivered by another member",
    "outside": "recipients beyond the boundary",
    "resubmitted": "resubmitted by an earlier request",
    "damaged": "no good copy of the content",
    "gone": "expired before its turn",
    "untimed": "delivered at an unknown time",
    "in_transit": "still in a queue for other recipients",
}


def selector_text(selector: JsonTree) -> str:
    """What a selector selects, in one line."""
    names = {
        "to": "to",
        "sender": "from",
        "recipient": "for",
        "message_id": "Message-ID",
        "network_message_id": "message",
    }
    told = [f"{text} {clean(selector[name])}" for name, text in names.items() if selector[name]]
    return f"{selector['since']} … {selector['until']}, {', '.join(told) or 'all'}"


def state_text(answer: JsonTree) -> str:
    """``running``, ``done``, ``paused``, ``removed`` or ``ended`` (by its age)."""
    state = str(answer["request"]["state"])
    if state == "running" and answer["done"]:
        return "done"
    if state != "removed" and not answer["open"]:
        return "ended"
    return state


def list_row(answer: JsonTree) -> list[object]:
    request = answer["request"]
    return [
        request["number"],
        state_text(answer),
        answer["made"],
        sum(answer["skipped"].values()),
        f"{request['operator']} ({request['made_by']})",
        request["made_at"],
        selector_text(request["selector"]),
        request["reason"],
        request["id"],
    ]


def print_preview(to: Console, found: JsonTree) -> None:
    """What a request would do."""
    most = "at most " if found["at_most"] else ""
    to.print(f"The request would resubmit {most}{_made_text(found)}.")
    rows: list[list[object]] = [
        [one["node"], "what it delivered", *_made(one), one["reaches_back_to"]] for one in found["nodes"]
    ]
    for one in found["held"]:
        for name, count in one["holders"].items():
            what = f"held for {one['owner']}: {one['why']}"
            rows.append([name, what, *_made(count), ""])
    to.print()
    to.print(_table(("node", "of", "messages", "recipients", "octets", "Safety Net begins"), rows))
    for one in found["unreachable"]:
        to.print()
        since = f" since {one['since']}" if one["since"] else ""
        to.print(clean(f"{one['member']} cannot be reached{since}: {one['why']}."))
        to.print(clean(_answered_text(one)))
    causes = {cause: number for cause, number in found["refused"].items() if number}
    if causes:
        to.print()
        to.print("Not resubmitted:")
        for cause, number in causes.items():
            to.print(f"  {number}  {CAUSES[cause]}")
    for warning in found["warnings"]:
        to.print()
        to.print(clean(f"Warning: {warning}."))
    to.print()


def _answered_text(one: JsonTree) -> str:
    held = one["held"]
    if not held["messages"]:
        return "No node that answers holds anything of it. What it has itself comes when it is back."
    most = "at most " if held["at_most"] else ""
    text = f"Of what it delivered, {clean(sorted(held['holders']))} would resubmit {most}{_made_text(held)}"
    if one["answered_in"] is None:
        return f"{text}: with --now {one['member']}, or when it is back."
    return f"{text}: in {lasting(round(one['answered_in']))}, or with --now {one['member']}."


def _made_text(found: JsonTree) -> str:
    messages, recipients = counted(found["messages"], "message"), counted(found["recipients"], "recipient")
    return f"{messages} to {recipients}, {found['octets']} octets"


def _made(found: JsonTree) -> list[object]:
    return [found["messages"], found["recipients"], found["octets"]]


def watched_line(answer: JsonTree) -> str:
    """How far a request is, in one line."""
    skipped = sum(answer["skipped"].values())
    left = "unknown" if answer["left"] is None else answer["left"]
    return f"{state_text(answer)}: {answer['made']} made, {skipped} skipped, {left} left"


def print_request(to: Console, answer: JsonTree) -> None:
    for part in request_parts(answer):
        to.print(part)


def request_parts(answer: JsonTree) -> Iterator[Any]:
    """A request, for printing or redrawing."""
    request = answer["request"]
    facts: list[list[object]] = [
        ["state", state_text(answer)],
        ["made by", f"{request['operator']} on {request['made_by']}, {request['made_at']}"],
        ["last change", f"on {request['changed_by']}, {request['changed_at']}"],
        ["reason", request["reason"]],
        ["selects", selector_text(request["selector"])],
        ["members that are gone", request["gone"]],
        ["made", answer["made"]],
        ["left", answer["left"]],
    ]
    facts += [[f"skipped: {CAUSES[cause]}", number] for cause, number in answer["skipped"].items()]
    yield _table((f"request {request['number']}", clean(request["id"])), facts)
    yield ""
    columns = ("node", "delivered by", "made", "skipped", "left", "rate", "reached", "done")
    yield _table(columns, [_progress_row(one) for one in answer["progress"]], "No node has begun.")
    yield ""
    rows = [[one["name"], one["has"], one["at"], one["why"]] for one in answer["members"]]
    yield _table(("member", "has the request", "as of", "why not"), rows, "This node has no members.")


def _progress_row(one: JsonTree) -> list[object]:
    skipped = [f"{number} {cause}" for cause, number in one["skipped"].items()]
    rate = None if one["rate"] is None else f"{one['rate']:.1f}/s"
    return [one["node"], one["owner"], one["made"], skipped, one["left"], rate, one["reached"], one["done"]]


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str = "") -> Any:
    from rich.table import Table

    if not rows:
        return empty
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(clean, row))
    return table
