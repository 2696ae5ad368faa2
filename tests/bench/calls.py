"""``scripts/bench calls``: what one message costs in calls, and a gate that keeps it."""

from __future__ import annotations

import json
import platform
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from shadowlab.errors import LabError
from shadowlab.guard import terminable
from shadowrelay.cli.progress import bar

from . import tracing
from .budget import JUDGED, SHOWN, Budget, BudgetError, Cost, Excess, file_of, read, room_of
from .lives import SHAPES, lives
from .smtp_tools import BenchError

BUDGET = Path(__file__).parent / "budget.toml"
FIRST = "reused"
"""The shape that is always counted; others may be drawn."""

OTHER_PYTHON = 77
"""Exit status: counted, and judged by nothing."""


@click.command(name="calls", short_help="Calls of one message, by room, and whether they are within budget.")
@click.option("--only", multiple=True, type=click.Choice(list(SHAPES)), help="This shape; may be repeated.")
@click.option("--draw", type=click.IntRange(0), help=f"{FIRST}, and so many seeded others. Default: all.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--record", is_flag=True, help="Write what was counted into the file of budgets.")
@click.option("--reason", default="", help="Why numbers are higher than their budgets, for --record.")
@click.option("--room", "rooms", multiple=True, help="Show the functions of this room; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="The table as JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    only: tuple[str, ...],
    draw: int | None,
    seed: int,
    record: bool,
    reason: str,
    rooms: tuple[str, ...],
    as_json: bool,
) -> None:
    """Count the calls that one message costs its owner and its holder, and compare them with a budget.

    \b
    reused          one session that goes on with the next message
    one-each        a session for each message
    two-recipients  a message to two recipients
    large           a message of 1 MB
    workers         nodes of four workers
    deferred        the next hop puts the first attempt off
    resubmitted     a message comes back from Safety Net

    Two nodes of a lab count every call of a Python or built-in function, in all their threads; what they do
    without mail is subtracted. A message is delivered before the next one is sent: runs agree within 2 %
    (workers: 10 %) on a machine that is not busy, and a shared commit hides nothing. A room is a package of
    src/shadowrelay, or of others; --room shows its functions. System calls and loop turns are counted by
    strace, for a fifth of the messages, and judged by nothing.

    tests/bench/budget.toml has what calls, statements and commits may be, of which Python. To raise a number
    takes a reason there: --record --reason "…". --record alone lowers what has become less.

    Exit status: 0 within budget; 1 a number is over it (a table says which, and by which room), or nothing
    could be counted; 77 this is another Python than the budget's, so that nothing was judged.
    """
    try:
        budget = read(BUDGET.read_text("utf-8"))
        with terminable():
            costs = _counted(chosen(only, draw, seed))
        same = platform.python_version().startswith(f"{budget.python}.")
        if record and same:
            budget = budget.recorded(costs, reason)
            BUDGET.write_text(budget.text(), "utf-8")
        over = list(budget.over(costs)) if same else []
    except (BudgetError, BenchError, LabError, OSError) as problem:
        raise click.ClickException(str(problem) or repr(problem)) from problem
    if as_json:
        click.echo(
            json.dumps({"costs": [cost.tree() for cost in costs], "over": [_told(one) for one in over]})
        )
    else:
        console = Console()
        if not console.is_terminal:
            console.width = 250  # a pipe has no width
        console.print(table(costs, budget))
        for room in rooms:
            console.print(functions(costs, room))
    for one in over:
        click.echo(_told(one), err=True)
    if not same:
        click.echo(f"not judged: the budget is one of Python {budget.python}", err=True)
        ctx.exit(OTHER_PYTHON)
    ctx.exit(bool(over))


def chosen(only: Sequence[str], draw: int | None, seed: int) -> list[str]:
    """The shapes to count: ``only`` those, or the first and ``draw`` others, or all."""
    others = [name for name in SHAPES if name != FIRST]
    if draw is not None and not only:
        only = [FIRST, *random.Random(seed).sample(others, min(draw, len(others)))]
    return [name for name in SHAPES if name in only or not only]


def _counted(names: Sequence[str]) -> list[Cost]:
    if problem := tracing.missing():
        click.echo(f"calls: {problem}", err=True)
    costs: list[Cost] = []
    with bar("calls", len(names)) as steps:
        for name in names:
            with steps.during(SHAPES[name].label), lives(SHAPES[name]) as life:
                costs += life.costs(name)
    return costs


def _told(one: Excess) -> str:
    """One number that is over its budget, and where that comes from."""
    cost, limit = one.cost, one.limit
    where = f"{SHAPES[cost.shape].label}, {cost.side}"
    said = f"over budget: {where}: {one.what} {one.value:,.1f}, not {limit.most:,g}"
    rooms = "; ".join(f"{name} {before:.0f} → {now:.0f}" for name, before, now in one.rooms[:8])
    return f"{said}; rooms that grew: {rooms or 'none'}"


def table(costs: Sequence[Cost], budget: Budget) -> Table:
    """Rooms line by line, one column for each side of a shape; then sums, budgets and the rest."""
    table = _lines("room", costs, [cost.rooms for cost in costs])
    table.title = "Calls of one message"
    table.add_section()
    for what in JUDGED:
        table.add_row(what, *(f"{getattr(cost, what):,.{0 if what == 'calls' else 1}f}" for cost in costs))
        limits = [budget.limits.get((cost.shape, cost.side, what)) for cost in costs]
        table.add_row("  budget", *("–" if one is None else f"{one.most:,g}" for one in limits))
    for title, values in (
        ("system calls", [cost.system_calls for cost in costs]),
        ("loop turns", [cost.turns for cost in costs]),
    ):
        table.add_row(title, *("–" if one is None else f"{one:,.1f}" for one in values))
    return table


def functions(costs: Sequence[Cost], room: str) -> Table:
    """Those of one room, by their files below it."""
    found = [{n: c for n, c in cost.functions.items() if room_of(file_of(n)) == room} for cost in costs]
    return _lines(room, costs, [{n.rpartition("/")[2]: c for n, c in each.items()} for each in found])


def _lines(what: str, costs: Sequence[Cost], counts: Sequence[Mapping[str, float]]) -> Table:
    """A column for each cost, and a line for each name, that with the most calls first."""
    table = Table(box=None, pad_edge=False)
    table.add_column(what)
    for cost in costs:
        table.add_column(f"{cost.shape}\n{cost.side}", justify="right", no_wrap=True)
    names = dict.fromkeys(name for each in counts for name in each)
    for name in sorted(names, key=lambda name: -max(each.get(name, 0) for each in counts)):
        calls = [each.get(name, 0) for each in counts]
        if max(calls) >= SHOWN:
            table.add_row(name, *(f"{one:,.0f}" for one in calls))
    return table
