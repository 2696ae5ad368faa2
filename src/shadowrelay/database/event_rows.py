"""The discard events that wait for their addressees, on SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from shadowrelay.core.decisions import AcknowledgeEvents, DiscardEvent, DropEvent, DropEvents, UnsoundEvent
from shadowrelay.core.identifiers import DatabaseId, Incarnation, MessageId
from shadowrelay.database import records, sums
from shadowrelay.database.queries import load

SQL = load("queries.sql")


class EventRows:
    """The part of a ledger that reads and writes discard events, on the ledger's ``connection``."""

    connection: sqlite3.Connection
    _incarnations: list[tuple[Incarnation, int, int]]  # token, first sequence, first event
    _event = 0  # the last number that was given
    _unsound: dict[int, UnsoundEvent]  # that were read, and are not said again yet

    def forget_events(self) -> None:
        """Read again what is kept in memory."""
        self._event = int(self.connection.execute(SQL["last_event"]).fetchone()[0])
        self._unsound = {}

    def events_for(self, addressee: DatabaseId, most: int) -> Iterable[DiscardEvent]:
        found = []
        for row in self.connection.execute(SQL["events_for"], (addressee, most)).fetchall():
            if event := sums.sound(records.event_of, row):
                found.append(event)
            else:
                self._unsound[row[0]] = UnsoundEvent(row[0], addressee, row[2])
        return found

    def take_unsound_events(self) -> Sequence[UnsoundEvent]:
        if not self._unsound:
            return ()
        found = tuple(self._unsound.values())
        self._unsound.clear()
        return found

    def unacknowledged_orders(self, message_id: MessageId) -> Sequence[DatabaseId]:
        rows = self.connection.execute(SQL["orders_of"], (message_id,)).fetchall()
        events = [sums.sound(records.event_of, row) for row in rows]
        return list(dict.fromkeys(event.addressee if event else DatabaseId("") for event in events))

    def _write_event(self, write: DiscardEvent | DropEvent | AcknowledgeEvents | DropEvents) -> None:
        run = self.connection.execute
        match write:
            case DiscardEvent():
                self._event += 1
                run(SQL["put_event"], (self._event, *records.event_row(write)))
            case DropEvent(number):
                run(SQL["drop_event"], (number,))
            case AcknowledgeEvents(addressee, upto):
                last = self._last_event_of(upto.incarnation)
                if last is not None:
                    run(SQL["acknowledge_events"], (addressee, min(last, upto.sequence)))
            case DropEvents(addressee):
                run(SQL["drop_events"], (addressee,))

    def _last_event_of(self, incarnation: Incarnation) -> int | None:
        """The last event number when ``incarnation`` ended; None if this node does not know it.

        After a rollback the numbers are used again: an acknowledgement from a lost incarnation, or of numbers
        past the end of a known one, must not drop the new events.
        """
        for index, (token, _, _) in enumerate(self._incarnations):
            if token == incarnation:
                following = self._incarnations[index + 1 :]
                return following[0][2] - 1 if following else self._event
        return None
