"""Virtual time, the network, next hops, and what is written down for the verdict."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from shadowrelay.core.delivery.journal import Journals
from shadowrelay.core.identifiers import MessageId, NextHop, RequestId, ServerName
from shadowrelay.core.messages import TlsWish
from shadowrelay.core.policy import Policy
from shadowrelay.core.pressure import Resource
from shadowrelay.core.reception.redundancy import Arrival
from shadowrelay.core.reception.shadow_servers import MemberPlace
from shadowrelay.core.recipients import EMPTY
from shadowrelay.core.requests import Selector

from .filters import NOT_KEPT, Filtered, octets_of

if TYPE_CHECKING:
    from .by_hand import Order
    from .clocks import MachineClocks
    from .node import Node


class Broken(AssertionError):
    """An invariant does not hold."""


START = datetime(2030, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Noise:
    """How the network between members misbehaves, as probabilities per packet. Delays are seconds."""

    loss: float = 0.0
    repeat: float = 0.0
    late: float = 0.0
    delay: tuple[float, float] = (0.002, 0.012)
    late_delay: tuple[float, float] = (0.3, 2.5)
    commit: tuple[float, float] = (0.001, 0.008)


@dataclass(slots=True)
class Delivery:
    """One attempt that reached its next hop, for one recipient."""

    message_id: MessageId
    recipient: int
    node: str
    generation: int
    started: float
    taken: float
    reply_lost: bool


@dataclass(slots=True)
class Impairment:
    """Something was wrong with a node (``one``), or with the link between two."""

    kind: str
    one: str
    other: str | None
    start: float
    end: float = float("inf")


@dataclass(slots=True)
class Submission:
    """One attempt of a client: a message id of ours; ``client`` is its own identity of the message."""

    message_id: MessageId
    client: int
    node: str
    recipients: tuple[tuple[int, str, str], ...]
    sender: str
    began: float
    answer: str = ""  # what the node decided to say
    redundant: bool = False  # when it was accepted
    became: Filtered = Filtered.CHANGED  # at the filters
    acknowledged: float | None = None  # when the client had its 250

    @property
    def tls(self) -> TlsWish | None:
        """What the client said: REQUIRETLS, in every other message."""
        return TlsWish.REQUIRED if self.client % 2 else None


@dataclass(frozen=True, slots=True)
class Asked:
    """A resubmit request, as an operator made it. ``due``: what it has to bring back, per recipient."""

    id: RequestId
    node: str
    at: float
    selector: Selector
    due: frozenset[tuple[MessageId, int]]


@dataclass(frozen=True, slots=True)
class Resubmission:
    """A message that a node made of another one for a request."""

    id: MessageId
    original: MessageId
    request: RequestId
    node: str
    at: float
    numbers: frozenset[int]


@dataclass(frozen=True, slots=True)
class ToMembersOf:
    """What a list's members get, made of ``original``, where these recipients are the list."""

    original: MessageId
    numbers: frozenset[int]
    members: tuple[tuple[int, str], ...]


SPAN = "shadow_resubmit_time_span"
JOURNAL = "journal@archive.example"
TEAM = "team@lists.example"


