"""What became of a message in one database: its rows, played in order.

What came in must have gone out, or still be there: a copy enters with RECEIVE, DSN or HARECEIVE, leaves
recipient by recipient with a delivery, a bounce or HADISCARD, and what is left is in the next snapshot. A
long one is taken in parts: what is listed may be settled before its closing row, and what came in the midst
of it is listed too, so that it says what was left when it ended. From HADAMAGE on a copy is none, until
HARESTORE or another HARECEIVE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from shadowaudit.core.events import FINALS, ORIGINS, Event, Kind
from shadowaudit.core.evidence import Database


class Role(StrEnum):
    """What the node has of the message."""

    NONE = "none"
    PRIMARY = "primary"
    SHADOW = "shadow"


class Ending(StrEnum):
    """GONE: nothing is left. HELD: the last snapshot lists it. TAIL: no snapshot followed. VANISHED: one
    followed, and does not list it. LOST: it went with the disk, or with an older state put back. UNBELIEVED:
    its rows in the transport database are damaged, which no snapshot lists.
    """

    GONE = "gone"
    HELD = "held"
    TAIL = "tail"
    VANISHED = "vanished"
    LOST = "lost"
    UNBELIEVED = "unbelieved"


class Damage(StrEnum):
    """S:Damaged of HADAMAGE: the content, or the rows of the transport database."""

    CONTENT = "content"
    ROWS = "rows"


_OF_WHAT_IS_THERE = frozenset(
    {Kind.DEFER, Kind.HADAMAGE, Kind.RESOLVE, Kind.SUSPEND, Kind.RESUME, Kind.RETRY}
)


@dataclass(slots=True)
class Trace:
    """One message in one database, after its rows. Events are named by their index in the message's rows."""

    database: Database
    role: Role = Role.NONE
    left: set[int] = field(default_factory=set)
    known: set[int] = field(default_factory=set)  # every recipient that it ever had here
    ending: Ending = Ending.GONE
    contradictions: list[tuple[str, int]] = field(default_factory=list)
    ownerless: list[int] = field(default_factory=list)  # ends or promotions of what the node did not have
    entered: bool = False
    begun: bool = False  # it came here in a row that is here: none about it was before
    owned: bool = False
    yielded: int = -2  # sequence of the last TRANSFER
    yielding: bool = False  # it was the row before
    epoch: int = 0  # of the row before; 0: this is the first row
    damage: Damage | None = None  # of what is here now
    damages: list[tuple[int, int | None]] = field(default_factory=list)  # rows between which it was damaged
    set_aside: bool = False
    suspended: dict[int, int] = field(
        default_factory=dict
    )  # by an operator: recipient to the row that says so
    resumed: set[int] = field(default_factory=set)

    def contradict(self, what: str, index: int) -> None:
        self.contradictions.append((what, index))

    def damaged(self, damage: Damage, index: int) -> None:
        """From that row on it is no copy. What the node never had, or has no more, is no loss."""
        if self.damage is None and self.left:
            self.damages.append((index, None))
        self.damage = damage

    def sound(self, index: int) -> None:
        """With that row it is a copy again, or is needed no more."""
        if self.damages and self.damages[-1][1] is None:
            self.damages[-1] = (self.damages[-1][0], index)
        self.damage = None


def replay(database: Database, events: Sequence[tuple[int, Event]]) -> Trace:
    """Play the rows of one database, already in the order of its life. ``events``: index and event."""
    trace = Trace(database)
    for index, event in events:
        _play(trace, index, event)
    _end(trace, events[-1][1], [event for _, event in events])
    return trace


def _play(trace: Trace, index: int, event: Event) -> None:
    named = set(event.recipients)
    # The log may begin after the message came: then the first row tells what was there.
    inherited = trace.role is Role.NONE and not trace.entered and not trace.database.from_start
    # So is what follows rows that could not be believed: the node may have dropped them without a word.
    inherited |= trace.damage is Damage.ROWS
    if _renews(event):
        trace.sound(index)
    _goes_on(trace, index, event, inherited=inherited)
    if trace.yielding and not (event.kind is Kind.HARECEIVE and event.reason == "taken"):
        trace.contradict("TRANSFER without the copy that is kept", index)
    trace.yielding = event.kind is Kind.TRANSFER
    match event.kind:
        case kind if kind in ORIGINS:
            if trace.role is not Role.NONE:
                trace.contradict("received twice", index)
            _enter(trace, Role.PRIMARY, named)
        case Kind.HARECEIVE if not event.reason:
            if trace.role is not Role.NONE and trace.left and not inherited:
                trace.contradict("a copy came that was there already", index)
            _enter(trace, Role.SHADOW, named)
        case Kind.HARECEIVE:
            if event.reason == "taken" and trace.role is Role.PRIMARY and trace.yielded != event.sequence - 1:
                trace.contradict("ownership ended without TRANSFER", index)
            if trace.role is Role.NONE and not inherited:
                trace.contradict("a copy changed its owner that was not there", index)
            trace.role = Role.SHADOW
            _expect(trace, named, index, inherited=inherited)
        case Kind.TRANSFER:
            trace.yielded = event.sequence
            if trace.role is not Role.PRIMARY and not inherited:
                trace.contradict("TRANSFER of what the node did not own", index)
        case Kind.RESUBMIT:
            if trace.role is not Role.SHADOW and not inherited:
                trace.ownerless.append(index)
            _expect(trace, named, index, inherited=inherited)
            trace.role, trace.owned, trace.entered = Role.PRIMARY, True, True
        case Kind.LOAD:
            _expect(trace, named, index, inherited=inherited)
            _list(trace, Role(event.entries.get("Role", Role.SHADOW)), index, inherited=inherited)
        case Kind.HADISCARD:
            if named - trace.known and not inherited:
                trace.contradict("a copy was let go that was not there", index)
            _leave(trace, named, index)
        case kind if kind in FINALS:
            # A copy that its holder has set aside is its operator's to fail: its owner has forgotten it.
            if not inherited and not trace.owned and not trace.set_aside:
                trace.ownerless.append(index)
            _leave(trace, named, index)
        case Kind.HARESTORE if inherited and _renews(event):  # only an owner gets its rows again
            trace.role, trace.owned, trace.entered = Role.PRIMARY, True, True
        case _:
            _mark(trace, index, event)


