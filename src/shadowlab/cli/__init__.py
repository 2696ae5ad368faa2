"""``shadowlab``: starts, breaks and heals a cluster on this machine."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shadowlab.cli.audit import audit
from shadowlab.cli.breaking import chaos, clock, cut, heal
from shadowlab.cli.generate import generate_logs
from shadowlab.cli.links import links
from shadowlab.cli.options import done, in_directory, in_new_directory, keeping, problems
from shadowlab.cluster import DEFAULT_NODES, Cluster, refuse_other_things, up
from shadowlab.layout import MOST_NODES, MOST_WORKERS
from shadowrelay import __version__
from shadowrelay.cli import Commands
from shadowrelay.shown.status import members_seen

if TYPE_CHECKING:
    from shadowlab.condition import ClusterReport, NodeReport

_node = click.argument("node")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="shadowlab")
def main() -> None:
    """Start, break and heal a cluster on this machine: nodes, and a mailbox server that they deliver to.

    NODE is a node's name (mx1.lab.test), its first label (mx1) or its number (1); where a process is meant,
    w2.mx1 is a worker of it, and mailbox is the mailbox server. No root, no containers: everything listens
    on 127.0.0.1.
    """


for _command in (cut, heal, clock, chaos, links, audit, generate_logs):
    main.add_command(_command)


@main.command("up")
@in_directory
@click.option(
    "--nodes",
    type=click.IntRange(1, MOST_NODES),
    help=f"How many nodes. Default: as many as the lab has, or {DEFAULT_NODES}.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, MOST_WORKERS),
    help="How many workers each node has. Default: as many as the lab has, or 1.",
)
@click.option("--breakable", is_flag=True, help="Make links between nodes that cut and heal can act on.")
@click.option("--clocks", is_flag=True, help="Make wall clocks of nodes that clock can set (libfaketime).")
@click.option(
    "--set",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of all nodes, such as safety_net_hold_time=1h or log.level=debug; may be repeated.",
)
def start_lab(
    directory: Path,
    nodes: int | None,
    workers: int | None,
    options: tuple[str, ...],
    *,
    breakable: bool,
    clocks: bool,
) -> None:
    """Start a lab, or resume the one in DIR with its data, its ports and its certificates."""
    with problems():
        refuse_other_things(directory)
        started = up(
            directory, nodes=nodes, options=options, breakable=breakable, clocks=clocks, workers=workers
        )
        at = Cluster(directory).layout
    if not started:
        click.echo("The lab runs already.")
    elif len(started) < len(at.processes):
        click.echo(f"Started what was down: {', '.join(started)}.")
    for node in at.nodes:
        smtp, admin = f"{node.smtp[0]}:{node.smtp[1]}", node.admin
        click.echo(f"{node.name}  {node.site}  SMTP {smtp}  admin {admin}")
    click.echo(f"mailbox server: delivers *@inside.test and *@outside.test into {at.mailbox.dir}")
    server = f"{at.nodes[0].smtp[0]}:{at.nodes[0].smtp[1]}"
    click.echo(f"Try: swaks --server {server} --from me@outside.test --to you@inside.test")
    click.echo(f"     shadowlab status --dir {shlex.quote(str(directory))}")


@main.command("kill")
@_node
@in_directory
def kill(node: str, directory: Path) -> None:
    """SIGKILL: the process dies at once."""
    done(directory, lambda cluster: cluster.kill(node), f"{node} is killed")


@main.command("freeze")
@_node
@in_directory
def freeze(node: str, directory: Path) -> None:
    """SIGSTOP: the process keeps its connections, and answers nothing."""
    done(directory, lambda cluster: cluster.freeze(node), f"{node} is frozen")


@main.command("thaw")
@_node
@in_directory
def thaw(node: str, directory: Path) -> None:
    """SIGCONT: a frozen process goes on."""
    done(directory, lambda cluster: cluster.thaw(node), f"{node} goes on")


@main.command("stop")
@_node
@in_directory
def stop(node: str, directory: Path) -> None:
    """SIGTERM: the process finishes what it is doing, and ends."""
    done(
        directory,
        lambda cluster: cluster.stop(node, lambda told: click.echo(told, err=True)),
        f"{node} has stopped",
    )


@main.command("wipe")
@_node
@in_directory
def wipe(node: str, directory: Path) -> None:
    """Remove the data of a node that is down, as if its disk were lost.

    Its closed tracking files stay: they count as shipped elsewhere. shadowlab audit knows which database is
    gone; to shadowaudit say --lost.
    """
    with problems():
        lost = Cluster(directory).wipe(node)
    gone = ", ".join(f"database {each} is gone" for each in lost)
    click.echo(f"{node} has lost its data" + (f": {gone}" if gone else ""))
    if lost:
        click.echo(f"Audit: shadowlab audit --dir {shlex.quote(str(directory))}")


@main.command("start")
@_node
@in_directory
def start(node: str, directory: Path) -> None:
    """Start a process that is down; it answers when the command returns."""
    with problems():
        started = Cluster(directory).start(node)
    click.echo(f"{node} answers" if started else f"{node} runs already")


@main.command("mailbox")
@click.argument("mood", type=click.Choice(["refuse", "accept"]))
@in_directory
def mailbox(mood: str, directory: Path) -> None:
    """Let the mailbox server refuse all mail for now (4xx), or accept it again."""
    refuse = mood == "refuse"
    done(
        directory,
        lambda cluster: cluster.refuse() if refuse else cluster.accept(),
        "the mailbox server refuses mail" if refuse else "the mailbox server accepts mail",
    )


@main.command("status")
@in_directory
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(directory: Path, *, as_json: bool) -> None:
    """Show which nodes are up, and what each holds."""
    from shadowlab.condition import look

    with problems():
        report = look(Cluster(directory))
    if as_json:
        click.echo(json.dumps(report.tree(), indent=2))
    else:
        _print(report)


@main.command("down")
@in_directory
def down(directory: Path) -> None:
    """Stop every process of the lab. All data stays, for another up."""
    again = f"shadowlab down --dir {shlex.quote(str(directory))}"
    with problems(f"interrupted: some of it is down or stopping, the rest still runs; {again} goes on"):
        killed = Cluster(directory).down()
    for name in killed:
        click.echo(f"{name} did not stop in time and was killed", err=True)
    click.echo("The lab is down; its data stays.")


@main.command("demo")
@in_new_directory
@click.option(
    "--workers",
    type=click.IntRange(1, MOST_WORKERS),
    default=1,
    show_default=True,
    help="How many workers each node has.",
)
@keeping
@click.pass_context
def demo(ctx: click.Context, directory: Path | None, workers: int, *, keep: bool) -> None:
    """Lose a node and its disk while mail is in transit, and count what arrives. Takes about ten seconds.

    Exit status 0: every acknowledged message arrived, once.
    """
    from shadowlab.demo import demonstrate

    with problems():
        held = demonstrate(directory, keep=keep, workers=workers)
    ctx.exit(0 if held else 1)


def _print(report: ClusterReport) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("node", "site", "state", "queued", "shadow held", "exposed", "safety net", "peers"):
        table.add_column(title, justify="left" if title in ("node", "site", "state", "peers") else "right")
    for one in report.nodes:
        table.add_row(one.node.short, one.node.site, _coloured(one.condition.value), *_counts(one))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 160  # a pipe has no width: keep each node on one line, for grep
    console.print(table)
    refusing = ", [yellow]refuses mail[/]" if report.refusing else ""
    console.print(f"mailbox server: {_coloured(report.mailbox.value)}{refusing}")
    for way, manner in report.cuts.items():
        console.print(f"[yellow]cut[/]: {way.source} to {way.target} ({manner.value})")


def _counts(report: NodeReport) -> list[str]:
    found = report.status
    if found is None:
        return ["–"] * 5
    counts: list[Any] = [found.queued, found.shadow_held, found.exposed, found.safety_net]
    return [
        *map(str, counts),
        ", ".join(map(_peer, members_seen(found.peers, report.node.name))) or "–",
    ]


def _peer(peer: Any) -> str:
    name, state = str(peer.get("name", "?")).partition(".")[0], str(peer.get("state", ""))
    return f"{name} {'[red]unreachable[/]' if state == 'unreachable' else state}".rstrip()


def _coloured(state: str) -> str:
    colour = {"up": "green", "down": "red"}.get(state, "yellow")
    return f"[{colour}]{state}[/]"
