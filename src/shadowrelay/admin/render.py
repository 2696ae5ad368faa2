"""Renders the node, its members and its queues as JSON. Times are ISO 8601 in UTC; null means unknown."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from shadowrelay.admin.node import (
    HopStatus,
    HostStatus,
    LateStatus,
    MemberState,
    MemberStatus,
    RunningNode,
    ScrubState,
)
from shadowrelay.core.decisions import Member
from shadowrelay.core.delivery.hop_watch import HopWatch
from shadowrelay.core.identifiers import Mark, ServerName
from shadowrelay.core.members.damage import Counted
from shadowrelay.core.members.forecast import Forecast
from shadowrelay.core.members.pace import Round, share
from shadowrelay.core.members.second_opinion import others
from shadowrelay.core.ownership.handover import Remains
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.shadow_servers import MemberPlace
from shadowrelay.core.suspensions import Suspension
from shadowrelay.core.tracking_row import timestamp
from shadowrelay.database.opening import Opening
from shadowrelay.database.queue_views import HopQueue, QueueView, ShadowQueue
from shadowrelay.database.views import Counts, Snapshot
from shadowrelay.delivery.recent import RecentAttempt
from shadowrelay.shown.queues import (
    AttemptEntry,
    HopShadowQueueEntry,
    HostEntry,
    NextHopEntry,
    QueueEntry,
    ShadowQueueEntry,
    SuspensionEntry,
)
from shadowrelay.shown.status import (
    CorruptDatabase,
    CountsEntry,
    DrainEntry,
    LateEntry,
    PeerEntry,
    RoundEntry,
    ScrubEntry,
    StatusEntry,
    WholeRound,
)


def status(node: RunningNode, seen: Snapshot, version: str, now: datetime) -> StatusEntry:
    ready, why = node.ready()
    lineage = seen.lineage
    return {
        "name": node.name,
        "site": node.site,
        "host": node.host,
        "version": version,
        "started_at": timestamp(node.started_at),
        "uptime": round((now - node.started_at).total_seconds(), 3),
        "ready": ready,
        "not_ready_because": why if not ready else "",
        "warning": node.warning(),
        "draining": node.draining.active,
        "redundancy": node.redundancy_on(),
        "database_id": lineage.database_id,
        "incarnation": lineage.incarnation,
        "sequence": lineage.sequence,
        **counts(seen.counts),
        "overdue_since": maybe(min(_overdue(node, seen, now), default=None)),
        "refused": min(node.refused_copies(), seen.counts.exposed),
        "kept_for_hops": sum(seen.hops.values()),
        "acknowledged_late": late(node.late()),
        "discard_events": sum(seen.events.values()),
        "commits": node.database.commits,
        "resubmitted": seen.tracked.get("RESUBMIT", 0),
        "scrub": scrub(node.scrub),
        "indexes_rebuilt": seen.damage.get(Counted.INDEX, 0),
        "corrupt_database": corrupt_database(node.database.opened),
        "peers": peers(node, seen),
    }


def _overdue(node: RunningNode, seen: Snapshot, now: datetime) -> Iterator[datetime]:
    for hop, unsent in seen.unsent.items():
        if since := overdue(unsent, node.hop(hop), now):
            yield since


def late(found: LateStatus) -> LateEntry:
    return {"longest": found.longest.total_seconds(), "waiting": found.waiting}


def counts(seen: Counts) -> CountsEntry:
    return {
        "queued": seen.queued,
        "exposed": seen.exposed,
        "asking": seen.asking,
        "in_doubt": seen.in_doubt,
        "set_aside": seen.set_aside,
        "damaged": seen.damaged,
        "damaged_aside": seen.damaged_aside,
        "promoting": seen.promoting,
        "shadow_held": seen.shadow_held,
        "safety_net": seen.safety_net,
        "oldest_queued": maybe(seen.oldest_queued),
        "oldest_held": maybe(seen.oldest_held),
    }


def corrupt_database(opened: Opening) -> CorruptDatabase | None:
    """What the start of this process did with a corrupt transport database; None if it was sound."""
    if found := opened.salvaged:
        return {
            "outcome": "salvaged",
            "kept_as": str(found.kept_as),
            "lost": dict(found.lost),
            "messages_missing": found.messages_missing,
        }
    if opened.set_aside:
        kept_as = str(opened.set_aside)
        return {"outcome": "set_aside", "kept_as": kept_as, "lost": {}, "messages_missing": True}
    return None


def scrub(found: ScrubState) -> ScrubEntry:
    """The round under way, and the last complete round since the start."""
    return {
        "interval": found.interval.total_seconds(),
        "progress": round(share(found.now.done, found.now.of), 4) if found.now.began_at else None,
        "at_once": found.now.at_once,
        **_round(found.now),
        "complete_at": maybe(found.now.complete_at),
        "last": _whole(found.last) if found.last else None,
    }


def _whole(found: Round) -> WholeRound:
    took = found.complete_at - found.began_at if found.complete_at and found.began_at else timedelta(0)
    return {
        "at_once": found.at_once,
        **_round(found),
        "complete_at": maybe(found.complete_at),
        "seconds": round(took.total_seconds(), 3),
    }


def _round(found: Round) -> RoundEntry:
    return {
        "round": found.number,
        "began_at": maybe(found.began_at),
        "messages": found.done.messages,
        "messages_of": found.of.messages,
        "octets": found.done.octets,
        "octets_of": found.of.octets,
        "damaged_content": found.contents,
        "damaged_rows": found.rows,
        "mended": found.mended,
        "unreadable": found.unreadable,
        "compared": found.compared,
        "damaged_indexes": len(found.rebuilt),
        "rebuilt": sorted(set(found.rebuilt)),
    }


def drain(node: RunningNode, left: Remains) -> DrainEntry:
    return {
        "name": node.name,
        "draining": node.draining.active,
        "done": left.done,
        "arriving": left.arriving,
        "queued": left.queued,
        "exposed": left.exposed,
        "set_aside": left.set_aside,
        "held_for": _by_name(left.held_for),
        "held_by": _by_name(left.held_by),
        "handed_over": _by_name(left.handed_over),
        "not_yet_taken": _by_name(left.awaited),
        "kept_for_hops": _by_name(left.hops),
    }


def _by_name(counts: Mapping[ServerName, int]) -> dict[str, int]:
    return {str(name): number for name, number in counts.items()}


def every_peer(node: RunningNode, seen: Snapshot) -> list[MemberStatus]:
    """The members in the settings, then those that only the database knows."""
    configured = list(node.member_statuses())
    names = {peer.name for peer in configured}
    others = [
        MemberStatus(name=member.name, site="", host="", address="", state=MemberState.NOT_CONFIGURED)
        for member in seen.members
        if member.name not in names
    ]
    return configured + others


def peers(node: RunningNode, seen: Snapshot) -> list[PeerEntry]:
    everybody = every_peer(node, seen)
    members = {member.name: member for member in seen.members}
    retired = frozenset(member.name for member in seen.members if member.retired)
    return [
        _peer(
            peer,
            members.get(peer.name) or Member(peer.name),
            seen,
            what_next(
                peer,
                everybody,
                retired,
                seen.held_for.get(peer.name, 0),
                seen.held_by.get(peer.name, 0),
                node.host,
            ),
        )
        for peer in everybody
    ]


def what_next(
    peer: MemberStatus,
    everybody: Sequence[MemberStatus],
    retired: Collection[ServerName],
    held_for_it: int,
    held_by_it: int,
    host: str,
) -> str:
    """What happens next with a member, as a sentence; empty for a reachable member.

    ``host`` is this node's machine: a node that reaches no other machine promotes nothing by time.
    """
    if peer.name in retired:
        return "retired: no node waits for it or asks it to hold copies"
    match peer.state:
        case MemberState.REACHABLE:
            return ""
        case MemberState.UNTRIED:
            return "the first heartbeat is due"
        case MemberState.NOT_CONFIGURED:
            return f"not in the settings: add it again, or retire it (shadowrelay peer retire {peer.name})"
        case MemberState.UNREACHABLE:
            places = [
                MemberPlace(other.name, other.site, other.host)
                for other in everybody
                if other.name not in retired and other.state is not MemberState.NOT_CONFIGURED
            ]
            reached = [other.name for other in everybody if other.state is not MemberState.UNREACHABLE]
            here = MemberPlace(ServerName(""), "", host)
            forecast = Forecast(
                losing_in=peer.losing_in,
                held_by_it=held_by_it,
                promoting_in=peer.promoting_in or timedelta(0),
                held_for_it=held_for_it,
                seen_by=peer.seen_by,
                cut_off=others(here, places, peer.name).none_of(reached),
            )
            return str(forecast)


def _peer(peer: MemberStatus, member: Member, seen: Snapshot, following: str) -> PeerEntry:
    lineage = member.lineage
    return {
        "name": peer.name,
        "site": peer.site,
        "host": peer.host,
        "address": peer.address,
        "state": peer.state.value,
        "since": maybe(peer.since),
        "last_contact": maybe(peer.last_contact),
        "step": peer.step,
        "error": peer.error,
        "failures": peer.failures,
        "retired": member.retired,
        "database_id": lineage.database_id if lineage else None,
        "incarnation": lineage.incarnation if lineage else None,
        "sequence": lineage.sequence if lineage else None,
        "applied": mark(member.applied),
        "shadow_held": seen.held_for.get(peer.name, 0),
        "holds_ours": seen.held_by.get(peer.name, 0),
        "events_waiting": seen.events.get(lineage.database_id, 0) if lineage else 0,
        "next": following,
    }


UNREAD = "it took the content, its answer cannot be read"


OVERDUE = timedelta(minutes=5)
"""For how long mail has to be due, and not sent though nothing keeps it, to be shown as overdue."""


def overdue(unsent: datetime | None, hop: HopStatus, now: datetime) -> datetime | None:
    """Since when mail is due that nobody sends, and nothing keeps; None if that is no long time."""
    since = max(unsent, hop.free_since or unsent) if unsent else None
    return since if since and since < now - OVERDUE and not hop.keeps(now) else None


def queue(name: str, found: QueueView, hop: HopStatus, now: datetime) -> QueueEntry:
    since = overdue(found.unsent, hop, now)
    return {
        "identity": f"{name}\\{found.next_hop}",
        "next_hop": found.next_hop,
        "status": _queue_status(found, hop, now),
        "messages": found.messages,
        "waiting": found.waiting,
        "recipients": found.recipients,
        "active": found.active,
        "asking": found.asking,
        "exposed": found.exposed,
        "unread": found.unread,
        "oldest": timestamp(found.oldest),
        "next_attempt": maybe(found.due and hop.tried_at(found.due, now)),
        "overdue_since": maybe(since),
        "last_error": found.last_error,
        "why": (hop.keeps(now) if found.waiting or hop.resting(now) or hop.suspension else "")
        or hop.awaited(now)
        or (f"{UNREAD}, for {found.unread} recipients" if found.unread else "")
        or (f"overdue: mail is due since {timestamp(since)}, and nothing keeps it" if since else ""),
        "suspension": suspension(hop.suspension, now),
        **next_hop(hop, now),
    }


def next_hop(hop: HopStatus, now: datetime) -> NextHopEntry:
    """What this process knows of a next hop, with mail for it or without."""
    return {
        "sessions": hop.sessions,
        "places": hop.places,
        "failures": hop.failures,
        "rests_until": maybe(hop.rests_until) if hop.resting(now) else None,
        "awaits": hop.awaits,
        "awaits_since": maybe(hop.awaits_since),
        "hosts": [_host(one) for one in hop.hosts],
    }


def _host(found: HostStatus) -> HostEntry:
    return {
        "host": found.host,
        "route": found.route,
        "group": found.group,
        "preference": found.preference,
        "weight": found.weight,
        "sessions": found.sessions,
        "failures": found.failures,
        "last_error": found.error,
        "rests_until": maybe(found.rests_until),
    }


def _queue_status(found: QueueView, hop: HopStatus, now: datetime) -> str:
    if hop.suspension is not None:
        return "suspended"
    if hop.resting(now):
        return "resting"
    if found.active:
        return "active"
    if overdue(found.unsent, hop, now):
        return "ready"
    if found.due is None:
        return "asking" if found.asking else "suspended"
    return "retry" if found.due > now else "ready"


def attempt(found: RecentAttempt) -> AttemptEntry:
    return {
        "at": timestamp(found.at),
        "message": found.message,
        "host": found.host,
        "outcome": found.outcome,
        "reply": found.reply,
        "seconds": round(found.seconds, 3),
    }


def suspension(found: Suspension | None, now: datetime) -> SuspensionEntry | None:
    """The suspension of a queue, if it is in force."""
    if found is None or not found.in_force(now):
        return None
    return {
        "operator": found.operator,
        "reason": found.reason,
        "since": timestamp(found.changed_at),
        "until": maybe(found.until),
    }


def shadow_queue(name: str, found: ShadowQueue, peer: PeerEntry | None) -> ShadowQueueEntry:
    return {
        "identity": f"{name}\\Shadow\\{found.primary}",
        "primary": found.primary,
        "primary_state": peer["state"] if peer else MemberState.NOT_CONFIGURED.value,
        "messages": found.messages,
        "oldest": timestamp(found.oldest),
        "next_hops": [
            {"next_hop": hop, "messages": messages, "recipients": recipients}
            for hop, messages, recipients in found.next_hops
        ],
        "next": peer["next"] if peer else "",
    }


def hop_queue(name: str, found: HopQueue, watch: HopWatch, policy: Policy) -> HopShadowQueueEntry:
    """The shadow queue of a hop beyond the boundary."""
    state = "failing" if watch.failures else "untried" if watch.talked_at is None else "reachable"
    return {
        "identity": f"{name}\\Shadow\\{found.hop}",
        "next_hop": found.hop,
        "messages": found.messages,
        "oldest": maybe(found.oldest),
        "state": "given_up" if watch.gone(policy) else state,
        "failures": watch.failures,
        "error": watch.error,
    }


def maybe(moment: datetime | None) -> str | None:
    return None if moment is None else timestamp(moment)


def mark(point: Mark | None) -> str | None:
    return None if point is None else str(point)
