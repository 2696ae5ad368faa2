"""Explains why a message was delivered twice, by the tracking logs of all nodes and the faults."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

from shadowlab import clocks
from shadowlab.chaos.history import History, Loses, Struck
from shadowlab.chaos.verdict import Delivery
from shadowlab.layout import Layout
from shadowlab.mail import tracked

DELIVERIES = frozenset({"DELIVER", "DUPLICATEDELIVER", "SEND", "SENDEXTERNAL"})
_OWNING = frozenset({"RECEIVE", "RESUBMIT", "LOAD"})
_CLOCK = 0.05  # seconds by which a row may be older than the file it is about
_POLL = 3.0  # seconds until members know of a settlement: polls every second, on a busy machine
_IN_FLIGHT = 2.0  # seconds until a next hop has processed mail from a node that died
_SETTLING = 5.0  # seconds between a next hop's reply and the commit that records it, on a busy machine


class Cause(StrEnum):
    """The causes of a second delivery that the promise allows, and UNEXPLAINED."""

    UNRECORDED = "the node was struck between the next hop's reply and its own record"
    UNKNOWN_ELSEWHERE = (
        "the node lost its disk, or was away too long, before the other copy learnt of the delivery"
    )
    PARTITIONED = "the link by which the other copy would have learnt of the delivery was cut for too long"
    LATE_ANSWER = "the holder had promoted its copy before the owner got its answer and accepted the message"
    IN_DOUBT = "sent in doubt: a holder could not be asked"
    REPLY_LOST = "the next hop's reply was lost"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True)
class LogRow:
    """The part of a tracking row that matters here."""

    at: float
    node: str
    event: str
    recipients: frozenset[str]
    in_doubt: bool
    reception: str = ""  # its network-message-id


def read(at: Layout, lost_logs: Path, sent: Mapping[str, float]) -> dict[str, list[LogRow]]:
    """The rows of all nodes about these Message-IDs, ordered by time. ``sent``: when each message was sent.

    Times of a node whose clock was set are corrected by a step of chaos, towards the time of sending.
    """
    found: dict[str, list[LogRow]] = defaultdict(list)
    for node in at.nodes:
        for directory in (node.tracking_dir, lost_logs / node.short):
            for row in tracked(directory):
                if (began := sent.get(row["message-id"])) is not None:
                    found[row["message-id"]].append(_row(node.short, row, began))
    for rows in found.values():
        rows.sort(key=lambda row: row.at)
    return found


def explain(
    duplicates: Iterable[Delivery],
    history: History,
    rows: Mapping[str, Sequence[LogRow]],
    *,
    nodes: int,
    span: float,
) -> dict[Delivery, Cause]:
    """The cause of each duplicate: the first that fits. ``span``: the time span, in seconds."""
    times: dict[Delivery, list[float]] = defaultdict(list)
    for arrival in history.arrivals:
        times[arrival.message_id, arrival.recipient].append(arrival.at)
    sent_to: dict[str, set[str]] = defaultdict(set)
    for attempt in history.attempts:
        sent_to[attempt.message_id].add(attempt.node)
    return {
        one: _Case(
            sorted(times[one]),
            [row for row in rows.get(one[0], ()) if not row.recipients or one[1] in row.recipients],
            sent_to[one[0]],
            history.faults,
            nodes,
            span,
        ).cause()
        for one in duplicates
    }


@dataclass(frozen=True, slots=True)
class _Case:
    """One delivery that was made more than once, at ``times``.

    ``sent_to``: nodes that a client sent the message to; a node that lost its disk may have no rows of it.
    """

    times: Sequence[float]
    rows: Sequence[LogRow]
    sent_to: Collection[str]
    faults: Sequence[Struck]
    nodes: int
    span: float

    def cause(self) -> Cause:
        if self._promoted_before_accepted():
            return Cause.LATE_ANSWER
        if any(row.in_doubt for row in self._recorded):
            return Cause.IN_DOUBT
        if any(row.in_doubt for row in self.rows if row.event == "DEFER"):
            return Cause.REPLY_LOST
        owners = {row.node for row in self.rows if row.event in _OWNING} | set(self.sent_to)
        for fault in self.faults:
            struck = owners.intersection(fault.touched)
            if fault.cuts_links or not struck:
                continue
            if fault.loses is Loses.NOTHING and not any(self._taken_over(node, fault) for node in struck):
                continue  # the record was only late
            if any(self._unrecorded(when, after, fault) for when, after in pairwise(self.times)):
                return Cause.UNRECORDED
        # The last delivery may have no row: its recipients may have been settled by news from other members.
        for row in (one for one in self._recorded if one.at <= self.times[-1]):
            for fault in self.faults:
                if (
                    row.node in fault.touched
                    and _untold(row.at, fault)
                    and (fault.loses is Loses.DISK or self._taken_over(row.node, fault))
                ):
                    return Cause.PARTITIONED if fault.cuts_links else Cause.UNKNOWN_ELSEWHERE
        return Cause.UNEXPLAINED

    def _promoted_before_accepted(self) -> bool:
        """Whether a promotion came before the acceptance, in one reception (a retry begins another one)."""
        promoted = [row for row in self.rows if row.event == "RESUBMIT"]
        accepted = {row.reception: row.at for row in self.rows if row.event == "RECEIVE"}
        return any(row.at < accepted.get(row.reception, row.at) for row in promoted)

    @property
    def _recorded(self) -> list[LogRow]:
        return [row for row in self.rows if row.event in DELIVERIES]

    def _taken_over(self, node: str, fault: Struck) -> bool:
        """Whether another node promoted its copy because the fault kept ``node`` from all others long enough.

        In a cluster of three, a node that reaches both ends of a cut prevents a promotion.
        """
        parted = len(fault.touched) == self.nodes and (node == fault.node or self.nodes == 2)
        silent = fault.healed - fault.began >= self.span and (parted or not fault.cuts_links)
        return silent and any(
            row.node != node and fault.began + self.span <= row.at <= fault.whole + _POLL
            for row in self.rows
            if row.event == "RESUBMIT"
        )

    def _unrecorded(self, when: float, after: float, fault: Struck) -> bool:
        """Whether the delivery came shortly before or during the fault, with no record before the fault, or
        before the delivery that came ``after`` it: a fault may start the node again.

        A next hop processes what it has received, even if the node that sent it is dead.
        """
        end = fault.broken + _IN_FLIGHT if fault.silences else fault.healed
        return fault.began - _SETTLING <= when <= end and not any(
            row.node in fault.touched and when - _CLOCK <= row.at <= min(fault.broken, after - _CLOCK)
            for row in self._recorded
        )


def _untold(when: float, fault: Struck) -> bool:
    """Whether a record was made too shortly before the fault, or during it, to reach other members."""
    return fault.began - _POLL <= when <= (fault.broken if fault.silences else fault.healed)


def _row(node: str, row: Mapping[str, str], sent: float) -> LogRow:
    at = datetime.fromisoformat(row["date-time"]).timestamp()
    return LogRow(
        at=clocks.corrected(at, sent),
        node=node,
        event=row["event-id"],
        recipients=frozenset(filter(None, row["recipient-address"].lower().split(";"))),
        in_doubt="S:InDoubt=true" in row["custom-data"],
        reception=row["network-message-id"],
    )
