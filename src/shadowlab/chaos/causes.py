"""Why a message was delivered twice, as the tracking logs of all nodes and the faults tell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from shadowlab import clocks
from shadowlab.chaos.history import History, Loses, Struck
from shadowlab.chaos.verdict import Delivery
from shadowlab.layout import Layout
from shadowlab.mail import tracked

DELIVERIES = frozenset({"DELIVER", "DUPLICATEDELIVER", "SEND", "SENDEXTERNAL"})
_OWNING = frozenset({"RECEIVE", "RESUBMIT", "LOAD"})
_STEP = clocks.STEP * 3600.0  # seconds
_CLOCK = 0.05  # seconds that a file's name may be younger than the row about it
_POLL = 3.0  # seconds until a settlement is known elsewhere: polled every second, on a busy machine
_IN_FLIGHT = 2.0  # seconds until a next hop is done with what it received from a node that is dead
_SETTLING = 5.0  # seconds between a next hop's reply and the commit that records it, on a busy machine


class Cause(StrEnum):
    """The ways in which the promise allows a second delivery, and the rest."""

    UNRECORDED = "the node was struck between the next hop's reply and its own record"
    UNKNOWN_ELSEWHERE = (
        "the node lost its disk, or was away too long, before the other copy learnt of the delivery"
    )
    PARTITIONED = "the link was cut for too long, by which the other copy would have learnt of the delivery"
    LATE_ANSWER = "the holder had promoted its copy before the owner got its answer and accepted the message"
    IN_DOUBT = "sent in doubt: a holder could not be asked"
    REPLY_LOST = "the next hop's reply was lost"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True)
class LogRow:
    """A row of a tracking log, as far as it matters here."""

    at: float
    node: str
    event: str
    recipients: frozenset[str]
    in_doubt: bool
    reception: str = ""  # the network-message-id


def read(at: Layout, lost_logs: Path, sent: Mapping[str, float]) -> dict[str, list[LogRow]]:
    """The rows of all nodes about these Message-IDs, in the order of their times. ``sent``: when they were.

    Rows of a node whose clock was set are brought back by the steps that they are away from that.
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
    """The cause of each; the first one that fits. ``span``: seconds until silence promotes."""
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
    """One delivery that was made more than once. ``times``: when.

    ``sent_to``: nodes that a client sent the message to; the log of one that lost its disk may be silent.
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
                continue  # the record was late, not lost
            if any(self._unrecorded(when, fault) for when in self.times[:-1]):
                return Cause.UNRECORDED
        # The last delivery may have no row: its recipients were settled by what others told meanwhile.
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
        """Of one reception: a sender that tried again began another one."""
        promoted = [row for row in self.rows if row.event == "RESUBMIT"]
        accepted = {row.reception: row.at for row in self.rows if row.event == "RECEIVE"}
        return any(row.at < accepted.get(row.reception, row.at) for row in promoted)

    @property
    def _recorded(self) -> list[LogRow]:
        return [row for row in self.rows if row.event in DELIVERIES]

    def _taken_over(self, node: str, fault: Struck) -> bool:
        """Did another one promote its copy, because the fault kept the node from all others for that long?

        Of three, one that sees both ends of a cut keeps what they own their own.
        """
        parted = len(fault.touched) == self.nodes and (node == fault.node or self.nodes == 2)
        silent = fault.healed - fault.began >= self.span and (parted or not fault.cuts_links)
        return silent and any(
            row.node != node and fault.began + self.span <= row.at <= fault.whole + _POLL
            for row in self.rows
            if row.event == "RESUBMIT"
        )

    def _unrecorded(self, when: float, fault: Struck) -> bool:
        """Delivered shortly before its node was struck, or while it was, and not recorded until then.

        A next hop finishes what it has received, even when the node that sent it is dead already.
        """
        end = fault.broken + _IN_FLIGHT if fault.silences else fault.healed
        return fault.began - _SETTLING <= when <= end and not any(
            row.node in fault.touched and when - _CLOCK <= row.at <= fault.broken for row in self._recorded
        )


def _untold(when: float, fault: Struck) -> bool:
    """Recorded too shortly before the fault to be told to others, or while it kept that from being told."""
    return fault.began - _POLL <= when <= (fault.broken if fault.silences else fault.healed)


def _row(node: str, row: Mapping[str, str], sent: float) -> LogRow:
    at = datetime.fromisoformat(row["date-time"]).timestamp()
    return LogRow(
        at=at - round((at - sent) / _STEP) * _STEP,
        node=node,
        event=row["event-id"],
        recipients=frozenset(filter(None, row["recipient-address"].lower().split(";"))),
        in_doubt="S:InDoubt=true" in row["custom-data"],
        reception=row["network-message-id"],
    )
