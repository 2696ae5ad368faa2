"""The databases that may know of a message: those whose rows tell of it, and those that these rows name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shadowaudit.core.events import Event, Kind
from shadowaudit.core.evidence import Database, Evidence
from shadowaudit.core.replay import Ending, Trace

_PEERS = (Kind.HAREDIRECT, Kind.HARECEIVE, Kind.RESUBMIT, Kind.TRANSFER)
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
        servers = {event.peer for event in events if event.kind in _PEERS}
        databases += [evidence.databases[one] for name in servers for one in self._of(name)]
        self.lost = any(one.lost or one.rolled_back for one in databases)
        self.open = any(not one.closed and not one.lost and one.segments for one in databases)
        missing = any(not one.lost and not (one.whole and self._from_start(one)) for one in databases)
        self.unknown = missing or any(not self._of(name) for name in servers)

    def _of(self, node: str) -> tuple[str, ...]:
        databases = self._evidence.databases.values()
        without = (one.id for one in databases if one.node == node and not one.segments)
        return (*self._evidence.nodes.get(node, ()), *without)

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
        return database if database is not None and (database.lost or database.rolled_back) else None
