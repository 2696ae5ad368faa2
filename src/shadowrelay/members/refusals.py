"""Remembers which members refused a copy: they are not asked again at once, and the operator sees why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from datetime import datetime

from shadowrelay.core.identifiers import MessageId, ServerName
from shadowrelay.core.reception.redundancy import Concern, OfferAttempt
from shadowrelay.core.values import dataclass

REST = 60.0
"""Seconds after which a member is asked again: it may run another version by then."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A member's refusal of a copy. ``until``, on a clock that counts suspension, it is not asked again."""

    attempt: OfferAttempt
    at: datetime
    until: float


@dataclass(slots=True)
class Refusals:
    """The last refusal of each exposed message by each member, in the memory of this process."""

    rest: float = REST
    _by_message: dict[MessageId, dict[ServerName, Refusal]] = field(default_factory=dict)
    _exposed: set[MessageId] = field(default_factory=set)  # found so far in this round of looks

    @property
    def messages(self) -> int:
        """How many messages at least one member refused."""
        return len(self._by_message)

    def note(
        self, message_id: MessageId, attempts: Sequence[OfferAttempt], at: datetime, clock: float
    ) -> bool:
        """Remember the refusals among these attempts. Did any member refuse this particular copy?"""
        refused = [attempt for attempt in attempts if attempt.concern is Concern.COPY]
        if refused:
            said = self._by_message.setdefault(message_id, {})
            said.update({attempt.name: Refusal(attempt, at, clock + self.rest) for attempt in refused})
        return bool(refused)

    def lately(self, message_id: MessageId, clock: float) -> tuple[OfferAttempt, ...]:
        """The refusals so recent that the member is not asked again yet."""
        return tuple(one.attempt for one in self.of(message_id) if one.until > clock)

    def of(self, message_id: MessageId) -> tuple[Refusal, ...]:
        return tuple(self._by_message.get(message_id, {}).values())

    def forget(self, message_id: MessageId) -> None:
        self._by_message.pop(message_id, None)

    def found(self, exposed: Sequence[MessageId], *, last: bool) -> None:
        """A look found these exposed messages. After the ``last`` look of a round, forget all others."""
        if not self._by_message:
            self._exposed.clear()
            return
        self._exposed.update(exposed)
        if last:
            for message_id in self._by_message.keys() - self._exposed:
                self.forget(message_id)
            self._exposed.clear()
