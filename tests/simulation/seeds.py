"""One seed, one run: a boundary, some mail, some faults, healing, draining, a verdict."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shadowrelay.core.identifiers import NextHop, ServerName
from shadowrelay.core.policy import Policy, ShadowMessagePreference
from shadowrelay.core.reception.shadow_servers import MemberPlace
from shadowrelay.core.recipients import LISTS, AddressBook, DistributionList

from . import pressing, rot
from .by_hand import APART, LOSSES, Hand, is_slow
from .checks import Broken, Invariants, Verdict, judge, repaired, unrest
from .clients import Client
from .clocks import Stepping, of_every_third, tells_time
from .filtering import Filtering
from .hosts import Machines, planned
from .memory_ledger import CheckedLedger, Disagreement
from .node import Node
from .operators import Operator
from .pressing import Pressing
from .world import JOURNAL, TEAM, Noise, Sink, World, seconds

SCALED = Policy(
    shadow_resubmit_time_span=seconds(10),
    reconcile_timeout=seconds(4),
    orphan_check_interval=seconds(5),
    shadow_heartbeat_frequency=seconds(2),
    shadow_attempt_timeout=seconds(1),
    revoke_timeout=seconds(0.6),
    shadow_time_cap=seconds(4),
    shadow_retry_interval=seconds(0.3),
    member_skip_interval=seconds(1.5),
    queue_glitch_retry_interval=seconds(1.5),
    transient_failure_retry_interval=seconds(3),
    outbound_connection_failure_retry_interval=seconds(5),
    unreadable_answer_retry_interval=seconds(8),
)
"""The documented timings, a thousand times shorter: what counts is their order."""

PLACES = (
    MemberPlace(ServerName("mx1"), "east", "rack1"),
    MemberPlace(ServerName("mx2"), "west", "rack2"),
    MemberPlace(ServerName("mx3"), "east", "rack3"),
)

FOUR = (*PLACES, MemberPlace(ServerName("mx4"), "west", "rack4"))


def together(places: Sequence[MemberPlace], names: Collection[str]) -> tuple[MemberPlace, ...]:
    """The places, those of these names on one machine."""
    return tuple(replace(place, host="rack0") if place.name in names else place for place in places)


PRESSED, FILTERED = 0x10C8, 0x272D
"""They decide which seeds have pressure, and filters: drawn apart, and so that those stay what they were that
are on record for other planted faults.
"""

KINDS = (
    "crash",
    "crash at commit",
    "away",
    "disk lost",
    "rolled back",
    "partition",
    "one-way partition",
    "client partition",
    "freeze",
    "clock step",
)


@dataclass(slots=True)
class Plan:
    """What a seed decided, readable in its history."""

    nodes: int
    kinds: tuple[str, ...]
    reject: bool
    sql: bool
    noisy: bool
    together: tuple[ServerName, ...] = ()  # members on one machine


def make_boundary(world: World, *, sql: bool) -> Invariants:
    checks = Invariants(world)
    for place in world.places:
        world.nodes[place.name] = Node(world, place, checks, sql=sql)
    for node in world.nodes.values():
        node.open()
    for name in ("example.net", "inside.example", "back"):
        world.hops[NextHop(name)] = Sink(world, NextHop(name))
    return checks


class Run:
    """The run of one seed."""

    def __init__(
        self,
        seed: int,
        *,
        verbose: bool = False,
        lists: bool = False,
        by_hand: bool = False,
        hosts: bool = False,
        still: bool = False,
    ) -> None:
        """``lists``: some recipients are distribution lists, and no operator asks Safety Net for mail.
        ``by_hand``: operators remove, bounce, suspend and resume messages. ``hosts``: nodes are of several
        workers, and a host fails with all of them. ``still``: clocks that would step do not.
        """
        self.listing = random.Random(seed ^ 0x1157) if lists else None
        draw = random.Random(seed ^ 0x5EED)
        self.draw = draw
        nodes = 2 if draw.random() < 0.3 else 3
        faults = 2 if draw.random() < 0.25 else 1
        kinds = tuple(draw.choice(KINDS) for _ in range(faults))
        self.rot = random.Random(seed ^ 0x0DD5)  # drawn apart: what it decides changes nothing else
        if self.rot.random() < 0.3:
            kinds = (self.rot.choice((*rot.KINDS, "both off")),)
            if self.rot.random() < 0.5:  # then what the damage has made of it is relied on
                kinds = (*kinds, self.rot.choice(("disk lost", "rolled back", "away", *rot.KINDS)))
        if seed % 16 == 7:  # what a holder is told is damaged, and then the holder is relied on
            losses = ("disk lost", "rolled back", "away", "crash")
            kinds = (rot.EVENT, random.Random(seed ^ 0x0E7E).choice(losses))
        self.machines = random.Random(seed ^ 0x7A58)  # likewise
        shared: tuple[ServerName, ...] = ()
        self.victims: list[ServerName] = []  # of the faults, where they are chosen
        if self.machines.random() < 0.12:
            nodes = self.machines.choice((3, 4))
            shared = tuple(one.name for one in self.machines.sample(FOUR[:nodes], 2))
            elsewhere = [one.name for one in FOUR[:nodes] if one.name not in shared]
            match self.machines.randrange(3):
                case 0:
                    kinds, self.victims = ("machine cut off",), [self.machines.choice((*shared, *elsewhere))]
                case 1:  # its mail is taken over by a member elsewhere, which is lost in turn
                    kinds, self.victims = ("away", "disk lost"), [shared[0], elsewhere[0]]
        self.machine: Machines | None = None
        if hosts:
            self.machine = planned(seed)
            kinds, shared, self.victims = self.machine.kinds, (), []
        if by_hand and not shared and seed % 4:  # what is ordered is relied on by those who promote copies
            kinds = tuple(random.Random(seed ^ 0x10DD).choices(APART if is_slow(seed) else LOSSES, k=faults))
        self.plan = Plan(
            nodes,
            kinds,
            reject=draw.random() < 0.5,
            sql=seed % 10 == 0,
            noisy=draw.random() < 0.35 and not shared,
            together=shared,
        )
        policy = replace(SCALED, reject_message_on_shadow_failure=self.plan.reject)
        if self.machine:
            policy = replace(policy, holder_choices=self.machine.among)
        if draw.random() < 0.1 and not shared:  # there may be nobody then
            policy = replace(policy, shadow_message_preference_setting=ShadowMessagePreference.REMOTE_ONLY)
        self.short = draw.random() < 0.1
        self.asking = random.Random(seed ^ 0x5AFE)  # what operators ask of Safety Net: drawn apart too
        asks = self.asking.random() < 0.3 and not lists
        if asks:
            policy = self._unhurried(policy)
        if self.short:
            # Safety Net is off with less than fifteen seconds: nothing could be asked of it.
            policy = replace(policy, safety_net_hold_time=seconds(16 if asks else 3))
        places = self.machine.places if self.machine else together(FOUR[:nodes], shared)
        self.world = World(seed, policy, places, verbose=verbose)
        if lists:  # its members take both routes; what it has of itself is cut
            members = ("one@example.net", "two@inside.example", TEAM)
            team = DistributionList(members, "owner@back" if seed % 2 else "")
            self.world.book = AddressBook(aliases={}, lists={TEAM: team}, known={})
        if self.plan.noisy:
            self.world.noise = Noise(
                loss=draw.choice((0.0, 0.02, 0.05)),
                repeat=draw.choice((0.0, 0.05)),
                late=draw.choice((0.0, 0.02, 0.05)),
                commit=draw.choice(((0.001, 0.008), (0.001, 0.3))),
            )
        if random.Random(seed ^ 0xC402).random() < 0.3:  # a queue is long: drawn apart from all else
            self.world.at_once = 1 + seed % 3
        self.world.say("plan", f"{self.plan} {self.machine or ''}")
        self.world.tells_time = tells_time(seed)
        pressed = random.Random(seed ^ PRESSED).random() < 0.15
        self.pressing = Pressing(self.world, random.Random(seed ^ 0x4E55)) if pressed else None
        filtered = random.Random(seed ^ FILTERED).random() < 0.15
        self.filtering = Filtering(self.world, random.Random(seed ^ 0xF117)) if filtered else None
        self.checks = make_boundary(self.world, sql=self.plan.sql)
        self.operator = Operator(self.world, self.asking) if asks else None
        self.stepping = Stepping(self.world, seed, still=still) if of_every_third(seed) else None
        self.hand = Hand(self.world, random.Random(seed ^ 0x4A2D)) if by_hand else None
        self.clients: list[Client] = []
        self.healed = 0
        self._hanging(seed)
        self._odd(seed)
        for name, sink in self.world.hops.items():
            if draw.random() < 0.25:
                sink.lose = 0.15
            if draw.random() < 0.2:
                sink.delay = (0.2, 2.0)
            if name != "back" and draw.random() < 0.45:
                sink.closed_until = draw.uniform(3.0, 16.0)
            if faults == 2 and draw.random() < 0.6:
                sink.closed_until = draw.choice((float("inf"), 40.0))  # the queue is full between the faults
            if (shared or hosts) and self.machines.random() < 0.7:
                sink.closed_until = float("inf")
            if by_hand and seed % 4 and name != "back":
                sink.closed_until = 10.0 + 40.0 * random.Random(f"{seed}{name}").random()
                if self.hand and self.hand.slow:
                    sink.delay = (0.5, 8.0)
        self._journal(seed)

    def _unhurried(self, policy: Policy) -> Policy:
        """Timings of resubmission that fit into the world's time, or do not."""
        draw = self.asking
        return replace(
            policy,
            unresponsive_primary_interval=seconds(draw.choice((2.0, 6.0, 30.0))),
            resubmit_overlap=seconds(draw.choice((0.0, 2.0, 10.0))),
            resubmit_rate=draw.choice((1, 2, 50)),
            resubmit_request_age=draw.choice((policy.resubmit_request_age,) * 8 + (seconds(12.0),)),
        )

    def _journal(self, seed: int) -> None:
        """In some runs all mail is journaled; the journal may be closed for a while."""
        draw = random.Random(seed ^ 0x10A7)
        if draw.random() < 0.15:
            archive = NextHop("archive")
            self.world.journals = {name: (JOURNAL, archive) for name in self.world.hops if name != "back"}
            closed = draw.uniform(3.0, 16.0) if draw.random() < 0.5 else 0.0
            self.world.hops[archive] = Sink(self.world, archive, closed)

    def _hanging(self, seed: int) -> None:
        """In every third run attempts may hang before their content; drawn apart from everything else."""
        draw = random.Random(seed ^ 0x4A16)
        if draw.random() < 0.34:
            span = 1.6 * self.world.policy.shadow_resubmit_time_span.total_seconds()
            for sink in self.world.hops.values():
                sink.hang = lambda: draw.random() * span if draw.random() < 0.25 else 0.0

    def _odd(self, seed: int) -> None:
        """In every sixteenth run some answers cannot be read, once for a message; drawn apart."""
        if seed % 16 == 6:
            draw = random.Random(seed ^ 0x0DDA)
            for sink in self.world.hops.values():
                sink.is_odd = lambda: draw.random() < 0.3

    # Mail.

    def _mail(self, start: float, count: int) -> None:
        draw, world = self.draw, self.world
        names = [place.name for place in world.places]
        favourite = draw.choice(names)
        if self.victims:
            favourite = self.victims[0]
        for _ in range(count):
            first = favourite if draw.random() < 0.7 else draw.choice(names)
            homes = (first, *[name for name in names if name != first])
            hops = ["example.net", "inside.example"] if draw.random() < 0.5 else ["example.net"]
            recipients = tuple(
                (
                    number,
                    ("bad" if draw.random() < 0.08 else "user") + f"{number}@{hop}",
                    hop,
                )
                for number in range(1, draw.choice((1, 1, 2, 3, 4)) + 1)
                for hop in (draw.choice(hops),)
            )
            if self.operator:  # most of it stays inside
                recipients = tuple(
                    (number, address.replace("example.net", "inside.example"), "inside.example")
                    if self.asking.random() < 0.6
                    else (number, address, hop)
                    for number, address, hop in recipients
                )
            if self.listing is not None:
                recipients = tuple(
                    (number, TEAM, LISTS) if self.listing.random() < 0.5 else (number, address, hop)
                    for number, address, hop in recipients
                )
            sender = "" if draw.random() < 0.1 else "sender@example.org"
            client = Client(world, self.checks, len(self.clients) + 1, sender, recipients, homes)
            if self.pressing:
                client.inflow = self.pressing.inflow()
            if self.filtering:
                client.becomes = self.filtering.becomes()
            self.clients.append(client)
            world.after(start - world.now + 4.0 * draw.random(), client.submit)
        self.favourite = favourite

    def _press(self, pressing: Pressing, start: float) -> None:
        """Resources become scarce, and there is more mail that does not find room."""
        pressing.plan(start, self.favourite)
        draw, names = pressing.draw, [place.name for place in self.world.places]
        for _ in range(draw.randint(2, 6)):
            first, hop = draw.choice(names), draw.choice(("example.net", "inside.example"))
            homes = (first, *[name for name in names if name != first])
            number = len(self.clients) + 1
            client = Client(
                self.world, self.checks, number, "sender@example.org", ((1, f"user1@{hop}", hop),), homes
            )
            client.inflow = pressing.inflow()
            self.clients.append(client)
            self.world.after(start - self.world.now + draw.uniform(0.0, 14.0), client.submit)

    # Faults.

    def _fault(self, kind: str, start: float) -> None:
        """Plan one fault between now and a few seconds after ``start``; it heals by itself."""
        draw, world = self.draw, self.world
        names = [place.name for place in world.places]
        victim = self.favourite if draw.random() < 0.65 else draw.choice(names)
        if self.victims:
            victim = self.victims.pop(0)
        node = world.nodes[victim]
        at = start - world.now + 6.0 * draw.random()
        span = world.policy.shadow_resubmit_time_span.total_seconds()
        brief = draw.uniform(0.3, 4.0)
        long = span + draw.uniform(3.0, 8.0)
        world.fault(kind)
        match kind:
            case "crash":
                world.after(at, self._down, node, "crash", brief, None)
            case "crash at commit":
                number = node.commits + draw.randrange(1, 40)
                node.crash_at = (number, draw.choice(("before", "after")))
                away = draw.choice((brief, long))
                what = draw.choice((None, None, "disk lost"))
                entry_kind = "crash" if what is None else what
                node.on_planned_crash = lambda: self._downed(node, entry_kind, away, what)
                world.after(at + 8.0, self._give_up, node)
            case "away":
                world.after(at, self._down, node, "away", long, None)
            case "disk lost":
                world.after(at, self._down, node, "disk lost", draw.choice((brief, brief, long)), "disk lost")
            case "rolled back":
                snapshot_at = draw.uniform(max(0.0, at - 2.0), at) if draw.random() < 0.8 else 0.5 * at
                world.after(snapshot_at, self._want_snapshot, node)
                if draw.random() < 0.3:  # the snapshot is of an incarnation before this one
                    world.after(snapshot_at + 0.9 * (at - snapshot_at), self._restart, node)
                world.after(
                    at, self._down, node, "rolled back", draw.choice((brief, brief, long)), "rolled back"
                )
            case "partition" | "one-way partition":
                other = draw.choice([name for name in names if name != victim])
                length = draw.choice((brief, long))
                # Every other full partition cuts its victim off from everybody.
                alone = kind == "partition" and int(1000 * length) % 2
                cut = [name for name in names if name != victim] if alone else [other]
                world.after(at, self._part, kind, (victim,), cut, length)
            case "machine cut off":
                cut = [name for name in names if name not in self.plan.together]
                world.after(at, self._part, kind, self.plan.together, cut, long + span)
            case "client partition":
                world.after(at, self._part_clients, victim, brief, draw.randrange(3))
            case "freeze":
                world.after(at, self._freeze, node, draw.choice((brief, long)))
            case rot.CONTENT | rot.ROW | rot.PAGE:
                world.after(at, self._rot, node, kind)
            case rot.EVENT:
                world.after(at, self._rot_event, node, world.now + at + 5.0)
            case "host killed" | "host away" | "host disks lost":
                away = long if kind == "host away" else draw.choice((brief, brief, long))
                disk = "disk lost" if kind == "host disks lost" else None
                world.after(at, self._host_down, victim, kind, away, disk)
            case "host cut off":
                here = self._workers(victim)
                cut = [name for name in names if name not in here]
                world.after(at, self._part, kind, here, cut, draw.choice((brief, long + span)))
            case "host frozen":
                here, length = self._workers(victim), draw.choice((brief, long))
                for name in here:
                    world.after(at, self._freeze, world.nodes[ServerName(name)], length)
                self.healed -= len(here) - 1
            case "both off":
                for one in world.nodes.values():
                    world.after(at, self._down, one, "crash", self.rot.uniform(0.3, 4.0), None)
                self.healed -= len(world.nodes) - 1
            case "clock step":
                world.after(at, self._step, node, draw.choice((-10800.0, 10800.0)), draw.uniform(2.0, 8.0))

    def _workers(self, victim: ServerName) -> tuple[ServerName, ...]:
        """All members on the machine of that one."""
        host = self.world.nodes[victim].place.host
        return tuple(place.name for place in self.world.places if place.host == host)

    def _host_down(self, victim: ServerName, kind: str, away: float, disk: str | None) -> None:
        """All at once. Before the first is put back, all are gone."""
        here = [self.world.nodes[name] for name in self._workers(victim)]
        up = [node for node in here if node.up]
        self.healed -= len(up) - 1
        for node in up:
            node.crash()
        entry = {"host killed": "crash", "host away": "away", "host disks lost": "disk lost"}[kind]
        for node in up:
            self._downed(node, entry, away, disk)

    def _rot(self, node: Node, kind: str) -> None:
        """At a moment when nothing is on its way to the disk."""
        if node.ledger.dirty:
            self.world.after(0.003, self._rot, node, kind)
            return
        hit = rot.WAYS[kind](node, self.rot)
        self.world.say(node.name, f"{kind}: {hit}")
        self.checks.rotted(node, hit, kind)
        self._end(self.world.impair(kind, node.name))

    def _rot_event(self, node: Node, until: float) -> None:
        """At the next moment at which an event waits, and nothing is on its way to the disk."""
        if (node.ledger.dirty or not node.ledger.state.events) and self.world.now < until:
            self.world.after(0.003, self._rot_event, node, until)
            return
        hit = [] if node.ledger.dirty else rot.damage_event(node, self.rot)
        self.world.say(node.name, f"{rot.EVENT}: {hit}")
        self._end(self.world.impair(rot.EVENT, node.name))

    def _want_snapshot(self, node: Node) -> None:
        if node.up and not node.ledger.dirty:
            node.snapshots.append(node.ledger.snapshot())
        else:
            node.wants_snapshot = True

    def _restart(self, node: Node) -> None:
        if node.up:
            entry = self.world.impair("crash", node.name)
            node.crash()
            node.open()
            entry.end = self.world.now

    def _give_up(self, node: Node) -> None:
        if node.crash_at is not None and node.up:
            node.crash_at = None
            self.healed += 1

    def _down(self, node: Node, kind: str, away: float, disk: str | None) -> None:
        if node.up:
            node.crash()
            self._downed(node, kind, away, disk)

    def _downed(self, node: Node, kind: str, away: float, disk: str | None) -> None:
        node.crash_at = None
        entry = self.world.impair(kind, node.name)
        snapshot = node.snapshots[-1] if node.snapshots else None
        if disk == "disk lost" or (disk == "rolled back" and snapshot is None):
            entry.kind = "disk lost"
            node.lose_disk()
            self.checks.everything()
        elif disk == "rolled back":
            node.roll_back(snapshot)
            self.checks.disk_back(node)
        self.world.after(away, self._up, node, entry)

    def _up(self, node: Node, entry: Any) -> None:
        node.open()
        self._end(entry)

    def _end(self, *entries: Any) -> None:
        for entry in entries:
            entry.end = self.world.now
        self.healed += 1
        if self.hand and self.hand.slow and entries:
            self.hand.meanwhile()

    def _part(self, kind: str, ones: Sequence[str], others: list[str], length: float) -> None:
        world = self.world
        cut = {(one, other) for one in ones for other in others}
        if not kind.startswith("one-way"):
            cut |= {(other, one) for one in ones for other in others}
        world.blocked |= cut
        entries = [world.impair("partition", one, other) for one in ones for other in others]
        world.say("fault", f"{kind} {' '.join(ones)} {' '.join(others)}")

        def heal() -> None:
            world.blocked -= cut
            world.say("fault", f"{kind} {' '.join(ones)} {' '.join(others)} heals")
            self._end(*entries)

        world.after(length, heal)

    def _part_clients(self, victim: str, length: float, way: int) -> None:
        world = self.world
        cut = {("client", victim)} if way == 0 else {(victim, "client")}
        cut = cut if way < 2 else {("client", victim), (victim, "client")}
        world.blocked |= cut
        world.say("fault", f"clients cannot talk to {victim}: {sorted(cut)}")

        def heal() -> None:
            world.blocked -= cut
            self._end()

        world.after(length, heal)

    def _freeze(self, node: Node, length: float) -> None:
        if not node.up:
            self.healed += 1
            return
        node.freeze()
        entry = self.world.impair("freeze", node.name)

        def thaw() -> None:
            self._end(entry)
            node.thaw()

        self.world.after(length, thaw)

    def _step(self, node: Node, by: float, length: float) -> None:
        node.machine.offset += by
        self.world.say(node.name, f"its clock steps by {by:+.0f} s")

        def back() -> None:
            node.machine.offset -= by
            self.world.say(node.name, "its clock is right again")
            node.pump() if node.up and not node.frozen else None
            self._end()

        self.world.after(length, back)

    def _hand_overs(self, start: float) -> None:
        """In every third run nodes hand over what they have, at any moment; drawn apart from the faults."""
        draw = random.Random(self.world.seed ^ 0xD7A1)
        if draw.random() < 0.34:
            for _ in range(draw.randint(1, 3)):
                node = self.world.nodes[draw.choice([place.name for place in self.world.places])]
                self.world.after(start - self.world.now + 12.0 * draw.random(), self._hand_over, node)

    def _redirects(self, start: float) -> None:
        """In every eighth run operators redirect queues to members, at any moment; drawn apart likewise."""
        draw = random.Random(self.world.seed ^ 0x1000)
        if draw.random() < 0.12:
            for _ in range(draw.randint(1, 3)):
                one, to = draw.sample([place.name for place in self.world.places], 2)
                at = start - self.world.now + 12.0 * draw.random()
                self.world.after(at, self._redirect, self.world.nodes[one], to)

    def _turns(self, start: float) -> None:
        """In every eighth run redundancy is turned off and on again; drawn apart likewise."""
        draw = random.Random(self.world.seed ^ 0x201F)
        if draw.random() < 0.12:
            off = start - self.world.now + 8.0 * draw.random()
            self.world.after(off, self._turn, draw, [draw.uniform(0.5, 6.0), None])
            self.healed -= 1

    def _spans(self, start: float) -> None:
        """In every fourth run operators set the time span of promotion for all members, while faults last."""
        draw = random.Random(self.world.seed ^ 0x5BA4)
        if draw.random() < 0.25:
            for _ in range(draw.randint(1, 3)):
                length = draw.choice((3.0, 5.0, 7.0, 14.0, 20.0, None))
                at = start - self.world.now + 12.0 * draw.random()
                self.world.after(at, self._span, draw, length)

    def _span(self, draw: random.Random, length: float | None) -> None:
        up = [node for node in self.world.nodes.values() if node.up and not (node.frozen or node.opening)]
        if up:
            draw.choice(up).set_span(length)

    def _turn(self, draw: random.Random, left: Sequence[float | None]) -> None:
        """Off, and on again after so many seconds, on any node that runs. Where none does, the operator tries
        again: what comes next comes after that.
        """
        up = [node for node in self.world.nodes.values() if node.up and not (node.frozen or node.opening)]
        if not up:
            self.world.after(0.5, self._turn, draw, left)
            return
        later, *rest = left
        draw.choice(up).turn(later is None)
        if later is None:
            self.healed += 1
        else:
            self.world.after(later, self._turn, draw, rest)

    def _redirect(self, node: Node, to: ServerName) -> None:
        if node.up:
            node.attend(node.redirect, to)

    def _hand_over(self, node: Node) -> None:
        if node.up:
            node.attend(node.hand_over)

    # The whole.

    def go(self) -> Verdict:
        problem = ""
        try:
            problem = self._go()
        except (Broken, Disagreement) as error:
            problem = f"{error} (at {self.world.now:.3f})"
        verdict = judge(self.checks)
        if problem:
            verdict.problems.insert(0, problem)
        return verdict

    def _go(self) -> str:
        world, draw = self.world, self.draw
        start = 1.0
        for index, kind in enumerate(self.plan.kinds):
            self._mail(start, draw.randint(2, 5))
            self._fault(kind, start)
            self._hand_overs(start)
            self._redirects(start)
            self._turns(start)
            self._spans(start)
            if self.operator:
                self.operator.plan(start)
            if self.hand:
                self.hand.plan(start)
            if self.stepping:
                self.stepping.plan(start)
            if self.pressing:
                self._press(self.pressing, start)
            if self.filtering:
                self.filtering.plan(start)
            healed = index + 1
            if problem := self._until(
                lambda healed=healed: "" if self.healed >= healed else "not healed", 60.0
            ):
                return problem
            if index + 1 < len(self.plan.kinds) or self.plan.together or self.machine:
                if problem := self._until(lambda: repaired(world), 90.0):
                    return f"not repaired: {problem}"
                start = world.now
        for sink in world.hops.values():
            sink.lose = sink.closed_until = 0.0
            sink.delay = (0.005, 0.05)
        if problem := self._until(self._clients, 90.0):
            return problem
        if self.stepping:
            self.stepping.finish()
            if problem := self._until(self.stepping.wrong, 90.0):
                return problem
        if self.operator:
            self.operator.finish()
        if self.hand:
            self.hand.finish()
        if self.filtering:
            self.filtering.finish()
        world.noise = replace(world.noise, loss=0.0, repeat=0.0)
        if problem := self._until(
            lambda: (
                unrest(world) or pressing.unrest(world) or (self.stepping.doubted() if self.stepping else "")
            ),
            120.0,
        ):
            return f"not drained: {problem}"
        for node in world.nodes.values():
            if isinstance(node.ledger, CheckedLedger):
                node.ledger.compare()
        self.checks.everything()
        return ""

    def _clients(self) -> str:
        return "" if all(client.finished for client in self.clients) else "clients are waiting"

    def _until(self, check: Callable[[], str], limit: float) -> str:
        """Run until there is nothing to object; what is left to object after that many seconds."""
        world = self.world
        deadline = world.now + limit
        while world.now < deadline:
            world.run(world.now + 0.5)
            if (self.short and self.draw.random() < 0.1) or (self.stepping and self.stepping.sweeps()):
                for node in world.nodes.values():
                    if node.up and not node.frozen:
                        node.expire()
            if not (problem := check()):
                return ""
        return problem


def run_seed(
    seed: int,
    *,
    verbose: bool = False,
    lists: bool = False,
    by_hand: bool = False,
    hosts: bool = False,
    still: bool = False,
) -> tuple[Verdict, list[str]]:
    run = Run(seed, verbose=verbose, lists=lists, by_hand=by_hand, hosts=hosts, still=still)
    try:
        verdict = run.go()
    except Exception as error:  # a bug in the simulation or in the code under it: the seed fails
        if verbose:
            import traceback

            run.world.history.append(traceback.format_exc())
        verdict = Verdict(seed)
        verdict.problems.append(f"{type(error).__name__}: {error}")
    return verdict, run.world.history
