"""Which settled recipients a selector means. SQL says the same of rows: queries.sql, resubmission.sql."""

from __future__ import annotations

from shadowrelay.core.identifiers import NextHop, ServerName
from shadowrelay.core.messages import Copy, Recipient, Role, Stage, Status
from shadowrelay.core.requests import Place, Selected, Selector, address_matches


def matching(selector: Selector, copy: Copy) -> tuple[Recipient, ...]:
    """The recipients of a message that a selector means: delivered, or relayed across the boundary, at a time
    in the window.
    """
    if selector.network_message_id not in (None, copy.id):
        return ()
    if selector.message_id not in (None, copy.envelope.message_id):
        return ()
    if not address_matches(selector.sender, copy.envelope.sender):
        return ()
    return tuple(one for one in copy.recipients if _matches(selector, one))


def _matches(selector: Selector, recipient: Recipient) -> bool:
    return (
        recipient.status in (Status.DELIVERED, Status.RELAYED)
        and selector.covers(recipient.settled_at)
        and _goes_by(selector, recipient.next_hop)
        and address_matches(selector.recipient, recipient.address)
    )


def _goes_by(selector: Selector, next_hop: NextHop) -> bool:
    """A route means the next hops of all its domains, if the DNS has its hosts."""
    hops = selector.next_hops
    return not hops or next_hop in hops or NextHop(next_hop.partition("/")[0]) in hops


def selected(selector: Selector, copies: list[Copy], owner: ServerName | None, place: Place) -> Selected:
    """Those of ``copies`` that a selector means, as ``Ledger.resubmittable`` gives them."""
    role = Role.PRIMARY if owner is None else Role.SHADOW
    found = sorted(
        (min(one.settled_at for one in meant if one.settled_at), copy.id)
        for copy in copies
        if copy.stage is Stage.SAFETY_NET and copy.role is role and owner in (None, copy.owner)
        if (meant := matching(selector, copy))
    )
    return Selected([one for one in found if place.at is None or one > place])
