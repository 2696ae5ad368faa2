"""Which members are asked to hold a copy, and in which order."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.policy import Policy, ShadowMessagePreference
from shadowrelay.core.values import dataclass


@dataclass(frozen=True, slots=True)
class MemberPlace:
    """Where a member of the boundary stands. ``host`` is its failure domain."""

    name: ServerName
    site: str
    host: str


def candidates(
    own: MemberPlace,
    members: Iterable[MemberPlace],
    policy: Policy,
    *,
    skipped: Collection[ServerName],
    turn: int,
) -> tuple[MemberPlace, ...]:
    """The members to try, in order; at most the documented number of attempts per kind of site.

    Never one on the primary's own host, and none that just failed (``skipped``): one dead peer is not to
    slow every message. ``turn`` rotates the start, so that shadows spread over the members.
    """
    usable = [m for m in members if m.host != own.host and m.name != own.name and m.name not in skipped]
    remote = _rotated([m for m in usable if m.site != own.site], turn)
    local = _rotated([m for m in usable if m.site == own.site], turn)
    remote = _cycled(remote, policy.max_retries_for_remote_site_shadow)
    local = _cycled(local, policy.max_retries_for_local_site_shadow)
    match policy.shadow_message_preference_setting:
        case ShadowMessagePreference.PREFER_REMOTE:
            return (*remote, *local)
        case ShadowMessagePreference.LOCAL_ONLY:
            return local
        case ShadowMessagePreference.REMOTE_ONLY:
            return remote


def _rotated(members: list[MemberPlace], turn: int) -> tuple[MemberPlace, ...]:
    start = turn % len(members) if members else 0
    return (*members[start:], *members[:start])


def _cycled(members: tuple[MemberPlace, ...], attempts: int) -> tuple[MemberPlace, ...]:
    if not members:
        return ()
    rounds = -(-attempts // len(members))
    return (members * rounds)[:attempts]
