"""Mail of which one copy can be reached now: how much, whose silence is the reason, and how it ends. Pure.

A message in transit is safe while two copies on different machines can be reached. An exposed one has one
copy. Another has one while its owner is away (this node holds the other copy), or all its holders are. Two
members may hold a message of one owner for a moment; if the owner is away then, both count it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.time_text import spell
from shadowrelay.core.values import dataclass
from shadowrelay.core.workers import node_of

Together = Mapping[tuple[ServerName, ...], int]
"""Messages of this node that several members hold, by these members."""


class RiskCause(StrEnum):
    """Why one copy can be reached. PROMOTING: the owner's own copies are gone; ours are to be promoted."""

    EXPOSED = "exposed"
    PROMOTING = "promoting"
    OWNER_AWAY = "owner_away"
    HOLDER_AWAY = "holder_away"


@dataclass(frozen=True, slots=True, kw_only=True)
class AwayMember:
    """A member that cannot be reached since that time. ``loses_at``: when its copies of our mail stop to
    count, so that others are made. ``promotes_at``: when the mail held for it is promoted. None: not by time,
    ``because`` of that. ``seen_by``: a member that has contact with it.
    """

    name: ServerName
    since: datetime | None = None
    loses_at: datetime | None = None
    promotes_at: datetime | None = None
    because: str = ""
    seen_by: ServerName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """``messages`` of which one copy can be reached. ``until``: when that ends by itself; None: not known.
    ``advice``: what the operator can do.
    """

    cause: RiskCause
    messages: int
    member: str = ""
    since: datetime | None = None
    until: datetime | None = None
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InTransit:
    """What a node has in transit. ``held_by``: of its own mail, how much each member holds; ``together``: the
    part of it that several do. ``held_for``: copies of others' mail, by owner; ``promoting``: the part whose
    promotion is pending, because the owner's own copies are gone.
    """

    exposed: int
    held_by: Mapping[ServerName, int]
    together: Together
    held_for: Mapping[ServerName, int]
    promoting: Mapping[ServerName, int]


def risks(mail: InTransit, away: Sequence[AwayMember], now: datetime) -> Iterator[Risk]:
    """All mail of which one copy can be reached now, each message once; the exposed first."""
    if mail.exposed:
        yield Risk(
            cause=RiskCause.EXPOSED,
            messages=mail.exposed,
            advice="shadowrelay message list --state exposed, and shadowrelay message show ID for the reason",
        )
    gone = {one.name: one for one in away}
    for owner, held in mail.held_for.items():
        found = gone.get(owner)
        if found and not found.seen_by:
            yield Risk(
                cause=RiskCause.OWNER_AWAY,
                messages=held,
                member=owner,
                since=found.since,
                until=found.promotes_at,
                advice=_advice(found, now),
            )
        elif pending := mail.promoting.get(owner, 0):
            yield Risk(
                cause=RiskCause.PROMOTING,
                messages=pending,
                member=owner,
                advice="wait: they are being promoted, and copied again",
            )
    yield from _of_holders(mail, gone, now)


def _of_holders(mail: InTransit, gone: Mapping[ServerName, AwayMember], now: datetime) -> Iterator[Risk]:
    left = dict(mail.together)
    for name, found in sorted(gone.items()):
        held = mail.held_by.get(name, 0)
        held -= sum(count for holders, count in mail.together.items() if name in holders)
        for holders in [one for one in left if name in one and gone.keys() >= set(one)]:
            held += left.pop(holders)  # all who hold it are away: it counts at the first of them
        if held:
            when = _in(found.loses_at, now)
            yield Risk(
                cause=RiskCause.HOLDER_AWAY,
                messages=held,
                member=name,
                since=found.since,
                until=found.loses_at,
                advice=f"wait{when}: they are copied to another member then, if one can be reached; "
                f"or start {node_of(name)} again",
            )


def _advice(away: AwayMember, now: datetime) -> str:
    """``peer retire`` is right only if the disk is lost: a member that is merely cut off delivers too."""
    node = node_of(away.name)
    if away.promotes_at is None:
        return f"start {node} again; they are not promoted by time: {away.because}"
    return (
        f"start {node} again, or wait{_in(away.promotes_at, now)}: then they are promoted; "
        f"if its disk is lost for good: shadowrelay peer retire {node}"
    )


def _in(at: datetime | None, now: datetime) -> str:
    return f" {spell(at - now)}" if at and at - now >= timedelta(seconds=1) else ""
