"""The invariants, checked at every commit for what it touched and in full at faults and at the end.

The memory behind the verdict is made of facts only: what a client was told, what a next hop took, what was
durable on which disk from when to when.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from shadowrelay.core.decisions import Outcome
from shadowrelay.core.digests import of_content
from shadowrelay.core.identifiers import MessageId, RequestId, ServerName
from shadowrelay.core.messages import Copy, HolderState, Reason, Recipient, Role, Stage, Status
from shadowrelay.core.requests import Request
from shadowrelay.core.tracking import (
    Deliver,
    Discarded,
    Dsn,
    DuplicateDeliver,
    HaRestore,
    Journaled,
    Promote,
    Receive,
    Resubmit,
    Send,
    ToMembers,
)
from shadowrelay.core.tracking_row import TrackingEvent

from . import by_hand, given_back, rot
from .ages import Ages
from .filters import ON_RECORD, Filtered
from .pressing import PATIENCE
from .world import LATE, SLACK, SPAN, Broken, Delivery, World, healthy_for

if TYPE_CHECKING:
    from .node import Node

FOREVER = float("inf")
DONE = (Status.DELIVERED, Status.RELAYED)

A_MOMENT = 0.2
"""Seconds from the comparison of a content to the commit that it is for, at most."""


DECIDED = 7.0
"""Seconds in which a promotion is done that was decided on before its node was cut off."""


@dataclass(slots=True)
class Knowledge:
    """From when to when a disk said that the recipient is settled."""

    node: str
    since: float
    until: float = FOREVER


@dataclass(slots=True)
class Invariants:
    """One per world; nodes report to it."""

    world: World
    knows: dict[tuple[MessageId, int], list[Knowledge]] = field(default_factory=dict)
    epochs: dict[tuple[str, MessageId], int] = field(default_factory=dict)
    failed: set[tuple[MessageId, int]] = field(default_factory=set)  # given up, durably
    log: list[tuple[float, str, TrackingEvent]] = field(default_factory=list)
    logged: dict[tuple[str, MessageId], dict[int, Status]] = field(default_factory=dict)  # as settled
    rotten_since: dict[tuple[str, MessageId], float] = field(default_factory=dict)  # contents
    records: dict[tuple[str, RequestId], tuple[Request, float]] = field(
        default_factory=dict
    )  # on disks, since
    without_records: set[ServerName] = field(default_factory=set)  # they lost what they had on record
    filtered: set[MessageId] = field(default_factory=set)  # of which a row says what filters did
    keep_log: bool = False
    ages: Ages = field(init=False)

    def __post_init__(self) -> None:
        self.ages = Ages(self.world)

    # Reported by nodes.

    def committed(self, node: Node, touched: dict[MessageId, Copy | None], told: tuple[Any, ...]) -> None:
        world = self.world
        if world.verbose or world.observed or self.keep_log:
            for event in told:
                self._tell(node, event)
        for event in told:
            about = getattr(event, "copy", None)
            self._logs(node, event)
            if isinstance(event, HaRestore) and event.giver == node.name:
                continue  # it changes nothing at the giver
            if isinstance(event, Discarded):  # by a filter: nothing is kept
                world.refused.add(event.copy.id)
                self.filtered.add(event.copy.id)
                world.removed |= {(event.copy.id, one.number) for one in event.copy.recipients}
                continue
            if about is not None and about.id not in touched and not _settled_before(node, event):
                raise Broken(
                    f"{node.name}: {event.event_id} of {about.id} tells of a change that is not there"
                )
            if (
                isinstance(event, Receive)
                and event.redundant == "Failed"
                and world.policy.reject_message_on_shadow_failure
                and not world.switched
            ):
                raise Broken(f"{node.name}: {event.copy.id} was accepted exposed, against policy")
            if isinstance(event, Receive) and (event.quarantined or event.unfiltered):
                self.filtered.add(event.copy.id)
            if isinstance(event, Journaled):
                self._journaled(node, event)
            if isinstance(event, Resubmit) and node.pressure and node.pressure.pressed_for > PATIENCE:
                raise Broken(f"{node.name} makes {event.copy.id} for a request, though it is under pressure")
        self._gives_back(node, touched, told)
        self.ages.committed(node, touched, told)
        world.removed |= by_hand.removes(told)
        for message_id, before in touched.items():
            after = node.ledger.state.copies.get(message_id)
            if after is not None and message_id in world.unkept:
                raise Broken(f"{node.name} keeps {message_id}, which it refused")
            self._epochs(node, message_id, after)
            self._tracked(node, before, after, told)
            self._learns(node, before, after)
            self._same_as_the_owners(node, after)
            there = node.ledger.state.content(message_id) is not None
            gone = not there and (node.name, message_id) not in self.world.hit
            if after is not None and gone:
                raise Broken(f"{node.name} has {message_id} without its content")
            self.available(message_id)
            if message_id in world.expanded:
                self.available(world.expanded[message_id].original)

    def _journaled(self, node: Node, event: Journaled) -> None:
        """A message has one journal copy, whoever made it, and one that was made from others has none."""
        world = self.world
        if event.original not in world.submissions:
            raise Broken(f"{node.name} journals {event.original}, which nobody sent")
        world.journaled[event.copy.id] = event.original
        if list(world.journaled.values()).count(event.original) > 1:
            raise Broken(f"{node.name}: {event.original} has two journal copies")

    def _gives_back(self, node: Node, touched: dict[MessageId, Copy | None], told: tuple[Any, ...]) -> None:
        given_back.committed(self, node, touched, told)

    def _logs(self, node: Node, event: Any) -> None:
        if isinstance(event, Send):
            about = self.logged.setdefault((node.name, event.copy.id), {})
            about.update((one.number, Status.DELIVERED) for one in event.recipients or event.copy.recipients)

    def _tell(self, node: Node, event: Any) -> None:
        world = self.world
        if self.keep_log:
            self.log.append((world.now, node.name, event))
        about = getattr(event, "copy", None)
        if about is None:
            return
        world.say(node.name, f"  {describe(event)}")
        kind, message_id, *rest = describe(event).split()
        world.point("event", kind, node.name, message_id, *rest)

    def opened(self, node: Node) -> None:
        given_back.forget(self, node)
        self.ages.opened(node)
        for message_id, copy in node.ledger.state.copies.items():
            self.epochs[node.name, message_id] = copy.epoch

    def spans(self) -> None:
        """No node counts on a longer time span than that after which another one may promote. One that lost
        its disk, or had it put back, does not know the record yet: it has to be told first.
        """
        nodes = [one for one in self.world.nodes.values() if one.up] if len(self.world.spans) > 1 else ()
        known = {one.name: one.in_force.switches.get(SPAN) for one in nodes}
        newest = max((one.revision for one in known.values() if one), default=0)
        for one in nodes:
            for other in nodes:
                relied, own = (
                    policy.shadow_resubmit_time_span
                    for policy in (one.in_force.relied, other.in_force.policy)
                )
                told = (known[name] for name in (one.name, other.name) if name in self.without_records)
                if relied > own and all(each and each.revision == newest for each in told):
                    raise Broken(f"{one.name} counts on {relied}, and {other.name} promotes after {own}")

    def disk_gone(self, node: Node, what: str) -> None:
        """A disk is lost or will be another one: its knowledge ends here."""
        self.without_records.add(node.name)
        self.ages.gone(node, what)
        for entries in self.knows.values():
            for entry in entries:
                if entry.node == node.name and entry.until == FOREVER:
                    entry.until = self.world.now
        for key in [key for key in self.epochs if key[0] == node.name]:
            del self.epochs[key]
        for copy in node.ledger.state.copies.values():
            self._let_go(node, copy.id)
            submission = self.world.submissions.get(copy.id)
            twice = any(holder.state is HolderState.HOLDING for holder in copy.holders)
            waits = copy.owned or any(recipient.waits for recipient in copy.recipients)
            if submission is not None and not submission.redundant and not twice and waits:
                self.world.excused.add(copy.id)

    def rotted(self, node: Node, hit: list[MessageId], kind: str) -> None:
        """A disk has damaged what it keeps of these messages. With a second copy nothing is lost by that."""
        for message_id in hit:
            self.world.hit.add((node.name, message_id))
            if kind == rot.CONTENT:
                self.rotten_since[node.name, message_id] = self.world.now
            copy = node.ledger.state.copies.get(message_id)
            if kind == rot.PAGE:
                self.epochs[node.name, message_id] = copy.epoch if copy else 0
                for (about, _), entries in self.knows.items():
                    for entry in entries:
                        if (about, entry.node, entry.until) == (message_id, node.name, FOREVER):
                            entry.until = self.world.now
                if copy:
                    self._learns(node, None, copy)
            submission = self.world.submissions.get(message_id)
            if submission is not None and not submission.redundant:
                self.world.excused.add(message_id)
            self._let_go(node, message_id)
            self.available(message_id)

    def _about(self, message_id: MessageId) -> MessageId:
        """The message of a client that this one reports on, or is the journal copy of; else itself."""
        about = self.world.reports.get(message_id, (message_id, 0))[0]
        return self.world.journaled.get(about, about)

    def _let_go(self, node: Node, message_id: MessageId) -> None:
        """What was made of a message was lost or damaged. An operator had turned redundancy off, its holders
        were let go, and it has no other yet: excused.
        """
        about = self._about(message_id)
        versions = node.versions.get(message_id, ())
        alone = bool(versions) and versions[-1][0].exposed
        if message_id in self.world.released and about != message_id and alone:
            self.world.excused.add(about)

    def disk_back(self, node: Node) -> None:
        """After a rollback: what the older image knows."""
        for copy in node.ledger.state.copies.values():
            self._learns(node, None, copy)
        for outcome in node.ledger.state.outcomes.values():
            self._remembers(node, outcome)
        self.everything()

    def decided(self, node: Node, message_id: MessageId, answer: str) -> None:
        submission = self.world.submissions[message_id]
        submission.answer = answer
        self.world.say(node.name, f"{message_id}: {answer}")
        if answer == "accepted":
            copy = node.ledger.durable_copy(message_id)
            arriving = node.ledger.durably_arriving(message_id)
            submission.redundant = arriving or (copy is not None and not copy.exposed)
            if copy is None and not arriving and not self._settled_somewhere(message_id):
                raise Broken(f"{node.name} accepted {message_id} and has no row of it")
        elif answer == "not redundant":
            self.world.refused.add(message_id)
            if any(key[0] == message_id for key in self.world.deliveries):
                raise Broken(f"{message_id} was delivered before its 451")

    def acknowledged(self, message_id: MessageId) -> None:
        sent = self.world.submissions[message_id]
        sent.acknowledged = self.world.now
        if sent.became in (Filtered.DISCARDED, *ON_RECORD) and message_id not in self.filtered:
            raise Broken(f"{message_id} has its 250, and no row says that it was {sent.became.value}")
        self.available(message_id)

    # The rules.

    def _epochs(self, node: Node, message_id: MessageId, after: Copy | None) -> None:
        if after is None:
            return
        key = (node.name, message_id)
        if after.epoch < self.epochs.get(key, 0) and key not in self.world.hit:
            raise Broken(f"{node.name}: the epoch of {message_id} went back to {after.epoch}")
        self.epochs[key] = after.epoch

    def _tracked(self, node: Node, before: Copy | None, after: Copy | None, told: tuple[Any, ...]) -> None:
        """Rows of the tracking log and the state say the same, in the same transaction."""
        copy = after or before
        if copy is None:
            return
        about = [event for event in told if getattr(event, "copy", None) and event.copy.id == copy.id]
        settled_before = {r.number for r in before.recipients if r.settled} if before else set()
        for event in about:
            if isinstance(event, Send) and after is not None:
                missing = {r.number for r in event.recipients} - {
                    r.number for r in after.recipients if r.settled
                }
                if missing:
                    raise Broken(
                        f"{node.name}: {event.event_id} of {copy.id} for {missing}, which are not settled"
                    )
            if isinstance(event, Promote) and event.reason == Reason.HEARTBEAT_LOST and self._alone(node):
                raise Broken(f"{node.name} promoted {copy.id}, though its machine is cut off")
            if isinstance(event, Promote) and self._unread(node, event.copy):
                raise Broken(f"{node.name} promoted {copy.id}, whose content is damaged")
            if isinstance(event, Promote) and event.copy.epoch <= (before.epoch if before else 1):
                raise Broken(f"{node.name}: RESUBMIT of {copy.id} does not raise the epoch")
        if before is None and after is not None and not about:
            raise Broken(f"{node.name}: {copy.id} appeared without a row")
        accepted = before is None and after is not None and after.role is Role.PRIMARY
        if accepted and not any(
            isinstance(event, Receive | Dsn | Promote | HaRestore | Resubmit | Journaled | ToMembers)
            for event in about
        ):
            raise Broken(f"{node.name}: {copy.id} was accepted without RECEIVE")
        if after is not None:
            newly = {r.number for r in after.recipients if r.settled} - settled_before
            told_of = {r.number for event in about for r in (event.recipients or event.copy.recipients)}
            if before is not None and newly - told_of:
                raise Broken(f"{node.name}: {newly - told_of} of {copy.id} were settled without a row")

    def _same_as_the_owners(self, node: Node, copy: Copy | None) -> None:
        """A copy that counts is one of what its owner has, octet by octet."""
        if copy is None or not copy.held or copy.damage or copy.owner not in self.world.nodes:
            return
        owned = self.world.nodes[copy.owner].ledger.durable_copy(copy.id)
        if owned and owned.owned and owned.epoch == copy.epoch and owned.digests != copy.digests:
            raise Broken(f"{node.name} holds another {copy.id} than {copy.owner} has")

    def _alone(self, node: Node) -> bool:
        """Has no member on its machine been able to talk to another one, though there is a third?"""
        world, own = self.world, node.place.host
        here = [place.name for place in world.places if place.host == own]
        elsewhere = [place.name for place in world.places if place.host != own]
        if len({place.host for place in world.places}) == 2:
            return False
        since = 0.0
        for pair in ({one, other} for one in here for other in elsewhere):
            cut = [
                entry.start
                for entry in world.impairments
                if entry.other is not None and {entry.one, entry.other} == pair and entry.end > world.now
            ]
            if not cut:
                return False
            since = max(since, *cut)
        return world.now - since > DECIDED

    def _unread(self, node: Node, copy: Copy) -> bool:
        """Is its content damaged, and was it before anybody could have compared it in time?"""
        since = self.rotten_since.get((node.name, copy.id), FOREVER)
        return self.world.now - since > A_MOMENT and not _as_it_was(node, copy)

    def _learns(self, node: Node, before: Copy | None, after: Copy | None) -> None:
        if after is None:
            if before is not None and before.stage is not Stage.SAFETY_NET:
                for recipient in before.recipients:
                    self._forgets(node, before.id, recipient)
            return
        if before is not None and before.recipients is after.recipients:
            return
        for recipient in after.recipients:
            if recipient.status is Status.FAILED:
                self.failed.add((after.id, recipient.number))
            if recipient.status in DONE:
                self._remember(node, after.id, recipient.number)

    def _remember(self, node: Node, message_id: MessageId, number: int) -> None:
        entries = self.knows.setdefault((message_id, number), [])
        if not any(entry.node == node.name and entry.until == FOREVER for entry in entries):
            entries.append(Knowledge(node.name, self.world.now))

    def _remembers(self, node: Node, outcome: Outcome) -> None:
        for number in outcome.delivered:
            self._remember(node, outcome.message_id, number)

    def _forgets(self, node: Node, message_id: MessageId, recipient: Recipient) -> None:
        for entry in self.knows.get((message_id, recipient.number), ()):
            if entry.node == node.name and entry.until == FOREVER:
                entry.until = self.world.now

    def _settled_somewhere(self, message_id: MessageId) -> bool:
        return any(
            copy.stage is Stage.SAFETY_NET
            for node in self.world.nodes.values()
            if (copy := node.ledger.durable_copy(message_id))
        )

    def available(self, message_id: MessageId) -> None:
        """Acknowledged and redundant: every recipient is delivered, reported, or held where it can go on."""
        submission = self.world.submissions.get(message_id)
        if submission is None or submission.acknowledged is None or message_id in self.world.excused:
            return
        gone = self.world.deliveries.keys() | self.world.removed
        open_ = [
            n
            for n, _, _ in submission.recipients
            if (message_id, n) not in gone and not self.with_members(message_id, n)
        ]
        if not open_:
            return
        copies = self.good_copies(message_id)
        for number in open_:
            if any(r.number == number and not r.settled for copy in copies for r in copy.recipients):
                continue
            if any(node.ledger.durably_arriving(message_id) for node in self.world.nodes.values()):
                continue
            if self.reported(message_id, number):
                continue
            raise Broken(
                f"LOST: recipient {number} of {message_id}, acknowledged at {submission.acknowledged:.3f}"
            )

    def with_members(self, message_id: MessageId, number: int) -> bool:
        """A list: is there a message to its members, and did each get it, or may it still be sent?

        What is damaged before it has a second copy waits for an operator, as a report and a journal copy do.
        """
        hit = {one for _, one in self.world.hit}
        for made, about in self.world.expanded.items():
            if about.original != message_id or number not in about.numbers:
                continue
            if made in hit:
                return True
            copies = self.good_copies(made, about.original)
            held = {one.number for copy in copies for one in copy.recipients if not one.settled}
            if all(
                n in held or (made, n) in self.world.deliveries or (made, n) in self.failed
                for n, _ in about.members
            ):
                return True
        return False

    def good_copies(self, message_id: MessageId, content_of: MessageId | None = None) -> list[Copy]:
        """Durable copies, of whatever node, whose content is the one that was sent."""
        found = []
        for node in self.world.nodes.values():
            copy = node.ledger.durable_copy(message_id)
            octets = self.world.content_of(content_of or message_id)
            if copy is not None and node.ledger.state.content(message_id) == octets:
                found.append(copy)
        return found

    def reported(self, message_id: MessageId, number: int) -> bool:
        """Failed, and the sender has its report, or it is held; a null sender gets none."""
        submission = self.world.submissions[message_id]
        return (
            (message_id, number) in self.failed
            if not submission.sender
            else self._report_exists(message_id, number)
        )

    def _report_exists(self, message_id: MessageId, number: int) -> bool:
        for report, about in self.world.reports.items():
            if about != (message_id, number):
                continue
            if (report, 1) in self.world.deliveries:
                return True
            return any(node.ledger.durable_copy(report) for node in self.world.nodes.values())
        return False

    def everything(self) -> None:
        for message_id in self.world.submissions:
            self.available(message_id)


def _not_there(world: World, copy: Copy) -> str | None:
    """A member that counts as a holder, on the same database, and has no copy of what is in a queue."""
    for holder in copy.holders if copy.unfinished else ():
        other = world.nodes[holder.name].ledger.state
        same = other.database_id == holder.database_id
        if holder.state is HolderState.HOLDING and same and copy.id not in other.copies:
            return holder.name
    return None


def _as_it_was(node: Node, copy: Copy) -> bool:
    """Is what the disk has of its content what its digest says?"""
    octets = node.ledger.state.content(copy.id) or b""
    return copy.digests is not None and of_content(octets) == copy.digests.content


def _settled_before(node: Node, event: TrackingEvent) -> bool:
    """Does it tell of a second delivery, of recipients that were settled while it was under way?"""
    copy = node.ledger.state.copies.get(event.copy.id)
    if event.copy.id in node.ledger.state.damaged:
        return True
    if copy is None or not isinstance(event, Send | Deliver | DuplicateDeliver):
        return False
    return {r.number for r in event.recipients} <= {r.number for r in copy.recipients if r.settled}


def describe(event: TrackingEvent) -> str:
    """One tracking event as a scenario prints it."""
    copy = event.copy
    words = [event.event_id, copy.id]
    if event.recipients and len(event.recipients) != len(copy.recipients):
        words.append("to=" + "+".join(str(r.number) for r in event.recipients))
    for name in ("shadow", "primary", "new_owner", "reason", "redundant", "former_owner", "in_doubt"):
        value = getattr(event, name, None)
        if value:
            words.append(f"{name.replace('_', '-')}={value}")
    if isinstance(event, Resubmit):
        words += [f"original={event.original}", f"owner={event.owner}"]
    words.append(f"epoch={copy.epoch}")
    return " ".join(words)


@dataclass(slots=True)
class Verdict:
    """What a run amounts to, as Jepsen's total-queue counts it, with a cause for every duplicate."""

    seed: int
    acknowledged: int = 0
    attempted: int = 0
    delivered: int = 0
    lost: int = 0
    unexpected: int = 0
    recovered: int = 0
    excused: int = 0
    resubmitted: int = 0
    duplicates: Counter[str] = field(default_factory=Counter)
    missing: Counter[str] = field(default_factory=Counter)  # recipients that were not given a message back
    faults: Counter[str] = field(default_factory=Counter)
    turned_away: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    virtual: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.problems


