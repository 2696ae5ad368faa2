"""What happens next with a member that cannot be reached, as a sentence for the operator."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

from shadowrelay.admin.node import PeerState, PeerStatus
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.second_opinion import others
from shadowrelay.core.shadow_servers import MemberPlace


def what_next(
    peer: PeerStatus,
    peers: Sequence[PeerStatus],
    retired: Collection[ServerName],
    held_for_it: int,
    held_by_it: int,
    host: str,
) -> str:
    """The two consequences of silence: its copies stop counting, and what we hold for it is promoted.

    Empty for a member that answers. ``peers`` are all members, and ``host`` is this node's machine, for the
    rule that a node which is itself cut off promotes nothing by time.
    """
    if peer.name in retired:
        return "retired: it is not waited for, and is not asked to hold copies"
    match peer.state:
        case PeerState.REACHABLE:
            return peer.next
        case PeerState.UNTRIED:
            return peer.next or "the first heartbeat is due"
        case PeerState.NOT_CONFIGURED:
            return f"not in the settings: add it again, or retire it (shadowrelay peer retire {peer.name})"
        case PeerState.UNREACHABLE:
            return peer.next or "; ".join(
                filter(None, [_loss(peer, held_by_it), _promotion(peer, peers, retired, held_for_it, host)])
            )


def _loss(peer: PeerStatus, held_by_it: int) -> str:
    if not peer.losing_in:
        return "its copies of our messages do not count: they are made again elsewhere"
    copies = "copy for us no longer counts" if held_by_it == 1 else "copies for us no longer count"
    failures = "failure" if peer.losing_in == 1 else "failures"
    return f"its {held_by_it} {copies} after {peer.losing_in} more {failures}"


def _promotion(
    peer: PeerStatus,
    peers: Sequence[PeerStatus],
    retired: Collection[ServerName],
    held_for_it: int,
    host: str,
) -> str:
    if not held_for_it:
        return "nothing is held for it"
    messages = "its message is" if held_for_it == 1 else f"its {held_for_it} messages are"
    places = [
        MemberPlace(other.name, other.site, other.host)
        for other in peers
        if other.name not in retired and other.state is not PeerState.NOT_CONFIGURED
    ]
    reached = [other.name for other in peers if other.state is not PeerState.UNREACHABLE]
    if others(MemberPlace(ServerName(""), "", host), places, peer.name).none_of(reached):
        return f"{messages} not promoted by time: this node reaches no other machine, and may be cut off"
    when = f"in {spell(peer.promoting_in)}" if peer.promoting_in else "now"
    return f"{messages} promoted {when}"


def spell(length: timedelta) -> str:
    """A duration in its two largest units: ``2 h 48 min``, ``3 min 5 s``, ``12 s``."""
    seconds = round(length.total_seconds())
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        parts.append((count, unit))
    first = next((index for index, (count, _) in enumerate(parts) if count), len(parts) - 1)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count) or "0 s"
