"""Discard events: who gets them, in which order, how they are acknowledged and when they expire."""

from __future__ import annotations

from datetime import timedelta

from shadowrelay.core.decisions import AcknowledgeEvents, Decision
from shadowrelay.core.identifiers import DatabaseId, Mark, ServerName
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.policy import Policy
from shadowrelay.core.values import replace


def acknowledge(asker: DatabaseId, upto: Mark) -> Decision[None]:
    """The asker applied our events up to that mark. It proves nothing about what it possesses."""
    return Decision(None, (AcknowledgeEvents(asker, upto),))


def applied(ledger: Ledger, speaker: ServerName, upto: Mark) -> Decision[None]:
    """Remember, in the transaction that applies them, how far that member's events are applied here."""
    member = ledger.member(speaker)
    if member is None or member.applied == upto:
        return Decision(None)
    return Decision(None, (replace(member, applied=upto),))


def remembered_for(policy: Policy) -> timedelta:
    """How long ids and outcomes are remembered, so that nothing delivered is ever called unknown."""
    return policy.message_expiration_timeout + policy.safety_net_hold_time
