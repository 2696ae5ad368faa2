"""The verdict on one message, from all its rows on all nodes: the exact pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from shadowaudit.core.addresses import misdirected
from shadowaudit.core.altered import altered
from shadowaudit.core.events import (
    ABOUT,
    FINALS,
    ORIGINS,
    SENT,
    SETTLED_ELSEWHERE,
    UNACKNOWLEDGED,
    Event,
    Kind,
)
from shadowaudit.core.evidence import Database, Evidence
from shadowaudit.core.findings import Class, Finding, combined
from shadowaudit.core.involved import Involved
from shadowaudit.core.promotions import promotions
from shadowaudit.core.redundancy import Copies
from shadowaudit.core.removals import removals, told_by, waiting
from shadowaudit.core.replay import Ending, replay
from shadowaudit.core.replies import epochs, unfitting
from shadowaudit.core.reported import unreported, unsent
from shadowaudit.core.resubmitted import contradictory, undue
from shadowaudit.core.words import Words, weighed

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
            *self._marks(),
        ]
        return Judgement(combined(findings), copies.exposed)

    def _compared(self) -> Iterator[Finding]:
        """Is what was done what was promised?"""
        told = self.events_by_index
        yield from altered(told, untold=self.untold)
        yield from misdirected(told)
        yield from unfitting(told)
        yield from epochs(told, untold=self.untold)
        yield from unreported(told, self.about, untold=self.untold)
        yield from unsent(told, self.about, untold=self.untold)
        yield from contradictory(told)
        yield from undue(told, self.about, self.evidence, untold=self.untold)

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
        words = weighed((self.events[index] for index in rows), told, self.traces, self.evidence)
        if not self.untold:
            words = Words(denied=told)
        open_only = self.involved.open and not (self.involved.lost or self.involved.unknown)
        alone = Class.OPEN if open_only else Class.UNPROVEN_LOSS
        found = (
            (Class.HOLDERS_WORD, "a holder was told that it was delivered", words.borne_out),
            (Class.PREMATURE_DISCARD, "a holder was told of a delivery that no log shows", words.denied),
            (alone, "a holder was told that it was delivered, by whom nobody can tell", words.alone),
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
                yield Finding(what, f"{len(gone)} of {len(owed)} recipients", _all(gone), rows)
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
        double = {number: rows for number, rows in taken.items() if len(rows) > 1}
        if double:
            rows = sorted({index for found in double.values() for index in found})
            cause, why = self._allowed(rows)
            what = Class.ALLOWED_DUPLICATE if cause else Class.DUPLICATE
            # A cause is told by the database that sent it, before it does.
            senders = {self.events[index].database for index in rows}
            if not cause and not all(self.traces[one].database.unbroken for one in senders):
                what = Class.UNEXPLAINED
            yield Finding(what, cause or "no cause in the logs", _all(double), (*rows, *why))
        elif dropped:
            rows = sorted({index for found in dropped.values() for index in found})
            yield Finding(Class.DUPLICATE_DROPPED, "the mailbox server had it", _all(dropped), tuple(rows))

    def _allowed(self, deliveries: Sequence[int]) -> tuple[str, tuple[int, ...]]:
        """A cause that the promise allows, and the rows that show it."""
        doubt = [
            index for index in self._rows(*SENT, Kind.DEFER) if self.events[index].entries.get("InDoubt")
        ]
        if doubt:
            return "a reply was lost, or a holder could not be asked", tuple(doubt)
        databases = {self.events[index].database for index in deliveries}
        taken_over = self._rows(Kind.RESUBMIT, Kind.TRANSFER)
        if taken_over and (len(databases) > 1 or any(t.database.rolled_back for t in self.traces.values())):
            return "it was taken over before its owner's word of the delivery arrived", tuple(taken_over)
        if resumed := [at for at in self._rows(Kind.RESUME) if not self.events[at].operated]:
            return "an operator sent it after all", tuple(resumed)
        return "", ()

    def _contradictions(self) -> Iterator[Finding]:
        for trace in self.traces.values():
            sound = trace.database.whole and not trace.database.rolled_back
            if trace.ending is Ending.VANISHED and sound:
                detail = f"{trace.database.node} had it, and its next snapshot does not list it"
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
