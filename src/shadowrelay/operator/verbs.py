"""What a job does to one message: each verb under its one name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from shadowrelay.core.decisions import Content, Decision
from shadowrelay.core.delivery import operated
from shadowrelay.core.delivery.journal import JournalCopy
from shadowrelay.core.delivery.operated import NOBODY, Done, results
from shadowrelay.core.delivery.settling import Ending, Report
from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.jobs import Job, Verb
from shadowrelay.core.messages import FOREVER, Copy
from shadowrelay.core.operating import By
from shadowrelay.core.steps import WriteReports
from shadowrelay.core.values import dataclass
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.delivery.reports import Reporter


@dataclass(frozen=True, slots=True)
class Written:
    """The reports of a message, for recipients with these numbers."""

    numbers: tuple[int, ...]
    reports: tuple[Report | JournalCopy, ...]


@dataclass(frozen=True, slots=True)
class ReportWriter:
    """Writes the reports that senders get of an operator's act."""

    reporter: Reporter

    async def write(self, job: Job, copy: Copy, numbers: Collection[int], content: Content) -> Written:
        ending = Ending.REMOVED if job.verb is Verb.REMOVE else Ending.REJECTED
        ends = results((one for one in copy.recipients if one.number in numbers), ending)
        written = await self.reporter.write(WriteReports(copy, ends, NOBODY, dsn_offered=True), content)
        return Written(tuple(numbers), tuple(written))


def needs_reports(job: Job) -> bool:
    return job.verb is Verb.BOUNCE or job.with_report


def perform(
    ledger: SqlLedger,
    job: Job,
    copy: Copy,
    numbers: Collection[int],
    written: Mapping[MessageId, Written] | None,
    now: datetime,
) -> bool:
    """Do it to these recipients of a message that no attempt has in hand. Returns whether that changed it."""
    by = By(job.operator, job.reason, job.id)
    reports = written[copy.id].reports if written else ()
    return bool(ledger.apply(_decided(ledger, job, copy.id, numbers, by, reports, now)).numbers)


def _decided(
    ledger: SqlLedger,
    job: Job,
    message_id: MessageId,
    numbers: Collection[int],
    by: By,
    reports: Collection[Report | JournalCopy],
    now: datetime,
) -> Decision[Done]:
    match job.verb:
        case Verb.RETRY:
            return operated.retry(ledger, message_id, numbers, by, now)
        case Verb.SUSPEND:
            until = job.until or FOREVER
            return operated.suspend(ledger, message_id, numbers, by, now, until=until, ordered_at=job.made_at)
        case Verb.RESUME:
            return operated.resume(ledger, message_id, numbers, by, now, ordered_at=job.made_at)
        case Verb.REMOVE:
            return operated.remove(ledger, message_id, numbers, by, now, reports=reports)
        case Verb.BOUNCE:
            return operated.bounce(ledger, message_id, numbers, by, now, reports=reports)
