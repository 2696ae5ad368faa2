"""``shadowlab cut``, ``heal``, ``clock`` and ``chaos``: break links, clocks, or everything."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import click

from shadowlab import network
from shadowlab.cli.options import Number, done, in_directory, in_new_directory, keeping, problems
from shadowlab.cluster import DEFAULT_NODES, Cluster
from shadowlab.layout import MOST_NODES, Manner
from shadowrelay.settings import parse_duration


@click.command("cut")
@click.argument("one")
@click.argument("other")
@click.option("--one-way", is_flag=True, help="Only what travels from ONE to OTHER.")
@click.option("--reset", is_flag=True, help="Reset and refuse connections, instead of dropping what travels.")
@in_directory
def cut(one: str, other: str, directory: Path, *, one_way: bool, reset: bool) -> None:
    """Cut the link between two nodes of a lab that was made with --breakable.

    What travels waits silently, as in a network that drops packets, and connections stay open. After heal it
    goes on.
    """

    with problems():
        cluster = Cluster(directory)
        way, back = network.between(cluster.layout, one, other)
        ways = (way,) if one_way else (way, back)
        cluster.cut(*ways, manner=Manner.RESET if reset else Manner.SILENT)
    click.echo(f"{way.source} does not reach {way.target}" + ("" if one_way else ", nor the other way round"))


@click.command("heal")
@in_directory
def heal(directory: Path) -> None:
    """Heal every link that was cut."""
    done(directory, lambda cluster: cluster.heal(), "all links are whole")


def _span(ctx: click.Context, param: click.Parameter, value: str | None) -> timedelta:
    del ctx
    try:
        return parse_duration(value or "0s")
    except ValueError as problem:
        raise click.BadParameter(f"{value}: {problem}, such as 15m, 20h or 365d", param=param) from problem


@click.command("clock")
@click.argument("node")
@click.option("--ahead", metavar="DURATION", callback=_span, help="So far ahead of the right time.")
@click.option("--behind", metavar="DURATION", callback=_span, help="So far behind it.")
@in_directory
def clock(node: str, ahead: timedelta, behind: timedelta, directory: Path) -> None:
    """Set the wall clock of a node of a lab that was made with --clocks; without an option: set it right.

    Its boot clock goes on as it is. The clock stays as it was set, over down and up too.
    """
    done(directory, lambda cluster: cluster.set_clock(node, ahead - behind), f"the clock of {node} is set")


def _faults(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    """The names of faults in ``value``; none if it is the default."""
    from shadowlab.chaos.catalogue import CATALOGUE

    del ctx
    if value == param.default:
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    unknown = [name for name in names if name not in CATALOGUE]
    if unknown or not names:
        told = ", ".join(unknown) or "none named"
        raise click.BadParameter(f"{told}: there are {', '.join(CATALOGUE)}", param=param)
    return names


def _possible(asked: tuple[str, ...], without: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The faults asked for, or all that this machine allows; prints what is left out. Raises UsageError."""
    from shadowlab.chaos.catalogue import CATALOGUE
    from shadowlab.chaos.equipment import Need, lacking

    names = tuple(name for name in asked or CATALOGUE if name not in without)
    for need in Need:
        needing = [name for name in names if CATALOGUE[name].needs is need]
        if needing and (reason := lacking(need)):
            text = f"{', '.join(needing)}: each node needs {need.value}, and {reason}"
            if asked:
                raise click.UsageError(f"--faults: {text}")
            click.echo(f"left out: {text}", err=True)
            names = tuple(name for name in names if name not in needing)
    if not names:
        raise click.UsageError("--without: no fault is left")
    return names


@click.command("chaos")
@click.option("--minutes", type=Number(0.1, 10_000), default=2.0, show_default=True)
@click.option(
    "--seed", type=int, help="Same seed, same sequence of faults. Default: a random seed, which is printed."
)
@click.option(
    "--faults",
    default="all",
    show_default=True,
    callback=_faults,
    help="Names, comma-separated. all leaves out, and prints, what this machine cannot do.",
)
@click.option(
    "--without",
    default="none",
    show_default=True,
    callback=_faults,
    help="Names, comma-separated, of faults to leave out.",
)
@click.option(
    "--clients", type=click.IntRange(1, 100), default=6, show_default=True, help="Senders at a time."
)
@click.option(
    "--rate", type=Number(0.1, 10_000), default=20.0, show_default=True, help="Messages per second."
)
@click.option("--nodes", type=click.IntRange(2, MOST_NODES), default=DEFAULT_NODES, show_default=True)
@click.option(
    "--set", "options", multiple=True, metavar="KEY=VALUE", help="A setting of all nodes, as for up."
)
@in_new_directory
@keeping
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
@click.pass_context
def chaos(
    ctx: click.Context,
    minutes: float,
    seed: int | None,
    faults: tuple[str, ...],
    without: tuple[str, ...],
    clients: int,
    rate: float,
    nodes: int,
    options: tuple[str, ...],
    directory: Path | None,
    *,
    keep: bool,
    as_json: bool,
) -> None:
    """Send mail all the time, break one node after the other in every way, and count what arrives.

    Exit status 0: everything acknowledged arrived, nothing else did, nothing twice without a cause that the
    promise allows, and two copies were made again after each fault. Ctrl-C ends the faults, heals everything
    and gives the verdict so far; a second one does not wait until all mail has arrived.
    """
    from shadowlab.chaos.plan import Plan, any_seed
    from shadowlab.chaos.report import print_table
    from shadowlab.chaos.running import unleash

    with problems():
        plan = Plan(
            seed=any_seed() if seed is None else seed,
            seconds=minutes * 60,
            faults=_possible(faults, without),
            clients=clients,
            rate=rate,
            nodes=nodes,
            options=options,
        )
        result = unleash(plan, directory, keep=keep)
    if as_json:
        click.echo(json.dumps(result.tree(), indent=2))
    else:
        print_table(result)
    ctx.exit(0 if result.held else 1)
