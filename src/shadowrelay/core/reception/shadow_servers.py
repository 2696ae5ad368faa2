"""The choice of shadow servers: which members are asked to hold a copy, in which order, and how often."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import timedelta

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.policy import Policy, ShadowMessagePreference
from shadowrelay.core.reception.redundancy import Concern, OfferAttempt
from shadowrelay.core.values import dataclass
from shadowrelay.core.workers import number_of

AT_ONCE = timedelta()
_NONE: Counter[ServerName] = Counter()


@dataclass(frozen=True, slots=True)
class MemberPlace:
    """The site and host of a member of the boundary. ``host`` is its failure domain."""

    name: ServerName
    site: str
    host: str


@dataclass(frozen=True, slots=True)
class Sites:
    """The members of this site, or of all other sites, and how many attempts they have together."""

    members: tuple[ServerName, ...]
    attempts: int


@dataclass(frozen=True, slots=True)
class Turn:
    """The member that is asked next, and how long to wait before that."""

    to: ServerName
    pause: timedelta = AT_ONCE


@dataclass(frozen=True, slots=True)
class Placed:
    """The members on other machines: those of the node's own site, and all others; each in order."""

    local: tuple[ServerName, ...]
    remote: tuple[ServerName, ...]
    one_site: bool


def placed(own: MemberPlace, members: Iterable[MemberPlace]) -> Placed:
    """Where the members stand. A member on the primary server's own host is never asked for a copy."""
    others = [member for member in members if member.name != own.name]
    elsewhere = [member for member in others if member.host != own.host]
    return Placed(
        tuple(member.name for member in elsewhere if member.site == own.site),
        tuple(member.name for member in elsewhere if member.site != own.site),
        all(member.site == own.site for member in others),
    )


def preferred(found: Placed, policy: Policy, *, turn: int) -> tuple[Sites, ...]:
    """The members that may be asked, in order.

    In a boundary of one site the preference is ignored, and the count of the local site applies (Exchange
    2013, "How shadow messages are created"). ``turn`` rotates the start, so that copies spread over the
    members. Of a site with more members than ``holder_choices`` the first so many take turns. The next so
    many come after them, so that no member is left out: they hold copies while all before them are skipped.
    ``near`` is the order for that.
    """
    among = policy.holder_choices
    local = Sites(_rotated(found.local, turn, among), policy.max_retries_for_local_site_shadow)
    if found.one_site:
        return (local,)
    remote = Sites(_rotated(found.remote, turn, among), policy.max_retries_for_remote_site_shadow)
    match policy.shadow_message_preference_setting:
        case ShadowMessagePreference.PREFER_REMOTE:
            return remote, local
        case ShadowMessagePreference.LOCAL_ONLY:
            return (local,)
        case ShadowMessagePreference.REMOTE_ONLY:
            return (remote,)


def healthy_turn(
    order: Sequence[Sites],
    attempts: Sequence[OfferAttempt],
    skipped: Collection[ServerName],
    first: Collection[ServerName] = frozenset(),
) -> Turn | None:
    """The first member in order that did not fail lately (``skipped``) and was not asked for this message.

    Those in ``first`` come before the order: they have the content already. A member whose session broke for
    the first time is asked again at once, on a new session.
    """
    if attempts and _was_replaced(attempts):
        last = attempts[-1].name
        if any(last in sites.members for sites in order):
            return Turn(last)
    asked = _counted(attempts)
    left = [name for name in _open(order, attempts, asked) if not (name in skipped or asked[name])]
    left = sorted(left, key=lambda name: name not in first) if first else left
    return Turn(left[0]) if left else None


def next_turn(
    order: Sequence[Sites],
    attempts: Sequence[OfferAttempt],
    skipped: Collection[ServerName],
    policy: Policy,
    spent: Collection[ServerName] = frozenset(),
) -> Turn | None:
    """The member to ask after these ``attempts``; None when the documented number of attempts is used up.

    While another member is left, a failure causes no wait. When none is left, the members that failed are
    asked after all, the least asked first, so the only candidate is never skipped. Each further round of them
    begins with a pause. Members of ``spent`` failed in all attempts of a message before this one: each is
    asked once more, and no pause is made for it.
    """
    if turn := healthy_turn(order, attempts, skipped):
        return turn
    asked = _counted(attempts)
    left = (name for name in _open(order, attempts, asked) if not (asked[name] and name in spent))
    name = min(left, key=lambda name: asked[name], default=None)
    if name is None:
        return None
    begins_a_round = asked[name] and asked[name] == max(asked.values())
    return Turn(name, policy.shadow_retry_interval if begins_a_round else AT_ONCE)


def _open(
    order: Sequence[Sites], attempts: Sequence[OfferAttempt], asked: Counter[ServerName]
) -> Iterator[ServerName]:
    """The members that may be asked: their sites have attempts left, and they did not refuse this copy."""
    refused = {attempt.name for attempt in attempts if attempt.concern is Concern.COPY}
    for sites in order:
        if (sum(asked[name] for name in sites.members) if asked else 0) < sites.attempts:
            yield from [name for name in sites.members if name not in refused]


def _counted(attempts: Sequence[OfferAttempt]) -> Counter[ServerName]:
    """The number of attempts of each member. Its first broken session does not count."""
    if not attempts:  # as for nearly every message
        return _NONE
    counted = Counter(attempt.name for attempt in attempts)
    broken = {attempt.name for attempt in attempts if attempt.concern is Concern.SESSION}
    counted.subtract(broken)
    return counted


def _was_replaced(attempts: Sequence[OfferAttempt]) -> bool:
    """Did the last attempt break its session, for the first time with that member?"""
    *before, last = attempts
    broke_before = any(one.name == last.name and one.concern is Concern.SESSION for one in before)
    return last.concern is Concern.SESSION and not broke_before


def _rotated(members: tuple[ServerName, ...], turn: int, among: int) -> tuple[ServerName, ...]:
    """Each window of so many members begins with another one at each turn."""
    size = among or len(members) or 1
    found: list[ServerName] = []
    for first in range(0, len(members), size):
        window = members[first : first + size]
        start = turn % len(window)
        found += window[start:]
        found += window[:start]
    return tuple(found)


def near(own: MemberPlace, members: Iterable[MemberPlace]) -> tuple[MemberPlace, ...]:
    """The members in the order in which that node comes to them as holders, where it chooses among few.

    By rendezvous hashing each owner has an order of its own. Of the first so many, a member that goes takes
    away itself alone, and a member that comes displaces one at most. One member of each machine comes before
    a second one of any. Of the workers of a node, that with the owner's number comes first: so each has its
    part, and few sessions.
    """
    mine = number_of(own.name)
    machines: dict[str, list[MemberPlace]] = {}
    for member in members:
        machines.setdefault(member.host, []).append(member)
    for here in machines.values():
        here.sort(
            key=lambda member: (number_of(member.name) != mine, _weight(own.name, "member", member.name))
        )
    ranked = sorted(machines, key=lambda host: _weight(own.name, "machine", host))
    most = max(map(len, machines.values()), default=0)
    rounds = (machines[host][number : number + 1] for number in range(most) for host in ranked)
    return tuple(member for found in rounds for member in found)


def _weight(*about: str) -> bytes:
    return hashlib.blake2b("\0".join(about).encode(), digest_size=16).digest()
