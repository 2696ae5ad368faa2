"""What operators do to messages in a queue: remove, bounce, suspend, resume, retry (decision 0035).

Each function is a decision about one message, for a node that owns it: it changes nothing of a copy that this
node holds for another member. ``numbers``: the recipients that are meant; None: all. Settled recipients stay
as they are. An order about recipients that members may hold copies of is *pending* until they have
acknowledged it (``pending``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime

from shadowrelay.core.decisions import Decision, SaveCopy
from shadowrelay.core.delivery.journal import JournalCopy
from shadowrelay.core.delivery.settling import AttemptResult, Ending, Hop, Report, forks, settle
from shadowrelay.core.events.discard_notices import MILLISECOND, addressed, order_listeners, orders, whole
from shadowrelay.core.identifiers import DatabaseId, MessageId, NextHop
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.messages import FOREVER, Copy, Recipient, Stage, Status
from shadowrelay.core.operating import By
from shadowrelay.core.ownership import set_aside
from shadowrelay.core.tracking import OperatorResume, OperatorRetry, OperatorSuspend
from shadowrelay.core.values import dataclass, replace

REMOVED = "554 5.7.1 Removed by the postmaster"
BOUNCED = "554 5.3.0 Given up by the postmaster"

NOBODY = Hop(server="", inside=False, mailbox=False)


@dataclass(frozen=True, slots=True)
class Done:
    """What was done to a message. ``numbers``: recipients to which it was done. ``waiting``: recipients that
    a delivery attempt has in hand; they were left, and should be looked at again. ``copy``: the message
    afterwards; None if this node does not own it.
    """

    numbers: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    copy: Copy | None = None


NOTHING = Done()


def results(recipients: Iterable[Recipient], ending: Ending) -> tuple[AttemptResult, ...]:
    """How a removal or a bounce ends for these recipients; the reports are written about it."""
    reply = REMOVED if ending is Ending.REMOVED else BOUNCED
    return tuple(AttemptResult(one.number, ending, reply, remote=False) for one in recipients)


def remove(
    ledger: Ledger,
    message_id: MessageId,
    numbers: Collection[int] | None,
    by: By,
    now: datetime,
    *,
    sending: Collection[NextHop] = (),
    reports: Iterable[Report | JournalCopy] = (),
) -> Decision[Done]:
    """Never deliver the message to these recipients. Works on a message that is set aside too.

    ``sending``: next hops to which the message is being sent. ``reports``: DSNs about it, already written
    (``results`` with Ending.REMOVED); members are told of the removal when these are safe. A removal goes to
    no journal.
    """
    return _ended(ledger, message_id, numbers, Ending.REMOVED, by, now, sending, reports)


def bounce(
    ledger: Ledger,
    message_id: MessageId,
    numbers: Collection[int] | None,
    by: By,
    now: datetime,
    *,
    sending: Collection[NextHop] = (),
    reports: Iterable[Report | JournalCopy] = (),
) -> Decision[Done]:
    """The message fails for these recipients. Works on a message that is set aside too. Arguments: as for
    ``remove``, with Ending.REJECTED.
    """
    return _ended(ledger, message_id, numbers, Ending.REJECTED, by, now, sending, reports)


def _ended(
    ledger: Ledger,
    message_id: MessageId,
    numbers: Collection[int] | None,
    ending: Ending,
    by: By,
    now: datetime,
    sending: Collection[NextHop],
    reports: Iterable[Report | JournalCopy],
) -> Decision[Done]:
    copy = ledger.copy(message_id)
    if copy is None or not (copy.owned or copy.stage is Stage.SET_ASIDE):
        return Decision(NOTHING)
    meant, waiting = _meant(copy, numbers, sending)
    if not meant:
        return Decision(Done((), waiting, copy))
    about = {one.number for one in meant}
    told = [one for one in reports if isinstance(one, JournalCopy) or one.about in about]
    ended = settle(ledger, message_id, results(meant, ending), told, NOBODY, now, by=by)
    return ended.but(Done(tuple(sorted(about)), waiting, ended.then))


def suspend(
    ledger: Ledger,
    message_id: MessageId,
    numbers: Collection[int] | None,
    by: By,
    now: datetime,
    *,
    until: datetime = FOREVER,
    ordered_at: datetime | None = None,
) -> Decision[Done]:
    """Do not deliver the message to these recipients before ``until``. They do not expire meanwhile.

    ``ordered_at``: when the operator gave the order, if that may have been before another one; of all orders
    about a recipient the one that was given last counts. Without it this order counts, even if the clock that
    dated the one before was ahead. An attempt that is under way goes on; one that has not begun does not
    begin.
    """
    return _ordered(ledger, message_id, numbers, whole(until), ordered_at, by, now)


def resume(
    ledger: Ledger,
    message_id: MessageId,
    numbers: Collection[int] | None,
    by: By,
    now: datetime,
    *,
    ordered_at: datetime | None = None,
) -> Decision[Done]:
    """Deliver the message to these recipients again: they are due now, and its age begins anew.

    A message that is set aside goes back into the queue, whole (``set_aside.resume``).
    """
    copy = ledger.copy(message_id)
    if copy is not None and copy.stage is Stage.SET_ASIDE:
        again = set_aside.resume(ledger, message_id, now, by.operator)
        copy = again.then if isinstance(again.then, Copy) else None
        return again.but(Done(tuple(one.number for one in copy.unsettled), (), copy) if copy else NOTHING)
    return _ordered(ledger, message_id, numbers, None, ordered_at, by, now)


def _ordered(
    ledger: Ledger,
    message_id: MessageId,
    numbers: Collection[int] | None,
    until: datetime | None,
    ordered_at: datetime | None,
    by: By,
    now: datetime,
) -> Decision[Done]:
    copy = ledger.copy(message_id)
    if copy is None or not copy.owned:
        return Decision(NOTHING)
    meant, _ = _meant(copy, numbers, ())
    if until is None:
        meant = tuple(one for one in meant if one.suspended is not None)
    changed = []
    for old in meant:
        if until is not None and ordered_at is None and old.suspended == until:
            continue  # nothing new
        one = old.ordered(until, whole(ordered_at) if ordered_at else _after(old, now))
        if one is not old:
            changed.append(one)
    if not changed:
        return Decision(Done((), (), copy))
    if until is None:
        changed = [replace(one.let_go(), delay_notified=False) for one in changed]
        copy_then = replace(copy, received_at=max(copy.received_at, now))
    else:
        copy_then = copy
    after = copy_then.with_recipients(changed)
    told = addressed(order_listeners(ledger, after), orders(after, changed), now)
    events = tuple(
        OperatorResume(at=now, copy=after, recipients=fork, by=by)
        if until is None
        else OperatorSuspend(at=now, copy=after, recipients=fork, by=by, until=until)
        for fork in _forks(after, changed)
    )
    done = Done(tuple(one.number for one in changed), (), after)
    return Decision(done, (SaveCopy(copy, after), *told), events)


def _after(one: Recipient, now: datetime) -> datetime:
    """Now, or after the last order, if its clock was ahead."""
    at = whole(now)
    return at if one.ordered_at is None or one.ordered_at < at else one.ordered_at + MILLISECOND


def retry(
    ledger: Ledger,
    message_id: MessageId,
    numbers: Collection[int] | None,
    by: By,
    now: datetime,
    *,
    sending: Collection[NextHop] = (),
) -> Decision[Done]:
    """Make these recipients due now, also those that wait for an operator. Suspended ones stay suspended.

    ``sending``: as for ``remove``.
    """
    copy = ledger.copy(message_id)
    if copy is None or not copy.owned:
        return Decision(NOTHING)
    meant, waiting = _meant(copy, numbers, sending)
    changed = [one.let_go() for one in meant if not one.is_suspended(now)]
    if not changed:
        return Decision(Done((), waiting, copy))
    after = copy.with_recipients(changed)
    events = tuple(
        OperatorRetry(at=now, copy=after, recipients=fork, by=by) for fork in _forks(after, changed)
    )
    saved = (SaveCopy(copy, after),) if after != copy else ()
    return Decision(Done(tuple(one.number for one in changed), waiting, after), saved, events)


def pending(ledger: Ledger, message_id: MessageId) -> tuple[DatabaseId, ...]:
    """The databases that may hold a copy, and have not acknowledged what an operator ordered about it.

    They are all that may hold a copy while a removal waits for its report, or if the row of an order is
    damaged and does not tell for whom it was. Empty: nobody can deliver against the order, unless an attempt
    of this node is under way (``queue.sent_to``).
    """
    found = list(ledger.unacknowledged_orders(message_id))
    copy, unsaid = ledger.copy(message_id), "" in found
    unsaid |= copy is not None and any(one.status is Status.REMOVED and one.waits for one in copy.recipients)
    if copy is not None and unsaid:
        found += order_listeners(ledger, copy)
    return tuple(dict.fromkeys(filter(None, found)))


def _meant(
    copy: Copy, numbers: Collection[int] | None, sending: Collection[NextHop]
) -> tuple[tuple[Recipient, ...], tuple[int, ...]]:
    """The unsettled recipients that are meant, without those being sent to; and the numbers of these."""
    meant = [one for one in copy.unsettled if numbers is None or one.number in numbers]
    waiting = tuple(one.number for one in meant if one.next_hop in sending)
    return tuple(one for one in meant if one.next_hop not in sending), waiting


def _forks(copy: Copy, changed: Sequence[Recipient]) -> Iterator[tuple[Recipient, ...]]:
    """The changed recipients by next hop: one row each."""
    numbers = {one.number for one in changed}
    for fork in forks(copy).values():
        if about := tuple(one for one in fork if one.number in numbers):
            yield about
