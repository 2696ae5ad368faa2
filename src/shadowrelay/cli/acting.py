"""What the verbs on messages and queues share: a filter's options, the question before, and the progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from shadowrelay.admin.client import AdminClient
from shadowrelay.cli.viewing import (
    Command,
    JsonTree,
    act_options,
    clean,
    console,
    counted,
    duration,
    print_json,
    print_table,
    reporting,
    say,
)
from shadowrelay.core.jobs import PAST
from shadowrelay.core.workers import label
from shadowrelay.shown.reading import UNKNOWN
from shadowrelay.shown.records import JobEntry, JobPreview
from shadowrelay.signals import INTERRUPTED

_POLL = 0.5  # seconds
_PATIENCE = 10.0  # seconds that the command waits for members to acknowledge
_SAMPLE = ("node", "id", "sender", "recipient", "next hop", "octets", "received", "subject")


def _seconds(context: click.Context, option: click.Parameter, text: str | None) -> float | None:
    return None if text is None else duration(context, option, text).total_seconds()


def _until(context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    from shadowrelay.settings.values import parse_duration

    del context
    if text is None:
        return None
    try:
        return _iso(datetime.now(UTC) + parse_duration(text))
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            raise ValueError("no offset")
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no time, such as 2026-11-26T09:00:00Z, and no time from now, such as 2h or 1d",
            param=option,
        ) from None
    return _iso(found)


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


_FILTER = (
    click.option("--queue", metavar="HOP", help="To this next hop, or to all next hops of this route."),
    click.option("--sender", metavar="ADDRESS", help="From this address, *@DOMAIN, or <>."),
    click.option("--recipient", metavar="ADDRESS", help="To this address, or *@DOMAIN."),
    click.option("--domain", metavar="DOMAIN", help="To recipients of this domain."),
    click.option("--subject", metavar="TEXT", help="With this in the subject."),
    click.option("--state", type=click.Choice(["suspended", "ready"]), help="Suspended or not."),
    click.option("--older", metavar="DURATION", callback=_seconds, help="At least this old, such as 2h."),
    click.option("--younger", metavar="DURATION", callback=_seconds, help="At most this old."),
    click.option("--larger", metavar="OCTETS", type=click.IntRange(0), help="At least this large."),
    click.option("--smaller", metavar="OCTETS", type=click.IntRange(0), help="At most this large."),
    click.option("--error", metavar="TEXT", help="With this in the last reply."),
)
_ORDER = (
    click.option(
        "--reason", metavar="TEXT", help="Why; it is in the tracking log with who did it. Required."
    ),
    click.option("--yes", is_flag=True, help="Do not ask."),
    click.option("--dry-run", is_flag=True, help="Only show what would be meant."),
    click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the job is done."),
)
CONDITIONS = (
    "queue", "sender", "recipient", "domain", "subject", "older", "younger", "larger", "smaller", "error",
)  # fmt: skip

until_option = click.option(
    "--until", metavar="TIME", callback=_until, help="It ends by itself then: a time, or 2h for in two hours."
)
with_report_option = click.option(
    "--with-report", is_flag=True, help="Tell the senders that their mail failed."
)


def _decorated(command: Command, options: tuple[Callable[[Command], Command], ...]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def message_verb(command: Command) -> Command:
    """The ids and options of a verb on messages."""
    ids = click.argument("ids", metavar="[ID]...", nargs=-1)
    return ids(_decorated(act_options(command), (*_FILTER, *_ORDER)))


def queue_verb(command: Command) -> Command:
    """The argument and options of a verb on a queue that is a job."""
    hop = click.argument("hop", metavar="HOP")
    return hop(_decorated(act_options(command), _ORDER))


def filter_of(ids: tuple[str, ...], given: dict[str, Any]) -> JsonTree:
    """The filter as the API takes it. Raises UsageError if it is empty."""
    found = {name: given[name] for name in CONDITIONS if given.get(name) is not None}
    if given.get("state"):
        found["suspended"] = given["state"] == "suspended"
    if ids:
        found["ids"] = list(ids)
    if not found:
        raise click.UsageError("give the ids of messages, or a condition such as --queue or --sender")
    return found


def give(node: AdminClient, verb: str, wanted: JsonTree, given: dict[str, Any], *, as_json: bool) -> None:
    """Show what is meant, ask, make the job, and follow it."""
    reason, dry_run = given["reason"], given["dry_run"]
    if not reason and not dry_run:
        raise click.UsageError("a reason is required: --reason TEXT")
    if dry_run or not given["yes"]:
        with reporting():
            found = node.post(JobPreview, "jobs", "preview", body={"filter": wanted})
        if dry_run and as_json:
            return print_json(found)
        _show(found, err=not dry_run)
        if dry_run:
            return None
        if not found["messages"] and found["whole"]:
            raise click.ClickException(f"there is nothing to {verb}: no message matches on any node")
        click.confirm(f"{verb} {counted(found['messages'], 'message')}?", abort=True, err=True)
    body = {"verb": verb, "filter": wanted, "reason": reason}
    body |= {name: given[name] for name in ("until", "with_report") if given.get(name)}
    with reporting():
        job = node.post(JobEntry, "jobs", body=body)
        if given["wait"]:
            job = follow(node, job)
    if as_json:
        print_json(job)
    else:
        for sentence in told(job):
            say(sentence)
    sys.exit(0 if not given["wait"] or job["phase"] == "done" else 1)


def follow(node: AdminClient, job: JobEntry) -> JobEntry:
    """Wait until a job is done, or for members alone. Ctrl-C leaves it running."""
    # Imported here, because it imports rich, which `--help` does not need.
    from shadowrelay.cli.progress import bar

    pending_since: float | None = None
    try:
        with bar(job["verb"]) as shown:
            while True:
                job = node.get(JobEntry, "jobs", job["id"])
                through = sum(one["done"] for one in job["nodes"])
                shown.total = len(job["nodes"])
                shown.tell(f"{counted(job['did'], 'message')}, {job['waiting']} in hand", through)
                if job["phase"] in ("done", "stopped"):
                    return job
                now = time.monotonic()
                pending_since = (pending_since or now) if job["phase"] == "pending" else None
                if pending_since is not None and now - pending_since > _PATIENCE:
                    return job
                time.sleep(_POLL)
    except KeyboardInterrupt:
        click.echo(
            f"The job goes on. To stop it: shadowrelay job stop {job['id']}. "
            f"To look at it: shadowrelay job show {job['id']}",
            err=True,
        )
        sys.exit(INTERRUPTED)


def told(job: JsonTree) -> list[str]:
    """How a job is, in sentences."""
    found = [
        f"Job {job['id']}: {job['verb']}, {job['phase']}",
        f"{counted(job['did'], 'message')} {PAST.get(job['verb'], 'done')}, {job['late']} settled before, "
        f"{job['waiting']} in hand now",
    ]
    if job["pending"]:
        found.append(f"{counted(job['pending'], 'message')}: a member has not acknowledged it yet")
    found += [
        f"{one['node']} does not have the job: {one['why']}"
        for one in job["nodes"]
        if not one["has"] and job["phase"] != "done"
    ]
    return found


def _show(found: JsonTree, *, err: bool) -> None:
    """What a filter means: counts, the first messages, and nodes that say nothing."""
    octets = f"{found['octets']:,} octets"
    head = f"{counted(found['messages'], 'message')} to {counted(found['recipients'], 'recipient')}, {octets}"
    click.echo(head, err=err)
    out = console()
    out.stderr = err
    rows = [
        [
            label(one.get("node", UNKNOWN)),
            one["id"],
            one["sender"] or "<>",
            [to["address"] for to in one["recipients"]],
            sorted({to["next_hop"] for to in one["recipients"]}),
            one["size"],
            one["received_at"],
            one["subject"],
        ]
        for one in found["sample"]
    ]
    if rows:
        print_table(out, _SAMPLE, rows, "")
    if found["messages"] > len(rows):
        click.echo(f"… and {found['messages'] - len(rows)} more", err=err)
    for one in found["nodes"]:
        if not one["answers"]:
            click.echo(
                f"{clean(one['node'])} does not answer, and is not counted: {clean(one['why'])}", err=err
            )