AFTERMATH = 6.0
"""Seconds after its end in which a fault may still explain that two nodes believed to own a message."""


def cause_of(checks: Invariants, first: Delivery, again: Delivery) -> str:
    """Which of the promise's exceptions explains that a recipient got the message again; '!…' if none."""
    world = checks.world
    key = (again.message_id, again.recipient)
    slack = SLACK + (LATE if world.noise.loss or world.noise.late else 0.0)
    if first.reply_lost:
        return "next hop's reply lost"
    if any(entry.kind == rot.PAGE and entry.start <= again.taken for entry in world.impairments):
        return "a page of before"
    for entry in world.impairments:  # the process ended, or froze, while its octets were on their way
        if entry.one == again.node and entry.other is None and again.started <= entry.start <= again.taken:
            frozen = entry.kind == "freeze"
            return "freeze with a delivery in flight" if frozen else "crash between delivery and settling"
    for known in checks.knows.get(key, ()):
        if known.node == again.node:
            if known.since < again.started < known.until:
                return f"!{again.node} knew that it was settled"
            continue
        stretch = healthy_for(world, known.node, again.node, known.since, min(known.until, again.started))
        pair = frozenset((known.node, again.node))
        if stretch > slack:
            if any(
                again.started - AFTERMATH < at < again.started and pair == lost for at, lost in world.lost
            ):
                return "members could not talk: packets lost"
            if again.message_id in world.released:  # a holder that was let go forgets the message
                return "redundancy was off"
            return f"!{known.node} knew for {stretch:.1f} s, and {again.node} could have asked"
    if not (world.noise.loss or world.noise.late) and (who := _should_have_asked(checks, again)):
        return f"!{again.node} returned and did not ask {who} before it delivered"
    settled = [k for k in checks.knows.get(key, ()) if k.node == first.node and k.since < again.taken]
    earlier, later = sorted(
        (first.started, again.started)
    )  # what a next hop takes second may have begun first
    wrong = [
        entry for entry in world.impairments if entry.start <= later and entry.end >= earlier - AFTERMATH
    ]
    kinds = {entry.kind for entry in wrong if first.node in (entry.one, entry.other)}
    both = {entry.kind for entry in wrong}
    if not any(known.since >= first.taken for known in settled):
        if "freeze" in kinds:
            return "freeze with a delivery in flight"
        if kinds & {"crash", "away", "disk lost", "rolled back"}:
            return "crash between delivery and settling"
    elif kinds & {"disk lost", "rolled back"}:
        return "settled, not polled, disk lost or rolled back"
    elif kinds & {"crash", "away", "freeze"}:
        return "settled, not polled, away past the span"
    if "partition" in both:
        if len(world.nodes) == 2:
            return "partition, boundary of two"
        if any(_cut_off(world, node, later) for node in (first.node, again.node)):
            two = len({place.host for place in world.places}) == 2
            return "partition, boundary of two" if two else "owner cut off from everybody"
        return "!a partition that a third member sees around"
    if both & {"freeze", "away", "crash", "disk lost", "rolled back"}:
        return "holder out of reach at settling"
    return "!no fault explains it"


