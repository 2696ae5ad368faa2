"""Heartbeat: whether another member is alive and its lineage unbroken, and what follows if it is not.

Two parts. ``meet`` is durable: it applies the lineage that a member shows. ``Watch`` is memory of this
process: it tells whether a member can be reached. It counts from our own first failed attempt, on a clock
that counts suspension, so that a node that was itself down or asleep does not blame the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from enum import Enum

from shadowrelay.core.decisions import ALL, Chore, ChoreKind, Decision, DropEvents, Heard, Member, Part
from shadowrelay.core.identifiers import Continuity, Incarnation, Lineage, Mark, ServerName
from shadowrelay.core.ledger import Ledger, Transaction, own_progress
from shadowrelay.core.messages import Confirmation, Copy, HolderState, Reason
from shadowrelay.core.ownership import chores
from shadowrelay.core.ownership.transfer import asked_about, intend, saved
from shadowrelay.core.policy import Policy
from shadowrelay.core.shared_records import ForgetTold
from shadowrelay.core.values import dataclass, replace


def meet(
    ledger: Transaction,
    name: ServerName,
    found: Lineage,
    known: Incarnation | None,
    now: datetime,
    *,
    after_silence: bool,
    asked_at: Lineage | None = None,
) -> Continuity | None:
    """A member showed its lineage: remember it, and act on a broken one, in the same transaction.

    Work on very many messages is done in part, and the rest is stored as a chore (``ownership.chores``).

    If the lineage is broken, the copies that the member held for us are lost, and the copies that we hold for
    it are promoted. Otherwise, holders that were only out of reach count again. ``after_silence``: there was
    no contact before this one, so the members are asked again about messages taken over from this member.
    Returns None for a member met for the first time.

    On another session, later words of the same member may overtake a greeting. So a greeting is judged by
    what was known before it was written; for an answer that is ``asked_at``, the lineage known when we asked.
    Two greetings are late and prove nothing. One came unasked, in an incarnation that we have heard further
    or know to have ended: a database that was put back always speaks in a new incarnation. The other comes
    from a replaced database, unless we asked when we already knew its successor: then the successor's was the
    late one. A member tells only the part of its lineage that we do not know, so the known earlier part is
    kept.
    """
    member = ledger.member(name) or Member(name)
    former = member.lineage
    judged = continued(former, member.replaced, found, asked_at)
    if judged is None:
        return Continuity.UNBROKEN
    continuity, found = judged
    met = replace(member, lineage=found, knows_ours=known or member.knows_ours)
    if former is None or continuity is not Continuity.BROKEN:
        if met != member:
            ledger.apply(Decision(None, (met,)))
        if after_silence and not met.retired:
            chores.begin(ledger, Chore(ChoreKind.RETURNED, name, now))
            chores.begin(ledger, Chore(ChoreKind.COUNTED, name, now))
        if former and found.incarnation != former.incarnation:
            chores.begin(ledger, Chore(ChoreKind.REOPENED, name, now))
        return continuity
    replaced = found.database_id != former.database_id
    gone = (DropEvents(former.database_id),) if replaced else ()
    gone_for_good = former.incarnation if former.incarnation != found.incarnation else member.replaced
    broken = replace(met, applied=None, replaced=gone_for_good, broken_at=now)
    # It may have lost what it settled, and what it made for requests: we look at our parts of them once more.
    again = (part.again() for request in ledger.requests() for part in own_progress(ledger, request.id))
    ledger.apply(Decision(None, (broken, *gone, ForgetTold(name), *again)))
    chores.begin(ledger, Chore(ChoreKind.REPLACED if replaced else ChoreKind.ROLLED_BACK, name, now))
    return continuity


def continued(
    former: Lineage | None, replaced: Incarnation | None, found: Lineage, asked_at: Lineage | None = None
) -> tuple[Continuity | None, Lineage] | None:
    """Does the lineage that was shown go on from the ``former`` one? With the lineage to remember.

    ``replaced``, ``asked_at``: see ``meet``. None: the words of a replaced database came late, and prove
    nothing.
    """
    if found.incarnation == replaced and not _is_same(asked_at, former):
        return None
    found = found.reaching_back(former) if former else found
    judge = asked_at if asked_at and former and asked_at.database_id == former.database_id else former
    continuity = found.continuity(judge.database_id, judge.mark) if judge else None
    if former and found.overtaken_by(former) and (asked_at is None or continuity is not Continuity.BROKEN):
        return Continuity.UNBROKEN, former
    return continuity, found


def _is_same(asked_at: Lineage | None, former: Lineage | None) -> bool:
    """Is the incarnation that we knew when we asked the one that we know now?"""
    return bool(asked_at and former and asked_at.incarnation == former.incarnation)


def heard(ledger: Ledger, name: ServerName, mark: Mark) -> Decision[None]:
    """Remember the highest sequence that a member announced in its running incarnation."""
    member = ledger.member(name)
    if member is None or member.lineage is None or member.lineage.incarnation != mark.incarnation:
        return Decision(None)
    if mark.sequence <= member.lineage.sequence:
        return Decision(None)
    return Decision(None, (Heard(name, mark.sequence),))


def lose_holder(ledger: Transaction, name: ServerName, part: Part = ALL) -> Part | None:
    """A holder was out of reach for a few heartbeats: its copies do not count until it is back.

    Returns the next part, None at the end.
    """
    found = ledger.copies_held_by(name, part, counted=True)
    for copy in found.copies:
        lost = chores.in_state(copy, name, HolderState.HOLDING, HolderState.LOST)
        ledger.apply(saved(copy, lost))
    return found.rest


def cut_off(
    ledger: Transaction,
    name: ServerName,
    at_hand: frozenset[ServerName],
    now: datetime,
    part: Part = ALL,
) -> Part | None:
    """This node was cut off from a holder for so long that it may have promoted: ask before delivering.

    A message that a member ``at_hand`` holds too does not wait: that member has contact with us, so nobody
    promotes by time. The message goes out in doubt, and the holder is asked when it is back. Returns the next
    part, None at the end.
    """
    found = ledger.copies_held_by(name, part)
    for copy in found.copies:
        ledger.apply(saved(copy, _cut_off(copy, at_hand - {name}, now)))
    return found.rest


def _cut_off(copy: Copy, at_hand: frozenset[ServerName], now: datetime) -> Copy:
    if not copy.kept_by(at_hand):
        return asked_about(copy, now)
    if copy.confirmation is not Confirmation.NONE:
        return copy
    return replace(copy, confirmation=Confirmation.IN_DOUBT, confirm_since=now)


def take_over(
    ledger: Transaction, name: ServerName, reason: Reason, now: datetime, part: Part = ALL
) -> tuple[int, Part | None]:
    """Make the promotion of every copy held for that owner pending. Repeating this changes nothing.

    Returns how many promotions this part made pending, and the next part, None at the end.
    """
    found = ledger.copies_held_for(name, part, unclaimed=True)
    for copy in found.copies:
        ledger.apply(intend(copy, reason, now))
    return len(found.copies), found.rest


SIGHTED_FOR = 3
"""How many heartbeats after a contact a member still vouches for another one."""


class Alarm(Enum):
    """What a failed heartbeat calls for."""

    HOLDER_LOST = "holder lost"
    PROMOTE = "promote"
    PROMOTE_ALONE = "promote alone"  # even if no other member can be asked


@dataclass(frozen=True, slots=True)
class Watch:
    """What this process knows about reaching one member. Times are seconds; the clock counts suspension."""

    name: ServerName
    failures: int = 0
    failing_since: float | None = None
    contact_at: float | None = None
    heard_at: float | None = None
    error: str = ""
    cut_off: bool = False
    greeted: bool = False  # it introduced itself after the last failure, and was not yet asked anything

    @property
    def reachable(self) -> bool:
        """Has no attempt failed since the last contact? True before the first attempt."""
        return self.failing_since is None

    @property
    def silent(self) -> bool:
        """Was there no contact in this process, or none since the last failure?"""
        return self.contact_at is None or self.failing_since is not None

    def overdue(self, at: float, policy: Policy) -> bool:
        """Was there no contact for so long that the member may have promoted our messages?

        False once this was noted (``cut_off``). A process that was frozen learns of the silence from its
        clock.
        """
        if self.contact_at is None or self.cut_off:
            return False
        return at - self.contact_at >= policy.shadow_resubmit_time_span.total_seconds()

    def answered(self, asked_at: float) -> Watch:
        """The member answered what we asked at time ``asked_at``.

        The time at which the answer is read proves nothing: this process may have been frozen in between.
        """
        return Watch(self.name, contact_at=asked_at, heard_at=asked_at)

    def called(self, at: float) -> Watch:
        """The member called us, so it can be reached; we read the call at time ``at``.

        The call is no contact that excludes a promotion: this process may have been frozen since the call.
        """
        return replace(self, failures=0, failing_since=None, heard_at=at, error="", greeted=False)

    def sighted(self, at: float, policy: Policy) -> bool:
        """Was there contact within three heartbeats, in either direction?"""
        span = SIGHTED_FOR * policy.shadow_heartbeat_frequency.total_seconds()
        return self.heard_at is not None and at - self.heard_at <= span

    def failed(self, at: float, error: str, policy: Policy) -> tuple[Watch, tuple[Alarm, ...]]:
        """One more attempt failed. Every failure past an alarm's limit raises the alarm again."""
        since = at if self.failing_since is None else self.failing_since
        watch = replace(self, failures=self.failures + 1, failing_since=since, error=error, greeted=False)
        return watch, tuple(self._alarms(watch.failures, at - since, policy))

    def _alarms(self, failures: int, silence: float, policy: Policy) -> Iterator[Alarm]:
        if failures >= policy.holder_loss_heartbeats:
            yield Alarm.HOLDER_LOST
        if silence >= policy.shadow_resubmit_time_span.total_seconds():
            yield Alarm.PROMOTE
        alone = policy.isolated_resubmit_time_span.total_seconds()
        if alone and silence >= alone:
            yield Alarm.PROMOTE_ALONE
