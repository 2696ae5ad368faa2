"""Copies that members refused for what they are: whoever refused one is not asked at once again, and the
operator is shown why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from datetime import datetime

from shadowrelay.core.identifiers import MessageId, ServerName
from shadowrelay.core.reception.redundancy import Concern, OfferAttempt
from shadowrelay.core.values import dataclass

REST = 60.0
"""Seconds after which a member is asked again: it may be another version by then."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a member said of a copy. Until then, by a clock that counts suspension, it is not asked again."""

    attempt: OfferAttempt
    at: datetime
    until: float


@dataclass(slots=True)
class Refusals:
    """Memory of this process: the last refusal by each member, of messages that are exposed."""

    _by_message: dict[MessageId, dict[ServerName, Refusal]] = field(default_factory=dict)
    _exposed: set[MessageId] = field(default_factory=set)  # those that this round of looks found so far

    @property
    def messages(self) -> int:
        """How many messages some member refused."""
        return len(self._by_message)

    def note(
        self, message_id: MessageId, attempts: Sequence[OfferAttempt], at: datetime, clock: float
    ) -> bool:
        """Remember what members said of that copy. Did any of them refuse it for what it is?"""
        refused = [attempt for attempt in attempts if attempt.concern is Concern.COPY]
        if refused:
            said = self._by_message.setdefault(message_id, {})
            said.update({attempt.name: Refusal(attempt, at, clock + REST) for attempt in refused})
        return bool(refused)

    def lately(self, message_id: MessageId, clock: float) -> tuple[OfferAttempt, ...]:
        """Refusals after which it is too soon to ask again."""
        return tuple(one.attempt for one in self.of(message_id) if one.until > clock)

    def of(self, message_id: MessageId) -> tuple[Refusal, ...]:
        return tuple(self._by_message.get(message_id, {}).values())

    def forget(self, message_id: MessageId) -> None:
        self._by_message.pop(message_id, None)

    def found(self, exposed: Sequence[MessageId], *, last: bool) -> None:
        """These are exposed. The ``last`` ones of a round of looks: what was not found is forgotten."""
        if not self._by_message:
            self._exposed.clear()
            return
        self._exposed.update(exposed)
        if last:
            for message_id in self._by_message.keys() - self._exposed:
                self.forget(message_id)
            self._exposed.clear()