def _cut_off(world: World, node: str, before: float) -> bool:
    """Was that node out of reach of every other machine, past the time span, at one time?"""
    span = min(world.spans)
    hosts = {place.name: place.host for place in world.places}
    others = [other for other in world.nodes if hosts[other] != hosts[ServerName(node)]]
    cuts = [
        [
            entry
            for entry in world.impairments
            if entry.other is not None and {entry.one, entry.other} == {node, other} and entry.start < before
        ]
        for other in others
    ]
    return all(any(entry.end - entry.start >= span - AFTERMATH for entry in entries) for entries in cuts)


def _should_have_asked(checks: Invariants, again: Delivery) -> str:
    """A node that was gone or frozen past the span asks before it delivers, however soon that is."""
    world = checks.world
    span = max(world.spans)
    for entry in world.impairments:
        if entry.one != again.node or entry.other is not None or entry.end > again.started:
            continue
        if entry.end - entry.start < span:
            continue
        for known in checks.knows.get((again.message_id, again.recipient), ()):
            if known.node == again.node or known.since > entry.end or known.until < again.started:
                continue
            if (
                healthy_for(world, known.node, again.node, entry.end, again.started)
                >= again.started - entry.end
            ):
                return known.node
    return ""


def judge(checks: Invariants) -> Verdict:
    """The sums at the end, and every duplicate explained."""
    world = checks.world
    verdict = Verdict(world.seed, faults=Counter(world.faults), virtual=world.now)
    verdict.turned_away = world.turned_away
    verdict.problems += world.wrong
    verdict.problems += by_hand.against(world)
    verdict.excused = len(world.excused)
    per_client: dict[tuple[int, int], list[Delivery]] = {}
    attempted = {(s.message_id, n) for s in world.submissions.values() for n, _, _ in s.recipients}
    attempted |= {(report, 1) for report in world.reports}
    given = {(e.id, n) for entries in world.resubmissions.values() for e in entries for n in e.numbers}
    attempted |= given
    attempted |= {(journal, 1) for journal in world.journaled}
    attempted |= {(made, n) for made, about in world.expanded.items() for n, _ in about.members}
    verdict.problems += [f"LOST: the journal copy of {one}" for one in _unjournaled(world)]
    verdict.resubmitted = len(given & world.deliveries.keys())
    for cause in given_back.missing(checks):
        verdict.missing[cause] += 1
        verdict.problems += [f"not given back: {cause[1:]}"] if cause.startswith("!") else []
    verdict.attempted = len(attempted)
    for key, deliveries in world.deliveries.items():
        verdict.delivered += len(deliveries)
        if key not in attempted:
            verdict.unexpected += 1
            verdict.problems.append(f"unexpected: {key}")
        if key[0] in world.refused:
            verdict.unexpected += 1
            verdict.problems.append(f"delivered after 451: {key}")
        for index in range(1, len(deliveries)):
            causes = [cause_of(checks, first, deliveries[index]) for first in deliveries[:index]]
            wrong = [cause for cause in causes if cause.startswith("!")]
            verdict.duplicates[wrong[0] if wrong else causes[0]] += 1
            if wrong:
                verdict.problems.append(f"avoidable duplicate of {key}: {wrong[0][1:]}")
        submission = world.submissions.get(key[0])
        if submission:
            per_client.setdefault((submission.client, key[1]), []).append(deliveries[0])
    reports = Counter(about for report, about in world.reports.items() if (report, 1) in world.deliveries)
    verdict.problems += [
        f"{n} reports about recipient {to} of {m}" for (m, to), n in reports.items() if n > 1
    ]
    for deliveries in per_client.values():
        verdict.duplicates["client retry"] += len(deliveries) - 1
        for entry in deliveries:
            submission = world.submissions[entry.message_id]
            if (
                len(deliveries) > 1
                and submission.acknowledged is not None
                and submission
                is not max((world.submissions[d.message_id] for d in deliveries), key=lambda s: s.began)
            ):
                verdict.problems.append(f"{entry.message_id} was acknowledged and sent again")
    for submission in world.submissions.values():
        for number, _, _ in submission.recipients:
            key = (submission.message_id, number)
            if submission.acknowledged is not None:
                verdict.acknowledged += 1
            elif key in world.deliveries:
                verdict.recovered += 1
        try:
            checks.available(submission.message_id)
        except Broken as error:
            verdict.lost += 1
            verdict.problems.append(str(error))
    verdict.duplicates += Counter()  # without zeros
    return verdict


