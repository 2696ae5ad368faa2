"""What became of every message: lost, unexpected, duplicated (and why), recovered."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from shadowlab.mail import token_of

UNDER_WAY = 5.0
"""Seconds from the next hop's reply to the commit that records it, and to the death of the node that was to
record it being seen, on a busy machine."""

_NONE: Mapping[str, int] = MappingProxyType({})


class Told(StrEnum):
    """What the client knows of its message. NO_REPLY: all was sent, and the connection ended."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    NO_REPLY = "no reply"
    NOTHING_SENT = "nothing sent"


class Cause(StrEnum):
    """Why the next hop was given a message again, as the tracking logs tell."""

    PROMOTED = "taken over before its outcome was known"
    UNRECORDED = "sent, and the record of it lost"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Tokens, but for the counts. The promise was kept when ``kept``."""

    accepted: int
    refused: int
    unanswered: int
    delivered: int
    lost: tuple[str, ...]
    unexpected: tuple[str, ...]  # arrived, though the client was told that it would not, or never sent
    recovered: int  # arrived, though the client got no reply
    duplicates: Mapping[Cause, tuple[str, ...]] = field(default_factory=dict)

    @property
    def kept(self) -> bool:
        return not (self.lost or self.unexpected or self.duplicates.get(Cause.UNEXPLAINED))

    def counts(self) -> dict[str, int]:
        return {
            "accepted": self.accepted,
            "refused": self.refused,
            "no reply": self.unanswered,
            "delivered": self.delivered,
            "lost": len(self.lost),
            "unexpected": len(self.unexpected),
            "recovered": self.recovered,
            **{f"duplicate: {cause}": len(tokens) for cause, tokens in sorted(self.duplicates.items())},
        }


def struck(when: Mapping[str, Sequence[float]], ends: Collection[float]) -> dict[str, int]:
    """How many deliveries of each token, but the last, came about when a node ended."""
    return {
        token: sum(any(abs(end - at) <= UNDER_WAY for end in ends) for at in sorted(times)[:-1])
        for token, times in when.items()
        if len(times) > 1
    }


def judge(
    told: Mapping[str, Told],
    arrived: Mapping[str, int],
    rows: Iterable[Mapping[str, str]] = (),
    struck: Mapping[str, int] = _NONE,
) -> Verdict:
    """Compare what clients were told with what the next hop took; ``rows`` are those of all tracking logs.

    ``struck``: of how many deliveries of each token a node's end may have taken the record.
    A message of which the client was told nothing may arrive or not, but not twice without a cause.
    """
    outcomes = Counter(told.values())
    arrivals = {token for token, times in arrived.items() if times}
    accepted = {token for token, answer in told.items() if answer is Told.ACCEPTED}
    denied = {token for token, answer in told.items() if answer in (Told.REFUSED, Told.NOTHING_SENT)}
    silent = {token for token, answer in told.items() if answer is Told.NO_REPLY}
    twice = {token: times for token, times in arrived.items() if times > 1}
    return Verdict(
        accepted=len(accepted),
        refused=outcomes[Told.REFUSED],
        unanswered=len(silent),
        delivered=len(arrivals),
        lost=tuple(sorted(accepted - arrivals)),
        unexpected=tuple(sorted(arrivals & denied | arrivals - told.keys())),
        recovered=len(arrivals & silent),
        duplicates=_causes(twice, rows, struck),
    )


def _causes(
    twice: Mapping[str, int], rows: Iterable[Mapping[str, str]], struck: Mapping[str, int]
) -> dict[Cause, tuple[str, ...]]:
    """A promotion explains one delivery more that is recorded after it. So does a missing record of one whose
    reply was lost (the log says so), or that came about when a node ended.
    """
    sent: defaultdict[str, list[str]] = defaultdict(list)
    promoted: defaultdict[str, list[str]] = defaultdict(list)
    replies_lost: Counter[str] = Counter()
    for row in rows if twice else ():
        token = token_of(row["message-id"])
        if row["event-id"] == "RESUBMIT":
            promoted[token].append(row["date-time"])
        elif row["event-id"] in {"SEND", "SENDEXTERNAL", "DELIVER"}:
            sent[token].append(row["date-time"])
        elif row["event-id"] == "DEFER":
            replies_lost[token] += "S:InDoubt=true" in row["custom-data"]
    found: dict[Cause, list[str]] = {}
    for token, times in sorted(twice.items()):
        unrecorded = min(max(0, times - len(sent[token])), replies_lost[token] + struck.get(token, 0))
        last = max(sent[token], default="")
        promotions = sum(at <= last for at in promoted[token])
        if times - 1 > unrecorded + promotions:
            cause = Cause.UNEXPLAINED
        else:
            cause = Cause.PROMOTED if promotions else Cause.UNRECORDED
        found.setdefault(cause, []).append(token)
    return {cause: tuple(tokens) for cause, tokens in found.items()}
