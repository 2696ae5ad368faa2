"""A node as a process: transactions in groups, scripts run step by step, loops – and what a crash leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from shadowrelay.core import switching
from shadowrelay.core.decisions import Content, DamagedRow
from shadowrelay.core.delivery import retry, settling
from shadowrelay.core.delivery.journal import JournalCopy, journal_of
from shadowrelay.core.delivery.settling import AttemptResult, Ending, Hop, Report, expansion_of
from shadowrelay.core.digests import of_content
from shadowrelay.core.events.reports import ReportKind, is_due, report_id
from shadowrelay.core.greeting import greet
from shadowrelay.core.identifiers import DatabaseId, Incarnation, MessageId, NextHop, RequestId, ServerName
from shadowrelay.core.ledger import Transaction
from shadowrelay.core.members import damage, questions
from shadowrelay.core.members.conversation import Greeting
from shadowrelay.core.messages import FOREVER, Confirmation, Copy, Recipient, Status
from shadowrelay.core.ownership import chores, heartbeat
from shadowrelay.core.ownership.handover import hand_over
from shadowrelay.core.pressure import Inflow
from shadowrelay.core.reception.by_reference import keepers
from shadowrelay.core.reception.filtered import dropped
from shadowrelay.core.reception.redundancy import Answer, Arrival, OfferAttempt
from shadowrelay.core.reception.shadow_servers import MemberPlace
from shadowrelay.core.recipients import LISTS
from shadowrelay.core.reckoning import Doubt, begun, carried_on
from shadowrelay.core.safety_net import expiry, requesting
from shadowrelay.core.spans import within
from shadowrelay.core.steps import (
    AllFound,
    AnyStep,
    Ask,
    Beside,
    Both,
    Compare,
    Greet,
    OfferCopy,
    Operate,
    Pause,
    Script,
    SendOn,
    Sent,
    Transact,
    Unanswered,
    WriteReports,
)
from shadowrelay.core.switches import Switch, SwitchValue
from shadowrelay.core.switching import REDUNDANCY
from shadowrelay.core.unread import next_look, pause_after
from shadowrelay.delivery.queue import deliver
from shadowrelay.members import giving, mend, repair
from shadowrelay.members.boundary import Boundary
from shadowrelay.members.effective_policy import EffectivePolicy
from shadowrelay.members.inquiry import Inquiry
from shadowrelay.members.link import poll, unreachable
from shadowrelay.members.record_replication import Spread
from shadowrelay.members.repair import Refusals
from shadowrelay.reception import two_copies
from shadowrelay.safety_net.resubmitting import Pace
from shadowrelay.wire.xtext import typed_recipient

from . import ages, filters
from .clocks import NodesClock, machine_of
from .filters import Filtered
from .memory_ledger import CheckedLedger, MemoryLedger, State
from .peers import Peers
from .pressing import NodesPressure
from .resubmitting import Resubmitter
from .world import SPAN, Delivery, ToMembersOf, World

if TYPE_CHECKING:
    from .checks import Invariants

CHORE = 0.3
"""Seconds until the next part of what is done to many messages."""


REFUSED = 3.0
"""Seconds for which a member that refused a copy is not asked for it again."""


SCRUB = 4
"""Seconds in which everything that is kept is read."""


@dataclass(slots=True)
class Task:
    """A script on its way. It dies with the process that began it."""

    node: Node
    script: Script[Any]
    done: Callable[[Any], None]
    generation: int

    def resume(self, value: Any = None) -> None:
        node = self.node
        while node.generation == self.generation:
            try:
                step = self.script.send(value)
            except StopIteration as stop:
                self.done(stop.value)
                return
            if type(step) is Transact:
                ready, value = node.transact(step.work, self.resume)
                if not ready:
                    return
            elif type(step) is Beside:
                Pair(self, step.offer.to).begin(step)
                return
            elif type(step) is WriteReports:
                value = node.write_reports(step)
            elif type(step) is Compare:
                value = frozenset(one for one in step.messages if node.read(one) is None)
            elif type(step) is AllFound:
                value = True
            else:
                node.perform(step, self.resume)
                return


@dataclass(slots=True)
class Pair:
    """A transaction and an offer, one beside the other."""

    task: Task
    to: ServerName
    kept: tuple[Any, ...] = ()
    attempt: OfferAttempt | None = None

    def begin(self, step: Beside) -> None:
        node = self.task.node
        ready, kept = node.transact(step.work, self.keeps)
        if ready:
            self.kept = (kept,)
        node.peers.offer(step.offer, self.offered)

    def keeps(self, kept: Any) -> None:
        self.kept = (kept,)
        self._both()

    def offered(self, attempt: OfferAttempt) -> None:
        self.attempt = attempt
        self._both()

    def _both(self) -> None:
        if self.kept and self.attempt is not None:
            member = self.task.node.ledger.member(self.to)
            self.task.resume(Both(self.kept[0], self.attempt, member))


class Node:
    """One member of the boundary: its disk (a ledger), and while it is up, a process (generation)."""

    def __init__(self, world: World, place: MemberPlace, checks: Invariants, *, sql: bool) -> None:
        self.world = world
        self.place = place
        self.name = place.name
        self.checks = checks
        self.sql = sql
        self.in_force, self.policy = EffectivePolicy(world.policy), world.policy
        self.others = tuple(other for other in world.places if other.name != place.name)
        self.machine = machine_of(world, place)
        self.up = False
        self.frozen = False
        self.froze_at = self.thawed_at = -1.0
        self.deferred: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.generation = 0
        self.commits = 0
        self.crash_at: tuple[int, str] | None = None  # commit number, before or after
        self.on_planned_crash: Callable[[], None] = lambda: None
        self.snapshots: list[Any] = []
        self.versions: dict[MessageId, list[tuple[Copy, bytes]]] = {}  # what was durable of each message
        self.wants_snapshot = False
        self.new_disk()

    def new_disk(self) -> None:
        state = State(DatabaseId(f"{self.world.token(32)}-0000-4000-8000-{self.world.token(48)}"))
        hosts = {place.name: place.host for place in self.world.places}
        self.ledger: MemoryLedger = (CheckedLedger if self.sql else MemoryLedger)(self.name, state, hosts)
        self.ledger.at_once = self.world.at_once

    # Clocks.

    def clock(self) -> datetime:
        """Reckoned time: what all decisions go by."""
        return self.time()

    def certain(self, since: datetime) -> datetime:
        """The present, for the age that what began then certainly has."""
        ends = self.time.endings()
        return ends.now - within(ends.spans, since, ends.now)

    def _look_at_the_clock(self) -> None:
        """Note what time it is, and whether the wall clock is to be trusted."""
        found = self.time.look()
        if self.world.verbose and found.doubts != self.doubts:
            self.world.say(self.name, f"doubts its clock: {', '.join(sorted(found.doubts)) or 'no more'}")
        self.doubts = found.doubts
        self.checks.ages.looked(self, found)
        self.ledger.state.reckoning = self.time.to_save()

    def after(self, delay: float, run: Callable[..., None], *arguments: Any) -> None:
        """Run it in this process: not if that ended meanwhile, and later if it is frozen."""
        self.world.after(delay, self._due, self.generation, run, arguments)

    def _due(self, generation: int, run: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if generation == self.generation:
            self.attend(run, *arguments)

    def attend(self, run: Callable[..., None], *arguments: Any) -> None:
        if self.frozen:
            self.deferred.append((run, arguments))
        else:
            run(*arguments)

    # The life of the process.

    def open(self) -> None:
        assert not self.up
        self.world.before_start(self)
        self.up = True
        self.generation += 1
        self.waiting: list[tuple[Callable[[Any], None], Any]] = []
        self.arriving: dict[MessageId, bytes] = {}  # content that is offered before it is stored
        self.mending: set[MessageId] = set()
        self.answered: dict[MessageId, set[ServerName]] = {}  # who has no good copy
        self.promised: dict[MessageId, float] = {}
        self.in_force = EffectivePolicy(self.world.policy)
        self.boundary = Boundary(
            self.place,
            self.others,
            self.in_force.live,
            self.in_force.live_relied,
            _turn=self.world.random.randrange(8),
        )
        self.peers = Peers(self)
        self.in_flight: set[MessageId] = set()
        self.ticks = 0
        self.active: set[tuple[MessageId, NextHop]] = set()
        self.ledger.active = self.active
        self.repairing: set[MessageId] = set()
        self.refusals = Refusals(rest=REFUSED)
        self.redirecting: set[MessageId] = set()
        self.concluding = self.carrying = False
        self.pump_at: float | None = None
        self.resubmitter: Resubmitter | None = None  # since there was a request
        token = Incarnation(self.world.token(64))
        found, reading = self.ledger.state.reckoning, self.machine.read()
        reckoning = carried_on(found, reading) if found else begun(reading)
        self.ledger.state.reckoning = reckoning
        self.time = NodesClock(reckoning, self.machine)
        self.doubts: frozenset[Doubt] = frozenset()
        now = self.clock()
        self.ledger.open(token, now)
        self.take_switches()
        kept = self.policy.shadow_message_auto_discard_interval
        long = partial(self.time.away_longer, kept)
        self.inquiry = Inquiry() if long() is False else Inquiry(now, long)
        self.durable = self.ledger.lineage
        self.world.say(self.name, f"opens {token} at {self.durable.sequence}")
        self.checks.opened(self)
        self.pressure = NodesPressure(self) if self.world.readings else None
        if self.pressure is not None:
            self.pressure.see()
            self.pressure.begin()
        self.next_talk: dict[ServerName, float] = {}
        for other in self.others:
            self._talk_in(other.name, 0.05 + 0.3 * self.world.random.random())
        self.after(1.0, self.tick)
        self._carry_on()

    @property
    def opening(self) -> bool:
        """Senders are not let in yet."""
        return self.ledger.unfinished() is not None

    def ready(self) -> tuple[bool, str]:
        """Whether it takes mail, and why not."""
        return not self.opening and (self.pressure is None or self.pressure.room.admits()), ""

    def may_resubmit(self) -> bool:
        """May it make messages that nobody waits for?"""
        return self.ready()[0] and (self.pressure is None or not self.pressure.room.stance.pauses)

    def _carry_on(self) -> None:
        """What is left to be done to many messages, one part after the other, each after a while."""
        if self.ledger.chores and not self.carrying:
            self.carrying = True
            self.after(CHORE, self._next_part)

    def _next_part(self) -> None:
        def done(_: Any) -> None:
            self.carrying = False
            self._carry_on()
            self.pump()

        ready, more = self.transact(lambda _: self.ledger.carry_on(), done)
        if ready:
            done(more)

    def crash(self) -> None:
        """The process ends here; what is not durable is gone."""
        assert self.up
        self.up = self.frozen = False
        self.deferred.clear()
        self.generation += 1
        self.ledger.rollback()
        self.world.say(self.name, "crashes")
        for other in self.world.nodes.values():
            if other.up and other is not self and self.world.random.random() < 0.7:
                self.world.after(0.01, other.reset_from, self.name, other.generation)

    def reset_from(self, name: ServerName, generation: int) -> None:
        """The kernel of a killed peer closed its connections (a power cut would not)."""
        if generation == self.generation and (name, self.name) not in self.world.blocked:
            self.peers.shadow.pop(name, None)
            self.peers.open.pop(name, None)

    def freeze(self) -> None:
        self.frozen, self.froze_at = True, self.world.now
        self.world.say(self.name, "freezes")

    def thaw(self) -> None:
        if not self.frozen:
            return
        self.frozen, self.thawed_at = False, self.world.now
        self.world.say(self.name, "thaws")
        waiting, self.deferred = self.deferred, []
        for run, arguments in waiting:
            # Each of them may crash the node or freeze it again.
            if self.up:
                self.attend(run, *arguments)

    def lose_disk(self) -> None:
        assert not self.up
        self.checks.disk_gone(self, "lost")
        self.versions.clear()
        self.new_disk()
        self.world.say(self.name, "has a new disk")

    def roll_back(self, snapshot: Any) -> None:
        assert not self.up
        self.checks.disk_gone(self, "rolled back")
        self.ledger.restore(snapshot)
        self.world.say(self.name, f"is rolled back to sequence {self.ledger.state.sequence}")

    # Transactions.

    def transact(self, work: Callable[[Transaction], Any], then: Callable[[Any], None]) -> tuple[bool, Any]:
        """Run it now. (True, result) when nothing has to become durable first, else ``then`` is called."""
        ledger = self.ledger
        was_dirty = ledger.dirty
        result = work(ledger)  # type: ignore[arg-type]
        if not ledger.dirty:
            ledger.nothing_to_keep()
            return True, result
        self.waiting.append((then, result))
        if not was_dirty:
            low, high = self.world.noise.commit
            self.after(low + (high - low) * self.world.random.random(), self._commit)
        return False, None

    def _commit(self) -> None:
        self.commits += 1
        plan = self.crash_at if self.crash_at and self.crash_at[0] == self.commits else None
        if plan and plan[1] == "before":
            self.crash()
            self.on_planned_crash()
            return
        ledger = self.ledger
        touched = ledger.touched()
        told = ledger.commit()
        waiting, self.waiting = self.waiting, []
        generation = self.generation
        self.durable = ledger.lineage
        for message_id in touched:
            copy, octets = ledger.state.copies.get(message_id), ledger.state.content(message_id)
            if copy and octets:
                self.versions.setdefault(message_id, []).append((copy, octets))
        self.checks.committed(self, touched, told)
        if self.generation == generation and plan:
            self.crash()
            self.on_planned_crash()
        if self.wants_snapshot and not ledger.dirty:
            self.snapshots.append(ledger.snapshot())
            self.wants_snapshot = False
        for then, result in waiting:
            if self.generation != generation:
                return
            if self.frozen:
                self.deferred.append((then, (result,)))
            else:
                then(result)
        if self.generation == generation and not self.frozen:
            self._carry_on()
            self.pump()

    def start(self, script: Script[Any], done: Callable[[Any], None]) -> None:
        Task(self, script, done, self.generation).resume()

    def perform(self, step: AnyStep, resume: Callable[[Any], None]) -> None:
        match step:
            case OfferCopy():
                self.peers.offer(step, resume)
            case Greet():
                self.peers.greet(step, resume)
            case Ask():
                self.peers.ask(step, resume)
            case Operate():
                self.peers.operate(step, resume)
            case SendOn():
                self._send_on(step, resume)
            case Pause(length):
                self.after(length.total_seconds(), resume, None)
            case _:
                self.peers.connect(step, resume)

    # Talking to the others.

    def _talk_in(self, name: ServerName, delay: float) -> None:
        at = self.world.now + delay
        planned = self.next_talk.get(name)
        if planned is not None and planned <= at:
            return
        self.next_talk[name] = at
        self.after(delay, self._talk, name, at)

    def _talk(self, name: ServerName, at: float) -> None:
        """One heartbeat, as a link does it: greet when new or idle, then poll; twice if a session died."""
        if self.next_talk.get(name) != at:
            return  # brought forward meanwhile
        self.next_talk[name] = float("-inf")  # under way
        self._greet_or_poll(name, self.world.now)

    def _greet_or_poll(self, name: ServerName, began: float) -> None:
        session = self.peers.session(name)
        voice = self.boundary.voice_of(name)
        old = bool(voice) and self.time.told_before(voice, self.policy.shadow_heartbeat_frequency)
        if session is None or not self._holds_for(name) or old:
            script: Script[Any] = greet(
                name, self.clock, lambda: session is None or self.boundary.silent(name)
            )
            self.start(script, lambda result: self._greeted(name, began, result))
        else:
            self._poll(name, began, session)

    def _greeted(self, name: ServerName, began: float, result: Greeting | Unanswered) -> None:
        if isinstance(result, Unanswered):
            self._unanswered(name, result)
            return
        self._poll(name, began, result)

    def _poll(self, name: ServerName, began: float, session: Greeting) -> None:
        script = poll(session, self.inquiry, self.policy, self.clock)
        self.start(script, lambda result: self._polled(name, began, result))

    def _polled(self, name: ServerName, began: float, result: Unanswered | None) -> None:
        if result is not None:
            self._unanswered(name, result)
            return
        self.boundary.answered(name, began)
        busy = self._holds_for(name) or self._has_questions(name)
        pause = self.policy.discard_poll_interval if busy else self.policy.shadow_heartbeat_frequency
        self._again(name, pause.total_seconds())

    def _unanswered(self, name: ServerName, result: Unanswered) -> None:
        if self.peers.close(name):
            # A session that was idle may only have been closed: a fresh one decides.
            self._greet_or_poll(name, self.world.now)
            return
        alarms = self.boundary.failed(name, self.world.now, result.error)
        pause = self.policy.shadow_heartbeat_frequency.total_seconds()
        boundary = self.boundary
        script = unreachable(
            name, alarms, boundary.others(name), lambda: not boundary.watches[name].reachable, self.clock
        )
        self.start(script, lambda _: self._again(name, pause))

    def _again(self, name: ServerName, delay: float) -> None:
        del self.next_talk[name]
        self._talk_in(name, delay)

    def wake_link(self, name: ServerName) -> None:
        """A member that was silent, or restarted, called: talk to it now."""
        if self.next_talk.get(name, 0.0) > self.world.now:
            self._talk_in(name, 0.0)

    def _holds_for(self, name: ServerName) -> bool:
        return any(copy.held and copy.owner == name for copy in self.ledger.state.copies.values())

    def _has_questions(self, name: ServerName) -> bool:
        return self.inquiry.has_questions(self.ledger, name)

    # The loops of the owner.

    def tick(self) -> None:
        """Once a second: exposure, questions that can be concluded, and what a sleep calls for."""
        self.after(1.0, self.tick)
        self.ticks += 1
        self._look_at_the_clock()
        if self.world.scrub and self.ticks % SCRUB == 0:
            self._scrub()
        self.pump()
        state = self.ledger.state
        confirm = exposed = False
        for copy in state.copies.values():
            confirm = confirm or (copy.confirmation is not Confirmation.NONE and copy.queued)
            exposed = exposed or copy.exposed
        confirm = confirm or any(c.confirmation is not Confirmation.NONE for c in state.arriving.values())
        if confirm and not self.concluding and not chores.held_back(self.ledger):
            self._conclude()
            for name in sorted(self.boundary.reachable()):
                if self._has_questions(name):
                    self.wake_link(name)
        if not self.redundant:
            self._release()
        elif exposed:
            self._repair()
        self._mend()
        self.resubmit()

    def spread(self) -> Spread:
        """Which members have the records."""
        return Spread()

    def resubmit(self) -> None:
        """Share the requests, and carry them out."""
        self.take_switches()
        state = self.ledger.state
        if self.resubmitter is None and state.records:
            self.resubmitter = Resubmitter(self, self.spread(), Pace(self.policy, self.world.now))
        if self.resubmitter is not None:
            self.resubmitter.look()

    def _conclude(self) -> None:
        reachable = self.boundary.reachable()

        def work(ledger: Transaction) -> int:
            return self.inquiry.conclude(ledger, reachable, self.policy, self.clock(), self.world.now)

        self.concluding = True

        def concluded(_: Any) -> None:
            self.concluding = False
            if self._compare():
                self._conclude()

        ready, _ = self.transact(work, concluded)
        if ready:
            concluded(None)

    def _compare(self) -> bool:
        """Read the copies that are to be promoted. True if some may be now."""
        unread, self.inquiry.unread = self.inquiry.unread, set()
        sound = {message_id for message_id in sorted(unread) if self.read(message_id) is not None}
        self.inquiry.sound |= sound
        return bool(sound)

    # Damage.

    def read(self, message_id: MessageId) -> bytes | None:
        """The content of a copy, compared with its digest; what is damaged is written down."""
        copy, content = self.ledger.copy(message_id), self.ledger.state.content(message_id) or b""
        if copy is None or copy.damaged or copy.digests is None:
            return None
        if of_content(content) == copy.digests.content:
            return content
        self.transact(lambda b: b.apply(damage.found(b, message_id, self.clock())), lambda _: None)
        return None

    def _scrub(self) -> None:
        """Read everything that is kept, and ask who else has it, to find damage before it is needed."""
        reachable = self.boundary.reachable()
        for copy in tuple(self.ledger.state.copies.values()):
            self.read(copy.id)
            for name in sorted({copy.owner, *(holder.name for holder in copy.holders)} & reachable):
                if questions.shared_with(copy, name):
                    self.inquiry.ask_again(name, copy.id)
                    self.wake_link(name)

    def _mend(self) -> None:
        """As the stage does it: rows nobody may find, then a good copy for each message that needs one."""
        for message_id, what in tuple(self.ledger.suspects.items()):
            rows = DamagedRow(message_id, self.clock(), what, self._settled_in_log(message_id))
            self.transact(lambda b, rows=rows: b.apply(damage.found_rows(rows)), lambda _: None)
        state = self.ledger.state
        found = {copy.id for copy in state.copies.values() if copy.damaged and copy.queued}
        found |= {key for key, rows in state.damaged.items() if not rows.set_aside}
        for message_id in self.answered.keys() - found - self.mending:
            del self.answered[message_id]  # it is good again: answers about it are out of date
        for message_id in sorted(found):
            if message_id not in self.mending and self.promised.get(message_id, 0.0) <= self.world.now:
                self.mending.add(message_id)
                self._seek(message_id, sorted(self.boundary.reachable()))

    def _settled_in_log(self, message_id: MessageId) -> tuple[tuple[int, Status], ...]:
        """Tracking log files and database fail apart: what this node logged of a message is known."""
        return tuple(sorted(self.checks.logged.get((self.name, message_id), {}).items()))

    def _seek(self, message_id: MessageId, names: list[ServerName]) -> None:
        """One member after the other, until one gives its copy."""
        answered = self.answered.setdefault(message_id, set())
        while names and names[0] in answered:
            names.pop(0)
        if not names:
            self.mending.discard(message_id)
            if frozenset(self.boundary.watches) <= answered:
                self.transact(lambda b: b.apply(damage.given_up(b, message_id, self.clock())), lambda _: None)
                del self.answered[message_id]  # an operator may have it looked for again
            return
        name = names.pop(0)

        def sought(found: mend.Sought) -> None:
            if found is mend.Sought.NONE_THERE:
                answered.add(name)
            if found in (mend.Sought.COMING, mend.Sought.NOTHING):
                self.promised[message_id] = self.world.now + 2.0
                self.mending.discard(message_id)
            else:
                self._seek(message_id, names)

        script = mend.seek(message_id, name, self.inquiry, self.policy, self.clock)
        self.start(script, sought)

    def give(self, message_id: MessageId, to: ServerName) -> None:
        """A member's own copy is damaged."""
        if self.read(message_id) is not None:
            self.start(mend.give(message_id, to, self.clock), lambda _: None)

    def pump(self) -> None:
        """Claim what is due, one delivery per message and next hop at a time."""
        if self.ledger.dirty or chores.held_back(self.ledger):
            return  # only what is durable may be claimed; the commit calls again
        now = self.clock()
        soonest: datetime | None = None
        chosen: list[tuple[Copy, NextHop]] = []
        for copy in self.ledger.state.copies.values():
            if not copy.owned or copy.confirmation is Confirmation.ASK or copy.damaged:
                continue
            for recipient in copy.recipients:
                if recipient.settled or (copy.id, recipient.next_hop) in self.active:
                    continue
                due = max(filter(None, (recipient.next_attempt, recipient.suspended)), default=None)
                if self._is_due(recipient, now):
                    if not self._note_silence():
                        return  # what is asked about from now on is not claimed; the commit calls again
                    self.active.add((copy.id, recipient.next_hop))
                    chosen.append((copy, recipient.next_hop))
                elif due not in (None, FOREVER) and (soonest is None or due < soonest):
                    soonest = due
        for copy, hop in chosen:
            self._deliver(copy, hop)
        if soonest is not None:
            at = self.world.now + (soonest - now).total_seconds() + 0.001
            if self.pump_at is None or at < self.pump_at or self.pump_at <= self.world.now:
                self.pump_at = at
                self.after(at - self.world.now, self.pump)

    def _note_silence(self) -> bool:
        """As the queue does before it claims or sends anything. False: something was written down."""
        cut_off = self.boundary.cut_off(self.world.now)

        def ask_first(ledger: Transaction) -> None:
            at_hand = self.boundary.at_hand(self.world.now)
            for name in cut_off:
                heartbeat.cut_off(ledger, name, at_hand, self.clock())
                self.boundary.noted(name, self.world.now)

        ready, _ = self.transact(ask_first, lambda _: None) if cut_off else (True, None)
        return ready

    def _still_ours(self, step: SendOn) -> bool:
        """May this content be sent? Looked at after the next hop was reached."""
        self._note_silence()
        copy = None if chores.held_back(self.ledger) else self.ledger.copy(step.copy.id)
        if copy is None or not copy.owned or copy.confirmation is Confirmation.ASK:
            return False
        free = {one.number for one in copy.unsettled if not one.is_suspended(self.clock())}
        return {one.number for one in step.recipients} <= free

    def _is_due(self, recipient: Recipient, now: datetime) -> bool:
        """Its time has come."""
        return not recipient.is_suspended(now) and (
            recipient.next_attempt is None or recipient.next_attempt <= now
        )

    def _deliver(self, copy: Copy, hop: NextHop) -> None:
        due = tuple(
            recipient for recipient in settling.forks(copy)[hop] if self._is_due(recipient, self.clock())
        )

        def done(_: Any) -> None:
            self.active.discard((copy.id, hop))
            self.pump()

        self.start(deliver(copy, hop, due, self.clock), done)

    def _send_on(self, step: SendOn, resume: Callable[[Any], None]) -> None:
        world, copy = self.world, step.copy
        hop = Hop(server=f"mail.{step.next_hop}", inside=step.next_hop.startswith("inside"), mailbox=False)
        if self.read(copy.id) is None:
            resume(Sent((), hop, damaged="content"))
            return
        if step.next_hop == LISTS:
            resume(self._expand(step, hop) if self._still_ours(step) else Sent((), hop))
            return
        ends = self.time.endings()
        not_aged = within(ends.spans, copy.received_at, ends.now)
        if retry.expired(retry.since(copy, step.recipients) + not_aged, ends.at, self.policy):
            gone = tuple(
                AttemptResult(r.number, Ending.EXPIRED, "550 5.4.7 Expired") for r in step.recipients
            )
            resume(Sent(gone, hop))
            return
        sink = world.hops[step.next_hop]
        generation = self.generation
        low, high = sink.delay
        there, back = (low + (high - low) * world.random.random() for _ in range(2))
        recipients = tuple((r.number, r.address) for r in step.recipients)
        content = self.ledger.state.content(copy.id) or b""

        def finish(answers: dict[int, str] | None, made: tuple[Delivery, ...]) -> None:
            results = tuple(self._result(copy, r, answers) for r in step.recipients)

            def settled() -> None:
                if generation == self.generation:
                    self.attend(noted, results)

            def noted(results: tuple[AttemptResult, ...]) -> None:
                resume(Sent(results, hop))

            world.after(back if answers is not None else 2.0, settled)

        def reached() -> None:
            if hangs and not self._still_ours(step):
                world.say(self.name, f"does not send {copy.id}")
                resume(Sent((), hop))
                return
            world.say(self.name, f"sends {copy.id} {[r.number for r in step.recipients]} to {step.next_hop}")
            world.compare_wish(copy.id, copy.envelope.tls)
            sent = (self.name, generation, world.now, copy.id, recipients, content, finish)
            world.after(there, sink.take, *sent)

        if hangs := sink.hangs():
            self.after(hangs, reached)
        else:
            reached()

    def _expand(self, step: SendOn, hop: Hop) -> Sent:
        """As ``delivery.queue.Lists`` does. Who the members are is written down for the checks."""
        made = [
            expansion_of(
                step.copy, one, self.world.book, lambda to: NextHop(to.rpartition("@")[2]), typed_recipient
            )
            for one in step.recipients
        ]
        expansions = tuple(one for one in made if one)
        for one in expansions:
            members = tuple((member.number, member.address) for member in one.recipients)
            known = self.world.expanded.get(one.id)
            lists = frozenset((one.about,)) | (known.numbers if known else frozenset())
            self.world.expanded[one.id] = ToMembersOf(step.copy.id, lists, members)
        results = tuple(
            AttemptResult(one.about, Ending.POSTED if one.posted else Ending.EXPANDED, "250 2.1.5 Expanded")
            for one in expansions
        )
        return Sent(results, hop, expansions=expansions)

    def _result(self, copy: Copy, to: Recipient, answers: dict[int, str] | None) -> AttemptResult:
        number, wait = to.number, retry.after(to.attempts + 1, self.policy)
        if answers is None:
            return AttemptResult(number, Ending.IN_DOUBT, "No reply", wait)
        reply = answers[number]
        if not reply[:3].isdigit():
            pause = pause_after(1 + (to.unread.tries if to.unread else 0), self.policy)
            if pause is None:
                now = self.clock()
                pause = next_look(to, copy.received_at, now, self.policy) - now
            return AttemptResult(number, Ending.UNREADABLE, reply, pause)
        if reply[0] == "2":
            return AttemptResult(number, Ending.ACCEPTED, reply)
        if reply[0] == "4":
            return AttemptResult(number, Ending.DEFERRED, reply, wait)
        return AttemptResult(number, Ending.REJECTED, reply)

    def write_reports(self, step: WriteReports) -> tuple[Report | JournalCopy, ...]:
        made: list[Report | JournalCopy] = []
        recipients = {recipient.number: recipient for recipient in step.copy.recipients}
        for result in step.results:
            recipient = recipients[result.number]
            failed = result.ending in (Ending.REJECTED, Ending.EXPIRED, Ending.REMOVED)
            if failed and is_due(ReportKind.FAILED, recipient, step.copy.envelope):
                about = report_id(step.copy.id, result.number, ReportKind.FAILED)
                self.world.reports[about] = (step.copy.id, result.number)
                octets = f"report {about} made by {self.name}".encode()
                made.append(Report(id=about, about=result.number, content=octets, next_hop=NextHop("back")))
        journal = journal_of(step.copy, self.world.journals)
        return (*made, journal) if journal else tuple(made)

    def _repair(self) -> None:
        if self.ledger.chores:
            return
        for copy in tuple(self.ledger.state.copies.values()):
            if not copy.exposed or copy.damaged or copy.id in self.repairing:
                continue
            candidates = self.boundary.candidates(self.world.now)
            lately = self.refusals.lately(copy.id, self.world.now)
            if candidates.healthy(lately) is None:
                continue
            self.repairing.add(copy.id)

            def done(ended: repair.Repaired, message_id: MessageId = copy.id) -> None:
                self.repairing.discard(message_id)
                if ended.safe:
                    self.refusals.forget(message_id)
                else:
                    self.refusals.note(message_id, ended.attempts, self.clock(), self.world.now)

            whom = partial(candidates.healthy, first=keepers(self.ledger, copy))
            self.start(repair.copy_again(copy.id, whom, self.clock, lately), done)

    @property
    def redundant(self) -> bool:
        """Is redundancy on?"""
        return self.in_force.redundancy

    def take_switches(self) -> None:
        """What is on record is in force from now on."""
        self.in_force.take(self.ledger.records(Switch))
        self.policy = self.in_force.policy
        self.checks.spans()

    def _release(self) -> None:
        """Redundancy is off: holders of what is in the queue may let their copies go."""
        if self.ledger.chores:
            return

        sound = [id_ for id_ in tuple(self.ledger.state.copies) if self.read(id_) is not None]

        def work(ledger: Transaction) -> None:
            for id_ in sound:
                if ledger.apply(switching.released(ledger, id_, self.clock())):
                    self.world.released.add(id_)
                    about = self.world.reports.get(id_, (id_, 0))[0]  # a report: the sender waits for it
                    about = self.world.journaled.get(about, about)
                    if submission := self.world.submissions.get(about):
                        submission.redundant = False

        self.transact(work, lambda _: None)

    def turn(self, on: bool) -> None:
        """An operator switches redundancy for all members."""
        self.world.switched = True
        self.world.say("operator", f"turns redundancy {'on' if on else 'off'} at {self.name}")
        self._switch(REDUNDANCY, on, against=True)

    def set_span(self, length: float | None) -> None:
        """An operator sets the time span of promotion for all members, in seconds, or unsets it."""
        self.world.spans += () if length is None else (length,)
        self.world.say("operator", f"sets the time span to {length} s at {self.name}")
        self._switch(SPAN, None if length is None else round(1000 * length))

    def _switch(self, name: str, value: SwitchValue, *, against: bool | None = None) -> None:
        switch = Switch(
            id=RequestId(self.world.uuid()),
            name=name,
            value=value,
            against=against,
            operator="op",
            reason="",
            changed_by=self.name,
            changed_at=self.clock(),
        )
        flip: Callable[[Transaction], Switch] = lambda ledger: ledger.apply(  # noqa: E731
            switching.flipped(ledger, switch, self.world.policy)
        )
        self.transact(flip, lambda _: self.resubmit())

    # Draining.

    def hand_over(self) -> None:
        """Give what is in the queue, and not under way, to holders that can be reached."""
        reachable = self.boundary.reachable()

        def work(ledger: Transaction) -> None:
            for copy in tuple(self.ledger.state.copies.values()):
                if any(message_id == copy.id for message_id, _ in self.active):
                    continue
                current = ledger.copy(copy.id)
                if current is not None:
                    ledger.apply(hand_over(ledger, current, reachable, self.clock()))

        if chores.held_back(self.ledger):
            return
        self.world.say(self.name, "hands over its queue")
        self.transact(work, lambda _: None)

    def redirect(self, to: ServerName) -> None:
        """Give what is in the queue to that member; what has no copy there is copied first."""
        if chores.held_back(self.ledger) or to not in self.boundary.reachable():
            return
        if self.pressure is None:
            self._redirect(to)
            return
        nobody = RequestId("01900000-0000-7000-9000-000000000000")
        asks = giving.unwilling(lambda step, _: step, to, nobody, 0.0)  # type: ignore[arg-type, return-value]
        self.start(asks, lambda why: why or self._redirect(to))

    def _redirect(self, to: ServerName) -> None:
        self.world.say(self.name, f"redirects its queue to {to}")
        for copy in tuple(self.ledger.state.copies.values()):
            if copy.owned and copy.id not in self.redirecting:
                self.redirecting.add(copy.id)

                def done(_: Any, message_id: MessageId = copy.id) -> None:
                    self.redirecting.discard(message_id)

                self.start(giving.give_to(copy.id, to, self._being_sent, self.clock), done)

    def _being_sent(self, ledger: Transaction, message_id: MessageId) -> bool:
        del ledger
        return any(one == message_id for one, _ in self.active)

    # Receiving.

    def mail(self, inflow: Inflow, taken: Callable[[], None], reply: Callable[[str], None]) -> None:
        """MAIL of a client. Either it is ``taken``, or the reply is sent."""
        if self.pressure is None:
            taken()
        else:
            self.pressure.mail(inflow, lambda taken_: taken() if taken_ else reply("452"))

    def receive(
        self, arrival: Arrival, reply: Callable[[str], None], becomes: Filtered | None = None
    ) -> None:
        """End of data from a client. The reply is sent when the script has returned. ``becomes``: at the
        filters of this node, which see the message before anybody else (None: there are none).
        """
        if becomes is not None:
            becomes = self.world.filters_down.get(self.name, becomes)
            arrival = filters.through(arrival, becomes, arrival.received_at)
            self.world.filtered(arrival, becomes)
        if becomes in (Filtered.REFUSED, Filtered.PUT_OFF, Filtered.DOWN):
            self.world.refused.add(arrival.id)
            reply("550" if becomes is Filtered.REFUSED else "451")
            return
        if becomes is Filtered.DISCARDED:
            drop = partial(dropped, arrival=arrival, by="own", now=self.clock())
            self.transact(lambda ledger: ledger.apply(drop(ledger)), lambda _: reply("250"))
            return
        self.in_flight.add(arrival.id)
        self.arriving[arrival.id] = filters.octets(arrival)
        deadline = self.clock() + self.policy.shadow_time_cap
        candidates = self.boundary.candidates(self.world.now)

        def done(decided: two_copies.Decided) -> None:
            answer = decided.answer
            self.checks.decided(self, arrival.id, answer.value)
            self.in_flight.discard(arrival.id)
            del self.arriving[arrival.id]
            if decided.record is not None:
                self.transact(decided.record.work, lambda _: None)
            if answer is not Answer.HANG_UP:
                reply("250" if answer is Answer.ACCEPTED else "451")

        self.start(
            two_copies.make_redundant(
                arrival,
                Content(data=filters.octets(arrival)),
                candidates.after if self.redundant else lambda _: None,
                self.in_force.relied,
                self.clock,
                deadline,
            ),
            done,
        )

    # Forgetting.

    def expire(self) -> None:
        """Safety Net and everything else that goes by age."""

        def work(ledger: Transaction) -> None:
            ends = self.time.endings()
            if ends.doubt:
                return
            now, reachable = ends.now, self.boundary.reachable()
            there = ages.kept(self.ledger.state)
            kept = requesting.kept(ledger, self.policy, ends)
            for copy in self.ledger.settled_copies():
                if expiry.expire(ledger, copy, self.policy, now, reachable, kept, ends).writes:
                    current = ledger.copy(copy.id)
                    if current is not None:
                        ledger.apply(expiry.expire(ledger, current, self.policy, now, reachable, kept, ends))
            ledger.apply(requesting.forget(ledger, self.policy, ends))
            self.ledger.expire(self.policy, ends)
            self.checks.ages.swept(self, there, self.ledger.state)

        self.transact(work, lambda _: None)
