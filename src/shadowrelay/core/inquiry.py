"""Who has answered about which message, since it began to be asked about: memory of this process."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from shadowrelay.core.decisions import Decision, SaveCopy, Transaction
from shadowrelay.core.identifiers import MessageId, ServerName
from shadowrelay.core.messages import Confirmation, Copy, Stage
from shadowrelay.core.policy import Policy
from shadowrelay.core.tracking import Suspend


@dataclass(slots=True)
class _Asked:
    since: datetime | None  # the question this is about: a message may be asked about again later
    began: float
    by: set[ServerName] = field(default_factory=set)


@dataclass(slots=True)
class Inquiry:
    """Answers per message. Times are seconds of a monotonic clock: a clock step concludes nothing."""

    _asked: dict[MessageId, _Asked] = field(default_factory=dict)

    def _entry(self, copy: Copy, at: float = 0.0) -> _Asked:
        entry = self._asked.get(copy.id)
        if entry is None or entry.since != copy.confirm_since:
            entry = self._asked[copy.id] = _Asked(copy.confirm_since, at)
        return entry

    def unasked(self, copy: Copy, member: ServerName) -> bool:
        """Has that member not yet answered about the message?"""
        entry = self._asked.get(copy.id)
        return entry is None or entry.since != copy.confirm_since or member not in entry.by

    def note(self, copy: Copy, member: ServerName) -> None:
        """That member answered."""
        if copy.confirmation is not Confirmation.NONE:
            self._entry(copy).by.add(member)

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
        """Let go the messages about which everybody who may know better has answered.

        Those whose holder could not be reached within ``reconcile_timeout`` go out marked in doubt, unless
        this node was away so long that their fate may be forgotten everywhere: then they are set aside for
        the operator. Returns how many may be delivered now.
        """
        ready = 0
        for copy in tuple(books.copies_to_confirm()):
            entry = self._entry(copy, at)
            entry.began = entry.began or at
            holders = {holder.name for holder in copy.holders}
            if holders <= entry.by and reachable <= entry.by:
                self.forget(copy.id)
                after = replace(copy, confirmation=Confirmation.NONE, confirm_since=None)
            elif (
                copy.confirmation is Confirmation.IN_DOUBT
                or at - entry.began < policy.reconcile_timeout / timedelta(seconds=1)
            ):
                continue
            elif not copy.owned:
                self.forget(copy.id)
                after = replace(copy, confirmation=Confirmation.NONE, confirm_since=None)
            elif long_away and not holders & entry.by:
                after = replace(
                    copy, stage=Stage.SET_ASIDE, confirmation=Confirmation.NONE, confirm_since=None
                )
                reason = "away longer than events are kept, and no holder confirms the message"
                books.apply(Decision(None, (), (Suspend(at=now, copy=after, reason=reason),)))
            else:
                after = replace(copy, confirmation=Confirmation.IN_DOUBT)
            ready += 1
            books.apply(Decision(None, (SaveCopy(copy, after),)))
        return ready
