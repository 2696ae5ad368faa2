"""Persist, then speak: a transaction that cannot be written allows none of the answers that rest on it."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sending import MESSAGE, sent
from stations import Station, boundary, offer, pieces

from shadowrelay.core.members.conversation import Answered, Query, Question, Revocation
from shadowrelay.core.reception.redundancy import Leg
from shadowrelay.core.steps import Ask
from shadowrelay.core.tracking_row import Taken
from shadowrelay.database import group_commit
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.snapshot import take_snapshot
from shadowrelay.database.transport import DatabaseFailed
from shadowrelay.members.answering import HoldSink
from shadowrelay.smtp.members.client import MemberFailed


def cannot_write(monkeypatch: pytest.MonkeyPatch, node: Station) -> None:
    """From now on every transaction of that node fails that changes anything."""
    perform = group_commit._perform

    def failing(ledger: SqlLedger, work: group_commit.Work, *, alone: bool) -> group_commit.WorkResult:
        before = ledger.connection.total_changes
        result = perform(ledger, work, alone=alone)
        if ledger is node.database.ledger and ledger.connection.total_changes > before:
            raise sqlite3.OperationalError("disk I/O error")
        return result

    monkeypatch.setattr(group_commit, "_perform", failing)


async def test_a_message_that_could_not_be_written_here_is_answered_by_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither 250, nor 451: another node has a copy of it by then."""
    finish = HoldSink.finish

    async def then_fails(self: HoldSink) -> Any:
        replies = await finish(self)
        cannot_write(monkeypatch, owner)
        return replies

    monkeypatch.setattr(HoldSink, "finish", then_fails)
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        assert await sent(owner, MESSAGE) == ""
        assert owner.database.failed.is_set()
        assert len(await holder.copies()) == 1


async def test_a_copy_that_could_not_be_written_is_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        members = owner.node.members
        members.release(holder.name, await members.acquire(holder.name))
        cannot_write(monkeypatch, holder)
        attempt = await members.offer(offer(holder.name, content=MESSAGE), pieces(MESSAGE))
        assert attempt.leg is Leg.LOST
        assert holder.database.failed.is_set()


async def test_a_revoke_that_could_not_be_written_is_not_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The body may still be on its way to that node: without a tombstone it would become a copy."""
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        members = owner.node.members
        members.release(holder.name, await members.acquire(holder.name))
        cannot_write(monkeypatch, holder)
        revocation = Revocation(offer(holder.name).message_id, 1, 1)
        answered = await members.ask(Ask(holder.name, Query(0, revoke=revocation)))
        assert not isinstance(answered, Answered)
        assert holder.database.failed.is_set()


async def test_a_greeting_that_could_not_be_written_is_not_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (caller, called):
        cannot_write(monkeypatch, called)
        session = await caller.node.members.dial(called.name, 5)
        with pytest.raises(MemberFailed, match="xshadow"):
            await caller.node.members.greet(session, called.name)
        assert called.database.failed.is_set()
        session.abort()


async def test_a_session_is_not_used_before_what_the_member_said_of_itself_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that it takes counts only if its lineage is known from then on."""
    async with boundary(tmp_path, "mx1", "mx2") as (caller, called):
        cannot_write(monkeypatch, caller)
        with pytest.raises(DatabaseFailed):
            await caller.node.members.acquire(called.name)


async def test_a_reply_is_marked_with_what_is_committed_and_not_with_what_may_never_be(
    tmp_path: Path,
) -> None:
    inside, may = threading.Event(), threading.Event()

    def slow(ledger: SqlLedger) -> None:
        take_snapshot(ledger, "1", datetime.now(UTC), Taken.HOURLY)
        inside.set()
        may.wait(10)

    async with boundary(tmp_path, "mx1", "mx2") as (caller, called):
        session = await caller.node.members.acquire(called.name)
        committed = called.database.lineage.mark
        writing = asyncio.ensure_future(called.database.transact(slow))
        await asyncio.to_thread(inside.wait, 10)
        session.write(b"NOOP\r\n")
        try:
            reply = await session.reply("noop")
        finally:
            may.set()
            await writing
        assert reply.lines[-1].endswith(f" {committed.incarnation}:{committed.sequence}")
        assert called.database.lineage.sequence > committed.sequence
        session.abort()


@pytest.mark.parametrize(
    "content", [MESSAGE, MESSAGE + (b"x" * 78 + b"\r\n") * 8000], ids=["small", "streaming"]
)
async def test_while_a_message_is_decided_on_its_owner_does_not_call_it_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    """The holder has committed, the owner has not: at *unknown* the holder would discard the only copy."""
    finish, answers = HoldSink.finish, []

    async def then_asks(self: HoldSink) -> Any:
        replies = await finish(self)
        question = Question(self._offer.message_id, 1)
        answers.append(await holder.node.members.ask(Ask(owner.name, Query(0, questions=(question,)))))
        return replies

    monkeypatch.setattr(HoldSink, "finish", then_asks)
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        assert (await sent(owner, content)).startswith("250 ")
        (answered,) = answers
        assert isinstance(answered, Answered)
        assert answered.lines == ()
