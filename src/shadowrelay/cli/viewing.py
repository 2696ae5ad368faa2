"""Holds what the commands that look at a running node share: the option of its URL, and printing.

Foreign text (addresses, subjects, replies) is printed with control characters escaped.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shadowrelay.admin.client import AdminClient, ApiError
from shadowrelay.admin.guard import NO_SUCH_QUEUE
from shadowrelay.core.spelling import readable
from shadowrelay.core.time_text import ago, clock, whole
from shadowrelay.core.workers import is_later_worker, label
from shadowrelay.shown.messages import ListAnswer, ListedMessage, MessagesPage
from shadowrelay.shown.nodes import StatusesAnswer, node_name, of_node
from shadowrelay.shown.reading import NOT_TOLD, NOT_TOLD_NUMBER, UNKNOWN, as_told, is_told
from shadowrelay.shown.status import PeersAnswer, StatusEntry

if TYPE_CHECKING:
    from rich.console import Console

JsonTree = Mapping[str, Any]
Command = TypeVar("Command", bound=Callable[..., Any])
_Answer = TypeVar("_Answer")

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")

DEFAULT_URL = "http://127.0.0.1:8025"
_PIPE_WIDTH = 10_000


def node_options(command: Command) -> Command:
    """Options ``--admin`` and ``--json``, given to the command as ``node`` and ``as_json``."""
    node = click.option(
        "--admin",
        "node",
        metavar="URL",
        envvar="SHADOWRELAY_ADMIN",
        show_envvar=True,
        default=DEFAULT_URL,
        show_default=True,
        callback=_client,
        help="The node's admin address. SHADOWRELAY_ADMIN_TOKEN has its token, if it requires one.",
    )
    as_json = click.option("--json", "as_json", is_flag=True, help="Print the answer of the API as JSON.")
    return node(as_json(utc_option(command)))


_UTC = f"{__name__}.utc"
"""Where a context has whether times are shown in UTC."""


def utc_option(command: Command) -> Command:
    """Option ``--utc``: ``zone`` says it. JSON has times in UTC in any case."""
    return click.option(
        "--utc",
        is_flag=True,
        expose_value=False,
        callback=_in_utc,
        help="Show times in UTC, and not in the zone of this machine.",
    )(command)


def _in_utc(context: click.Context, option: click.Parameter, given: bool) -> None:  # noqa: FBT001
    del option
    context.meta[_UTC] = given


_OPERATOR = f"{__name__}.operator"
"""Where a context has the operator of a command that acts."""


def operator_option(command: Command, *, told: bool = True) -> Command:
    """Option ``--operator`` of a command that acts. ``told``: the command wants the name, as ``operator``."""
    return click.option(
        "--operator",
        metavar="NAME",
        default=_user,
        show_default="SUDO_USER, or your user name here",
        callback=_operator,
        is_eager=True,  # before ``--admin``, whose client says it at each act
        expose_value=told,
        help="Your name, for the logs and records of all members. A token of your own counts over it.",
    )(command)


def act_options(command: Command) -> Command:
    """``node_options`` of a command that acts, and ``--operator``: the client of the node says it."""
    return node_options(operator_option(command, told=False))


def _operator(context: click.Context, option: click.Parameter, name: str) -> str:
    if not name.strip() or not name.isprintable():
        raise click.BadParameter("a name is wanted, in one line", param=option)
    context.meta[_OPERATOR] = name
    return name


def _user() -> str:
    if sudo := os.environ.get("SUDO_USER", "").strip():
        return sudo
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without a name
        return "unknown"


def _client(context: click.Context, option: click.Parameter, url: str) -> AdminClient:
    operator = context.meta.get(_OPERATOR, "")
    try:
        node = AdminClient(url, os.environ.get("SHADOWRELAY_ADMIN_TOKEN") or None, operator=operator)
    except ValueError as error:
        raise click.BadParameter(str(error), param=option) from None
    context.call_on_close(lambda: _say_untold(node))
    return node


def _say_untold(node: AdminClient) -> None:
    """Say what an answer lacked, if one did: a table shows it as ``?``."""
    if node.untold:
        click.echo(
            f"note: {node.url} does not tell all that this shadowrelay shows (is it of another version?). "
            f"Shown as {UNKNOWN}, or not shown: {', '.join(sorted(node.untold))}",
            err=True,
        )


def duration(context: click.Context, option: click.Parameter, text: str) -> timedelta:
    """Callback of an option: parse a duration."""
    from shadowrelay.settings.values import parse_duration

    del context
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is {error}, such as 30s, 1h or 2d", param=option) from None


def moment(context: click.Context, option: click.Parameter, text: str | None) -> datetime | None:
    """Callback of an option: parse a time, or how long ago it was."""
    from shadowrelay.settings.values import parse_duration

    del context
    if text is None:
        return None
    now = datetime.now(UTC)
    if text == "now":
        return now
    try:
        return now - parse_duration(text)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise click.BadParameter(
            f"{text!r} is no time, such as 2026-11-26T09:00:00Z or 2026-11-26T10:00+01:00, and not how long "
            "ago it was, such as 30m, 2h or 1d",
            param=option,
        )
    return found.astimezone(UTC)


class NotClear(click.ClickException):
    """Nothing was done, because what was typed is missing or wrong: exit status 2, as for an option."""

    exit_code = 2


def needs(answer: JsonTree, *fields: str) -> None:
    """End the command if the node does not tell what it is about, or waits for."""
    if lacking := [one for one in fields if not is_told(answer[one])]:
        raise click.ClickException(
            f"the node does not tell {' and '.join(lacking)}, and this command has nothing to show without: "
            "is the node of another version?"
        )


@contextmanager
def reporting() -> Iterator[None]:
    """End the command with a sentence on a refusal, or if there is no answer: with exit status 1, and 2 for a
    name that is no queue's.
    """
    try:
        yield
    except ApiError as error:
        kind = NotClear if error.status == NO_SUCH_QUEUE else click.ClickException
        raise kind(clean(error)) from error


def print_json(answer: JsonTree) -> None:
    click.echo(json.dumps(as_told(answer), indent=2))


def console() -> Console:
    """A console for tables. A pipe has no width: there every row is one whole line."""
    from rich.console import Console

    made = Console(highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = _PIPE_WIDTH
    return made


def print_table(to: Console, columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:
    """Print rows under their columns, or the sentence ``empty`` if there are none: see ``cli.tables``."""
    from shadowrelay.cli.tables import laid_out

    if not rows:
        to.print(empty)
        return
    cells = [[shown(to, value) for value in row] for row in rows]
    for line in laid_out(columns, cells, to.width):
        to.print(line, soft_wrap=True)


def shown(to: Console, value: object) -> str:
    """A value for that console, with its times in the zone of who reads: short ones on a terminal."""
    text = clean(value)
    return short_times(text, datetime.now(UTC), zone()) if to.is_terminal else local_times(text, zone())


def say(text: object) -> None:
    """Print a sentence, with its times as ``shown`` writes them."""
    plain = clean(text)
    now = datetime.now(UTC)
    click.echo(short_times(plain, now, zone()) if sys.stdout.isatty() else local_times(plain, zone()))


def zone() -> tzinfo | None:
    """The zone of the times that the command shows: that of this machine (None), or UTC."""
    context = click.get_current_context(silent=True)
    return UTC if context is not None and context.meta.get(_UTC) else None


def local_times(text: str, zone: tzinfo | None = None) -> str:
    """The text with its times in that zone, whole and with the offset."""
    return _TIME.sub(lambda found: whole(datetime.fromisoformat(found.group()), zone), text)


def short_times(text: str, now: datetime, zone: tzinfo | None = None) -> str:
    """The text with short times in that zone: ``21:07:31 CET``, with the date where it is not today.

    A text that is a time and nothing else says how long ago it was, up to an hour.
    """
    if _TIME.fullmatch(text):
        return _ago(datetime.fromisoformat(text), now, zone)
    return _TIME.sub(lambda found: clock(datetime.fromisoformat(found.group()), now, zone), text)


def _ago(moment: datetime, now: datetime, zone: tzinfo | None) -> str:
    return clock(moment, now, zone) if abs(now - moment) >= timedelta(hours=1) else ago(moment, now)


def print_lines(kind: str, found: Iterable[JsonTree]) -> None:
    """Print a list as JSON Lines: one object a line, each with its ``kind``."""
    for one in found:
        click.echo(json.dumps({"kind": kind, **as_told(one)}))


def where_options(command: Command) -> Command:
    """Options ``--cluster`` and ``--here``, given to the command as ``cluster``: None if neither is given."""
    return click.option(
        "--cluster/--here",
        "cluster",
        default=None,
        help="Show all nodes, or this one alone. [default: all, if the node has members]",
    )(command)


def of_all(node: AdminClient, model: type[_Answer], path: str, *, cluster: bool | None) -> _Answer | None:
    """What all nodes say; None if this node alone is meant: it has no members, or is of an older version."""
    if cluster is False:
        return None
    try:
        answer: Any = node.get(model, "cluster", path)
    except ApiError as error:
        if cluster is None and error.status == 404:
            return None
        raise
    needs(answer, "nodes")
    return answer if cluster or len(answer["nodes"]) > 1 else None


def workers_option(command: Command) -> Command:
    """Option ``--workers``, given to the command as ``workers``."""
    return click.option(
        "--workers", is_flag=True, help="Show each worker of a node, not the node. With --json as well."
    )(command)


def has_siblings(status: StatusEntry) -> bool:
    """Is the process of that status one of several workers of its node?"""
    own = status["name"]
    return is_later_worker(own) or any(node_name(peer["name"]) == own for peer in status["peers"])


def of_this_node(node: AdminClient, path: str) -> list[Any]:
    """What the workers of this node say."""
    answer = node.get(StatusesAnswer, "cluster", path)
    needs(answer, "node", "nodes")
    found = of_node(answer["nodes"], answer["node"])
    for one in found or [dict.fromkeys(("node", "answers"), NOT_TOLD)]:
        needs(one, "node", "answers")
    return found


def silent(answer: JsonTree) -> list[JsonTree]:
    """The nodes that did not answer, or not to the end."""
    return [one for one in answer["nodes"] if one["why"]]


def print_silent(to: Console, answer: JsonTree) -> None:
    for one in silent(answer):
        to.print(f"{clean(one['node'])}: {clean(one['why'])}", style="yellow", soft_wrap=not to.is_terminal)


def clean(value: object) -> str:
    """Text for a terminal: control characters as escapes, addresses in Unicode, an empty value as a dash."""
    if value is None or value in ("", []):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(clean, value))
    return readable(str(value))


def counted(number: int, one: str, several: str = "") -> str:
    """``1 message``, ``2 messages``; ``several`` is the plural if it is not formed with s."""
    return f"{number} {one if number == 1 else several or f'{one}s'}"


def lasting(seconds: float) -> str:
    """A time in the notation of the settings: ``1h30m``."""
    from shadowrelay.settings.values import format_duration

    if not is_told(seconds):
        return UNKNOWN
    return format_duration(timedelta(seconds=seconds))


def message_rows(messages: Sequence[JsonTree]) -> list[list[object]]:
    return [
        [
            item["id"],
            _state(item),
            "" if item["sender"] is None else item["sender"] or "<>",
            recipients(item),
            _open(item),
            item["size"],
            item["received_at"],
            item["next_hops"],
            item["subject"],
        ]
        for item in messages
    ]


def _state(item: JsonTree) -> str:
    """The state, with notes that should be seen at a glance."""
    notes = {
        "exposed": item["exposed"],
        "damaged": item["damage"] in {"content", "rows"} and item["state"] != "damaged",
        "digest late": item["digests"] and item["digests"]["late"],
        "no digest": not item["digests"] and item["damage"] != "rows",
    }
    return ", ".join([item["state"], *(note for note, so in notes.items() if so)])


def recipients(item: Any) -> str:
    """The first recipient, and how many more there are."""
    addresses, count = item.get("addresses") or (), item.get("recipients") or 0
    more = f" and {count - 1} more" if count > 1 else ""
    return f"{clean(addresses[0])}{more}" if addresses else ""


def _open(item: Any) -> str:
    if item["recipients"] is None:
        return ""
    return f"{item.get('unsettled', NOT_TOLD_NUMBER)}/{item['recipients']}"


def damaged_rows(messages: Sequence[JsonTree]) -> list[list[object]]:
    """Rows for damaged messages. If the rows in the database are damaged, little else is known."""
    return [
        [
            item["id"],
            item["state"],
            item["damage"],
            _open(item) or f"settled: {clean([one['number'] for one in item['settled']])}",
            item.get("found_at"),
            item.get("why") or "see shadowrelay message show",
            item["sender"],
        ]
        for item in messages
    ]


MESSAGE_COLUMNS = ("id", "state", "sender", "recipient", "open", "octets", "received", "next hop", "subject")
DAMAGED_COLUMNS = ("id", "state", "damage", "open", "found", "what", "sender")


def list_messages(
    node: AdminClient, state: str, after: str | None, limit: int, *, as_json: bool, empty: str
) -> None:
    """Print one page of messages, and how to get the next one."""
    with reporting():
        answer = node.get(MessagesPage, "messages", state=state, after=after, limit=limit)
    needs(answer, "messages")
    if as_json:
        return print_json(answer)
    if state == "damaged":
        print_table(console(), DAMAGED_COLUMNS, damaged_rows(answer["messages"]), empty)
    else:
        print_table(console(), MESSAGE_COLUMNS, message_rows(answer["messages"]), empty)
    if answer["next"]:
        click.echo(f"There are more: --after {answer['next']}", err=True)
    return None


LISTED_COLUMNS = (
    "id",
    "node",
    "state",
    "sender",
    "recipient",
    "open",
    "attempts",
    "received",
    "next hop",
    "why",
)


def list_of_all(
    node: AdminClient, state: str, after: str | None, limit: int, *, as_json: bool, empty: str
) -> None:
    """Print one page of the messages of all nodes, who does not answer, and how to get the next page."""
    with reporting():
        answer = node.get(ListAnswer, "cluster", "messages", state=state, after=after, limit=limit)
    needs(answer, "messages")
    if as_json:
        return print_json(answer)
    out = console()
    print_table(out, LISTED_COLUMNS, [_listed(one) for one in answer["messages"]], empty)
    if len(answer["messages"]) < answer["total"]:
        out.print(f"{counted(answer['total'], 'message')} in all")
    print_silent(out, {"nodes": answer["nodes"]})
    if answer["next"]:
        click.echo(f"There are more: --after {shlex.quote(answer['next'])}", err=True)
    return None


def _listed(one: ListedMessage) -> list[object]:
    return [
        one["id"],
        one["node"],
        one["state"],
        "" if one["sender"] is None else one["sender"] or "<>",
        recipients(one),
        _open(one),
        one["attempts"],
        one["received_at"],
        one["next_hops"],
        one["reason"],
    ]


def page_options(command: Command) -> Command:
    """Options ``--after`` and ``--limit``."""
    after = click.option("--after", metavar="ID", help="Begin after this message.")
    limit = click.option("--limit", type=click.IntRange(1, 500), default=100, show_default=True)
    return after(limit(command))


def member_name(node: AdminClient, given: str) -> str:
    """The member's whole name. Raises ClickException if none is meant, or more than one may be."""
    with reporting():
        names = [str(peer["name"]) for peer in node.get(PeersAnswer, "peers")["peers"]]
    wanted = given.lower()
    like = [name for name in names if wanted in (name, label(name))]
    if wanted not in names and len(like) > 1:
        raise click.ClickException(f"{given} may be {clean(like)}: give the whole name")
    if not like:
        raise click.ClickException(f"{given} is not a member here; the members are: {clean(names)}")
    return wanted if wanted in names else like[0]
