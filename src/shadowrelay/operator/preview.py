"""What a resubmit request would do: each node counts what it would make, and the node that is asked sums up.

Pure: counts, contacts and answers are given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.operating import Told
from shadowrelay.core.policy import Policy
from shadowrelay.core.requests import Request, Selector
from shadowrelay.core.safety_net.resubmission import Contacts, lost, owners
from shadowrelay.core.tracking_row import timestamp
from shadowrelay.core.values import dataclass, replace
from shadowrelay.database.resubmission import MadeCount, OwnerCount, OwnerKnown
from shadowrelay.wire.xshadow import Malformed

ANOTHER_DATABASE = "it has another database than when it settled them"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a node holds for an owner. ``now``: what it would make now, because the owner has lost it, and
    ``why``. ``else_``: what it would make if the owner were gone.
    """

    owner: ServerName
    why: str
    now: MadeCount
    else_: MadeCount


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCount:
    """What one node says. ``reaches_back_to``: the first delivery that its Safety Net still has."""

    node: ServerName
    reaches_back_to: datetime | None
    own: MadeCount
    held: tuple[Held, ...] = ()


@dataclass(frozen=True, slots=True)
class Away:
    """A member that cannot be reached: since when, as far as this process knows, and why."""

    since: datetime | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What holders would make of one owner's messages. ``most``: only the most that they may make is known,
    because several of them may hold the same message.
    """

    owner: ServerName
    why: str
    holders: Mapping[ServerName, MadeCount]

    @property
    def most(self) -> bool:
        return len(self.holders) > 1

    @property
    def count(self) -> MadeCount:
        return sum(self.holders.values(), MadeCount())


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreached:
    """A member that settled messages of its own, and cannot be asked. ``share``: what its holders would make.
    ``answered_in``: after which time they answer for it by themselves; None if nobody can say.
    """

    member: ServerName
    away: Away
    share: Share
    answered_in: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The sum of all. ``total.outside`` and the other causes have what is refused, own and held."""

    nodes: tuple[NodeCount, ...]
    shares: tuple[Share, ...]
    unreached: tuple[Unreached, ...]
    total: MadeCount
    most: bool
    warnings: tuple[str, ...]


def owners_known(ledger: Ledger, contacts: Contacts, policy: Policy) -> tuple[OwnerKnown, ...]:
    """This node, and every member that it knows of, with what decides which database a copy belongs to."""
    found = []
    for name in owners(ledger, contacts):
        member = ledger.member(name)
        if name == ledger.name or member is None or member.lineage is None:
            found.append(OwnerKnown(name))
            continue
        before = member.broken_at + policy.resubmit_overlap if member.broken_at else None
        found.append(OwnerKnown(name, member.lineage.database_id, before))
    return tuple(found)


def node_count(
    ledger: Ledger,
    request: Request,
    counted: Mapping[ServerName, OwnerCount],
    contacts: Contacts,
    reaches_back_to: datetime | None,
) -> NodeCount:
    """What this node says: its own messages, and those that it holds for each owner."""
    held = []
    for owner, found in sorted(counted.items()):
        if owner == ledger.name or found.lost + found.rest == MadeCount():
            continue
        if lost(ledger, request, owner, contacts):
            why = _why_lost(ledger, request, owner, contacts)
            held.append(Held(owner=owner, why=why, now=found.lost + found.rest, else_=MadeCount()))
        else:
            why = ANOTHER_DATABASE if found.lost != MadeCount() else ""
            held.append(Held(owner=owner, why=why, now=found.lost, else_=found.rest))
    own = counted[ledger.name]
    return NodeCount(
        node=ledger.name, reaches_back_to=reaches_back_to, own=own.lost + own.rest, held=tuple(held)
    )


def _why_lost(ledger: Ledger, request: Request, owner: ServerName, contacts: Contacts) -> str:
    if (member := ledger.member(owner)) and member.retired:
        return "it was retired"
    if owner not in contacts.members:
        return "it is no member any more"
    return "you say that it is gone" if owner in request.gone else "it has been silent for too long"


