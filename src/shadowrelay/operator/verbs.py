"""What a job does to one message: each verb under its one name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from shadowrelay.core.decisions import Content
from shadowrelay.core.delivery.journal import JournalCopy
from shadowrelay.core.delivery.settling import AttemptResult, Ending, Hop, Report, settle
from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.jobs import Job, Verb
from shadowrelay.core.messages import Copy
from shadowrelay.core.ownership.transfer import saved
from shadowrelay.core.steps import WriteReports
from shadowrelay.core.values import dataclass, replace
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.delivery.reports import Reporter

BOUNCED = "554 5.3.0 Given up by the postmaster"
NOWHERE = Hop(server="", inside=False, mailbox=False)


@dataclass(frozen=True, slots=True)
class Written:
    """The reports of a message, for recipients with these numbers."""

    numbers: tuple[int, ...]
    reports: tuple[Report | JournalCopy, ...]


@dataclass(frozen=True, slots=True)
class ReportWriter:
    """Writes the reports that senders get of an operator's act."""

    reporter: Reporter

    async def write(self, job: Job, copy: Copy, numbers: Sequence[int], content: Content) -> Written:
        step = WriteReports(copy, _results(job, numbers), NOWHERE, dsn_offered=True)
        return Written(tuple(numbers), await self.reporter.write(step, content))


def needs_reports(job: Job) -> bool:
    return job.verb is Verb.BOUNCE or job.with_report


def perform(
    ledger: SqlLedger,
    job: Job,
    copy: Copy,
    numbers: Sequence[int],
    written: Mapping[MessageId, Written] | None,
    now: datetime,
) -> bool:
    """Do it to these recipients of a message that no attempt has in hand. Returns whether that changed it."""
    match job.verb:
        case Verb.RETRY:
            some = [one for one in copy.unsettled if one.number in numbers]
            after = copy.with_recipients(replace(one, next_attempt=None) for one in some)
            ledger.apply(saved(copy, after))
            return True
        case Verb.BOUNCE:
            reports = written[copy.id].reports if written else ()
            ledger.apply(settle(ledger, copy.id, _results(job, numbers), reports, NOWHERE, now))
            return True
        case _:
            raise NotImplementedError(job.verb)


def _results(job: Job, numbers: Sequence[int]) -> tuple[AttemptResult, ...]:
    del job
    return tuple(AttemptResult(one, Ending.REJECTED, BOUNCED, remote=False) for one in numbers)
