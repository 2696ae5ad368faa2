"""A summary: what is told of the gold tables. Plain numbers, so that text, JSON and page say the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, date, datetime
from typing import Any

from shadowaudit.summary.steps import Between


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Events of some hours. ``octets``: of the messages received."""

    received: int = 0
    octets: int = 0
    delivered: int = 0
    dropped_as_duplicates: int = 0
    deferred: int = 0
    failed: int = 0
    promoted: int = 0
    exposed: int = 0
    resubmitted: int = 0


FLOWS = tuple(field.name for field in fields(Flow))


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """``messages``: with an address of that domain. ``addresses``: of all these messages together."""

    domain: str
    messages: int
    addresses: int
    octets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Domains:
    """The domains with most messages. ``all``: how many domains there are."""

    all: int
    addresses: int
    top: tuple[Domain, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """How long deliveries took, in milliseconds from the acceptance. ``next_hop`` None: all together."""

    next_hop: str | None
    deliveries: int
    percentiles: Mapping[int, Between]
    steps: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hops:
    """The next hops with most deliveries. ``all``: how many there are."""

    all: int
    together: Hop
    top: tuple[Hop, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Messages by step of size, with their octets."""

    messages: int
    octets: int
    percentiles: Mapping[int, Between]
    steps: Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A reply and how often it came. ``example``: the id of a message that had it."""

    next_hop: str | None
    code: str | None
    status: str | None
    reply: str | None
    times: int
    recipients: int
    example: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """The most frequent reasons. ``all``: how many there are; ``times``: of all of them."""

    all: int
    times: int
    recipients: int
    top: tuple[Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """Messages that ``node`` took over from ``owner``."""

    node: str | None
    owner: str | None
    reason: str | None
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Messages of a class that the last published verdict found."""

    severity: str
    name: str
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Rows that could not be read, and how many logs have such rows: of all days and nodes."""

    rows: int
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The last published verdict: when it was published (ISO 8601, UTC), and of how many logs and messages.

    None where it does not say. ``more``: so many messages the tables have now beyond those.
    """

    made_at: str | None
    files: int | None
    messages: int | None
    more: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the summary is of. ``since`` and ``until`` (the day after the last one) are days in UTC."""

    since: date | None = None
    until: date | None = None
    node: str | None = None
    top: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """``first`` and ``last``: days with rows; None if there are none. ``days`` has each day between them.

    ``hours`` has each hour if there are few days. ``of_day`` adds up each hour of the day over all days.
    ``found`` is of all messages: findings have no day. It and ``verdict`` are None if no verdict was
    published.
    """

    asked: Asked
    first: date | None
    last: date | None
    totals: Flow
    unread: Unread
    days: Mapping[date, Flow]
    hours: Mapping[datetime, Flow]
    of_day: Mapping[int, Flow]
    nodes: Mapping[str, Flow]
    senders: Domains
    recipients: Domains
    sizes: Sizes
    hops: Hops
    deferrals: Reasons
    bounces: Reasons
    promotions: tuple[Promotion, ...]
    found: tuple[Found, ...] | None
    verdict: Judged | None

    @property
    def restricted(self) -> bool:
        """Is it of some days, or of one node?"""
        return any((self.asked.since, self.asked.until, self.asked.node))

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``: days and hours as ISO 8601, latencies in milliseconds, sizes in octets."""
        told = _plain(asdict(self))
        assert isinstance(told, dict)
        return told


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_name(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        return round(value, 3)
    return _name(value) if isinstance(value, date) else value


def _name(key: Any) -> Any:
    if isinstance(key, datetime):
        return key.astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ")
    return key.isoformat() if isinstance(key, date) else str(key)
