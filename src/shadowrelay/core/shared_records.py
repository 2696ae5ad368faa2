"""The records that every member has, as a ledger keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from shadowrelay.core.identifiers import NextHop, RequestId, ServerName
from shadowrelay.core.jobs import Job, JobProgress
from shadowrelay.core.records import P, R, Record, RecordPart
from shadowrelay.core.requests import Progress, Request
from shadowrelay.core.suspensions import Suspension
from shadowrelay.core.switches import Switch
from shadowrelay.core.values import dataclass


@dataclass(frozen=True, slots=True)
class ForgetRecord:
    """Forget a record, and how far each node is with it."""

    kind: type[Record]
    key: str


@dataclass(frozen=True, slots=True)
class ForgetTold:
    """Forget how far that member said to be with every record: it said so in a database that is gone, or it
    is gone itself.
    """

    member: ServerName


RecordWrite: TypeAlias = Record | RecordPart | ForgetRecord | ForgetTold


class RecordLedger(Protocol):
    """The records, as a decision reads them."""

    def records(self, kind: type[R]) -> Sequence[R]:
        """All of a kind, in the order of their keys: of requests and jobs, that of their making."""
        ...

    def record(self, kind: type[R], key: str) -> R | None: ...

    def parts(self, kind: type[P], record: RequestId) -> Sequence[P]:
        """How far each node that told is with a record, and this node itself, in the order of their names."""
        ...

    def requests(self) -> Sequence[Request]:
        return self.records(Request)

    def request(self, request_id: RequestId) -> Request | None:
        return self.record(Request, request_id)

    def progress(self, request_id: RequestId) -> Sequence[Progress]:
        return self.parts(Progress, request_id)

    def jobs(self) -> Sequence[Job]:
        return self.records(Job)

    def job(self, job_id: RequestId) -> Job | None:
        return self.record(Job, job_id)

    def job_progress(self, job_id: RequestId) -> Sequence[JobProgress]:
        return self.parts(JobProgress, job_id)

    def suspensions(self) -> Sequence[Suspension]:
        """Also of queues that were resumed."""
        return self.records(Suspension)

    def suspension(self, next_hop: NextHop) -> Suspension | None:
        return self.record(Suspension, next_hop)

    def switch(self, name: str) -> Switch | None:
        """A setting that an operator switched for all members; None if nobody did."""
        return self.record(Switch, name)
