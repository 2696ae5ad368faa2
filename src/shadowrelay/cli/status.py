"""``shadowrelay status``: shows how a node is, and whether every message in transit has two copies."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from shadowrelay.admin.client import AdminClient
from shadowrelay.cli.viewing import (
    JsonTree,
    clean,
    console,
    counted,
    has_siblings,
    lasting,
    needs,
    node_options,
    of_all,
    of_this_node,
    print_json,
    print_silent,
    print_table,
    reporting,
    shown,
    where_options,
    workers_option,
)
from shadowrelay.core.workers import label
from shadowrelay.shown.differences import differences
from shadowrelay.shown.flow_text import MOST, flow_sentence, held_up
from shadowrelay.shown.nodes import (
    QueuesAnswer,
    QueueTogether,
    StatusesAnswer,
    TlsAnswer,
    by_worker,
    of_node,
    statuses,
    tls,
    tls_together,
    together,
    total,
)
from shadowrelay.shown.reading import UNKNOWN, is_told
from shadowrelay.shown.safety_text import ONE_COPY, copies_reached, messages_have, unreached, why_at_risk
from shadowrelay.shown.status import CorruptDatabase, PeerEntry, ScrubEntry, StatusEntry
from shadowrelay.shown.tls import AS_WANTED

if TYPE_CHECKING:
    from rich.console import Console


@click.command(short_help="Show how a node is: exposure, backlog, copies, members.")
@click.argument("what", type=click.Choice(["tls"]), required=False)
@where_options
@workers_option
@node_options
def status(
    node: AdminClient, *, what: str | None, cluster: bool | None, workers: bool, as_json: bool
) -> None:
    """Show how a node is: exposure and damage first, then backlog, copies held for others, and members.

    A last table shows all nodes, as far as they answer. With --json the answer of this node has all of
    them as "nodes". A node of several workers is one: its counts are the sums, and the worst state is told.

    status tls shows what domains ask for by MTA-STS and DANE, and what became of the last session with each
    of their hosts.
    """
    if what == "tls":
        return _tls(node, cluster=cluster, workers=workers, as_json=as_json)
    with reporting():
        everybody = of_all(node, StatusesAnswer, "status", cluster=cluster)
        queues = of_all(node, QueuesAnswer, "queues", cluster=cluster) if everybody and not as_json else None
        each: list[Any] = list(everybody["nodes"]) if everybody else own_workers(node)
    nodes = statuses(each)
    own = (each if workers and as_json else nodes)[0]
    if "status" not in own:
        why = own["why"] or "is it of another version?"
        raise click.ClickException(clean(f"{own['node']} does not tell how it is: {why}"))
    answer = own["status"]
    if as_json:
        return print_json({**answer, "nodes": each if workers else nodes} if everybody else answer)
    out = console()
    up = timedelta(seconds=round(answer["uptime"])) if is_told(answer["uptime"]) else UNKNOWN
    ready = "ready" if answer["ready"] else f"NOT READY: {clean(answer['not_ready_because'])}"
    out.print(f"{answer['name']} (site {answer['site']}, host {answer['host']}), {ready}")
    out.print(f"shadowrelay {answer['version']}, up {up}")
    _drained(out, answer)
    _processes(out, nodes[0])
    for one in answer.get("workers", (answer,)):
        whose = f"{label(one['name'])}: " if "workers" in answer else ""
        out.print(f"{whose}database {one['database_id']} at {one['incarnation']}:{one['sequence']}")
    if warning := answer.get("warning"):
        out.print(f"WARNING: {clean(warning)}", style="bold red")
    _corrupt(out, answer["corrupt_database"])
    _exposure(out, answer, unreached(nodes))
    if queues:
        _flow(out, together(queues["nodes"]))
    _held_back(out, answer)
    _damage(out, answer)
    _counts(out, answer)
    out.print()
    members = each[0]["status"]["peers"] if workers else answer["peers"]
    print_table(out, PEER_COLUMNS, [peer_row(peer) for peer in members], "This node has no members.")
    if everybody or (workers and len(each) > 1):
        _nodes(out, by_worker(each) if workers else nodes)
    return None


_TLS_COLUMNS = ("domain", "host", "policy", "asked for by", "last result", "when")


def _tls(node: AdminClient, *, cluster: bool | None, workers: bool, as_json: bool) -> None:
    """What became of TLS with next hops: a row for each host of a domain, or of each worker."""
    with reporting():
        answer = node.get(TlsAnswer, "cluster", "tls")
        needs(answer, "node", "nodes")
    every: Any = answer["nodes"]
    asked = of_node(every, answer["node"]) if cluster is False else every
    shown_of = by_worker(asked) if workers else tls(asked)
    if as_json:
        return print_json({"node": answer["node"], "nodes": shown_of})
    out = console()
    rows: list[list[object]] = [
        [
            one["domain"],
            one["host"],
            one["policy"] + (", testing" if one["testing"] else ""),
            "" if one["source"] == "none" else one["source"],
            one["result"] or AS_WANTED,
            one["when"],
        ]
        for one in tls_together(asked)
    ]
    print_table(out, _TLS_COLUMNS, rows, "No session with a host of a route that has dane or mta_sts yet.")
    print_silent(out, {"nodes": shown_of})
    return None


def own_workers(node: AdminClient) -> list[JsonTree]:
    """The status of the node that is asked: an entry for each of its workers."""
    answer = node.get(StatusEntry, "status")
    if has_siblings(answer):
        return of_this_node(node, "status")
    return [{"node": answer["name"], "answers": True, "why": "", "status": answer}]


def _drained(out: Console, answer: StatusEntry) -> None:
    """That it is being drained, and who had that begin."""
    if answer["draining"]:
        by = (
            f" by {answer['drain_operator']} since {answer['drain_ordered_at']}"
            if answer["drain_operator"]
            else ""
        )
        out.print(f"BEING DRAINED{shown(out, by) if by else ''}: it takes no mail", style="bold red")


def _processes(out: Console, own: JsonTree) -> None:
    """How many workers the node has, and which are silent."""
    if "workers" not in own:
        return
    answering = sum(one["answers"] for one in own["workers"])
    many = len(own["workers"])
    if answering == many:
        out.print(f"{counted(many, 'worker')}; all answer" if many > 1 else "1 worker answers")
    else:
        out.print(f"WORKERS AWAY: {clean(own['why'])}", style="bold red")


_NODE_COLUMNS = (
    "node",
    "version",
    "takes mail",
    "queued",
    "oldest",
    "at risk",
    "damaged",
    "set aside",
    "held",
    "alarms",
)


def _nodes(out: Console, nodes: Sequence[JsonTree]) -> None:
    """A row for each node; those that do not answer are lines that say so."""
    out.print()
    found = [one["status"] for one in nodes if one["answers"]]
    print_table(out, _NODE_COLUMNS, [_node_row(one) for one in found], "")
    print_silent(out, {"nodes": nodes})
    for text in differences(nodes):
        out.print(f"DIFFERENT: {clean(text)}", style="bold red")
    every = total(nodes)
    if copies_reached(every)[0] > copies_reached(found[0])[0]:
        _at_risk(out, every, "AT RISK on all nodes that answer")


def _node_row(one: StatusEntry) -> list[object]:
    alarms = [
        "" if one["ready"] else one["not_ready_because"],
        "" if one.get("redundancy", True) else "shadow redundancy is off",
        f"{one['promoting']} to promote" if one["promoting"] else "",
        f"{one['damaged_aside']} damaged everywhere" if one["damaged_aside"] else "",
        "its database was corrupt" if one["corrupt_database"] else "",
        f"mail is overdue since {one['overdue_since']}" if one.get("overdue_since") else "",
        one.get("warning", ""),
    ]
    return [
        one["name"],
        one["version"],
        one["ready"],
        one["queued"],
        one["oldest_queued"],
        copies_reached(one)[0],
        one["damaged"] + one["damaged_aside"],
        one["set_aside"],
        one["shadow_held"],
        [alarm for alarm in alarms if alarm],
    ]


def _exposure(out: Console, answer: StatusEntry, away: Sequence[str]) -> None:
    """``away``: nodes that nobody who answers can reach."""
    out.print()
    if not answer.get("redundancy", True):
        out.print(
            "SHADOW REDUNDANCY IS OFF: mail has no second copy; see shadowrelay redundancy show",
            style="bold red",
        )
    _at_risk(out, answer, "AT RISK")
    if answer["exposed"]:
        have = "has" if answer["exposed"] == 1 else "have"
        out.print(
            f"EXPOSED: {counted(answer['exposed'], 'message')} in transit {have} no second copy on another "
            "machine; lost if this machine is lost now",
            style="bold red",
        )
        if refused := answer.get("refused"):
            out.print(
                f"A member refused the copy of {counted(refused, 'message')} of these: see "
                "shadowrelay message list --state exposed, and shadowrelay message show ID for the reason"
            )
    if not answer["peers"] and (late := answer["acknowledged_late"]["longest"]):
        out.print(
            "This node is alone. Messages are acknowledged late: a sender hears 250 when the next hops have "
            f"its message, after {lasting(late)} at most"
        )
    if answer["promoting"]:
        are = "is" if answer["promoting"] == 1 else "are"
        out.print(
            f"PROMOTING: {counted(answer['promoting'], 'copy', 'copies')} of members that are gone {are} "
            "about to be promoted; there may be no others",
            style="bold red",
        )
    if len(away) > 1:
        out.print(
            f"UNREACHED: mail of which both copies are at {', '.join(away)} cannot be reached, and nobody "
            "who answers can count it",
            style="bold red",
        )
    elif copies_reached(answer) == (0, 0) and not any(answer[what] for what in ("promoting", "damaged")):
        out.print("At risk: 0; every message in transit has a second copy that can be reached", style="green")


def _held_back(out: Console, answer: StatusEntry) -> None:
    """Clients that had too much in a minute, the last one first."""
    found = answer.get("held_back") or ()
    for one in found[:MOST]:
        out.print(
            f"Held back {counted(one['times'], 'time')}: {clean(one['who'])}, for {one['limit']} a minute at "
            f"{clean(one['connector'])}, last at {shown(out, one['last'])}"
        )
    if len(found) > MOST:
        out.print(f"  and {counted(len(found) - MOST, 'client')} more: see --json")


def _at_risk(out: Console, answer: StatusEntry, title: str) -> None:
    """How much mail has one copy that can be reached, then why, until when, and what helps."""
    count = copies_reached(answer)[0]
    if not count:
        return
    since = f", since {shown(out, answer['at_risk_since'])}" if answer.get("at_risk_since") else ""
    out.print(f"{title}: {messages_have(count)} {ONE_COPY}{since}", style="bold red")
    for risk in answer.get("risks", ()):
        out.print(f"  {shown(out, why_at_risk(risk))}")
        if risk["advice"]:
            out.print(f"    {clean(risk['advice'])}")


def _flow(out: Console, queues: Sequence[QueueTogether]) -> None:
    """Does mail flow, on all nodes that answer? And what keeps the queues that do not."""
    held = held_up(queues)
    failing = any(one.failing for one in held)
    out.print(f"{flow_sentence(held)}", style="bold red" if failing else "green" if not held else "")
    for one in held[:MOST]:
        out.print(f"  {shown(out, one.text)}")
    if len(held) > MOST:
        out.print(f"  and {counted(len(held) - MOST, 'queue')} more: see shadowrelay queue list")


def _corrupt(out: Console, found: CorruptDatabase | None) -> None:
    """Print what the start did with a corrupt database; shown until the next start."""
    if not found:
        return
    out.print()
    if found["outcome"] == "set_aside":
        did = "a new one was begun, and members promote what they hold for this node"
    elif found["messages_missing"]:
        did = "its readable part was saved; messages are missing, and members promote what they hold of them"
    else:
        did = "its readable part was saved, and no message is missing"
    out.print(
        f"CORRUPT DATABASE at this start: {did}. It is kept as {clean(found['kept_as'])}; look at the disk",
        style="bold red",
    )


def _damage(out: Console, answer: StatusEntry) -> None:
    see = "shadowrelay message list --state damaged"
    if aside := answer["damaged_aside"]:
        wait = "waits" if aside == 1 else "wait"
        out.print(
            f"DAMAGED EVERYWHERE: no member has a good copy of {counted(aside, 'message')}, which {wait} for "
            f"you: see {see}",
            style="bold red",
        )
    if waiting := answer["damaged"]:
        wait = "waits" if waiting == 1 else "wait"
        out.print(
            f"DAMAGED: {counted(waiting, 'message')} {wait} for a good copy from another member: see {see}",
            style="bold red",
        )
    if not aside and not waiting:
        out.print("Damaged: 0", style="green")
    if rebuilt := answer.get("indexes_rebuilt"):
        out.print(
            f"DAMAGED INDEXES: {counted(rebuilt, 'index', 'indexes')} differed from the rows since the "
            "start, and were built again: do not trust this disk",
            style="bold red",
        )
    out.print(_scrub(answer["scrub"]))


def _scrub(scrub: ScrubEntry) -> str:
    read = f"complete at {at}" if (at := scrub["complete_at"]) else "not complete yet"
    share = f"{scrub['progress'] or 0:.0%}"
    if scrub["at_once"]:
        by = f", begun by {clean(scrub['operator'])}," if scrub["operator"] else ""
        return f"Scrub: {read}; a round without rests{by} has read {share}"
    if not scrub["interval"]:
        return f"Scrub: {read}; only when asked for (scrub_interval is 0)"
    within = lasting(scrub["interval"])
    return f"Scrub: {read}; the present round has read {share}, and takes {within}"


def _counts(out: Console, answer: StatusEntry) -> None:
    overdue = answer.get("overdue_since")
    oldest = f"oldest {answer['oldest_queued']}" + (f", overdue since {overdue}" if overdue else "")
    backlog = [
        ["queued", answer["queued"], oldest if answer["queued"] else ""],
        ["asking members first", answer["asking"], "part of queued"],
        ["in doubt", answer["in_doubt"], "part of queued: a member did not answer in time"],
        ["set aside", answer["set_aside"], "waits for you" if answer["set_aside"] else ""],
    ]
    kept = [
        ["shadow copies", answer["shadow_held"], "held for other members"],
        ["Safety Net", answer["safety_net"], "settled messages"],
        ["kept for hops", answer.get("kept_for_hops", 0), "part of Safety Net: a hop has not delivered yet"],
        ["discard events", answer["discard_events"], "not yet polled by members"],
    ]
    for title, rows in (("Backlog", backlog), ("Not backlog", kept)):
        out.print()
        print_table(out, (title, "count", ""), [[name, count, text or " "] for name, count, text in rows], "")


PEER_COLUMNS = ("member", "state", "since", "held for it", "holds of ours", "last error", "next")


def peer_row(peer: PeerEntry) -> list[object]:
    """A row of the table of members."""
    failing = peer["state"] == "unreachable"
    return [
        peer["name"],
        _state(peer),
        peer["since"] or peer["last_contact"],
        peer["shadow_held"],
        peer["holds_ours"],
        ": ".join(filter(None, [peer["step"], peer["error"]])) if failing else "",
        peer["next"],
    ]


def _state(peer: PeerEntry) -> str:
    """The state; of a node of several workers, how many of them cannot be reached."""
    if peer["retired"]:
        return f"retired by {peer['retired_by']}" if peer["retired_by"] else "retired"
    state = str(peer["state"]).replace("_", " ")
    away, workers = len(peer.get("away", ())), len(peer.get("workers", ()))
    return f"{state} ({away} of {workers} workers)" if 0 < away < workers else state
