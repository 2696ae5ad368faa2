"""Who has answered about which message, since it began to be asked about: memory of this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from datetime import datetime, timedelta
from itertools import islice

from shadowrelay.core.decisions import OpenQuestion
from shadowrelay.core.identifiers import FIRST, MessageId, ServerName
from shadowrelay.core.ledger import Ledger, Transaction
from shadowrelay.core.members import concluding
from shadowrelay.core.members.concluding import Conclusion, QuestionState
from shadowrelay.core.messages import Confirmation, Copy
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception import arrivals
from shadowrelay.core.values import dataclass

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

    def unasked(self, ledger: Ledger, member: ServerName, most: int) -> list[OpenQuestion]:
        """Up to ``most`` about which that member has not yet answered.

        Where very many have been answered, those are not gone through again every time: what is asked anew
        among them may be found by a later call only.
        """
        last = place = self._places.pop(member, FIRST)
        found: list[OpenQuestion] = []
        for looks, question in enumerate(_in_turn(ledger, place), 1):
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

    def has_questions(self, ledger: Ledger, member: ServerName) -> bool:
        """Is there anything to ask that member about?"""
        return bool(self._again.get(member) or self.unasked(ledger, member, 1))

    def forget(self, message_id: MessageId) -> None:
        self._asked.pop(message_id, None)

    def conclude(
        self,
        ledger: Transaction,
        reachable: frozenset[ServerName],
        policy: Policy,
        now: datetime,
        at: float,
    ) -> int:
        """Decide every message about which the members have answered: see ``concluding.conclude``.

        Looks at a part of the messages when there are many, and at the others next time. Returns how many
        questions were closed.
        """
        closed = looks = 0
        last = FIRST
        seen: set[MessageId] = set()
        patience = policy.reconcile_timeout / timedelta(seconds=1)
        for number, question in enumerate(_in_turn(ledger, self._looked_at), 1):
            if number > LOOKS:
                break
            seen.add(question.message_id)
            # What began to be asked about together is waited for together, whenever its turn comes.
            began = self._began.setdefault(question.since, at)
            entry = self._entry(question.message_id, question.since, began)
            entry.began = entry.began or began
            may_be_closed = concluding.may_be_closed(question, entry.by, reachable)
            looks += may_be_closed
            if looks > AT_ONCE:
                continue
            last = question.message_id
            if may_be_closed and (copy := arrivals.in_question(ledger, last)):
                said = QuestionState(
                    by=entry.by,
                    reachable=reachable,
                    confirmed=entry.confirmed,
                    waited=at - entry.began >= patience,
                    forgotten_since=self.long_away,
                    sound=last in self.sound,
                )
                closed += self._noted(last, concluding.conclude(ledger, copy, question, said, now))
        else:
            last = last if looks > AT_ONCE else FIRST
            self._began.clear()
            for concluded in self._asked.keys() - seen:  # in whatever way
                self.forget(concluded)
        self._looked_at = last
        return closed

    def _noted(self, message_id: MessageId, conclusion: Conclusion) -> bool:
        """Is that question closed?"""
        match conclusion:
            case Conclusion.OPEN:
                return False
            case Conclusion.UNREAD:
                self.unread.add(message_id)
                return False
            case Conclusion.PROMOTED:
                self.sound.discard(message_id)
            case Conclusion.ANSWERED:
                self.forget(message_id)
        return True


def _in_turn(ledger: Ledger, last: MessageId) -> Iterator[OpenQuestion]:
    """Every open question once, those behind that one first; whoever reads on may close what was read."""
    for after, until in ((last, None), (FIRST, last)) if last else ((FIRST, None),):
        while page := ledger.open_questions(after, PAGE):
            for question in page:
                if until is not None and question.message_id > until:
                    return
                yield question
            after = page[-1].message_id  # noqa: PLW2901
            if len(page) < PAGE:
                break