class World:
    """One boundary and its surroundings. ``say`` records history when somebody wants to read it."""

    def __init__(
        self, seed: int, policy: Policy, places: tuple[MemberPlace, ...], *, verbose: bool = False
    ) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.policy = policy
        self.places = places
        self.now = 0.0
        self.noise = Noise()
        self.nodes: dict[ServerName, Node] = {}
        self.tells_time = False  # do members tell what their wall clocks say?
        self.machines: dict[str, MachineClocks] = {}  # by host
        self.readings: dict[ServerName, dict[Resource, float]] = {}  # of what may be scarce; empty: nowhere
        self.blocked: set[tuple[str, str]] = set()
        self.at_once = 1000  # messages that one transaction goes through
        self.slow: dict[tuple[str, str], list[float]] = {}  # the next packets that way take that long
        self.lost: list[tuple[float, frozenset[str]]] = []  # packets between members
        self.verbose = verbose
        self.history: list[str] = []
        self.faults: dict[str, int] = {}
        self.hops: dict[NextHop, Sink] = {}
        self.submissions: dict[MessageId, Submission] = {}
        self.deliveries: dict[tuple[MessageId, int], list[Delivery]] = {}
        self.reports: dict[MessageId, tuple[MessageId, int]] = {}  # DSN to (message, recipient)
        self.refused: set[MessageId] = set()  # answered 451
        self.filters_down: dict[ServerName, Filtered] = {}  # nodes, and what a message becomes there
        self.quarantined: dict[MessageId, bool] = {}  # has an operator asked to resume it?
        self.unkept: set[MessageId] = set()  # of these no node may store anything
        self.turned_away: Counter[str] = Counter()  # by pressure and filters
        self.requests: dict[RequestId, Asked] = {}
        self.resubmissions: dict[tuple[RequestId, MessageId], list[Resubmission]] = {}  # by original
        self.journals: Journals = {}
        self.journaled: dict[MessageId, MessageId] = {}  # journal copy to message
        self.book = EMPTY
        self.expanded: dict[MessageId, ToMembersOf] = {}  # messages to the members of lists
        self.originals: dict[MessageId, MessageId] = {}  # of what was made for requests
        self.expired: dict[tuple[str, MessageId], float] = {}  # from whose Safety Net, when
        self.switched = False  # has an operator turned redundancy off?
        self.spans = (policy.shadow_resubmit_time_span.total_seconds(),)  # that were ever in force
        self.orders: list[Order] = []  # of operators, about single messages
        self.removed: set[tuple[MessageId, int]] = set()  # recipients that operators removed
        self.released: set[MessageId] = set()  # messages whose holders were let go because of that
        self.excused: set[MessageId] = set()  # exposed by policy when their owner's disk was lost
        self.impairments: list[Impairment] = []
        self.scrub = True  # do nodes read all that they keep, and ask who else has it?
        self.hit: set[tuple[str, MessageId]] = set()  # what a disk has damaged
        self.wrong: list[str] = []  # deliveries that no next hop should have seen
        self.on: Callable[[str], None] = lambda point: None
        self.before_start: Callable[[Node], None] = lambda node: None  # what happens to its machine
        self.observed = False  # does anybody listen to points?
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self.tokens = 0

    # Time.

    def after(self, delay: float, run: Callable[..., None], *arguments: Any) -> None:
        self._count += 1
        heapq.heappush(self._heap, (self.now + delay, self._count, run, arguments))

    def run(self, until: float) -> None:
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, run, arguments = heapq.heappop(heap)
            run(*arguments)
        self.now = max(self.now, until)

    def say(self, who: str, what: str) -> None:
        if self.verbose:
            self.history.append(f"{self.now:10.4f}  {who:<6} {what}")

    def point(self, *words: str) -> None:
        """Something happened that a scenario may have been waiting for."""
        if self.observed:
            self.on(" ".join(words))

    def token(self, bits: int) -> str:
        return f"{self.random.getrandbits(bits):0{bits // 4}x}"

    def uuid(self) -> str:
        """Version 7 form: rising, so that ids sort by age."""
        self.tokens += 1
        return f"01900000-{self.tokens:04x}-7000-8000-{self.token(48)}"

    def session(self, *, copies: bool) -> int:
        """A number for a new session: one for ``copies``, or one for everything else."""
        self.tokens += 1
        return self.tokens

    # The network. Packets are never reordered within one exchange; exchanges overtake each other freely.

    def carry(self, source: str, target: str, arrive: Callable[[], None], *, quiet: bool = False) -> bool:
        """Send one packet. Lost ones say nothing; False only when it is certain that it will not arrive."""
        noise = self.noise
        draw = self.random.random
        if (source, target) in self.blocked:
            return False
        if not quiet and noise.loss and draw() < noise.loss:
            self.say("net", f"lost: {source} > {target}")
            self.lost.append((self.now, frozenset((source, target))))
            return False
        low, high = noise.delay
        delay = low + (high - low) * draw()
        if noise.late and draw() < noise.late:
            low, high = noise.late_delay
            delay += low + (high - low) * draw()
        if waiting := self.slow.get((source, target)):
            delay += waiting.pop(0)
        self.after(delay, self._arrive, source, target, arrive)
        if not quiet and noise.repeat and draw() < noise.repeat:
            low, high = noise.late_delay
            self.after(delay + low + (high - low) * draw(), self._arrive, source, target, arrive)
        return True

    def _arrive(self, source: str, target: str, arrive: Callable[[], None]) -> None:
        if (source, target) not in self.blocked:
            arrive()

    # What is written down.

    def impair(self, kind: str, one: str, other: str | None = None) -> Impairment:
        entry = Impairment(kind, one, other, self.now)
        self.impairments.append(entry)
        return entry

    def fault(self, kind: str) -> None:
        self.faults[kind] = self.faults.get(kind, 0) + 1

    def filtered(self, arrival: Arrival, became: Filtered) -> None:
        """That is what filters made of what a client sent."""
        sent = self.submissions[arrival.id]
        sent.became = became
        if became is not Filtered.CHANGED:
            self.turned_away[f"filters: {became}"] += 1
        if became in NOT_KEPT:
            self.unkept.add(arrival.id)
        elif became is Filtered.QUARANTINED:
            self.quarantined[arrival.id] = False
        elif became is Filtered.UNFILTERED:
            sent.sender = arrival.envelope.sender
            sent.recipients = tuple((one.number, one.address, one.next_hop) for one in arrival.recipients)

    def content_of(self, message_id: MessageId) -> bytes:
        """What a next hop gets of a message: what filters made of it, if they were asked."""
        sent = self.submissions.get(message_id)
        return octets_of(message_id, sent.became if sent else Filtered.CHANGED)

    def compare(self, message_id: MessageId, recipients: tuple[tuple[int, str], ...], content: bytes) -> None:
        """What a next hop is given is what a client sent, or a report, for those it was sent to."""
        if message_id in self.journaled:
            if content != self.content_of(self.journaled[message_id]) or recipients != ((1, JOURNAL),):
                self.wrong.append(f"DAMAGED: {message_id} came to the journal as {content!r}")
            return
        if made := self.expanded.get(message_id):
            if content != self.content_of(made.original) or not set(recipients) <= set(made.members):
                self.wrong.append(f"DAMAGED: {message_id} came to members as {content!r}")
            return
        original = self.originals.get(message_id, message_id)
        sent = self.submissions.get(original)
        if sent is None:
            if not content.startswith(f"report {message_id} made by".encode()):
                self.wrong.append(f"a damaged report: {content!r}")
            return
        if content != self.content_of(original):
            self.wrong.append(f"DAMAGED: {message_id} was delivered as {content!r}")
        addresses = {number: address for number, address, _ in sent.recipients}
        for number, address in recipients:
            if addresses.get(number) != address:
                self.wrong.append(f"WRONG MAILBOX: recipient {number} of {message_id} is not {address}")

    def compare_wish(self, message_id: MessageId, tls: TlsWish | None) -> None:
        """What leaves a node asks for REQUIRETLS as its client did, whatever it was made of."""
        about = message_id
        while about not in self.submissions:
            if about in self.reports:
                about = self.reports[about][0]
            elif about in self.expanded:
                about = self.expanded[about].original
            elif about in self.journaled or about in self.originals:
                about = self.journaled.get(about) or self.originals[about]
            else:
                return
        if tls is not (wanted := self.submissions[about].tls):
            self.wrong.append(f"REQUIRETLS: {message_id} leaves with {tls}, and {about} came with {wanted}")

    def was_delivered(self, message_id: MessageId, recipient: int) -> bool:
        return (message_id, recipient) in self.deliveries


