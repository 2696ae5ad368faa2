"""The verdict on one message, from all its rows on all nodes: the exact pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from shadowaudit.core.events import (
    ABOUT,
    COMPARED,
    FINALS,
    ORIGINS,
    SAYS_WHO_ASKED,
    SENT,
    SETTLED_ELSEWHERE,
    UNACKNOWLEDGED,
    Event,
    Kind,
    canonical,
    is_derived,
)
from shadowaudit.core.evidence import Database, Evidence
from shadowaudit.core.findings import Class, Finding, combined
from shadowaudit.core.redundancy import Copies
from shadowaudit.core.replay import Damage, Ending, Trace, replay
from shadowaudit.core.replies import epochs, unfitting
from shadowaudit.core.reported import unreported, unsent
from shadowaudit.core.resubmitted import contradictory, undue
from shadowaudit.core.verdict import counted

_THERE = frozenset({Ending.HELD, Ending.TAIL, Ending.UNBELIEVED})
"""The node has what was left, or its rows."""

LATE_DISCARD = 10 * 60_000
"""Milliseconds after the last end that a holder's HADISCARD is noted as late: by clocks of two nodes."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was found; ``exposed`` is the time with one copy, in milliseconds by the owner's own clock."""

    findings: tuple[Finding, ...]
    exposed: int | None = None


def judge(events: Sequence[Event], evidence: Evidence) -> Judgement:
    """Judge one message. The order of ``events`` does not matter; findings name rows by their index in it."""
    return _Case(events, evidence).judgement()


class _Case:
    def __init__(self, events: Sequence[Event], evidence: Evidence) -> None:
        self.events, self.evidence = events, evidence
        self.by_kind: dict[Kind, list[int]] = defaultdict(list)
        # A row that two files tell happened once: that they do is held against the files, not the nodes.
        once: dict[tuple[str, str, int], int] = {}
        for index, event in enumerate(events):
            if event.kind not in ABOUT:
                once.setdefault((event.database, event.boot, event.sequence), index)
        self.told_once = sorted(once.values())
        self.about = {index: event for index, event in enumerate(events) if event.kind in ABOUT}
        self.events_by_index = {index: events[index] for index in self.told_once}
        for index in self.told_once:
            self.by_kind[events[index].kind].append(index)
        rows_of = self._by_database()
        self.places = {at: place for _, rows in rows_of.values() for place, (at, _) in enumerate(rows)}
        self.traces = {name: replay(*found) for name, found in rows_of.items()}
        told = [events[index] for index in self.told_once]
        self.involved = Involved(told, self.traces, evidence)
        # Rows may be missing.
        self.untold = self.involved.lost or self.involved.unknown or self.involved.open

    def _by_database(self) -> dict[str, tuple[Database, list[tuple[int, Event]]]]:
        found: dict[str, list[tuple[int, Event]]] = defaultdict(list)
        for index in self.told_once:
            found[self.events[index].database].append((index, self.events[index]))
        result = {}
        for name, rows in found.items():
            node = rows[0][1].node
            database = self.evidence.databases.get(name) or Database(id=name, node=node, whole=False)
            life = {segment.boot: place for place, segment in reversed(list(enumerate(database.segments)))}
            rows.sort(key=lambda row: (life.get(row[1].boot, 0), row[1].sequence))
            result[name] = (database, rows)
        return result

    def _rows(self, *kinds: Kind) -> list[int]:
        return sorted(index for kind in kinds for index in self.by_kind.get(kind, ()))

    def judgement(self) -> Judgement:
        copies = Copies(self.events, self.by_kind, self.traces, self.evidence)
        findings = [
            *self._origin(),
            *copies.findings(),
            *self._recipients(),
            *self._duplicates(),
            *self._contradictions(),
            *self._compared(),
            *promotions(self.events, self.evidence),
            *self._discards(),
            *removals(self.events_by_index, self.traces, self.places),
            *unsuspended(self.events_by_index, self.places, untold=self.untold),
            *self._marks(),
        ]
        return Judgement(combined(findings), copies.exposed)

    def _compared(self) -> Iterator[Finding]:
        """Is what was done what was promised?"""
        told = self.events_by_index
        yield from altered(told, untold=self.untold)
        yield from undigested(told)
        yield from misdirected(told)
        yield from unfitting(told)
        yield from epochs(told, untold=self.untold)
        untold = self.untold or self._elsewhere()
        yield from unreported(told, self.about, untold=untold)
        yield from unsent(told, self.about, untold=untold)
        yield from contradictory(told)
        yield from undue(told, self.about, self.evidence, untold=self.untold)

    def _elsewhere(self) -> bool:
        """May rows be missing in the log of a node that none of these rows names? Of a message that was made
        of another one, those who had that one made it, too.
        """
        derived = any(is_derived(event.message) for event in self.events_by_index.values())
        return derived and not self.evidence.ends

    def _origin(self) -> Iterator[Finding]:
        origins = self._rows(*ORIGINS)
        held = self._rows(Kind.HARECEIVE)
        announced = self._rows(Kind.HAREDIRECT, Kind.HAREDIRECTFAIL)
        for index in announced:
            database = (trace := self.traces[self.events[index].database]).database
            sound = database.unbroken and not (database.lost or database.rolled_back)
            # RECEIVE is the next row: behind the last one it may still come.
            if not trace.owned and sound and self.events[index].sequence < database.last:
                detail = "made redundant by a node whose log has neither its reception nor its promotion"
                yield Finding(Class.UNKNOWN_ORIGIN, detail, rows=(index,))
        if origins or (self.untold and not self._never_accepted()):
            return
        taken = self._rows(Kind.RESUBMIT, Kind.HARESTORE)
        ends = self._rows(*FINALS)
        if ends and taken:
            yield Finding(Class.NEVER_ACKNOWLEDGED, "no node's log received it", rows=(*held[:1], *taken[:1]))
        elif held and not ends:
            released = [
                index for index in self._rows(Kind.HADISCARD) if self.events[index].reason in UNACKNOWLEDGED
            ]
            told = f"released as {self.events[released[0]].reason}" if released else "not released yet"
            yield Finding(Class.ORPHAN, f"no node's log received it; {told}", rows=(*held, *released))
        elif (ends or taken) and not self.untold:
            yield Finding(Class.UNKNOWN_ORIGIN, "no node's log received it", rows=tuple(ends or taken))

    def _never_accepted(self) -> bool:
        """Are the logs of its first owners complete, without a RECEIVE? Then its sender got no 250."""
        held = (self.events[index] for index in self._rows(Kind.HARECEIVE))
        first = {event.peer for event in held if event.epoch == 1 and event.reason != "taken"}
        complete = all(self.evidence.complete(server) for server in first)
        return not self._rows(*ORIGINS) and bool(first) and complete

    def _recipients(self) -> Iterator[Finding]:
        owed = {number for index in self._rows(*ORIGINS) for number in self.events[index].recipients}
        if not owed:  # its reception was lost with a disk: what holders took over is what is owed
            owed = {number for trace in self.traces.values() if trace.owned for number in trace.known}
        settled = {number for index in self._rows(*FINALS) for number in self.events[index].recipients}
        told: set[int] = set()
        word: list[int] = []
        for index in self._rows(Kind.HADISCARD):
            if self.events[index].reason in SETTLED_ELSEWHERE:
                told |= set(self.events[index].recipients)
                word.append(index)
        if not self._rows(*ORIGINS):
            if self.untold:
                aside = (trace.left for trace in self.traces.values() if trace.damage and trace.set_aside)
                owed |= told.union(self.involved.lost_with_its_owner(), *aside)
            elif nowhere := told - owed - settled:
                detail = "a holder was told that it was delivered, and no node's log has it"
                yield Finding(Class.OPEN, detail, _all(nowhere), tuple(word))
        missing = owed - settled
        if told := told & missing:
            yield from (found := self._words(told, word))
            missing -= {n for one in found if one.what is not Class.PREMATURE_DISCARD for n in one.recipients}
        if missing and not self._never_accepted():
            yield from self._fate(missing, owed)

    def _words(self, told: set[int], rows: list[int]) -> list[Finding]:
        """A holder was told that these are settled, and no row at hand tells of their end."""
        words = weighed(
            (self.events[index] for index in rows), told, self.traces, self.evidence, lost=self.involved.lost
        )
        if not self.untold:
            words = Words(denied=told)
        found = (
            (Class.HOLDERS_WORD, "a holder was told that it was delivered", words.borne_out),
            (Class.PREMATURE_DISCARD, "a holder was told of a delivery that no log shows", words.denied),
            (Class.UNPROVEN_LOSS, "a holder was told that it was delivered, and no log has it", words.alone),
        )
        return [Finding(what, detail, _all(those), tuple(rows)) for what, detail, those in found if those]

    def _fate(self, missing: set[int], owed: set[int]) -> Iterator[Finding]:
        ends = [trace for trace in self.traces.values() if trace.left & missing]
        good = [one for one in ends if not one.damage]
        held = {number for one in good if one.ending is Ending.HELD for number in one.left}
        tail = {number for one in good if one.ending is Ending.TAIL for number in one.left}
        where = ", ".join(
            sorted({one.database.node for one in good if one.ending in (Ending.HELD, Ending.TAIL)})
        )
        rows = tuple(self._rows(*ORIGINS))
        gone = missing - held - tail
        damaged = [one for one in ends if one.damage and one.ending in _THERE]
        spoilt = {number for one in damaged for number in one.left} & gone
        if any(one.set_aside for one in damaged):  # a node asks all others before it sets a message aside
            yield from self._spoilt(spoilt)
            gone, missing = gone - spoilt, missing - spoilt
        if gone and self.involved.unknown:
            yield Finding(Class.UNPROVEN_LOSS, "logs that may tell are missing", _all(gone), rows)
        elif gone and self.involved.open:
            yield Finding(Class.OPEN, "what the open logs will say is not known yet", _all(gone), rows)
        elif gone and gone == (unseen := self.involved.lost_ends(gone)):
            detail = "it was there when the disk was lost, or may have been settled in the last rows before"
            yield Finding(Class.UNPROVEN_LOSS, detail, _all(gone), rows)
        elif gone:
            gone -= unseen
            yield from self._spoilt(gone & spoilt)
            if gone := gone - spoilt:
                what = Class.LOST if gone == owed else Class.PARTIALLY_LOST
                rows = (*rows, *self._rows(Kind.HARECEIVE, Kind.HADISCARD, Kind.RESUBMIT))
                detail = f"{len(gone)} of {counted(len(owed), 'recipient')} did not get it"
                yield Finding(what, detail, _all(gone), rows)
        else:
            yield from self._held(missing, held, where)

    def _held(self, missing: set[int], held: set[int], where: str) -> Iterator[Finding]:
        """Some node has what is missing, or had it at its last row."""
        rows = tuple(self._rows(*ORIGINS))
        suspended = waiting(self.events_by_index, self.traces)
        if kept := missing & suspended.keys():
            orders = tuple(dict.fromkeys(index for number in sorted(kept) for index in suspended[number]))
            asked = told_by(self.events[index] for index in orders)
            detail = f"waiting at {where}, suspended {asked}".rstrip()
            yield Finding(Class.SUSPENDED, detail, _all(kept), (*rows, *orders))
        if missing - held:
            yield Finding(Class.OPEN, f"last seen at {where}", _all(missing - held), rows)
        elif waits := missing - kept:
            yield Finding(Class.IN_TRANSIT, f"held by {where}", _all(waits), rows)

    def _spoilt(self, recipients: set[int]) -> Iterator[Finding]:
        """No good copy is left for these; whether it was accepted is not known where its reception is not."""
        if recipients:
            what = Class.DAMAGED if self._rows(*ORIGINS) else Class.UNPROVEN_LOSS
            rows = self._rows(*ORIGINS, Kind.HADAMAGE, Kind.SUSPEND)
            yield Finding(what, "every copy that is left is damaged", _all(recipients), tuple(rows))

    def _duplicates(self) -> Iterator[Finding]:
        taken: dict[int, list[int]] = defaultdict(list)
        dropped: dict[int, list[int]] = defaultdict(list)
        for index in self._rows(*SENT):
            target = dropped if self.events[index].kind is Kind.DUPLICATEDELIVER else taken
            for number in self.events[index].recipients:
                target[number].append(index)
        causes: dict[str, list[tuple[int, Sequence[int]]]] = defaultdict(list)
        for number, rows in taken.items():
            if len(rows) > 1:
                cause, why = self._allowed(number, rows)
                causes[cause].append((number, (*rows, *why)))
        for cause, found in causes.items():
            rows = sorted({index for _, some in found for index in some})
            what = Class.ALLOWED_DUPLICATE if cause else Class.DUPLICATE
            # A cause is told by the database that sent it, before it does.
            senders = {self.events[index].database for index in rows}
            if not cause and not all(self.traces[one].database.unbroken for one in senders):
                what = Class.UNEXPLAINED
            numbers = _all(number for number, _ in found)
            yield Finding(what, cause or "no cause in the logs", numbers, tuple(rows))
        if dropped and not causes:
            rows = sorted({index for found in dropped.values() for index in found})
            yield Finding(Class.DUPLICATE_DROPPED, "the mailbox server had it", _all(dropped), tuple(rows))

    def _allowed(self, number: int, deliveries: Sequence[int]) -> tuple[str, tuple[int, ...]]:
        """A cause that the promise allows for these deliveries to a recipient, and the rows that show it."""
        doubt = [index for index in deliveries if self._doubted(index, deliveries)]
        doubt += [
            index
            for index in self._rows(Kind.DEFER)
            if self.events[index].entries.get("InDoubt")
            and number in self.events[index].recipients
            and self._before(index, deliveries)
        ]
        if doubt:
            return "a reply was lost, or a holder could not be asked", tuple(doubt)
        databases = {self.events[index].database for index in deliveries}
        taken_over = self._rows(Kind.RESUBMIT, Kind.TRANSFER)
        if taken_over and (len(databases) > 1 or any(t.database.rolled_back for t in self.traces.values())):
            return "it was taken over before its owner's word of the delivery arrived", tuple(taken_over)
        released = (at for at in self._rows(Kind.RESUME) if not self.events[at].operated)
        if resumed := [at for at in released if self._before(at, deliveries)]:
            return "an operator sent it after all", tuple(resumed)
        return "", ()

    def _doubted(self, index: int, deliveries: Sequence[int]) -> bool:
        """Was it sent though a holder could not be asked, who may have sent it, or after this node had?"""
        own = self.events[index]
        return bool(own.entries.get("InDoubt")) and any(
            self.events[at].database != own.database or self.places[at] < self.places[index]
            for at in deliveries
        )

    def _before(self, index: int, deliveries: Sequence[int]) -> bool:
        """Does one of these follow that row in its database?"""
        database = self.events[index].database
        return any(
            self.events[at].database == database and self.places[at] > self.places[index] for at in deliveries
        )

    def _contradictions(self) -> Iterator[Finding]:
        for trace in self.traces.values():
            sound = trace.database.whole and not trace.database.rolled_back
            if trace.ending is Ending.VANISHED and sound:
                detail = (
                    f"{trace.database.node} had it, and its next snapshot, of rows LOAD, does not list it"
                )
                rows = [i for i, event in enumerate(self.events) if event.database == trace.database.id]
                yield Finding(Class.VANISHED, detail, _all(trace.left), tuple(rows))
            if sound and trace.ownerless:
                detail = f"{trace.database.node} did not own it"
                yield Finding(Class.UNKNOWN_ORIGIN, detail, rows=tuple(trace.ownerless))
            if sound:
                for what, index in trace.contradictions:
                    yield Finding(Class.INCONSISTENT, f"{trace.database.node}: {what}", rows=(index,))

    def _discards(self) -> Iterator[Finding]:
        ends = self._rows(*FINALS)
        last = max((self.events[index].at for index in ends), default=None)
        if last is None:
            return
        if late := [i for i in self._rows(Kind.HADISCARD) if self.events[i].at > last + LATE_DISCARD]:
            minutes = (self.events[late[0]].at - last) / 60_000
            yield Finding(Class.LATE_DISCARD, f"{minutes:.0f} minutes, by two clocks", rows=tuple(late))
        for trace in self.traces.values():
            settled = {number for index in ends for number in self.events[index].recipients}
            if trace.ending is Ending.HELD and trace.left <= settled:
                detail = f"{trace.database.node} still has a copy of what is settled"
                yield Finding(Class.ORPHAN, detail, _all(trace.left))

    def _marks(self) -> Iterator[Finding]:
        if aside := [at for at in self._rows(Kind.SUSPEND) if not self.events[at].operated]:
            yield Finding(Class.SET_ASIDE, self._decided(), rows=tuple(aside))
        if doubt := [i for i in self._rows(*SENT) if self.events[i].entries.get("InDoubt")]:
            yield Finding(Class.IN_DOUBT, "a holder could not be asked first", rows=tuple(doubt))

    def _decided(self) -> str:
        """What became of a message that was set aside. A damaged one may be set aside again."""
        dropped = {self.events[index].database for index in self._rows(Kind.DROP)}
        waits = {one.database.id for one in self.traces.values() if one.set_aside and one.left}
        if waits - dropped:
            return "an operator has to decide"
        return "an operator dropped it" if dropped and not self._rows(*FINALS) else "an operator has decided"


def _all(numbers: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(numbers))


def misdirected(events: Mapping[int, Event]) -> Iterator[Finding]:
    """``events`` by their index, in any order. Missing rows do not explain what differs.

    DEFER changes nothing, and the sums leave it out.
    """
    events = {index: event for index, event in events.items() if event.kind is not Kind.DEFER}
    origins = [index for index, event in events.items() if event.kind in ORIGINS]
    right: dict[int, str] = {}
    shown: dict[int, int] = {}
    for index in (*origins, *events):
        for number, address in zip(events[index].recipients, events[index].addresses, strict=False):
            right.setdefault(number, canonical(address))
            shown.setdefault(number, index)
    accepted = {number for index in origins for number in events[index].recipients}
    for index, event in events.items():
        pairs = zip(event.recipients, event.addresses, strict=False)
        wrong = {number for number, address in pairs if canonical(address) != right[number]}
        if wrong:
            first = shown[min(wrong)]
            detail = f"another address than {events[first].kind} at {events[first].node}"
            yield _finding(event, f"{detail}: {event.kind} at {event.node}", wrong, (first, index))
        if origins and (more := set(event.recipients) - accepted):
            detail = f"{len(more)} recipients more than were accepted: {event.kind} at {event.node}"
            yield _finding(event, detail, more, (origins[0], index))
    yield from _incomplete(events, origins)


def _finding(event: Event, detail: str, recipients: Collection[int], rows: tuple[int, ...]) -> Finding:
    what = Class.MISDELIVERED if event.kind in SENT else Class.ALTERED
    return Finding(what, detail, tuple(sorted(recipients)), rows)


def _incomplete(events: Mapping[int, Event], origins: Collection[int]) -> Iterator[Finding]:
    """A copy that was made before the message was accepted has to have all of its recipients."""
    for origin in origins:
        own = events[origin]
        before = [
            index
            for index, event in events.items()
            if event.kind is Kind.HAREDIRECT
            and event.database == own.database
            and event.sequence < own.sequence
        ]
        holders = {events[index].peer for index in before}
        copies: dict[str, set[int]] = {}
        rows: dict[str, list[int]] = {}
        for index, event in events.items():
            if event.kind is Kind.HARECEIVE and not event.reason and event.node in holders:
                copies.setdefault(event.node, set()).update(event.recipients)
                rows.setdefault(event.node, []).append(index)
        told = [(f"HAREDIRECT at {own.node}", set(events[index].recipients), [index]) for index in before]
        told += [(f"HARECEIVE at {node}", had, rows[node]) for node, had in copies.items()]
        for where, had, shown in told:
            if fewer := set(own.recipients) - had:
                detail = f"{len(fewer)} recipients fewer than were accepted: {where}"
                yield Finding(Class.ALTERED, detail, tuple(sorted(fewer)), (origin, *shown))


_OF_ITS_MAKER = frozenset({"content", "size"})


def altered(events: Mapping[int, Event], *, untold: bool) -> Iterator[Finding]:
    """``events`` by their index. ``untold``: there may be more rows than these."""
    given_back = any(event.kind in (Kind.RESUBMITTED, Kind.SENT_AGAIN) for event in events.values())
    for name, said in _told(events):
        several = (
            name in _OF_ITS_MAKER and not given_back and any(_is_report(events[index]) for index in said)
        )
        if several and untold:
            continue  # the row of another maker may be one that is missing
        origins = [index for index in said if events[index].kind in ORIGINS]
        first = next(iter(origins or said))
        right = {said[index] for index in (first, *(origins if several else ()))}
        if others := tuple(index for index, text in said.items() if text not in right):
            detail = f"another {name} than {_where(events, (first,))}: {_where(events, others)}"
            yield Finding(Class.ALTERED, detail, rows=(first, *others))


def undigested(events: Mapping[int, Event]) -> Iterator[Finding]:
    """Rows without a digest, of a message that has an envelope's.

    A node that had it before there were digests never gets that one: with rows of an older version nothing is
    found.
    """
    if any(event.schema < SAYS_WHO_ASKED for event in events.values()):
        return
    compared = {index: event for index, event in events.items() if event.kind in COMPARED}
    known = [index for index, event in compared.items() if event.entries.get("Envelope")]
    if lacking := [
        index
        for index, event in compared.items()
        if known and not (event.entries.get("Content") and event.entries.get("Envelope"))
    ]:
        detail = f"no digest, which {_where(events, (known[0],))} has: {_where(events, tuple(lacking))}"
        yield Finding(Class.UNDIGESTED, detail, rows=(known[0], *lacking))


def _told(events: Mapping[int, Event]) -> Iterator[tuple[str, Mapping[int, str]]]:
    """What can be compared, and what each row says. A digest is made once, by one algorithm, and is kept."""
    for name in ("Content", "Envelope"):
        if said := {index: event.entries[name] for index, event in events.items() if event.entries.get(name)}:
            yield name.lower(), said
    compared = {index: event for index, event in events.items() if event.kind in COMPARED}
    if sizes := {index: str(event.size) for index, event in compared.items() if event.size is not None}:
        yield "size", sizes
    if senders := {index: event.sender for index, event in compared.items() if event.sender}:
        yield "sender", senders


def _where(events: Mapping[int, Event], rows: tuple[int, ...]) -> str:
    return ", ".join(sorted({f"{events[at].kind} at {events[at].node}" for at in rows}))


def _is_report(event: Event) -> bool:
    return event.kind is Kind.DSN or is_derived(event.message)


_PEERS = (Kind.HAREDIRECT, Kind.HARECEIVE, Kind.HADISCARD, Kind.RESUBMIT, Kind.TRANSFER)
_GIVEN = (Kind.HAREDIRECT, Kind.TRANSFER)


class Involved:
    """What the logs of these databases are worth for that message.

    ``unknown``: some may have rows that are missing; ``lost``: some lost their end; ``open``: some go on.
    """

    def __init__(self, events: Sequence[Event], traces: Mapping[str, Trace], evidence: Evidence) -> None:
        """``events``: all that is told of the message, each once."""
        self._traces, self._evidence = traces, evidence
        self._given = [event for event in events if event.kind in _GIVEN]
        self._owners = {
            event.entries["OwnerDb"]
            for event in events
            if event.kind is Kind.HARECEIVE and event.entries.get("OwnerDb")
        }
        databases = [trace.database for trace in traces.values()]
        servers = {event.peer for event in events if event.kind in _PEERS and not event.by_a_hop} - {""}
        databases += [evidence.databases[one] for name in servers for one in self._of(name)]
        self.lost = any(one.lost or one.rolled_back for one in databases)
        self.open = any(not one.closed and not one.lost and one.segments for one in databases)
        missing = any(not one.lost and not (one.whole and self._from_start(one)) for one in databases)
        given_up = any(self._given_up(*event.teller) for event in events if event.kind is Kind.HADISCARD)
        self.unknown = missing or given_up or any(not self._of(name) for name in servers)

    def _of(self, node: str) -> tuple[str, ...]:
        databases = self._evidence.databases.values()
        without = (one.id for one in databases if one.node == node and not one.segments)
        return (*self._evidence.nodes.get(node, ()), *without)

    def _given_up(self, name: str, mark: tuple[str, int]) -> bool:
        """Does a later life have the number of that row, and nothing tells that the first lost its end?"""
        database = self._evidence.databases.get(name)
        if database is None or _lost_an_end(database):
            return False
        return database.last >= mark[1] and not database.reaches(*mark)

    def _from_start(self, database: Database) -> bool:
        """Is nothing about this message in front of what is here of that log?"""
        trace = self._traces.get(database.id)
        return database.from_start or (trace is not None and trace.begun)

    def lost_ends(self, recipients: set[int]) -> set[int]:
        """Those of them that may have been settled in rows that were lost with a disk, or given up."""
        if any(one.id not in self._traces for event in self._given for one in self._lost_of(event)):
            return recipients
        return recipients & self._gone()

    def lost_with_its_owner(self) -> set[int]:
        """Recipients of a copy that went with its disk, of a message that its owner may have accepted in rows
        that went with another disk.
        """
        return self._gone() if any(self._lost_end(name) for name in self._owners) else set()

    def _gone(self) -> set[int]:
        """Those that a copy here had left when its disk was lost, or an older state put back."""
        ends = [trace for trace in self._traces.values() if trace.ending is Ending.LOST]
        return {number for trace in ends for number in trace.left}

    def _lost_of(self, event: Event) -> Iterator[Database]:
        """The databases with a lost end among those that the row says it was given to."""
        names = [one] if (one := event.entries.get("ShadowDb")) else self._of(event.peer)
        return (database for name in names if (database := self._lost_end(name)))

    def _lost_end(self, name: str) -> Database | None:
        """That database, if it lost an end of its log."""
        database = self._evidence.databases.get(name)
        return database if _lost_an_end(database) else None


def _lost_an_end(database: Database | None) -> bool:
    return database is not None and (database.lost or database.rolled_back)


def promotions(events: Sequence[Event], evidence: Evidence) -> Iterator[Finding]:
    """One finding for each RESUBMIT of a holder."""
    for index, event in enumerate(events):
        if event.kind is Kind.RESUBMIT:
            what, detail = _judge(event, events, evidence)
            yield Finding(what, f"{event.node}: {event.reason}; {detail}", event.recipients, (index,))


def _judge(resubmit: Event, events: Sequence[Event], evidence: Evidence) -> tuple[Class, str]:
    former = evidence.databases.get(resubmit.entries.get("OwnerDb", ""))
    others = [one for one in evidence.nodes.get(resubmit.peer, ()) if former is None or one != former.id]
    match resubmit.reason:
        case "database-replaced":
            if former is None or former.lost or not former.segments or others:
                return Class.PROMOTED, "that database is gone"
            if former.ends:
                return Class.FALSE_PROMOTION, "that database is the only one in its owner's complete log"
        case "database-rolled-back":
            if former is not None and (former.rolled_back or former.lost):
                return Class.PROMOTED, "the owner's log shows that it was set back"
            if former is not None and former.ends:
                return Class.FALSE_PROMOTION, "the owner's log was never set back"
        case "heartbeat-lost":
            again = [
                event
                for event in events
                if event.node == resubmit.peer
                and event.kind in SENT
                and event.epoch < resubmit.epoch
                and set(event.recipients) & set(resubmit.recipients)
            ]
            if again:
                return Class.FALSE_PROMOTION, "its owner sent it as well"
            if any(event.node == resubmit.peer and event.kind is Kind.TRANSFER for event in events):
                return Class.PROMOTED, "its owner came back and followed"
            if former is not None and (former.lost or others):
                return Class.PROMOTED, "that database is gone"
        case "owner-forgot":
            begun = any(event.kind in ORIGINS and event.node == resubmit.peer for event in events)
            if former is None or former.lost or former.rolled_back or others or not begun:
                return Class.PROMOTED, "its owner's log does not know it, or was lost"
        case "handed-over":
            given = (one for one in events if one.kind is Kind.TRANSFER and one.node == resubmit.peer)
            if any(one.epoch == resubmit.epoch for one in given):
                return Class.PROMOTED, "its owner handed it over"
            if former is not None and former.ends:
                return Class.FALSE_PROMOTION, "its owner's complete log does not hand it over"
        case "owner-retired":
            return Class.PROMOTED, "an operator retired its owner"
        case _:
            pass
    return Class.PROMOTED_UNVERIFIED, "the logs cannot tell"


def removals(
    events: Mapping[int, Event], traces: Mapping[str, Trace], places: Mapping[int, int]
) -> Iterator[Finding]:
    """``events``: all rows about a message by their index. ``places``: where each stands in its database."""
    rows = [index for index, event in events.items() if event.kind is Kind.REMOVE]
    if not rows:
        return
    removed = {number for index in rows for number in events[index].recipients}
    asked = told_by(events[index] for index in rows) or "no row says by whom"
    yield Finding(Class.REMOVED, asked, tuple(sorted(removed)), tuple(rows))
    sent = [index for index, event in events.items() if event.kind in SENT and removed & {*event.recipients}]
    for index in sent:
        yield from _sent(index, removed & {*events[index].recipients}, events, traces, places)


def _sent(
    index: int,
    removed: set[int],
    events: Mapping[int, Event],
    traces: Mapping[str, Trace],
    places: Mapping[int, int],
) -> Iterator[Finding]:
    """A delivery to recipients that were removed, by that node or by another one."""
    one = events[index]
    here = [at for at, event in events.items() if event.database == one.database and _hears(event, removed)]
    before = [at for at in here if places[at] < places[index]]
    own = [at for at in here if events[at].kind is Kind.REMOVE and places[at] > places[index]]
    # A database that was set back knows nothing of the rows that it gave up.
    forgot = traces[one.database].database.rolled_back
    numbers = tuple(sorted(removed))
    if before and not forgot:
        detail = f"{one.node} knew of the removal, and delivered it all the same"
        yield Finding(Class.DELIVERED_AFTER_REMOVAL, detail, numbers, (*before, index))
    elif own and not forgot:
        detail = f"{one.node}: REMOVE of what it had delivered"
        yield Finding(Class.INCONSISTENT, detail, numbers, (index, *own))
    else:
        detail = f"{one.node} delivered it before it heard of the removal"
        yield Finding(Class.REMOVED_TOO_LATE, detail, numbers, (index,))


def _hears(event: Event, removed: set[int]) -> bool:
    """Is it a row by which its node knows that one of these is settled?"""
    settled = event.kind is Kind.HADISCARD and event.reason in SETTLED_ELSEWHERE
    return (settled or event.kind is Kind.REMOVE) and bool(removed & {*event.recipients})


def unsuspended(events: Mapping[int, Event], places: Mapping[int, int], *, untold: bool) -> Iterator[Finding]:
    """An operator resumes what one suspended: here before, or at another node that had it."""
    for index, event in events.items():
        if untold or event.kind is not Kind.RESUME or not event.operated:
            continue
        before = {
            number
            for at, one in events.items()
            if one.kind is Kind.SUSPEND
            and one.operated
            and (one.database != event.database or places[at] < places[index])
            for number in one.recipients
        }
        if never := set(event.recipients) - before:
            detail = f"{event.node}: RESUME of what nobody had suspended"
            yield Finding(Class.INCONSISTENT, detail, _all(never), (index,))


def waiting(events: Mapping[int, Event], traces: Mapping[str, Trace]) -> Mapping[int, Sequence[int]]:
    """Recipients whom a node has, and whom an operator suspended: with the rows that say so.

    Where a node that owns the message has resumed them, a copy that did not hear of that does not count.
    """
    found: dict[int, list[int]] = {}
    resumed: set[int] = set()
    for trace in traces.values():
        if trace.ending in (Ending.HELD, Ending.TAIL):
            for number in (trace.left & trace.suspended.keys()) - trace.resumed:
                found.setdefault(number, []).append(trace.suspended[number])
            resumed |= trace.resumed & trace.left if trace.owned else set()
    rows: dict[int, list[int]] = {}
    for number, some in found.items():
        if number not in resumed:
            rows[number] = sorted(some, key=lambda index: events[index].at)
    return rows


def told_by(events: Iterable[Event]) -> str:
    """Who did it and why, each once."""
    return "; ".join(dict.fromkeys(event.why for event in events if event.why))


@dataclass(slots=True)
class Words:
    """Of recipients whose end no row at hand tells. ``borne_out``: the row may have gone with a disk.
    ``denied``: the log of each who told it is whole, and has them unsettled. ``alone``: the row is in a log
    that is not at hand, or no row says how far that log had got, as an older version wrote it.
    """

    borne_out: set[int] = field(default_factory=set)
    denied: set[int] = field(default_factory=set)
    alone: set[int] = field(default_factory=set)


def weighed(
    rows: Iterable[Event],
    recipients: set[int],
    traces: Mapping[str, Trace],
    evidence: Evidence,
    *,
    lost: bool,
) -> Words:
    """``rows``: HADISCARD, all that were told of the message. ``recipients``: those without an end.

    ``lost``: rows about it may have gone with a disk.
    """
    found = Words()
    rows = tuple(rows)
    heard: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        heard[row.database] |= set(row.recipients)
    for row in rows:
        named = recipients & set(row.recipients)
        teller, mark = row.teller
        if not teller:
            found.alone |= named
            continue
        trace = traces.get(teller)
        if _may_lack(teller, mark, trace, evidence):
            gone = _lost_an_end(evidence.databases.get(teller))
        else:
            denied = _denied(named, trace)
            found.denied |= denied
            named -= denied | heard[teller]  # what the teller was told itself is a word, too
            gone = lost
        (found.borne_out if gone else found.alone).update(named)
    found.alone -= found.borne_out
    found.denied -= found.borne_out | found.alone
    return found


def _may_lack(name: str, mark: tuple[str, int], trace: Trace | None, evidence: Evidence) -> bool:
    """May rows about the message be missing, up to that mark of that database?"""
    database = evidence.databases.get(name)
    if database is None or not database.whole or database.rolled_back or not database.reaches(*mark):
        return True
    return not (database.from_start or (trace is not None and trace.begun))


def _denied(named: set[int], trace: Trace | None) -> set[int]:
    """Those that who told of them had unsettled at its last row, or of which it never had a row.

    A node whose rows are damaged knows what it was told, and writes no row of that.
    """
    if trace is None:
        return named
    return set() if trace.damage is Damage.ROWS else named & trace.left
