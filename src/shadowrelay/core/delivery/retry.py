"""Retries: when a recipient is tried again, when the sender is told of the delay, and when it is given up.

The order is Exchange's: glitch retries, transient retries, then the outbound connection failure interval
until the message expires. Ages count from reception at the first owner: a takeover does not reset them
(RFC 5321 4.5.4.1). They do not grow while an operator has a message suspended (``since``).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from shadowrelay.core.messages import FOREVER, Copy, Recipient
from shadowrelay.core.policy import Policy


def after(failures: int, policy: Policy) -> timedelta:
    """How long to wait after that many failed attempts in a row; zero before the first failure."""
    if failures <= 0:
        return timedelta(0)
    if failures <= policy.queue_glitch_retry_count:
        return policy.queue_glitch_retry_interval
    if failures <= policy.queue_glitch_retry_count + policy.transient_failure_retry_count:
        return policy.transient_failure_retry_interval
    return policy.outbound_connection_failure_retry_interval


def since(copy: Copy, recipients: Iterable[Recipient]) -> datetime:
    """From when the age of the message counts, for these recipients: a message does not age while an operator
    has it suspended. A suspension without an end ends with a new ``received_at``.
    """
    ends = [one.suspended for one in recipients if one.suspended and one.suspended != FOREVER]
    return max(copy.received_at, *ends) if ends else copy.received_at


def expires_at(received_at: datetime, policy: Policy) -> datetime:
    """When an undelivered message fails; a delay notice promises retries until then."""
    if received_at.tzinfo is None:
        raise ValueError("a datetime without time zone has no place here")
    return received_at + policy.message_expiration_timeout


def expired(received_at: datetime, now: datetime, policy: Policy) -> bool:
    """Whether undelivered recipients are given up. A clock set back makes a message younger, never older."""
    return now >= expires_at(received_at, policy)


def delay_notice_due(recipient: Recipient, received_at: datetime, now: datetime, policy: Policy) -> bool:
    """Whether it is time for the one delay notice about a recipient still in the queue.

    Whether the sender wants to hear of it, ``core.events.reports`` decides.
    """
    if recipient.settled or recipient.delay_notified or expired(received_at, now, policy):
        return False
    return now - received_at >= policy.delay_notification_timeout