def _unjournaled(world: World) -> list[MessageId]:
    """Messages that were delivered, and did not come to the journal. Damage may have kept them from it."""
    came = {original for journal, original in world.journaled.items() if (journal, 1) in world.deliveries}
    hit = {message_id for _, message_id in world.hit}
    hit |= {original for journal, original in world.journaled.items() if journal in hit}
    hit |= {message_id for message_id, _ in world.removed}  # by a node that did not know of the delivery
    return sorted(
        message_id
        for message_id, _ in world.deliveries
        if world.journals
        and message_id in world.submissions
        and world.submissions[message_id].acknowledged is not None
        and message_id not in came | hit | world.excused
    )


def unrest(world: World) -> str:
    """What still keeps the boundary from being empty and quiet; '' when nothing does."""
    return _queues(world) or given_back.unfinished(world)


def _queues(world: World) -> str:
    live = {node.ledger.state.database_id for node in world.nodes.values()}
    # Of a report whose only copy was damaged an operator has to be told; the message that it is about waits.
    damaged = {message_id for _, message_id in world.hit}
    stuck = {about for report, (about, _) in world.reports.items() if report in damaged}
    stuck |= {original for journal, original in world.journaled.items() if {journal, original} & damaged}
    stuck |= {one.original for made, one in world.expanded.items() if {made, one.original} & damaged}
    for node in world.nodes.values():
        if not node.up or node.frozen:
            return f"{node.name} is down"
        if node.in_flight or node.active or node.repairing or node.ledger.dirty:
            return f"{node.name} is busy"
        state = node.ledger.state
        if state.arriving:
            return f"{node.name} does not know what became of {next(iter(state.arriving))}"
        for copy in state.copies.values():
            if copy.id in stuck and _settled_elsewhere(world, node, copy):
                continue  # whoever took it over asks the node that settled it, which waits for the operator
            if copy.owned:
                return (
                    f"{node.name} has {copy.id} in its queue ({copy.confirmation}, exposed: {copy.exposed})"
                )
            if copy.id in stuck:
                continue
            if copy.held and not _put_off(node, copy) and not _set_aside(world, copy):
                return f"{node.name} holds {copy.id} for {copy.owner}"
            waits = any(recipient.waits for recipient in copy.recipients)
            if waits and (node.name, copy.id) not in world.hit:  # else a page may be out of date
                return f"{node.name} waits for a report on {copy.id}"
        for event in state.events.values():
            if event.addressee in live:
                return f"{node.name} has an event for {event.addressee}: {event.verdict}"
    return ""


