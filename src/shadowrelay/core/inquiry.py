"""Who has answered about which message, since it began to be asked about: memory of this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from datetime import datetime, timedelta
from itertools import islice

from shadowrelay.core import arrivals
from shadowrelay.core.decisions import Decision, OpenQuestion, SaveCopy
from shadowrelay.core.identifiers import FIRST, MessageId, ServerName
from shadowrelay.core.ledger import Ledger, Transaction
from shadowrelay.core.messages import Confirmation, Copy, Reason, Stage
from shadowrelay.core.ownership import promote, withdraw
from shadowrelay.core.policy import Policy
from shadowrelay.core.set_aside import set_aside
from shadowrelay.core.values import dataclass, replace

AT_ONCE = 500
"""Messages that one call to ``conclude`` decides about: all else that is to be written waits meanwhile."""

LOOKS = 5000
"""Open questions that one call goes through, or twice as many; of more, the next goes on where it ended."""

PAGE = 500
"""Open questions that are read at once."""


@dataclass(slots=True)
class _Asked:
    since: datetime | None  # the question this is about: a message may be asked about again later
    began: float
    by: set[ServerName] = field(default_factory=set)
    confirmed: bool = False  # somebody holds a copy for us


@dataclass(slots=True)
class Inquiry:
    """Answers per message. Times are seconds of a monotonic clock: a clock step concludes nothing.

    ``long_away``: when this node returned from so long an absence that the fate of what it had may be
    forgotten everywhere; what it had then is asked about since that moment, what came later since later.
    ``sound``: copies whose content was compared with its digest, so that they may be promoted; ``unread``:
    those that are to be.
    """

    long_away: datetime | None = None
    sound: set[MessageId] = field(default_factory=set)
    unread: set[MessageId] = field(default_factory=set)
    _asked: dict[MessageId, _Asked] = field(default_factory=dict)
    _began: dict[datetime | None, float] = field(default_factory=dict)  # of questions not all looked at yet
    _looked_at: MessageId = FIRST  # by ``conclude``, when there were too many
    _places: dict[ServerName, MessageId] = field(default_factory=dict)  # by ``unasked``, likewise
    _again: dict[ServerName, dict[MessageId, None]] = field(default_factory=dict)  # as it came

    def _entry(self, message_id: MessageId, since: datetime | None, at: float = 0.0) -> _Asked:
        entry = self._asked.get(message_id)
        if entry is None or entry.since != since:
            entry = self._asked[message_id] = _Asked(since, at)
        return entry

    def unasked(self, books: Ledger, member: ServerName, most: int) -> list[OpenQuestion]:
        """Up to ``most`` about which that member has not yet answered.

        Where very many have been answered, those are not gone through again every time: what is asked anew
        among them may be found by a later call only.
        """
        last = place = self._places.pop(member, FIRST)
        found: list[OpenQuestion] = []
        for looks, question in enumerate(_in_turn(books, place), 1):
            if not self._has_answered(question, member):
                found.append(question)
            elif not found:
                last = question.message_id
            if looks >= LOOKS * (2 if found else 1):  # what is found is to fill the command
                last = question.message_id
            elif len(found) < most:
                continue
            if place or looks >= LOOKS:
                self._places[member] = last
            break
        return found

    def _has_answered(self, question: OpenQuestion, member: ServerName) -> bool:
        """Or is not to be asked: a pending promotion takes the message from it."""
        entry = self._asked.get(question.message_id)
        answered = entry is not None and entry.since == question.since and member in entry.by
        return answered or question.taken_from == member

    def note(self, copy: Copy, member: ServerName, *, confirmed: bool = False) -> None:
        """That member answered; ``confirmed``: that it holds a copy for us."""
        if copy.confirmation is not Confirmation.NONE:
            entry = self._entry(copy.id, copy.confirm_since)
            entry.by.add(member)
            entry.confirmed = entry.confirmed or confirmed

    def ask_again(self, member: ServerName, message_id: MessageId) -> int:
        """Ask that member what it has of a message, though there is no doubt: a page of its disk may be out
        of date, and nobody would know. Returns how many it is to be asked about.
        """
        waiting = self._again.setdefault(member, {})
        waiting[message_id] = None
        return len(waiting)

    def asked_again(self, member: ServerName, most: int) -> list[MessageId]:
        """Up to ``most`` of those, which are done with by this: another look at all of it comes anyway."""
        waiting = self._again.get(member, {})
        found = list(islice(waiting, most))
        for message_id in found:
            del waiting[message_id]
        return found

    def has_questions(self, books: Ledger, member: ServerName) -> bool:
        """Is there anything to ask that member about?"""
        return bool(self._again.get(member) or self.unasked(books, member, 1))

    def forget(self, message_id: MessageId) -> None:
        self._asked.pop(message_id, None)

    def conclude(
        self,
        books: Transaction,
        reachable: frozenset[ServerName],
        policy: Policy,
        now: datetime,
        at: float,
    ) -> int:
        """Let go the messages about which everybody who may know better has answered; promote those whose
        promotion is pending.

        Those whose holder could not be reached within ``reconcile_timeout``, or at all while another one that
        answered holds a copy, go out marked in doubt, unless this node was ``long_away``: then they are set
        aside for the operator. A member that can be reached is waited for. A copy is promoted once its
        content was read and is ``sound``.
        Looks at a part of the messages when there are many, and at the others next time. Returns how many
        questions were closed.
        """
        closed = looks = 0
        last = FIRST
        seen: set[MessageId] = set()
        patience = policy.reconcile_timeout / timedelta(seconds=1)
        for number, question in enumerate(_in_turn(books, self._looked_at), 1):
            if number > LOOKS:
                break
            seen.add(question.message_id)
            # What began to be asked about together is waited for together, whenever its turn comes.
            began = self._began.setdefault(question.since, at)
            entry = self._entry(question.message_id, question.since, began)
            entry.began = entry.began or began
            complete = reachable - {question.taken_from} <= entry.by
            may_be_closed = complete or question.taken_from in reachable
            looks += may_be_closed
            if looks > AT_ONCE:
                continue
            last = question.message_id
            if not may_be_closed:
                continue
            copy = arrivals.in_question(books, last)
            if copy is None:
                continue
            if copy.pending is Reason.HEARTBEAT_LOST and copy.owner in reachable:
                closed += 1
                books.apply(withdraw(copy, now))
                continue
            if not complete:
                continue
            if (
                copy.held
                and self.long_away is not None
                and self.long_away == question.since
                and copy.owner not in entry.by
            ):
                continue  # its owner alone can say what became of it
            missing = {holder.name for holder in copy.holders} - entry.by
            waited = at - entry.began >= patience or copy.kept_by(reachable & entry.by)
            if missing and (copy.confirmation is Confirmation.IN_DOUBT or not waited):
                continue
            if copy.pending and not self._may_be_promoted(copy):
                continue
            closed += 1
            if copy.stage is Stage.ARRIVING:
                copy = books.apply(arrivals.accepted(copy, now))
            forgotten = (
                self.long_away is not None
                and question.since == self.long_away
                and copy.owned
                and copy.former_owner is None
                and not entry.confirmed
            )
            if forgotten and copy.confirmation is Confirmation.ASK and not copy.pending:
                books.apply(set_aside(copy, now))
            else:
                books.apply(self._let_go(books, copy, now, in_doubt=bool(missing)))
        else:
            last = last if looks > AT_ONCE else FIRST
            self._began.clear()
            for concluded in self._asked.keys() - seen:  # in whatever way
                self.forget(concluded)
        self._looked_at = last
        return closed

    def _may_be_promoted(self, copy: Copy) -> bool:
        if copy.damaged:
            return False
        if copy.id not in self.sound:
            self.unread.add(copy.id)
            return False
        return True

    def _let_go(self, books: Ledger, copy: Copy, now: datetime, *, in_doubt: bool) -> Decision[None]:
        if copy.pending:
            self.sound.discard(copy.id)
            return promote(books, copy, now)
        if in_doubt and copy.owned:
            return Decision(None, (SaveCopy(copy, replace(copy, confirmation=Confirmation.IN_DOUBT)),))
        self.forget(copy.id)
        answered = replace(copy, confirmation=Confirmation.NONE, confirm_since=None)
        return Decision(None, (SaveCopy(copy, answered),))


def _in_turn(books: Ledger, last: MessageId) -> Iterator[OpenQuestion]:
    """Every open question once, those behind that one first; whoever reads on may close what was read."""
    for after, until in ((last, None), (FIRST, last)) if last else ((FIRST, None),):
        while page := books.open_questions(after, PAGE):
            for question in page:
                if until is not None and question.message_id > until:
                    return
                yield question
            after = page[-1].message_id  # noqa: PLW2901
            if len(page) < PAGE:
                break
