"""Answers to the content that cannot be read: how long to wait before the next try, and when to wait for an
operator. Each try may deliver the message once more, so the pauses grow.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from shadowrelay.core.messages import Recipient, Unread
from shadowrelay.core.policy import Policy
from shadowrelay.core.values import replace

_GROWS = 4


def pause_after(tries: int, policy: Policy) -> timedelta | None:
    """How long to wait after so many such answers in a row. None: until an operator lets the message go on,
    or it expires.
    """
    if tries > policy.unreadable_answer_retry_count:
        return None
    pause: timedelta = policy.unreadable_answer_retry_interval * _GROWS ** max(0, tries - 1)
    return pause


def waits_for_operator(recipient: Recipient, policy: Policy) -> bool:
    """Is it not tried any more by itself?"""
    unread = recipient.unread
    return unread is not None and pause_after(unread.tries, policy) is None


def next_look(recipient: Recipient, received_at: datetime, now: datetime, policy: Policy) -> datetime:
    """When to look again at a recipient that waits for an operator: to tell its sender of the delay, or when
    it expires.
    """
    notice = received_at + policy.delay_notification_timeout
    waits = now < notice and not recipient.delay_notified
    return notice if waits else received_at + policy.message_expiration_timeout


def told_of(
    recipient: Recipient, unread: Unread, received_at: datetime, now: datetime, policy: Policy
) -> Recipient:
    """The recipient, once a member says that of it: of two counts the higher one stands. It is due after the
    pause, which begins now.
    """
    if recipient.settled or (recipient.unread and recipient.unread.tries >= unread.tries):
        return recipient
    pause = pause_after(unread.tries, policy)
    at = next_look(recipient, received_at, now, policy) if pause is None else now + pause
    return replace(recipient, unread=unread, next_attempt=max(at, recipient.next_attempt or at))
