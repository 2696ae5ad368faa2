"""Acknowledgement of discard events, and how long outcomes are remembered."""

from __future__ import annotations

from datetime import timedelta

from shadowrelay.core.decisions import AcknowledgeEvents, Decision
from shadowrelay.core.identifiers import DatabaseId, Mark, ServerName
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.policy import Policy
from shadowrelay.core.values import replace


def acknowledge(asker: DatabaseId, upto: Mark) -> Decision[None]:
    """The asker applied our events up to that mark. This proves nothing about the copies that it has."""
    return Decision(None, (AcknowledgeEvents(asker, upto),))


def applied(ledger: Ledger, speaker: ServerName, upto: Mark) -> Decision[None]:
    """Remember how far that member's events are applied here, in the transaction that applies them."""
    member = ledger.member(speaker)
    if member is None or member.applied == upto:
        return Decision(None)
    return Decision(None, (replace(member, applied=upto),))


def remembered_for(policy: Policy) -> timedelta:
    """How long ids and outcomes are remembered, so that no delivered message is called unknown."""
    return policy.message_expiration_timeout + policy.safety_net_hold_time
