"""Renders what a node knows as the models of ``shown``. Times are ISO 8601 in UTC; null means unknown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from shadowrelay.admin.node import (
    HopStatus,
    MemberState,
    MemberStatus,
    RefusalView,
    RunningNode,
    ScrubState,
)
from shadowrelay.core.decisions import DamagedRow, Member
from shadowrelay.core.delivery.hop_watch import HopWatch
from shadowrelay.core.identifiers import NextHop, ServerName
from shadowrelay.core.members.at_risk import AwayMember, InTransit, Risk, risks
from shadowrelay.core.members.damage import Counted
from shadowrelay.core.members.forecast import Forecast
from shadowrelay.core.members.pace import Round, share
from shadowrelay.core.members.second_opinion import others
from shadowrelay.core.messages import FOREVER, Confirmation, Copy, Recipient, Role, Stage
from shadowrelay.core.ownership.handover import Remains
from shadowrelay.core.policy import Policy
from shadowrelay.core.pressure import Pressure
from shadowrelay.core.reception.shadow_servers import MemberPlace
from shadowrelay.core.requests import Progress, Request
from shadowrelay.core.suspensions import Suspension
from shadowrelay.core.tracking_row import timestamp
from shadowrelay.database.opening import Opening
from shadowrelay.database.queue_views import HopQueue, QueueView, ShadowQueue
from shadowrelay.database.resubmission import Kept, MadeCount
from shadowrelay.database.search import Known
from shadowrelay.database.views import MessageView, Snapshot
from shadowrelay.delivery.recent import RecentAttempt
from shadowrelay.operator.preview import Preview, Share
from shadowrelay.operator.resubmit import Shown
from shadowrelay.shown.fold import fold
from shadowrelay.shown.messages import (
    DamagedMessage,
    GoneMessage,
    KeptEntry,
    KeptRecipient,
    MessageAnswer,
    MessageBrief,
    MessageEntry,
    MessageSummary,
    RecipientEntry,
    RememberedMessage,
    WaitingEntry,
)
from shadowrelay.shown.nodes import KnownMember, NodeLook
from shadowrelay.shown.queues import (
    AttemptEntry,
    HeldForHop,
    HopLook,
    HopShadowQueueEntry,
    QueueEntry,
    ShadowQueueEntry,
)
from shadowrelay.shown.records import (
    MailCounts,
    NodeEstimate,
    ResubmitCounts,
    ResubmitEntry,
    ResubmitMade,
    ResubmitPreview,
    ResubmitProgress,
    SelectorEntry,
    ShareEstimate,
    UnreachableEstimate,
)
from shadowrelay.shown.rendering import rendered, required
from shadowrelay.shown.status import (
    CorruptDatabase,
    CountsEntry,
    DrainEntry,
    PeerEntry,
    ScrubEntry,
    StatusEntry,
    WholeRound,
)


def status(node: RunningNode, seen: Snapshot, version: str, now: datetime) -> StatusEntry:
    ready, why = node.ready()
    found = at_risk(node, seen, now)
    ends = [one.until for one in found]
    return rendered(
        StatusEntry,
        node,
        version=version,
        uptime=round((now - node.started_at).total_seconds(), 3),
        ready=ready,
        not_ready_because="" if ready else why,
        warning=node.warning(),
        draining=node.draining.active,
        drain_operator=node.draining.ordered.operator,
        drain_ordered_at=node.draining.ordered.at,
        redundancy=node.redundancy_on(),
        settings=dict(node.sections()),
        database_id=seen.lineage.database_id,
        incarnation=seen.lineage.incarnation,
        sequence=seen.lineage.sequence,
        **rendered(CountsEntry, seen.counts),
        at_risk=sum(one.messages for one in found),
        at_risk_since=min((one.since for one in found if one.since), default=None),
        at_risk_until=max((one for one in ends if one), default=None) if all(ends) else None,
        risks=found,
        overdue_since=min(_overdue(node, seen, now), default=None),
        refused=min(node.refused_copies(), seen.counts.exposed),
        kept_for_hops=sum(seen.hops.values()),
        acknowledged_late=node.late(),
        held_back=node.held_back(),
        pressure=[_pressure(one) for one in node.pressures()],
        discard_events=sum(seen.events.values()),
        commits=node.database.commits,
        resubmitted=seen.tracked.get("RESUBMIT", 0),
        scrub=scrub(node.scrub),
        indexes_rebuilt=seen.damage.get(Counted.INDEX, 0),
        corrupt_database=corrupt_database(node.database.opened),
        peers=peers(node, seen),
    )


def _pressure(one: Pressure) -> dict[str, Any]:
    level = one.level.name.lower()
    reading = round(one.reading, 1)
    return {"resource": one.resource.value, "level": level, "reading": reading, "limits": [*one.limits]}


def _overdue(node: RunningNode, seen: Snapshot, now: datetime) -> Iterator[datetime]:
    for hop, unsent in seen.unsent.items():
        if since := overdue(unsent, node.hop(hop), now):
            yield since


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
    now, last = found.now, found.last
    took = last.complete_at - last.began_at if last and last.complete_at and last.began_at else timedelta(0)
    return rendered(
        ScrubEntry,
        now,
        interval=found.interval,
        progress=round(share(now.done, now.of), 4) if now.began_at else None,
        **_rebuilt(now),
        last=last and rendered(WholeRound, last, seconds=round(took.total_seconds(), 3), **_rebuilt(last)),
    )


def _rebuilt(found: Round) -> dict[str, Any]:
    return {"damaged_indexes": len(found.rebuilt), "rebuilt": sorted(set(found.rebuilt))}


def drain(node: RunningNode, left: Remains, at_risk: int) -> DrainEntry:
    """``at_risk``: messages of which this node has the one copy that can be reached."""
    return rendered(
        DrainEntry,
        left,
        name=node.name,
        draining=node.draining.active,
        drain_operator=node.draining.ordered.operator,
        drain_ordered_at=node.draining.ordered.at,
        at_risk=at_risk,
    )


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


def at_risk(node: RunningNode, seen: Snapshot, now: datetime) -> list[Risk]:
    """All mail in transit of which this node knows one copy that can be reached now."""
    mail = InTransit(
        exposed=seen.counts.exposed,
        held_by=seen.held_by,
        together=seen.together,
        held_for=seen.held_for,
        promoting=seen.promoting,
    )
    return list(risks(mail, away_members(node, seen, now), now))


def away_members(node: RunningNode, seen: Snapshot, now: datetime) -> list[AwayMember]:
    """The members that cannot be reached, without those that are retired."""
    everybody = every_peer(node, seen)
    retired = {member.name for member in seen.members if member.retired}
    return [
        _away(peer, node.policy, now, cut_off=_cut_off(peer, everybody, retired, node.host))
        for peer in everybody
        if peer.state in {MemberState.UNREACHABLE, MemberState.NOT_CONFIGURED} and peer.name not in retired
    ]


def _away(peer: MemberStatus, policy: Policy, now: datetime, *, cut_off: bool) -> AwayMember:
    if peer.state is MemberState.NOT_CONFIGURED:
        return AwayMember(name=peer.name, because="it is not in the settings: add it again, or retire it")
    failures = policy.holder_loss_heartbeats - 1  # the first one is that of ``since``
    loses = peer.since + failures * policy.shadow_heartbeat_frequency if peer.since else None
    return AwayMember(
        name=peer.name,
        since=peer.since,
        loses_at=loses,
        promotes_at=None if cut_off else now + (peer.promoting_in or timedelta(0)),
        because="this node reaches no other machine, and may be cut off" if cut_off else "",
        seen_by=peer.seen_by,
    )


def _cut_off(
    peer: MemberStatus, everybody: Sequence[MemberStatus], retired: Collection[ServerName], host: str
) -> bool:
    """May this node be the one that is cut off? Then it promotes nothing by time. ``host``: its machine."""
    places = [
        MemberPlace(other.name, other.site, other.host)
        for other in everybody
        if other.name not in retired and other.state is not MemberState.NOT_CONFIGURED
    ]
    reached = [other.name for other in everybody if other.state is not MemberState.UNREACHABLE]
    return others(MemberPlace(ServerName(""), "", host), places, peer.name).none_of(reached)


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
            forecast = Forecast(
                losing_in=peer.losing_in,
                promoting_in=peer.promoting_in or timedelta(0),
                held_for_it=held_for_it,
                seen_by=peer.seen_by,
                cut_off=_cut_off(peer, everybody, retired, host),
            )
            return str(forecast)


def _peer(peer: MemberStatus, member: Member, seen: Snapshot, following: str) -> PeerEntry:
    lineage = member.lineage
    return rendered(
        PeerEntry,
        peer,
        retired=member.retired,
        retired_by=seen.retired_by.get(peer.name, ""),
        database_id=lineage and lineage.database_id,
        incarnation=lineage and lineage.incarnation,
        sequence=lineage and lineage.sequence,
        applied=member.applied,
        shadow_held=seen.held_for.get(peer.name, 0),
        holds_ours=seen.held_by.get(peer.name, 0),
        events_waiting=seen.events.get(lineage.database_id, 0) if lineage else 0,
        next=following,
    )


UNREAD = "it took the content, its answer cannot be read"


OVERDUE = timedelta(minutes=5)
"""For how long mail has to be due, and not sent though nothing keeps it, to be shown as overdue."""


def overdue(unsent: datetime | None, hop: HopStatus, now: datetime) -> datetime | None:
    """Since when mail is due that nobody sends, and nothing keeps; None if that is no long time."""
    since = max(unsent, hop.free_since or unsent) if unsent else None
    return since if since and since < now - OVERDUE and not hop.keeps(now) else None


def queue(name: str, found: QueueView, hop: HopStatus, now: datetime) -> QueueEntry:
    since = overdue(found.unsent, hop, now)
    return rendered(
        QueueEntry,
        found,
        sessions=hop.sessions,
        places=hop.places,
        failures=hop.failures,
        failing_since=hop.failing_since,
        rests_until=hop.rests_until if hop.resting(now) else None,
        awaits=hop.awaits,
        awaits_since=hop.awaits_since,
        rate=hop.rate,
        last_reply=hop.last_reply,
        last_reply_at=hop.last_reply_at,
        hosts=hop.hosts,
        identity=f"{name}\\{found.next_hop}",
        status=_queue_status(found, hop, now),
        next_attempt=found.due and hop.tried_at(found.due, now),
        overdue_since=since,
        why=(hop.keeps(now) if found.waiting or hop.resting(now) or hop.suspension else "")
        or hop.awaited(now)
        or (f"{UNREAD}, for {found.unread} recipients" if found.unread else "")
        or (f"overdue: mail is due since {timestamp(since)}, and nothing keeps it" if since else ""),
        suspension=in_force(hop.suspension, now),
    )


def hop_look(
    hop: HopStatus,
    attempts: Sequence[RecentAttempt],
    shown: QueueEntry | None,
    now: datetime,
) -> HopLook:
    """All that this node knows of one next hop."""
    return rendered(
        HopLook,
        hop,
        rests_until=hop.rests_until if hop.resting(now) else None,
        queue=shown,
        suspension=in_force(hop.suspension, now),
        attempts=[rendered(AttemptEntry, one, seconds=round(one.seconds, 3)) for one in attempts],
    )


def _queue_status(found: QueueView, hop: HopStatus, now: datetime) -> str:
    if hop.suspension is not None:
        return "suspended"
    if hop.resting(now):
        return "resting"
    if found.active:
        return "active"
    if overdue(found.unsent, hop, now):
        return "ready"
    if found.suspended:
        return "suspended"
    if found.due is None:
        return "asking"
    return "retry" if found.due > now else "ready"


def in_force(found: Suspension | None, now: datetime) -> Suspension | None:
    """The suspension of a queue, if it is in force."""
    return found if found and found.in_force(now) else None


def shadow_queue(name: str, found: ShadowQueue, peer: PeerEntry | None) -> ShadowQueueEntry:
    names = HeldForHop.__annotations__
    return rendered(
        ShadowQueueEntry,
        found,
        identity=f"{name}\\Shadow\\{found.primary}",
        primary_state=peer["state"] if peer else MemberState.NOT_CONFIGURED,
        next_hops=[dict(zip(names, one, strict=True)) for one in found.next_hops],
        next=peer["next"] if peer else "",
    )


def hop_queue(name: str, found: HopQueue, watch: HopWatch, policy: Policy) -> HopShadowQueueEntry:
    """The shadow queue of a hop beyond the boundary."""
    state = "failing" if watch.failures else "untried" if watch.talked_at is None else "reachable"
    return rendered(
        HopShadowQueueEntry,
        found,
        identity=f"{name}\\Shadow\\{found.hop}",
        state="given_up" if watch.gone(policy) else state,
        failures=watch.failures,
        error=watch.error,
    )


def node(found: RunningNode) -> NodeLook:
    """What a node has besides its mail."""
    room, services = found.room, found.services
    ends = {name: timestamp(until) for name, until in sorted(services.certificates().items())}
    return {
        "members": [rendered(KnownMember, one) for one in services.announcing.members()],
        "certificates": ends,
        "disk": {"directory": str(room.directory), "free": room.free, "minimum": room.minimum},
    }


# Messages


def summary(item: Copy | DamagedRow) -> MessageSummary:
    """A message in a list. If its rows are damaged, hardly anything is known."""
    if isinstance(item, DamagedRow):
        return _unbelievable(item)
    return rendered(
        MessageSummary,
        item,
        state=_state(item),
        next_hops=_next_hops(item),
        recipients=len(item.recipients),
        unsettled=len(item.unsettled),
        addresses=_addresses(item),
        holders=[holder.name for holder in item.holders],
    )


def _addresses(copy: Copy) -> list[str]:
    """Its first recipients."""
    return [one.address for one in copy.recipients[:_MOST_ADDRESSES]]


def _state(copy: Copy) -> str:
    """A shadow copy says so instead of its stage."""
    return "shadow" if copy.held else copy.stage.value


def _next_hops(copy: Copy) -> list[str]:
    return sorted({recipient.next_hop for recipient in copy.recipients})


def _unbelievable(rows: DamagedRow) -> MessageSummary:
    unknown: dict[str, Any] = dict.fromkeys(required(MessageBrief) | {"recipients", "holders"})
    return rendered(
        MessageSummary,
        rows,
        **unknown
        | {
            "id": rows.message_id,
            "state": Stage.SET_ASIDE if rows.set_aside else Stage.DAMAGED,
            "damage": "rows",
            "found_at": rows.found_at if rows.found_at.timestamp() else None,
            "why": rows.what,
            "settled": [{"number": number, "status": status} for number, status in rows.settled],
        },
    )


_MOST_ADDRESSES = 5


def known(found: Known, hop: Callable[[NextHop], HopStatus], now: datetime) -> dict[str, Any]:
    """What this node has of a message, or remembers of it, in a list."""
    copy, outcome, revoked = found.copy, found.outcome, found.tombstone
    item = copy or found.damaged
    shown = summary(item) if item else {"id": found.id, "state": "gone"}
    return {
        **shown,
        **(waiting(copy, found.active, hop, now) if copy else dict.fromkeys(WaitingEntry.__annotations__)),
        "role": copy and copy.role.value,
        "stage": copy and copy.stage.value,
        "rank": copy and copy.rank,
        "message_id": copy and copy.envelope.message_id,
        "addresses": _addresses(copy) if copy else None,
        "statuses": dict(Counter(one.status.value for one in copy.recipients)) if copy else None,
        "outcome": outcome and {"epoch": outcome.epoch, "settled": list(outcome.delivered)},
        "revoked": revoked and {"epoch": revoked.epoch, "rank": revoked.rank},
    }


def message(
    view: MessageView, hop: Callable[[NextHop], HopStatus], refusals: Sequence[RefusalView], now: datetime
) -> MessageAnswer:
    """All that this node knows of one message; without a copy, what it remembers."""
    remembered, copy = rendered(RememberedMessage, view), view.copy
    if view.damaged:
        damaged: DamagedMessage = {**remembered, **summary(view.damaged)}
        return damaged
    if copy is None:
        gone: GoneMessage = {**remembered, "state": "gone", "damage": None}
        return gone
    return rendered(
        MessageEntry,
        copy,
        **remembered,
        state=_state(copy),
        next_hops=_next_hops(copy),
        unsettled=len(copy.unsettled),
        recipients=[_recipient(copy, item, view, hop(item.next_hop), now) for item in copy.recipients],
        hops=view.hops,
        refusals=refusals if copy.exposed else (),
    )


def _recipient(
    copy: Copy, recipient: Recipient, view: MessageView, hop: HopStatus, now: datetime
) -> RecipientEntry:
    doing, why, next_attempt = _waits(copy, recipient, view.active, hop, now)
    return rendered(
        RecipientEntry,
        recipient,
        doing=doing,
        why=why,
        next_attempt=next_attempt,
        suspended=None if recipient.settled else recipient.suspended,
    )


def _waits(
    copy: Copy, recipient: Recipient, active: Collection[NextHop], hop: HopStatus, now: datetime
) -> tuple[str, str, datetime | None]:
    """What a recipient does now, why, and when it is tried. A suspended queue suspends what is in it."""
    doing = _doing(copy, recipient, active, now)
    kept = doing == "ready" or (doing == "retry" and hop.resting(now))
    if hop.suspension is not None and doing in ("ready", "retry"):
        return "suspended", hop.keeps(now), hop.tried_at(recipient.next_attempt, now)
    due = recipient.next_attempt
    why = hop.keeps(now) if kept else _unread(recipient)
    if doing == "suspended" and recipient.suspended is not None:
        why = "an operator suspended it"
        if recipient.suspended == FOREVER:
            return doing, why, None
        due = max(due or now, recipient.suspended)
    return doing, why, hop.tried_at(due, now) if kept or hop.suspension else due


def waiting(
    copy: Copy, active: Collection[NextHop], hop: Callable[[NextHop], HopStatus], now: datetime
) -> WaitingEntry:
    """What a message waits for: the first recipient that is not settled tells, with the attempts of the one
    that was tried most.
    """
    left = copy.unsettled
    if not left:
        return {"doing": None, "reason": None, "attempts": None, "next_attempt": None}
    doing, why, due = _waits(copy, left[0], active, hop(left[0].next_hop), now)
    return {
        "doing": doing,
        "reason": why or left[0].last_reply,
        "attempts": max(one.attempts for one in left),
        "next_attempt": timestamp(due) if due else None,
    }


def _unread(recipient: Recipient) -> str:
    """Why a recipient waits longer than after a failure."""
    unread = recipient.unread
    if recipient.settled or unread is None or not unread.tries:
        return ""
    tries = "once" if unread.tries == 1 else f"{unread.tries} times"
    return f"{unread.host} took the content {tries}, its answer cannot be read"


def _doing(copy: Copy, recipient: Recipient, active: Collection[NextHop], now: datetime) -> str:
    if recipient.settled:
        return "done"
    if copy.stage is Stage.SET_ASIDE:
        return "waits for the operator"
    if copy.role is Role.SHADOW:
        return "held"
    if recipient.next_hop in active:
        return "active"
    if copy.damaged:
        return "waits for a good copy"
    if copy.confirmation is Confirmation.ASK:
        return "asking"
    if recipient.is_suspended(now):
        return "suspended"
    return "retry" if recipient.next_attempt and recipient.next_attempt > now else "ready"


# Requests


def request(found: Shown) -> ResubmitEntry:
    """A request with how far each node is. A sum has the parts that are on record, whoever else has mail."""
    parts = {(one.node, one.owner): one for one in found.progress}
    pairs = {*parts, *((node, owner) for node, left in found.left.items() for owner in left)}
    progress = [_progress(found, pair, parts.get(pair)) for pair in sorted(pairs)]
    sums = fold(ResubmitCounts, progress)
    return rendered(
        ResubmitEntry,
        found,
        request=told(found.request),
        made=sums.get("made", 0),
        skipped=sums.get("skipped", {}),
        left=(sums.get("left") or 0) if found.left else None,
        progress=progress,
    )


def told(found: Request) -> ResubmitMade:
    """A request without its progress."""
    wanted = found.selector
    return rendered(
        ResubmitMade,
        found,
        selector=rendered(
            SelectorEntry,
            wanted,
            since=_exact(wanted.since),
            until=_exact(wanted.until),
            sender="<>" if wanted.sender == "" else wanted.sender,
        ),
    )


def _progress(found: Shown, pair: tuple[ServerName, ServerName], one: Progress | None) -> ResubmitProgress:
    node, owner = pair
    left = found.left.get(node)
    return rendered(
        ResubmitProgress,
        one or Progress(request=found.request.id, node=node, owner=owner),
        skipped=dict(one.skipped) if one else {},
        left=None if left is None else left.get(owner, 0),
        rate=found.rates.get(pair),
        reached=one and one.place.at,
    )


def preview(found: Preview, now: datetime) -> ResubmitPreview:
    """What a request would do."""
    return rendered(
        ResubmitPreview,
        found.total,
        at_most=found.most,
        nodes=[
            rendered(
                NodeEstimate,
                one.own,
                node=one.node,
                refused=_refused(one.own),
                reaches_back_to=one.reaches_back_to,
            )
            for one in found.nodes
        ],
        held=[{**_share(one), "why": one.why} for one in found.shares],
        unreachable=[
            rendered(
                UnreachableEstimate,
                one,
                answered_at=None if one.answered_in is None else now + one.answered_in,
                answered_in=None if one.answered_in is None else round(one.answered_in.total_seconds(), 3),
                held=_share(one.share),
            )
            for one in found.unreached
        ],
        refused=_refused(found.total),
        warnings=found.warnings,
    )


def _share(found: Share) -> ShareEstimate:
    return rendered(
        ShareEstimate,
        found,
        **rendered(MailCounts, found.count),
        holders={name: rendered(MailCounts, count) for name, count in sorted(found.holders.items())},
    )


def _refused(count: MadeCount) -> dict[str, int]:
    return {name: number for name, number in asdict(count).items() if name not in MailCounts.__annotations__}


def kept(found: Kept) -> KeptEntry:
    """A message in Safety Net."""
    names = KeptRecipient.__annotations__
    return rendered(
        KeptEntry,
        found,
        place=f"{_exact(found.settled_at)}/{found.id}",  # the next page begins after it
        recipients=[dict(zip(names, one, strict=True)) for one in found.recipients],
    )


def _exact(moment: datetime) -> str:
    """To the microsecond: a window, or a place in it, must not move."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