def summed_up(
    answers: Sequence[NodeCount],
    away: Mapping[ServerName, Away],
    selector: Selector,
    policy: Policy,
    now: datetime,
    more: Sequence[str] = (),
) -> Preview:
    """Sum up what the nodes say. ``away``: the members that did not answer. ``more``: other warnings."""
    shares = tuple(_shares(answers))
    unreached = tuple(_unreached(answers, away, {share.owner for share in shares}, policy, now))
    total = sum((answer.own for answer in answers), MadeCount()) + sum(
        (one.count for one in shares), MadeCount()
    )
    found = Preview(
        nodes=tuple(answers),
        shares=shares,
        unreached=unreached,
        total=total,
        most=any(share.most for share in shares),
        warnings=(),
    )
    warnings = (*_warnings(found, len(away), selector, policy, now), *more)
    return replace(found, warnings=warnings)


def _shares(answers: Sequence[NodeCount]) -> Iterator[Share]:
    for owner in sorted({held.owner for answer in answers for held in answer.held}):
        told = {
            answer.node: held
            for answer in answers
            for held in answer.held
            if held.owner == owner and held.now != MadeCount()
        }
        if told:
            whys = sorted({held.why for held in told.values() if held.why})
            yield Share(
                owner=owner, why="; ".join(whys), holders={name: held.now for name, held in told.items()}
            )


def _unreached(
    answers: Sequence[NodeCount],
    away: Mapping[ServerName, Away],
    answered_for: set[ServerName],
    policy: Policy,
    now: datetime,
) -> Iterator[Unreached]:
    for name, found in sorted(away.items()):
        holders = {
            answer.node: held.else_
            for answer in answers
            for held in answer.held
            if held.owner == name and held.else_ != MadeCount()
        }
        if name in answered_for and not holders:
            continue
        left = None
        if found.since is not None:
            left = max(timedelta(0), policy.unresponsive_primary_interval - (now - found.since))
        yield Unreached(
            member=name,
            away=found,
            share=Share(owner=name, why="", holders=holders),
            answered_in=left,
        )


def _warnings(
    found: Preview, unanswered: int, selector: Selector, policy: Policy, now: datetime
) -> Iterator[str]:
    kept_since = now - policy.safety_net_hold_time
    if selector.since < kept_since:
        yield (
            "The window begins before what Safety Net keeps (safety_net_hold_time): what was delivered "
            f"before {timestamp(kept_since)} is gone"
        )
    if len(found.nodes) == 1 and found.total.messages:
        why = "No other member can be reached" if unanswered else "This node has no members"
        yield f"{why}: each message leaves with one copy, exposed, while the original stays in Safety Net"
    if found.total.untimed:
        yield (
            f"{_messages(found.total.untimed)} in the window cannot be resubmitted: it is not known when, or "
            "where, their recipients were delivered"
        )
    if found.total.in_transit:
        yield (
            f"{_messages(found.total.in_transit)} are still in a queue for other recipients: they are not "
            "resubmitted before these are settled"
        )


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"


def remembered(route: str, host: str, port: int, since: datetime | None, selector: Selector) -> str:
    """The warning about a mailbox service that drops what it delivered since then; empty if it drops nothing
    of the window.
    """
    if since is None or since > selector.until:
        return ""
    told = "all of it" if since <= selector.since else f"what it delivered since {timestamp(since)}"
    return (
        f"The mailbox service of {route} ({host}:{port}) would drop {told} as duplicates: if its store has "
        "lost the mail, run shadowmailbox forget there first"
    )


# As JSON between members


def told_count(count: NodeCount) -> dict[str, Any]:
    """What a node says, as JSON; see ``read_count``."""
    return {
        "node": count.node,
        "reaches_back_to": count.reaches_back_to.isoformat() if count.reaches_back_to else None,
        "own": asdict(count.own),
        "held": [
            {"owner": one.owner, "why": one.why, "now": asdict(one.now), "else": asdict(one.else_)}
            for one in count.held
        ],
    }


def read_count(told: Told) -> NodeCount:
    """Read what a node says. Raises Malformed."""
    try:
        back = told["reaches_back_to"]
        return NodeCount(
            node=ServerName(str(told["node"])),
            reaches_back_to=None if back is None else datetime.fromisoformat(back),
            own=_count(told["own"]),
            held=tuple(
                Held(
                    owner=ServerName(str(one["owner"])),
                    why=str(one["why"])[:200],
                    now=_count(one["now"]),
                    else_=_count(one["else"]),
                )
                for one in told["held"]
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Malformed(f"bad counts: {error}") from error


def _count(told: Mapping[str, Any]) -> MadeCount:
    found = {name: int(told.get(name, 0)) for name in MadeCount.__slots__}
    if min(found.values()) < 0:
        raise ValueError("a count below zero")
    return MadeCount(**found)
