"""Distribution lists: the next hop that this node is itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta

import structlog

from shadowrelay.core.delivery import retry
from shadowrelay.core.delivery.settling import AttemptResult, Ending, Expansion, Hop, expansion_of
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.messages import Recipient
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.routing import Route, next_hop_of
from shadowrelay.core.reception.sites import SitePath, fanned_out
from shadowrelay.core.recipients import AddressBook, Becomes
from shadowrelay.core.steps import Sent
from shadowrelay.core.values import dataclass, replace
from shadowrelay.database.examining import Examiner, Finding
from shadowrelay.database.queue import ActiveFork
from shadowrelay.wire.xtext import typed_recipient

log = structlog.get_logger(__name__)

_HERE = Hop(server="", inside=False, mailbox=False)


@dataclass(frozen=True, slots=True)
class Lists:
    """Expands the lists of a fork. ``still_ours`` is asked first: another member may own the message."""

    _book: Callable[[], AddressBook]
    _still_ours: Callable[[ActiveFork], Awaitable[bool]]
    _examiner: Examiner
    _routes: Sequence[Route]
    _policy: Policy
    _ending: Callable[[], datetime]  # what would have ended by then has ended
    _ways: Mapping[str, SitePath]

    async def expand(self, claimed: ActiveFork) -> Sent:
        """One result for each list of the fork. The message to the members refers to the content, which is
        compared with its digest first.
        """
        if not await self._still_ours(claimed):
            return Sent((), _HERE)
        finding = await self._examiner.compare(claimed.copy, claimed.content)
        if finding is Finding.DAMAGED:
            return Sent((), _HERE)  # it waits for a good copy
        if finding is Finding.UNREADABLE:
            reply = "451 4.3.0 Local error: its content cannot be read"
            return Sent(tuple(self._put_off(claimed, one, reply) for one in claimed.recipients), _HERE)
        book, results, expansions = self._book(), [], []
        for one in claimed.recipients:
            result, expansion = self._expanded(claimed, one, book)
            results.append(result)
            expansions += [expansion] if expansion else []
        return Sent(tuple(results), _HERE, expansions=tuple(expansions))

    def _expanded(
        self, claimed: ActiveFork, one: Recipient, book: AddressBook
    ) -> tuple[AttemptResult, Expansion | None]:
        expansion = expansion_of(claimed.copy, one, book, self._next_hop, typed_recipient)
        if expansion is not None:
            for loop in expansion.loops:
                log.warning("list_inside_itself", message=claimed.copy.id, list=one.address, again=loop)
            count = len(expansion.recipients)
            expansion = replace(expansion, recipients=fanned_out(expansion.recipients, self._ways))
            ending = Ending.POSTED if expansion.posted else Ending.EXPANDED
            reply = f"250 2.1.5 Expanded to {count} recipient{'s' if count > 1 else ''}"
            return AttemptResult(one.number, ending, reply, remote=False), expansion
        found = book.resolve(one.address)
        if found.what is Becomes.UNKNOWN:
            reply = "550 5.1.1 No such recipient here"
            return AttemptResult(one.number, Ending.REJECTED, reply, remote=False), None
        if found.what is Becomes.LIST:
            reply = "550 5.2.4 The list has no members"
            return AttemptResult(one.number, Ending.REJECTED, reply, remote=False), None
        # The file that had the list may come to this node yet.
        return self._put_off(claimed, one, "451 4.2.4 This node has no list of that name"), None

    def _put_off(self, claimed: ActiveFork, one: Recipient, reply: str) -> AttemptResult:
        now, since = self._ending(), retry.since(claimed.copy, (one,)) + claimed.not_aged
        if retry.expired(since, now, self._policy):
            return AttemptResult(one.number, Ending.EXPIRED, reply, remote=False)
        late = retry.delay_notice_due(one, since, now, self._policy)
        pause: timedelta = retry.after(one.attempts + 1, self._policy)
        return AttemptResult(one.number, Ending.DEFERRED, reply, pause, remote=False, late=late)

    def _next_hop(self, address: str) -> NextHop:
        """By the routes; without one the recipient is put off, as any other is, until there is one."""
        return next_hop_of(address, self._routes) or NextHop("")