def _settled_elsewhere(world: World, node: Node, copy: Copy) -> bool:
    """Has another node settled all of it, and waits for what was made of it, before it tells anybody?"""
    theirs = [one.ledger.state.copies.get(copy.id) for one in world.nodes.values() if one is not node]
    return any(
        one.stage is Stage.SAFETY_NET and any(recipient.waits for recipient in one.recipients)
        for one in theirs
        if one is not None
    )


def _set_aside(world: World, copy: Copy) -> bool:
    """Does its owner's copy wait for an operator? Then it is held as long as that takes. If the owner's is
    damaged, this one would be better.
    """
    owned = world.nodes[copy.owner].ledger.state.copies.get(copy.id)
    return owned is not None and owned.unfinished and not owned.queued and not owned.damaged


def _put_off(node: Node, copy: Copy) -> bool:
    """A wall clock that was set back puts the holder's question off by as much: late, and nothing is lost."""
    return copy.check_at is not None and copy.check_at > node.clock() + timedelta(hours=1)


def _has_a_copy_elsewhere(world: World, node: Node, copy: Copy) -> bool:
    """Whatever its owner believes: has a member on another machine a good copy of it?"""
    for other in world.nodes.values():
        theirs = other.ledger.state.copies.get(copy.id)
        if other.place.host != node.place.host and theirs and theirs.held and _as_it_was(other, theirs):
            return True
    return False


