"""Who has answered about which message, since it began to be asked about: memory of this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from datetime import datetime, timedelta

from shadowrelay.core.decisions import Decision, OpenQuestion, SaveCopy, Transaction
from shadowrelay.core.identifiers import MessageId, ServerName
from shadowrelay.core.messages import Confirmation, Copy, Reason
from shadowrelay.core.ownership import promote, withdraw
from shadowrelay.core.policy import Policy
from shadowrelay.core.set_aside import set_aside
from shadowrelay.core.values import dataclass, replace

AT_ONCE = 1000
"""Messages that one call to ``conclude`` looks at: all else that is to be written waits meanwhile."""


@dataclass(slots=True)
class _Asked:
    since: datetime | None  # the question this is about: a message may be asked about again later
    began: float
    by: set[ServerName] = field(default_factory=set)
    confirmed: bool = False  # somebody holds a copy for us


@dataclass(slots=True)
class Inquiry:
    """Answers per message. Times are seconds of a monotonic clock: a clock step concludes nothing."""

    _asked: dict[MessageId, _Asked] = field(default_factory=dict)
    _looked_at: MessageId = MessageId("")  # the last one, when there were too many to look at

    def _entry(self, message_id: MessageId, since: datetime | None, at: float = 0.0) -> _Asked:
        entry = self._asked.get(message_id)
        if entry is None or entry.since != since:
            entry = self._asked[message_id] = _Asked(since, at)
        return entry

    def unasked(self, questions: Iterable[OpenQuestion], member: ServerName) -> Iterator[OpenQuestion]:
        """Those about which that member has not yet answered."""
        for question in questions:
            if question.taken_from == member:
                continue
            entry = self._asked.get(question.message_id)
            if entry is None or entry.since != question.since or member not in entry.by:
                yield question

    def note(self, copy: Copy, member: ServerName, *, confirmed: bool = False) -> None:
        """That member answered; ``confirmed``: that it holds a copy for us."""
        if copy.confirmation is not Confirmation.NONE:
            entry = self._entry(copy.id, copy.confirm_since)
            entry.by.add(member)
            entry.confirmed = entry.confirmed or confirmed

    def forget(self, message_id: MessageId) -> None:
        self._asked.pop(message_id, None)

    def conclude(
        self,
        books: Transaction,
        reachable: frozenset[ServerName],
        policy: Policy,
        now: datetime,
        at: float,
        *,
        long_away: bool,
    ) -> int:
        """Let go the messages about which everybody who may know better has answered; promote those whose
        promotion is pending.

        Those whose holder could not be reached within ``reconcile_timeout`` go out marked in doubt, unless
        this node was away so long that their fate may be forgotten everywhere: then they are set aside for
        the operator. A member that can be reached is waited for. Looks at a part of the messages when there
        are many, and at the others next time. Returns how many questions were closed.
        """
        closed = looks = 0
        last = MessageId("")
        patience = policy.reconcile_timeout / timedelta(seconds=1)
        for question in self._in_turn(books.open_questions()):
            entry = self._entry(question.message_id, question.since, at)
            entry.began = entry.began or at
            complete = reachable - {question.taken_from} <= entry.by
            if not complete and question.taken_from not in reachable:
                continue
            looks += 1
            if looks > AT_ONCE:
                continue
            last = question.message_id
            copy = books.copy(last)
            if copy is None:
                continue
            if copy.pending is Reason.HEARTBEAT_LOST and copy.owner in reachable:
                closed += 1
                books.apply(withdraw(copy, now))
                continue
            if not complete:
                continue
            missing = {holder.name for holder in copy.holders} - entry.by
            out_of_patience = at - entry.began >= patience
            forgotten = long_away and copy.owned and copy.former_owner is None and not entry.confirmed
            if missing and (copy.confirmation is Confirmation.IN_DOUBT or not out_of_patience):
                continue
            closed += 1
            if copy.pending:
                books.apply(promote(books, copy, now))
            elif forgotten and copy.confirmation is Confirmation.ASK:
                books.apply(set_aside(copy, now))
            elif missing and copy.owned:
                in_doubt = replace(copy, confirmation=Confirmation.IN_DOUBT)
                books.apply(Decision(None, (SaveCopy(copy, in_doubt),)))
            else:
                self.forget(copy.id)
                answered = replace(copy, confirmation=Confirmation.NONE, confirm_since=None)
                books.apply(Decision(None, (SaveCopy(copy, answered),)))
        self._looked_at = last if looks > AT_ONCE else MessageId("")
        return closed

    def _in_turn(self, questions: Iterable[OpenQuestion]) -> list[OpenQuestion]:
        """Those behind the last one that was looked at first."""
        return sorted(questions, key=lambda question: question.message_id <= self._looked_at)
