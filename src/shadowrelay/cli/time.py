"""``shadowrelay time``: what a node knows of the time, and an operator's word that its clock is right."""

from __future__ import annotations

import click

from shadowrelay.admin.client import AdminClient
from shadowrelay.cli.viewing import clean, node_options, operator_option, print_json, reporting, say
from shadowrelay.shown.status import TimeEntry


@click.group(short_help="Show whether a node trusts its wall clock, or confirm the time.")
def time() -> None:
    """The time of a node.

    Decisions go by reckoned time, which a step of the wall clock does not move. While a node doubts its wall
    clock, no mail expires and nothing that it keeps goes by age.
    """


@time.command()
@node_options
def show(node: AdminClient, *, as_json: bool) -> None:
    """Show the wall clock, the reckoned time, and what the members say."""
    with reporting():
        answer = node.get(TimeEntry, "time")
    _print(answer, as_json=as_json)


@time.command()
@click.option("--reason", required=True, help="Why; it is in the log.")
@operator_option
@node_options
def confirm(node: AdminClient, reason: str, operator: str, *, as_json: bool) -> None:
    """Say that the wall clock of the node is right now.

    Then what is old enough ends again. No message gets older by it.
    """
    with reporting():
        answer = node.post(TimeEntry, "time/confirm", body={"reason": reason, "operator": operator})
    _print(answer, as_json=as_json)


def _print(answer: TimeEntry, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    say(f"{answer['name']}: its wall clock says {answer['wall']}, reckoned is {answer['reckoned']}")
    if answer["doubts"]:
        click.echo(f"IN DOUBT ({', '.join(answer['doubts'])}): nothing ends by its age")
        click.echo(f"it has stepped by {answer['stepped']:+.0f} s")
    else:
        click.echo("the wall clock is trusted")
    if answer["uncertain"]:
        click.echo(f"it was away for {answer['uncertain']:.0f} s, which nothing has confirmed yet")
    for one in answer["members"]:
        click.echo(f"{clean(one['name'])} is {one['ahead']:+.0f} s ahead of it")