def repaired(world: World) -> str:
    """What is not yet as it should be before a second fault: queues may be full, but everything is safe."""
    if repairing := under_repair(world):
        return repairing
    for node in world.nodes.values():
        for copy in node.ledger.state.copies.values():
            if (lost := _not_there(world, copy)) is not None:
                return f"{lost} has no copy of {copy.id}, which {node.name} counts on"
            if copy.queued and (copy.damage or not _as_it_was(node, copy)):
                return f"{node.name}: {copy.id} is damaged"
            lost = copy.damaged and not copy.queued  # no member has a good copy
            if copy.unfinished and not lost and not _has_a_copy_elsewhere(world, node, copy):
                return f"{node.name}: {copy.id} is on one machine alone"
    return ""


def under_repair(world: World) -> str:
    """The same, as far as members go by what they believe: whether that is so is not asked."""
    live = {node.ledger.state.database_id for node in world.nodes.values()}
    for node in world.nodes.values():
        if not node.up or node.frozen or node.in_flight or node.repairing or node.ledger.dirty:
            return f"{node.name} is busy"
        if not all(
            watch.reachable and watch.contact_at is not None for watch in node.boundary.watches.values()
        ):
            return f"{node.name} misses somebody"
        state = node.ledger.state
        if state.arriving:
            return f"{node.name} does not know what became of {next(iter(state.arriving))}"
        for copy in state.copies.values():
            if copy.exposed or (copy.queued and copy.confirmation.value != "none"):
                return f"{node.name}: {copy.id} is exposed or has to be asked about"
        if any(event.addressee in live for event in state.events.values()):
            return f"{node.name} has events to tell"
        for copy in state.copies.values():
            held = copy.held and not _put_off(node, copy)
            if held and copy.id not in world.nodes[copy.owner].ledger.state.copies:
                return f"{node.name} holds {copy.id}, which {copy.owner} does not have any more"
    return ""
