"""A situation of the whole boundary, as a value: the state of each member, packets under way, and facts.

Facts are what the verdict rests on: what a sender was told, what a next hop took, which disk knew what and
since when, what was wrong. Ages are whole seconds, and whatever is older than ``FAR`` is simply old.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

from shadowrelay.core.policy import Policy
from tests.simulation.checks import LATE, SLACK, Knowledge, cause_of, healthy_for
from tests.simulation.seeds import PLACES, SCALED
from tests.simulation.world import Delivery, Impairment, Noise, seconds

from .faults import DISK, LASTING
from .keys import FAR

OLD = FAR + 1
"""The age of what is simply old."""

FORGOTTEN = OLD + 1
"""The age of faults that were over before anything else that is remembered: see ``ages``."""

TIMINGS = replace(
    SCALED,
    shadow_heartbeat_frequency=seconds(2),
    shadow_resubmit_time_span=seconds(4),
    holder_loss_heartbeats=2,
    reconcile_timeout=seconds(2),
    orphan_check_interval=seconds(2),
    shadow_attempt_timeout=seconds(1),
    revoke_timeout=seconds(1),
    shadow_time_cap=seconds(3),
    member_skip_interval=seconds(1),
    queue_glitch_retry_interval=seconds(1),
    unresponsive_primary_interval=seconds(4),
    resubmit_rate=1,
)
"""Whole seconds, and as few of them as keep the order of the documented timings."""

Age = int | None
"""Seconds, at most FAR; None: it has not happened yet."""


class Mail(NamedTuple):
    """One message, and what its sender was told."""

    id: str
    home: str = ""  # the node that it was sent to, once it was
    redundant: bool = False  # when it was accepted
    acknowledged: bool = False
    refused: bool = False
    excused: bool = False  # exposed, and that disk is gone


class Taken(NamedTuple):
    """A next hop took the message for that recipient. How long ago makes no difference: a fault that ended
    within ``AFTERMATH`` before it counts, and no age is further back than that.
    """

    id: str
    recipient: int
    node: str
    reply_lost: bool


class Known(NamedTuple):
    """A disk says, or said, that the recipient is settled."""

    id: str
    recipient: int
    node: str
    since: int
    until: Age = None


class Wrong(NamedTuple):
    """Something was wrong with a node, or a link; ``long``: for the time span or more."""

    kind: str
    one: str
    other: str | None
    start: int = 0
    end: Age = None
    long: bool = False


class Situation(NamedTuple):
    """Equal situations have the same future."""

    nodes: tuple[int, ...]
    packets: tuple[tuple[bool, tuple[Any, ...]], ...] = ()  # late (it comes when it likes), packet
    mail: tuple[Mail, ...] = ()
    taken: tuple[Taken, ...] = ()
    known: tuple[Known, ...] = ()
    wrong: tuple[Wrong, ...] = ()
    lost: tuple[tuple[int, str, str], ...] = ()  # age of a packet that was lost, between whom
    blocked: tuple[tuple[str, str], ...] = ()
    begun: int = 0  # faults so far
    fault: str = ""  # the one that lasts
    deferred: int = 0  # attempts that a next hop put off
    told: tuple[tuple[str, str], ...] = ()  # whose copy of what is damaged, and its owner knows
    asked: bool = False  # was an operator there with a resubmit request?
    order: str = ""  # the node on which an operator removed the message
    removed: bool = False  # was that ever durable?
    confirmed: bool = False  # did that node ever show it as done?

    def older(self) -> Situation:
        """The same a second later."""
        return self._replace(
            known=tuple(
                item._replace(since=_older(item.since), until=_later(item.until)) for item in self.known
            ),
            wrong=tuple(item._replace(start=_older(item.start), end=_later(item.end)) for item in self.wrong),
            lost=tuple((_older(age), one, other) for age, one, other in self.lost),
            packets=tuple((late, _waiting(packet)) for late, packet in self.packets),
        )

    def settled(self) -> Situation:
        """The same without history: only that each recipient has it, and what is wrong now."""
        taken = {(item.id, item.recipient): item for item in self.taken}
        return self._replace(
            taken=tuple(Taken(*key, "", reply_lost=False) for key in sorted(taken)),
            known=(),
            wrong=tuple(item._replace(start=OLD) for item in self.wrong if item.end is None),
            lost=(),
            deferred=0,
        )


def disks_changed(at: Situation, *, pages: bool = False) -> set[str]:
    """Members whose database was lost, or put back; or a page of it."""
    kinds = {LASTING[kind] for kind in (*DISK, *(("page",) if pages else ()))}
    return {item.one for item in at.wrong if item.kind in kinds}


def returned(wrong: Wrong) -> bool:
    """Is that node back, after something that it may notice?"""
    return wrong.other is None and wrong.end is not None and wrong.kind != LASTING["page"]


def _older(age: int) -> int:
    return age if age >= OLD else age + 1


def _waiting(packet: tuple[Any, ...]) -> tuple[Any, ...]:
    """A delivery that waits for its next hop: the last it says is since when."""
    return (*packet[:-1], _older(packet[-1])) if packet[0] == "send" else packet


def _later(age: Age) -> Age:
    return None if age is None else _older(age)


def cause(situation: Situation, policy: Policy, nodes: int, first: Taken, again: Taken, begun: int) -> str:
    """What the simulation's verdict says of a second delivery, begun so many seconds ago; '!…' when nothing
    explains it.
    """
    world = _world(situation, policy, nodes)
    knows: dict[Any, list[Knowledge]] = {}
    for known in situation.known:
        entry = Knowledge(known.node, moment(known.since), moment(known.until))
        knows.setdefault((known.id, known.recipient), []).append(entry)

    def delivery(item: Taken, started: float, taken: float) -> Delivery:
        return Delivery(item.id, item.recipient, item.node, 0, started, taken, item.reply_lost)  # type: ignore[arg-type]

    checks: Any = SimpleNamespace(world=world, knows=knows)
    started = moment(begun)
    began = [(LONG_AGO, started)]
    if begun == OLD:  # so old that it may have begun before whatever was wrong
        began.append((LONG_AGO, started - 2 * policy.shadow_resubmit_time_span.total_seconds()))
    began.append((NOW, started))  # nobody remembers when the first delivery began: perhaps after that
    found = ""
    for one, other in began:
        text = cause_of(checks, delivery(first, one, LONG_AGO), delivery(again, other, NOW))
        if not text.startswith("!"):
            return text
        found = found or text
    return found


NOW, LONG_AGO = 100.0, 50.0


def moment(age: Age) -> float:
    """When that was; for what has not happened yet, never."""
    if age is None:
        return float("inf")
    return LONG_AGO if age == FORGOTTEN else NOW - age


def stretch(situation: Situation, policy: Policy, since: int, until: Age) -> float:
    """Seconds for which nothing was wrong in a boundary of two, at a stretch, between these moments."""
    one, other = (str(place.name) for place in PLACES[:2])
    return healthy_for(_world(situation, policy, 2), one, other, moment(since), min(moment(until), NOW))


def too_long(situation: Situation, seconds_: float) -> bool:
    """Long enough for two members to have talked."""
    return seconds_ > SLACK + (LATE if situation.lost else 0.0)


def _world(situation: Situation, policy: Policy, nodes: int) -> Any:
    """What was wrong, as the verdict looks at it."""
    span = policy.shadow_resubmit_time_span.total_seconds()
    impairments = []
    for item in situation.wrong:
        entry = Impairment(item.kind, item.one, item.other, moment(item.start), moment(item.end))
        if item.long:  # the start is as long ago as it says, however far that is
            entry.start = min(entry.start, min(entry.end, NOW) - span)
        impairments.append(entry)
    return SimpleNamespace(
        policy=policy,
        spans=(span,),
        noise=Noise(late=1e-9 if situation.lost else 0.0),
        impairments=impairments,
        released=frozenset(),
        lost=[(moment(age), frozenset((one, other))) for age, one, other in situation.lost],
        nodes=range(nodes),
    )