def healthy_for(world: World, one: str, other: str, start: float, end: float) -> float:
    """The longest stretch between the two moments in which nothing was wrong with either, or their link."""
    wrong = sorted(
        (entry.start, entry.end)
        for entry in world.impairments
        if (entry.other is None and entry.one in (one, other))
        or (entry.other is not None and {entry.one, entry.other} == {one, other})
    )
    longest, at = 0.0, start
    for begins, ends in wrong:
        if ends <= at:
            continue
        if begins >= end:
            break
        longest = max(longest, begins - at)
        at = max(at, ends)
    return max(longest, end - at)


SLACK = 4.5
"""Seconds in which two healthy members are sure to have talked: idle interval, a poll, some delays."""


SOON = 0.5
"""Seconds by which a pause may look shorter than it is: the answer came later than the content."""

LATE = 7.0
"""Seconds more where packets were lost, or late."""


@dataclass(slots=True)
class Sink:
    """A next hop. ``closed_until``: answers 4xx before; ``lose``: chance that its reply never arrives.

    ``lose_next`` does so for certain, once; ``odd_next``: so many answers that cannot be read; ``is_odd``
    says so of others, once for a message; ``delay`` is how long it takes over a message. ``hanging`` are the
    seconds that pass before the next attempts reach it, and ``hang`` draws such for others.
    """

    world: World
    name: NextHop
    closed_until: float = 0.0
    lose: float = 0.0
    lose_next: int = 0
    odd_next: int = 0
    is_odd: Callable[[], bool] = lambda: False
    odd: dict[MessageId, tuple[str, int, float, frozenset[int]]] = field(
        default_factory=dict
    )  # node, its start, when, and for whom
    hang_up: float = 0.0
    delay: tuple[float, float] = (0.005, 0.05)
    taken: list[Delivery] = field(default_factory=list)
    hanging: list[float] = field(default_factory=list)
    hang: Callable[[], float] = lambda: 0.0

    def hangs(self) -> float:
        """How long an attempt takes to reach it, and to be asked for the content."""
        return self.hanging.pop(0) if self.hanging else self.hang()

    def take(
        self,
        node: str,
        generation: int,
        started: float,
        message_id: MessageId,
        recipients: tuple[tuple[int, str], ...],
        content: bytes,
        reply: Callable[[dict[int, str] | None, tuple[Delivery, ...]], None],
    ) -> None:
        """The final dot arrived. ``reply`` gets the answer per recipient, None when it is lost."""
        world = self.world
        world.compare(message_id, recipients, content)
        if world.quarantined.get(message_id, True) is False:
            world.wrong.append(f"QUARANTINED: {node} sends {message_id}, which nobody resumed")
        if world.now < self.closed_until:
            reply({number: "451 4.3.2 Not now" for number, _ in recipients}, ())
            return
        lost = self.lose_next > 0 or (self.lose > 0 and world.random.random() < self.lose)
        self.lose_next -= 1 if self.lose_next > 0 else 0
        odd, self.odd_next = self.odd_next > 0, max(0, self.odd_next - 1)
        if not lost and message_id not in self.odd and self.is_odd():
            self.odd[message_id] = (
                node,
                generation,
                world.now,
                frozenset(number for number, _ in recipients),
            )
            odd = True
        elif message_id in self.odd:
            *whose, since, numbers = self.odd[message_id]
            pause = world.policy.unreadable_answer_retry_interval.total_seconds()
            again = not numbers.isdisjoint(number for number, _ in recipients)
            knows = whose == [node, generation] and (node, message_id) not in world.hit
            if again and knows and started < since + pause - SOON:
                world.wrong.append(
                    f"{node} sends {message_id} again, whose answer it could not read: no pause"
                )
        answers: dict[int, str] = {}
        made = []
        for number, address in recipients:
            if address.startswith("bad"):
                answers[number] = "550 5.1.1 No such user"
                continue
            answers[number] = "25x Taken" if odd else "250 2.0.0 Taken"
            made.append(Delivery(message_id, number, node, generation, started, world.now, lost or odd))
            world.deliveries.setdefault((message_id, number), []).append(made[-1])
        if world.verbose:
            note = " (reply lost)" if lost else " (reply unreadable)" if odd else ""
            world.say(self.name, f"took {message_id} for {[m.recipient for m in made]} from {node}{note}")
        self.taken += made
        if made:
            world.point("taken", message_id, "to=" + "+".join(str(m.recipient) for m in made), f"from={node}")
        reply(None if lost else answers, tuple(made))


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)
