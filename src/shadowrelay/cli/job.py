"""``shadowrelay job``: lists, shows and stops what operators want done to messages in the queues."""

from __future__ import annotations

import click

from shadowrelay.admin.client import AdminClient
from shadowrelay.cli.acting import told
from shadowrelay.cli.viewing import (
    act_options,
    clean,
    console,
    needs,
    node_options,
    print_json,
    print_table,
    reporting,
    say,
)
from shadowrelay.shown.records import JobEntry, JobsPage, job_nodes

_JOBS = ("id", "verb", "phase", "did", "late", "in hand", "pending", "by", "made", "reason")
_NODES = ("node", "has it", "through", "did", "late", "in hand", "pending", "why")


@click.group(short_help="Show and stop jobs: verbs on messages, on all nodes.")
def job() -> None:
    """Show and stop jobs: what operators want done to messages in the queues of all nodes."""


@job.command("list")
@node_options
def list_jobs(node: AdminClient, *, as_json: bool) -> None:
    """One row per job, the latest first, as far as this node knows."""
    with reporting():
        answer = node.get(JobsPage, "jobs")
    needs(answer, "jobs")
    if as_json:
        return print_json(answer)
    rows = [
        [
            one["id"],
            one["verb"],
            one["phase"],
            one["did"],
            one["late"],
            one["waiting"],
            one["pending"],
            one["operator"],
            one["made_at"],
            one["reason"],
        ]
        for one in answer["jobs"]
    ]
    print_table(console(), _JOBS, rows, "There is no job.")
    return None


@job.command()
@click.argument("job_id", metavar="ID")
@node_options
def show(node: AdminClient, job_id: str, *, as_json: bool) -> None:
    """Show job ID, and how far each node is. The beginning of the ID is enough."""
    with reporting():
        answer = node.get(JobEntry, "jobs", job_id)
    if as_json:
        return print_json(answer)
    _print(answer)
    return None


@job.command()
@click.argument("job_id", metavar="ID")
@act_options
def stop(node: AdminClient, job_id: str, *, as_json: bool) -> None:
    """Stop job ID on all nodes, for good. What was done stays done."""
    with reporting():
        answer = node.post(JobEntry, "jobs", job_id, "stop")
    if as_json:
        return print_json(answer)
    _print(answer)
    return None


def _print(answer: JobEntry) -> None:
    for sentence in told(answer):
        say(sentence)
    conditions = ", ".join(f"{name} {clean(value)}" for name, value in answer["filter"].items())
    click.echo(f"Messages: {conditions}")
    if answer["last_operator"]:
        say(f"Stopped by {answer['last_operator']} on {answer['changed_by']} at {answer['changed_at']}")
    click.echo(f"By {clean(answer['operator'])} on {clean(answer['made_by'])}: {clean(answer['reason'])}")
    rows = [
        [
            one["node"],
            one["has"],
            one["done"],
            one["did"],
            one["late"],
            one["waiting"],
            one["pending"],
            one["why"],
        ]
        for one in job_nodes(answer["nodes"])
    ]
    print_table(console(), _NODES, rows, "")
