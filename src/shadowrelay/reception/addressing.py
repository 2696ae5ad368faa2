"""What becomes of the recipients that a sender names: relaying, aliases and lists, routes, sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import structlog

from shadowrelay.core.identifiers import NextHop, ServerName
from shadowrelay.core.messages import Recipient
from shadowrelay.core.reception.routing import Route, next_hop_of, postmaster_domain, route_for
from shadowrelay.core.reception.sites import SitePath, fanned_out
from shadowrelay.core.recipients import EMPTY, AddressBook, Becomes, Rewriting, once, rewrite
from shadowrelay.core.values import replace
from shadowrelay.wire.esmtp import RcptTo
from shadowrelay.wire.replies import Reply
from shadowrelay.wire.xtext import typed_recipient

log = structlog.get_logger(__name__)

_ACCEPTED_DOMAIN = NextHop("accepted")


class Addressing:
    """The addresses of one connector. ``own``: this node's name. ``ways``: the paths to sites of other
    boundaries. ``book``: the aliases and lists of this moment.
    """

    def __init__(
        self,
        own: ServerName,
        accepted_domains: tuple[str, ...],
        routes: Sequence[Route],
        ways: Mapping[str, SitePath],
        book: Callable[[], AddressBook],
    ) -> None:
        self._accepted = (Route(_ACCEPTED_DOMAIN, accepted_domains),)
        self._postmaster_domain = postmaster_domain(own, accepted_domains)
        self._routes = routes
        self._ways = ways
        self._book = book

    def refused(self, rcpt: RcptTo, *, trusted: bool) -> Reply | None:
        """Why RCPT is refused; None: it is accepted. ``trusted``: this client may send to any domain."""
        address = self._address(rcpt)
        if not trusted and route_for(address, self._accepted) is None:
            return Reply(550, "5.7.1", "Relaying denied")
        if (book := self._book()) is not EMPTY:
            found = book.resolve(address)
            if found.what in (Becomes.UNKNOWN, Becomes.LOOP):
                return Reply(550, "5.1.1", "No such recipient here")
            if found.what is Becomes.LIST:
                return None
            address = found.address
        if route_for(address, self._routes) is None:
            log.warning("no_route", recipient=address)
            return Reply(451, "4.4.4", "No route to that domain for now")
        return None

    def recipients(
        self, named: Sequence[RcptTo], *, merge: bool
    ) -> tuple[tuple[Recipient, ...], tuple[Rewriting, ...]]:
        """The recipients with their next hops, and which addresses were rewritten. ``merge``: a recipient
        that was named several times, or two names for one address, make one recipient.
        """
        book = self._book()
        found = tuple(
            Recipient(number, self._address(rcpt), NextHop(""), rcpt.notify, rcpt.orcpt)
            for number, rcpt in enumerate(named, 1)
        )
        if merge and len(found) > 1:
            found = once(found)
        rewritings: tuple[Rewriting, ...] = ()
        if book is not EMPTY:
            found, rewritings = rewrite(found, book, typed_recipient, merge=merge)
        routed = tuple(self._routed(one) for one in found)
        return fanned_out(routed, self._ways) if self._ways else routed, rewritings

    def _routed(self, recipient: Recipient) -> Recipient:
        if recipient.next_hop:  # a list
            return recipient
        next_hop = next_hop_of(recipient.address, self._routes)
        return replace(recipient, next_hop=next_hop) if next_hop else recipient

    def _address(self, rcpt: RcptTo) -> str:
        return rcpt.address if "@" in rcpt.address else f"{rcpt.address}@{self._postmaster_domain}"
