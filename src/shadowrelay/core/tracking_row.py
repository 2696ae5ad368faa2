"""Rows of the message tracking log: the columns that all events have in common.

Column names and event names are Exchange's (see docs/reference/tracking-log.md). A row lacks only what the
commit adds: sequence, incarnation and database id go to custom-data when the outbox is drained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import ClassVar

from shadowrelay.core.identifiers import DatabaseId, Incarnation
from shadowrelay.core.messages import Copy, Recipient
from shadowrelay.core.values import dataclass

Columns = dict[str, str]
"""Column name to text; absent columns are empty. The items of a list are already joined with ``;``."""


def listed(items: Iterable[str]) -> str:
    """Join the items of a list with ``;``. An item that contains ``;`` is put in single quotes."""
    said = ""
    for item in items:
        said += f";'{item}'" if ";" in item else f";{item}"
    return said[1:]


def timestamp(moment: datetime) -> str:
    """UTC, ISO 8601 with milliseconds."""
    moment = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return moment.isoformat(timespec="milliseconds")[:-6] + "Z"


def entries(custom: Mapping[str, str]) -> str:
    """The custom-data column. Empty values are left out; a ``;`` in a value cannot forge another entry."""
    said = ""
    for key, value in custom.items():
        if value:
            said += f";S:{key}=" + (value.replace(";", "\\x3b") if ";" in value else value)
    return said[1:]


def numbers(recipients: Iterable[Recipient]) -> str:
    """Recipient numbers, joined with ``+``."""
    return "+".join([str(recipient.number) for recipient in recipients])


def fork(recipients: Iterable[Recipient]) -> str:
    """The fork of an attempt, named by its lowest recipient number."""
    return str(min((recipient.number for recipient in recipients), default=""))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingEvent:
    """A fact about one message, written as a row. ``recipients``: those that it is about; empty means all."""

    event_id: ClassVar[str]
    source: ClassVar[str] = "SMTP"
    digested: ClassVar[bool] = False  # the row has digests, so that the audit can compare copies

    at: datetime
    copy: Copy
    recipients: tuple[Recipient, ...] = ()

    def columns(self) -> Columns:
        """The row, keyed by column name."""
        copy, envelope = self.copy, self.copy.envelope
        about = self.recipients or copy.recipients
        count = len(about)
        row = {
            "date-time": timestamp(self.at),
            "source": self.source,
            "event-id": self.event_id,
            "message-id": envelope.message_id,
            "network-message-id": copy.id,
            "recipient-address": listed([recipient.address for recipient in about]),
            "total-bytes": str(envelope.size),
            "recipient-count": str(count),
            "message-subject": envelope.subject,
            "sender-address": envelope.sender or "<>",
            "return-path": envelope.sender or "<>",
        }
        # A copy made after some recipients were settled may have only the others, in order of numbers.
        all_of_them = not about or (about[-1].number == count and not copy.recipients[count:])
        some = "" if all_of_them else numbers(about)
        custom = {"Epoch": str(copy.epoch), "Recipients": some} | self.custom()
        if self.digested and copy.digests:
            # A copy from before digests may lack recipients: its envelope digest differs from other copies'.
            said = "" if copy.digests.late else copy.digests.envelope
            custom |= {"Content": copy.digests.content or "", "Envelope": said}
        row["custom-data"] = entries(custom)
        for key, value in self.more().items():
            if value:
                row[key] = value
        return row

    def more(self) -> Columns:
        """The columns that only this kind of event has."""
        return {}

    def custom(self) -> dict[str, str]:
        """The custom-data entries that only this kind of event has, all of type S."""
        return {}


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A committed tracking event in the outbox. ``columns``: see ``TrackingEvent.columns``."""

    sequence: int
    incarnation: Incarnation
    database_id: DatabaseId
    columns: Columns


class Taken(StrEnum):
    """When a snapshot was taken. After a STOP snapshot the log goes on only when the node starts again."""

    START = "start"
    HOURLY = "hourly"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotEnd:
    """Closes a snapshot with the count of its LOAD rows. It is about no single message.

    ``among``: the LOAD rows are among this many rows before this one; more than ``count`` if the snapshot was
    taken in parts.
    """

    at: datetime
    snapshot: str
    count: int
    among: int
    taken: Taken

    def columns(self) -> Columns:
        """The row, keyed by column name."""
        among = "" if self.among == self.count else str(self.among)
        said = {"Snapshot": self.snapshot, "Count": str(self.count), "Among": among, "Taken": self.taken}
        return {
            "date-time": timestamp(self.at),
            "source": "BOOTLOADER",
            "event-id": "LOAD",
            "custom-data": entries(said),
        }
