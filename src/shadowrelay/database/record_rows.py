"""The records that every member has, on SQLite: resubmit requests, switches, jobs and suspended queues.

What decides is one column of JSON. A damaged row counts as none: a member has the record, and gives it
again.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import assert_never

from shadowrelay.core.identifiers import NextHop, RequestId
from shadowrelay.core.jobs import ForgetJob, Job, JobProgress
from shadowrelay.core.requests import Progress, Request
from shadowrelay.core.shared_records import ForgetRequest, ForgetTold, RecordWrite
from shadowrelay.core.suspensions import ForgetSuspension, Suspension
from shadowrelay.core.switches import Switch
from shadowrelay.database import request_rows, sums
from shadowrelay.database.queries import load
from shadowrelay.database.sums import SqlRow
from shadowrelay.wire.jobs import (
    job_from,
    job_progress_from,
    job_progress_told,
    job_told,
    suspension_from,
    suspension_told,
)

SQL = load("queries.sql")


class RecordRows:
    """The part of a ledger that reads and writes records, on the ledger's ``connection``."""

    connection: sqlite3.Connection
    _jobs: list[Job] | None = None  # as stored; the stages read them every second
    _job_progress: dict[RequestId, list[JobProgress]] | None = None

    def forget_records(self) -> None:
        """Read again what is kept in memory: after a rollback."""
        self._jobs = self._job_progress = None

    def requests(self) -> Sequence[Request]:
        rows = self.connection.execute(SQL["requests"]).fetchall()
        return [request for row in rows if (request := sums.sound(request_rows.request_of, row))]

    def request(self, request_id: RequestId) -> Request | None:
        row = self.connection.execute(SQL["request"], (request_id,)).fetchone()
        return sums.sound(request_rows.request_of, row) if row else None

    def switch(self, name: str) -> Switch | None:
        row = self.connection.execute(SQL["switch"], (name,)).fetchone()
        return sums.sound(request_rows.switch_of, row) if row else None

    def progress(self, request_id: RequestId) -> Sequence[Progress]:
        rows = self.connection.execute(SQL["progress"], (request_id,)).fetchall()
        return [found for row in rows if (found := sums.sound(request_rows.progress_of, row))]

    def jobs(self) -> Sequence[Job]:
        if self._jobs is None:
            rows = self.connection.execute(SQL["jobs"]).fetchall()
            self._jobs = [job for row in rows if (job := sums.sound(_job_of, row))]
        return tuple(self._jobs)

    def job(self, job_id: RequestId) -> Job | None:
        return next((job for job in self.jobs() if job.id == job_id), None)

    def job_progress(self, job_id: RequestId) -> Sequence[JobProgress]:
        if self._job_progress is None:
            self._job_progress = {}
            for row in self.connection.execute(SQL["job_progress"]).fetchall():
                if found := sums.sound(_job_progress_of, row):
                    self._job_progress.setdefault(found.job, []).append(found)
        return tuple(self._job_progress.get(job_id, ()))

    def suspensions(self) -> Sequence[Suspension]:
        rows = self.connection.execute(SQL["suspensions"]).fetchall()
        return [found for row in rows if (found := sums.sound(_suspension_of, row))]

    def suspension(self, next_hop: NextHop) -> Suspension | None:
        row = self.connection.execute(SQL["suspension"], (next_hop,)).fetchone()
        return sums.sound(_suspension_of, row) if row else None

    def _write_record(self, write: RecordWrite) -> None:
        run = self.connection.execute
        if isinstance(write, Job | JobProgress | ForgetJob | ForgetTold):
            self.forget_records()
        match write:
            case Switch():
                run(SQL["put_switch"], request_rows.switch_row(write))
            case Request():
                run(SQL["put_request"], request_rows.request_row(write))
            case Progress():
                run(SQL["put_progress"], request_rows.progress_row(write))
            case ForgetRequest(request_id):
                run(SQL["drop_progress"], (request_id,))
                run(SQL["drop_request"], (request_id,))
            case ForgetTold(member):
                for one in self.requests():
                    run(SQL["drop_progress_of"], (one.id, member))
                for job in self.jobs():
                    run(SQL["drop_job_progress_of"], (job.id, member))
            case Job():
                run(SQL["put_job"], (write.id, json.dumps(job_told(write))))
            case JobProgress():
                told = json.dumps(job_progress_told(write))
                run(SQL["put_job_progress"], (write.job, write.node, told))
            case ForgetJob(job_id):
                run(SQL["drop_job_progress"], (job_id,))
                run(SQL["drop_job"], (job_id,))
            case Suspension():
                run(SQL["put_suspension"], (write.next_hop, json.dumps(suspension_told(write))))
            case ForgetSuspension(next_hop):
                run(SQL["drop_suspension"], (next_hop,))
            case _:
                assert_never(write)


def _job_of(row: SqlRow) -> Job:
    return job_from(json.loads(row[1]))


def _job_progress_of(row: SqlRow) -> JobProgress:
    return job_progress_from(json.loads(row[2]))


def _suspension_of(row: SqlRow) -> Suspension:
    return suspension_from(json.loads(row[1]))
