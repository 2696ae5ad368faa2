"""How many connections, messages and recipients a client may have in a minute, at all workers of the node."""

from __future__ import annotations

from collections import Counter, OrderedDict
from datetime import UTC, datetime

from shadowrelay.core.values import dataclass
from shadowrelay.shared_counts import MinuteCounts, OwnCounts, SessionCounts
from shadowrelay.smtp.receiving.contract import Client, RateLimits
from shadowrelay.wire.networks import source_of
from shadowrelay.wire.replies import Reply

REMEMBERED = 100
"""Of how many clients it is told that they were held back: those of last."""

CONNECTIONS, MESSAGES, RECIPIENTS = "connections", "messages", "recipients"

NOBODY = {CONNECTIONS: 0, MESSAGES: 0, RECIPIENTS: 0}

TOO_MANY_CONNECTIONS = Reply(421, "4.7.0", "Too many connections in a minute, try again later")
TOO_MANY_MESSAGES = Reply(450, "4.7.1", "Too many messages in a minute, try again later")
TOO_MANY_RECIPIENTS = Reply(450, "4.7.1", "Too many recipients in a minute, try again later")


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A client that was held back. ``who``: a network, or a user."""

    connector: str
    limit: str  # what it had too many of
    who: str
    times: int  # since it was first held back, or since the start
    last: datetime


class MinuteRates:
    """What each client has of the limits in any minute, at all workers; what is refused takes no place."""

    def __init__(self, connector: str, limits: RateLimits, counts: SessionCounts | None = None) -> None:
        self.limits = limits
        self._connector = connector
        self._minutes = MinuteCounts(counts or OwnCounts())
        self.refused = Counter(NOBODY)
        self._held: OrderedDict[tuple[str, str], tuple[int, datetime]] = OrderedDict()

    @property
    def held_back(self) -> list[HeldBack]:
        """Who was held back, the last one first."""
        return [HeldBack(self._connector, *key, *told) for key, told in reversed(self._held.items())]

    def connection(self, address: str) -> Reply | None:
        """Count a connection, or return the reply that turns it away."""
        most = self.limits.connections
        if most is None or self._take(CONNECTIONS, self._network(address), most):
            return None
        return TOO_MANY_CONNECTIONS

    def message(self, client: Client) -> Reply | None:
        """Count a message, or return the reply to MAIL that puts it off."""
        limits = self.limits
        most = limits.user_messages if client.login else limits.messages
        if most is None or self._take(MESSAGES, self._who(client), most):
            return None
        return TOO_MANY_MESSAGES

    def recipient(self, client: Client) -> Reply | None:
        """Count a recipient, or return the reply to RCPT that puts it off."""
        limits = self.limits
        most = limits.user_recipients if client.login else limits.recipients
        if most is None or self._take(RECIPIENTS, self._who(client), most):
            return None
        return TOO_MANY_RECIPIENTS

    def _who(self, client: Client) -> str:
        return f"user {client.login}" if client.login else self._network(client.address)

    def _network(self, address: str) -> str:
        return source_of(address, self.limits.ipv4_prefix, self.limits.ipv6_prefix) or "unknown"

    def _take(self, limit: str, who: str, most: int) -> bool:
        if not self._minutes.take(f"{limit} of {who}", most):
            self.refused[limit] += 1
            times, _ = self._held.pop((limit, who), (0, None))
            self._held[limit, who] = times + 1, datetime.now(UTC)
            if len(self._held) > REMEMBERED:
                self._held.popitem(last=False)
            return False
        return True

    def stop(self) -> None:
        """End the timer."""
        self._minutes.stop()
