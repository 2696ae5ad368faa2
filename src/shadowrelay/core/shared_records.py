"""What operators want of the whole boundary: the records that every member has, as a ledger keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, TypeAlias

from shadowrelay.core.identifiers import NextHop, RequestId, ServerName
from shadowrelay.core.jobs import ForgetJob, Job, JobProgress
from shadowrelay.core.requests import Progress, Request
from shadowrelay.core.suspensions import ForgetSuspension, Suspension
from shadowrelay.core.switches import Switch
from shadowrelay.core.values import dataclass


def next_revision(known: int, now: datetime) -> int:
    """The revision of a change that an operator makes now: the milliseconds since 1970, but above ``known``.

    So a change counts over all that its node knows, whatever the clocks say, and over earlier ones that the
    node lost with its disk.
    """
    return max(known + 1, int(now.timestamp() * 1000))


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """Forget a resubmit request that ended long ago, and its progress."""

    id: RequestId


@dataclass(frozen=True, slots=True)
class ForgetTold:
    """Forget how far that member said to be with every request and job: it said so in a database that is
    gone, or it is gone itself.
    """

    member: ServerName


RecordWrite: TypeAlias = (
    Request
    | Progress
    | ForgetRequest
    | ForgetTold
    | Switch
    | Job
    | JobProgress
    | ForgetJob
    | Suspension
    | ForgetSuspension
)


class RecordLedger(Protocol):
    """The records, as a decision reads them."""

    def requests(self) -> Sequence[Request]:
        """The resubmit requests, in the order of their ids, which is that of their making."""
        ...

    def request(self, request_id: RequestId) -> Request | None: ...

    def progress(self, request_id: RequestId) -> Sequence[Progress]:
        """How far each node that told has come with it, and this node itself."""
        ...

    def switch(self, name: str) -> Switch | None:
        """A setting that an operator switched for all members; None if nobody did."""
        ...

    def jobs(self) -> Sequence[Job]:
        """The jobs, in the order of their ids, which is that of their making."""
        ...

    def job(self, job_id: RequestId) -> Job | None: ...

    def job_progress(self, job_id: RequestId) -> Sequence[JobProgress]:
        """How far each node that told is with it, and this node itself, in the order of their names."""
        ...

    def suspensions(self) -> Sequence[Suspension]:
        """What is on record of suspended queues, in the order of the next hops; also of resumed ones."""
        ...

    def suspension(self, next_hop: NextHop) -> Suspension | None: ...
