"""What two situations must have in common to count as one, as far as verdicts go: fewer than all their facts.

What was known and what was wrong, and when, is looked at when a recipient gets a message again, and nowhere
else. In a boundary of two, and while it is not told apart *which* fault explains a second delivery, these
moments come down to a few questions, so that very many situations count as one:

- A delivery under way: would its arrival be an avoidable duplicate, if its recipient had the message already?
  What begins or ends from now on changes nothing about that, but that its own process may be hit.
- A disk that knows a recipient to be settled: could the other member have asked it? If not yet, for how long
  can it by now? One that is gone says nothing any more, unless it was asked in vain.
- A node that returned: what did its member, or did it, know before, and was nothing wrong since?
- Is there a fault at all that explains a second delivery, and which disks are not what they were?
- Of several deliveries to a recipient: was the reply to each of them lost?

``test_essence.py`` looks whether situations that count as one lead to situations that count as one.
"""

from __future__ import annotations

from typing import Any

from shadowrelay.core.policy import Policy

from .situation import Known, Situation, Taken, Wrong, cause, disks_changed, returned, stretch, too_long

Packets = tuple[tuple[bool, tuple[Any, ...]], ...]


class Essence:
    """Of situations of a boundary of two."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._span = int(policy.shadow_resubmit_time_span.total_seconds())

    def __call__(self, at: Situation) -> tuple[Packets, tuple[Any, ...]]:
        """Of the packets under way, and of the facts."""
        ages: tuple[Any, ...] = ()
        packets = at.packets
        if any(packet[0] == "send" and self._would_be_wrong(at, packet) for _, packet in packets):
            ages = at.known, tuple((item.start, item.end) for item in at.wrong)
        else:
            packets = tuple((late, p[:-1] if p[0] == "send" else p) for late, p in packets)
        lasting = [min(item.start, self._span) for item in at.wrong if item.end is None]
        known = [self._knowing(at, item, bool(lasting)) for item in at.known]
        asked = {
            self._returned(at, item, wrong)
            for item in at.known
            for wrong in at.wrong
            if returned(wrong) and item.until is None and item.since > wrong.end
        }
        facts = (
            (
                at.mail,
                at.blocked,
                at.begun,
                at.fault,
                at.deferred,
                at.told,
                at.asked,
                at.order,
                at.removed,
                at.confirmed,
            ),
            (_taken(at), tuple(sorted(filter(None, known))), tuple(sorted(asked))),
            (
                tuple(lasting),
                bool(at.wrong),
                frozenset(disks_changed(at)),
                frozenset(disks_changed(at, pages=True)),
                bool(at.lost),
            ),
            ages,
        )
        return packets, facts

    def _would_be_wrong(self, at: Situation, packet: tuple[Any, ...]) -> bool:
        """Would its arrival be an avoidable duplicate, if its recipients had the message already?"""
        _, source, _, _, message_id, _, recipients, begun = packet
        for number in recipients:
            first, again = (Taken(message_id, number, node, reply_lost=False) for node in ("", source))
            if cause(at, self._policy, 2, first, again, begun).startswith("!"):
                return True
        return False

    def _knowing(self, at: Situation, item: Known, hindered: bool) -> tuple[Any, ...] | None:
        enough = too_long(at, stretch(at, self._policy, item.since, item.until))
        if item.until is not None:
            return (*item[:3], "gone", enough, 0) if enough else None
        run = 0 if enough or hindered else min(item.since, *(w.end for w in at.wrong if w.end is not None), 9)
        return *item[:3], "before now" if item.since else "now", enough, run

    def _returned(self, at: Situation, item: Known, wrong: Wrong) -> tuple[Any, ...]:
        """Could this node, or the one that knew, have asked since that fault ended?"""
        assert wrong.end is not None
        since_then = stretch(at, self._policy, wrong.end, None) >= wrong.end
        return *item[:3], wrong.one, wrong.kind == "freeze", wrong.long, wrong.end, since_then


def _taken(at: Situation) -> tuple[Any, ...]:
    """Who got what; and whether nobody heard of any of it."""
    replies: dict[tuple[str, int], list[bool]] = {}
    for item in at.taken:
        replies.setdefault((item.id, item.recipient), []).append(item.reply_lost)
    return tuple(sorted((*whose, all(lost)) for whose, lost in replies.items()))
