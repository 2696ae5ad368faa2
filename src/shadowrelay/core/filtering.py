"""What a ``Filter`` means: which recipients of a message a job is about."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.jobs import Filter, Job
from shadowrelay.core.messages import Copy, Recipient, Stage
from shadowrelay.core.requests import address_matches
from shadowrelay.core.spelling import canonical, read_without_case, without_case

ROUTE_END = "/"
"""What follows the name of a route in a next hop of which the DNS has the hosts."""


def in_queue(queue: NextHop, next_hop: NextHop) -> bool:
    """Is that the next hop, or a next hop of the route of that name?"""
    return next_hop == queue or next_hop.startswith(f"{queue}{ROUTE_END}")


def contains(part: str | None, text: str) -> bool:
    """Is that a part of the text, without regard to case? None: of every text."""
    return part is None or without_case(part) in without_case(text)


def _reads(part: str | None, field: str) -> bool:
    """Is that a part of what a person reads of a header field?"""
    return part is None or without_case(part) in read_without_case(field)


def numbers(wanted: Filter, copy: Copy, made_at: datetime, now: datetime) -> tuple[int, ...]:
    """The unsettled recipients of a queued message that a job made at that time is about, by number."""
    if _is_later(wanted, copy, made_at) or not _means(wanted, copy, made_at):
        return ()
    return tuple(one.number for one in copy.unsettled if _means_recipient(wanted, one, now))


def about(job: Job, copy: Copy, now: datetime) -> tuple[int, ...]:
    """The recipients that a job is about."""
    return numbers(job.filter, copy, job.made_at, now)


def reaches(wanted: Filter, copy: Copy) -> bool:
    """Is the message in the queue of this node, or is it set aside and named by its id? What is set aside is
    an operator's to decide one by one.
    """
    return copy.owned or (copy.stage is Stage.SET_ASIDE and copy.id in wanted.ids)


def overruled(later: Collection[Job], copy: Copy) -> frozenset[int]:
    """Recipients that one of these later jobs is about, whether they are suspended now or not."""
    found: set[int] = set()
    for job in later:
        for recipient in copy.unsettled:
            if recipient.number in found or _is_later(job.filter, copy, job.made_at):
                continue
            if _means(job.filter, copy, job.made_at) and _means_envelope(job.filter, recipient):
                found.add(recipient.number)
    return frozenset(found)


def _is_later(wanted: Filter, copy: Copy, made_at: datetime) -> bool:
    """Did the message come after the job was made? Not one that the job names, whatever two clocks say."""
    return not wanted.ids and copy.came_at >= made_at


def _means(wanted: Filter, copy: Copy, made_at: datetime) -> bool:
    age, envelope = made_at - copy.came_at, copy.envelope
    return (
        (not wanted.ids or copy.id in wanted.ids)
        and address_matches(wanted.sender, envelope.sender)
        and _reads(wanted.subject, envelope.subject)
        and (wanted.older is None or age >= wanted.older)
        and (wanted.younger is None or age <= wanted.younger)
        and (wanted.larger is None or envelope.size >= wanted.larger)
        and (wanted.smaller is None or envelope.size <= wanted.smaller)
    )


def _means_recipient(wanted: Filter, one: Recipient, now: datetime) -> bool:
    return _means_envelope(wanted, one) and (
        wanted.suspended is None or wanted.suspended == is_suspended(one, now)
    )


def _means_envelope(wanted: Filter, one: Recipient) -> bool:
    return (
        (wanted.queue is None or in_queue(wanted.queue, one.next_hop))
        and address_matches(wanted.recipient, one.address)
        and (wanted.domain is None or _domain(one.address) == wanted.domain)
        and contains(wanted.error, one.last_reply)
    )


def _domain(address: str) -> str:
    return canonical(address.rpartition("@")[2])


def is_suspended(one: Recipient, now: datetime) -> bool:
    """Does the recipient wait because an operator suspended it?"""
    return one.is_suspended(now)
