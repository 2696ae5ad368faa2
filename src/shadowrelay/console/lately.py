"""What happened lately: which members fell silent, came back and promoted, as looks at all of them show."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from shadowrelay.console.words import many, short
from shadowrelay.core.operating import Told

_KEPT = 8


@dataclass(frozen=True, slots=True)
class Happened:
    at: datetime
    text: str


@dataclass(slots=True)
class Lately:
    """In memory. It knows what was between two looks, so it knows nothing while nobody looks."""

    _before: dict[str, Told | None] | None = None
    _seen: deque[Happened] = field(default_factory=lambda: deque(maxlen=_KEPT))

    def look(self, nodes: Sequence[Told], now: datetime) -> list[Happened]:
        """Note what changed since the last look. Returns what happened, the latest first."""
        after = {one["node"]: one["status"] if one["answers"] else None for one in nodes}
        if self._before is not None:
            for text in _changes(self._before, after):
                self._seen.append(Happened(now, text))
        self._before = after
        return list(reversed(self._seen))


def _changes(before: dict[str, Told | None], after: dict[str, Told | None]) -> Iterator[str]:
    for name, status in after.items():
        if name not in before:
            continue
        last = before[name]
        if (last is None) != (status is None):
            yield f"{short(name)} {'answers again' if last is None else 'does not answer'}."
        elif last is not None and status is not None:
            yield from _again(name, last, status)


def _again(name: str, last: Told, status: Told) -> Iterator[str]:
    """Messages that a member made: of copies that it kept for another, or of Safety Net."""
    same = last.get("started_at") == status.get("started_at") and _processes(last) == _processes(status)
    made = status.get("resubmitted", 0) - last.get("resubmitted", 0) if same else 0
    if made <= 0:
        return
    held = {peer["name"]: peer["shadow_held"] for peer in last["peers"]}
    fewer = [peer["name"] for peer in status["peers"] if peer["shadow_held"] < held.get(peer["name"], 0)]
    if fewer:
        owners = " and ".join(short(one) for one in fewer)
        yield f"{short(name)} promoted {many(made, 'message')} of {owners}."
    else:
        yield f"{short(name)} sent {many(made, 'message')} again."


def _processes(status: Told) -> list[str]:
    """The workers of a node that answered: the counts are theirs."""
    return [one["name"] for one in status.get("workers", ())]