def _goes_on(trace: Trace, index: int, event: Event, *, inherited: bool) -> None:
    """A row belongs to what was before it: the node has the message, and in that epoch.

    A promotion begins the next epoch; TRANSFER and HARECEIVE may tell of one that another node began. No
    other row changes it. A row about damaged rows knows neither.
    """
    if event.entries.get("Damaged") == Damage.ROWS:
        return
    before, trace.epoch = trace.epoch, event.epoch
    if inherited:
        return
    if not before:
        if event.kind in _OF_WHAT_IS_THERE:
            trace.contradict(f"{event.kind} of what the node never had", index)
        return
    match event.kind:
        case Kind.RESUBMIT:
            good = event.epoch == before + 1
        case Kind.HARECEIVE if trace.yielding or not trace.left:
            good = event.epoch == before or not trace.yielding
        case Kind.HARECEIVE | Kind.TRANSFER:
            good = event.epoch >= before
        case _:
            good = event.epoch == before
    if not good:
        trace.contradict(f"{event.kind} in epoch {event.epoch} after one in epoch {before}", index)


def _mark(trace: Trace, index: int, event: Event) -> None:
    if event.kind is Kind.HADAMAGE:
        damage = Damage.ROWS if event.entries.get("Damaged") == Damage.ROWS else Damage.CONTENT
        trace.damaged(damage, index)
    elif event.operated and event.kind is Kind.SUSPEND:
        trace.suspended |= dict.fromkeys(event.recipients, index)
        trace.resumed -= set(event.recipients)
    elif event.operated and event.kind is Kind.RESUME:
        trace.resumed |= set(event.recipients)
    elif event.kind in (Kind.SUSPEND, Kind.RESUME):
        trace.set_aside = event.kind is Kind.SUSPEND


def _renews(event: Event) -> bool:
    """Has the node a good copy by it? Both ends log HARESTORE, and the peer is who gave it; ownership that is
    ``taken`` leaves the copy as it was.
    """
    match event.kind:
        case Kind.HARESTORE:
            return event.peer != event.node
        case Kind.HARECEIVE:
            return event.reason != "taken"
        case kind:
            return kind in ORIGINS


def _leave(trace: Trace, named: set[int], index: int) -> None:
    trace.known |= named
    trace.left -= named
    if not trace.left:
        trace.sound(index)
    if not trace.left and trace.role is Role.SHADOW:
        trace.role = Role.NONE


def _enter(trace: Trace, role: Role, named: set[int]) -> None:
    trace.begun = trace.begun or not (trace.entered or trace.known)
    trace.role, trace.entered = role, True
    trace.owned |= role is Role.PRIMARY
    trace.left = set(named)
    trace.known |= named


def _expect(trace: Trace, named: set[int], index: int, *, inherited: bool) -> None:
    """The row lists what is left: if that is not so, a row before it is missing."""
    if inherited:
        trace.entered = True
        trace.known |= named
    elif trace.left != named:
        trace.contradict("it lists other recipients than were left", index)
    trace.left = set(named)
    trace.known |= named


def _list(trace: Trace, role: Role, index: int, *, inherited: bool) -> None:
    if role is not trace.role and not inherited:
        trace.contradict(f"listed as {role}, and the node has it as {trace.role}", index)
    trace.role, trace.entered = role, True
    trace.owned |= role is Role.PRIMARY


def _end(trace: Trace, last: Event, events: Sequence[Event]) -> None:
    if not trace.left:
        trace.ending = Ending.GONE
    elif trace.database.lost or _overwritten(trace.database, last):
        trace.ending = Ending.LOST
    elif trace.damage is Damage.ROWS:
        trace.ending = Ending.UNBELIEVED
    elif trace.database.snapshot is None or trace.database.snapshot[0] > trace.database.snapshot[1]:
        trace.ending = Ending.TAIL
    else:
        begin, end = trace.database.snapshot
        if last.sequence > end:
            trace.ending = Ending.TAIL
        elif any(event.kind is Kind.LOAD and begin <= event.sequence < end for event in events):
            trace.ending = Ending.HELD
        else:
            trace.ending = Ending.VANISHED


def _overwritten(database: Database, event: Event) -> bool:
    """Is the row of a life that an older state of the database was put in place of?"""
    if not database.rolled_back:
        return False
    later = False
    for segment in database.segments:
        if later and segment.boot != event.boot and segment.first <= event.sequence:
            return True
        later = later or segment.boot == event.boot
    return False
