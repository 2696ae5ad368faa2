"""The inquiry: this process's memory of which member has answered about which message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
"""How many messages one call to ``conclude`` decides: every other transaction waits meanwhile."""

LOOKS = 5000
"""How many open questions one call looks at, or twice as many; the next call goes on after those."""

PAGE = 500
"""How many open questions are read at once."""


@dataclass(slots=True)
class _Asked:
    question: OpenQuestion
    began: float
    by: frozenset[ServerName] = frozenset()  # one object for all messages with the same answers
    confirmed: bool = False  # a member has a copy in transit

    def about(self, question: OpenQuestion) -> bool:
        """Do these answers count for that question? The message may be asked about again later. Answers to a
        claim count for the promoted message, but no earlier ones for the claim.
        """
        same = self.question.since == question.since
        return same and question.taken_from in {None, self.question.taken_from}


@dataclass(slots=True)
class Inquiry:
    """The answers about each message. Times are seconds of a monotonic clock: a clock step concludes nothing.

    ``returned``: when this node returned from an absence; None: it was never away. Questions about the
    messages that it had then have this time as their ``since``; later questions have a later one. ``long``:
    was the absence so long that the fate of those messages may be forgotten everywhere? None: not known yet.
    ``sound``: copies whose content matched its digest, so that they may be promoted.
    ``unread``: copies whose content has to be compared. ``opening``: the database is being opened, so nothing
    can be concluded yet: the talk would only make the opening last longer.
    """

    returned: datetime | None = None
    long: Callable[[], bool | None] = lambda: False
    sound: set[MessageId] = field(default_factory=set)
    unread: set[MessageId] = field(default_factory=set)
    opening: bool = False
    _asked: dict[MessageId, _Asked] = field(default_factory=dict)
    _began: dict[tuple[datetime | None, ServerName | None], float] = field(
        default_factory=dict
    )  # of questions not all looked at yet
    _looked_at: MessageId = FIRST  # where ``conclude`` stopped, when there were too many
    _places: dict[ServerName, MessageId] = field(default_factory=dict)  # after which ``unasked`` goes on
    _groups: dict[frozenset[ServerName], frozenset[ServerName]] = field(default_factory=dict)
    _again: dict[ServerName, dict[MessageId, None]] = field(default_factory=dict)  # in order of arrival

    def _entry(self, question: OpenQuestion, at: float = 0.0) -> _Asked:
        entry = self._asked.get(question.message_id)
        if entry is None or not entry.about(question):
            entry = self._asked[question.message_id] = _Asked(question, at)
        entry.question = question
        return entry

    def forgotten(self, since: datetime | None) -> bool | None:
        """May all members have forgotten what is in question since then? None: it is not known yet."""
        return since is not None and since == self.returned and self.long()

    def unasked(self, ledger: Ledger, member: ServerName, most: int) -> list[OpenQuestion]:
        """Up to ``most`` open questions that the member has not answered yet. If there are more, the next
        call goes on after them, so that answers that do not count yet keep nothing behind them waiting.

        If very many are answered, each call looks only at a part of them, so a question asked anew among them
        may be found only by a later call. None while the database is being opened.
        """
        found = self._next(ledger, member, most)
        if len(found) >= most > 0:
            self.go_on_after(member, found[-1].message_id)
        return found

    def go_on_after(self, member: ServerName, message_id: MessageId) -> None:
        """``unasked`` begins behind this question next."""
        self._places[member] = message_id

    def _next(self, ledger: Ledger, member: ServerName, most: int) -> list[OpenQuestion]:
        """What ``unasked`` returns. The place stays before it."""
        if self.opening:
            return []
        last = place = self._places.pop(member, FIRST)
        found: list[OpenQuestion] = []
        for looks, question in enumerate(_in_turn(ledger, place), 1):
            if not self._has_answered(question, member):
                found.append(question)
            elif not found:
                last = question.message_id
            if looks >= LOOKS * (2 if found else 1):  # look on a while, to fill the command
                last = question.message_id
            elif len(found) < most:
                continue
            if place or looks >= LOOKS:
                self._places[member] = last
            break
        return found

    def _has_answered(self, question: OpenQuestion, member: ServerName) -> bool:
        """Has the member answered? The owner that a pending promotion replaces is not asked: also True."""
        entry = self._asked.get(question.message_id)
        answered = entry is not None and entry.about(question) and member in entry.by
        return answered or question.taken_from == member

    def note(self, copy: Copy, member: ServerName, *, confirmed: bool = False) -> None:
        """The member answered about this message; ``confirmed``: it has a copy in transit."""
        if copy.confirmation is not Confirmation.NONE:
            taken_from = copy.owner if copy.pending else None
            entry = self._entry(OpenQuestion(copy.id, copy.confirm_since, taken_from))
            if member not in entry.by:
                by = entry.by | {member}
                entry.by = self._groups.setdefault(by, by)
            entry.confirmed = entry.confirmed or confirmed

    def ask_again(self, member: ServerName, message_id: MessageId) -> int:
        """Ask that member about a message although there is no doubt: a page of its disk may be out of date,
        which nobody would notice. Returns how many messages it is to be asked about.
        """
        waiting = self._again.setdefault(member, {})
        waiting[message_id] = None
        return len(waiting)

    def asked_again(self, member: ServerName, most: int) -> list[MessageId]:
        """Take up to ``most`` of those messages. They are not kept: the next scrub asks about all again."""
        waiting = self._again.get(member, {})
        found = list(islice(waiting, most))
        for message_id in found:
            del waiting[message_id]
        return found

    def has_questions(self, ledger: Ledger, member: ServerName) -> bool:
        """Is there a question for that member?"""
        return bool(self._again.get(member) or self._next(ledger, member, 1))

    @property
    def idle(self) -> bool:
        """Is no answer remembered, and nobody to be asked again?"""
        return not (self._asked or any(self._again.values()))

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

        If there are many messages, one call looks at a part of them, and the next call at others. Returns how
        many questions were closed.
        """
        closed = looks = 0
        last = FIRST
        seen: set[MessageId] = set()
        patience = policy.reconcile_timeout / timedelta(seconds=1)
        for number, question in enumerate(_in_turn(ledger, self._looked_at), 1):
            if number > LOOKS:
                break
            seen.add(question.message_id)
            # Questions that began together wait together, whenever this call looks at them.
            began = self._began.setdefault((question.since, question.taken_from), at)
            entry = self._entry(question, began)
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
                    forgotten=self.forgotten(question.since),
                    sound=last in self.sound,
                )
                closed += self._noted(last, concluding.conclude(ledger, copy, question, said, policy, now))
        else:
            last = last if looks > AT_ONCE else FIRST
            self._began.clear()
            for concluded in self._asked.keys() - seen:  # concluded elsewhere
                self.forget(concluded)
        self._looked_at = last
        return closed

    def _noted(self, message_id: MessageId, conclusion: Conclusion) -> bool:
        """Note how a question was concluded. Is it closed?"""
        match conclusion:
            case Conclusion.OPEN:
                return False
            case Conclusion.UNREAD:
                self.unread.add(message_id)
                return False
            case Conclusion.PROMOTED | Conclusion.SET_ASIDE:
                self.sound.discard(message_id)
            case Conclusion.ANSWERED:
                self.forget(message_id)
        return True


def _in_turn(ledger: Ledger, last: MessageId) -> Iterator[OpenQuestion]:
    """Every open question once, beginning after ``last``. The caller may close questions that it has read."""
    for after, until in ((last, None), (FIRST, last)) if last else ((FIRST, None),):
        while page := ledger.open_questions(after, PAGE):
            for question in page:
                if until is not None and question.message_id > until:
                    return
                yield question
            after = page[-1].message_id  # noqa: PLW2901
            if len(page) < PAGE:
                break
