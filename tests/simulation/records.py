"""Records that every member has, given and changed by operators under faults, on the product's own loops.

Two to four nodes of the product (``product.py``) run on a virtual clock. Operators suspend and resume queues,
make and stop jobs, make and change resubmit requests, switch redundancy, set settings for all members, and
retire a member that is gone for good, on any node that runs. Meanwhile links are cut and slow, nodes are
killed, disks are lost or put back, and wall clocks step. Then everything is healed. ``Checks`` says what has
to be true in the end. A seed decides everything.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from shadowrelay.core import suspending
from shadowrelay.core.decisions import Content, Decision, SaveCopy
from shadowrelay.core.digests import of_content, of_envelope
from shadowrelay.core.identifiers import MessageId, NextHop, ServerName
from shadowrelay.core.jobs import Filter, Job, JobProgress, JobState, Verb
from shadowrelay.core.messages import (
    Copy,
    Digests,
    Envelope,
    Holder,
    HolderState,
    Recipient,
    Role,
    Stage,
    Status,
)
from shadowrelay.core.ownership import jobs
from shadowrelay.core.requests import Request, RequestState, Selector
from shadowrelay.core.retirements import RetiredMember
from shadowrelay.core.suspensions import Suspension
from shadowrelay.core.switches import Switch
from shadowrelay.core.switching import REDUNDANCY, value_of
from shadowrelay.core.values import replace
from shadowrelay.database import announced
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.transport import DatabaseFailed
from shadowrelay.operator.announcing import AnnouncementRefused
from shadowrelay.operator.resubmit_estimate import CannotDo
from shadowrelay.service.node import Node
from shadowrelay.settings import Settings, settings_from_tree
from shadowrelay.wire.announcements import Announcement, format_signed, parse_signed

from .checks import Verdict
from .product import START, Disk, Machine, Process, World, running_in

QUEUES = tuple(map(NextHop, ("inside", "outside", "store")))
SETTINGS: Sequence[tuple[str, Sequence[object]]] = (
    ("queue_glitch_retry_interval", ("90s", "5m")),
    ("reject_message_on_shadow_failure", (True, False)),
)
"""What operators set for all members, and to what."""

OCTETS = b"Subject: x\r\n\r\nbody\r\n"
MANY = (*QUEUES, *(NextHop(f"inside/{name}.example") for name in "abcd"))
BRIEF = 0.2  # the share of runs in which requests are forgotten soon, by clocks that are right
GOING = 0.3  # the share of runs of three or four members in which one is lost for good
FEW = 0.2  # the share of runs in which members have room for few records
UNTIL = 12.0  # virtual seconds in which operators act and faults begin
FORGOTTEN = 30.0  # seconds after which nobody has a request any more, if requests are brief
PATIENCE = 150.0  # virtual seconds after everything is healed
LONGEST = 6.0  # seconds that a fault lasts
WATCHED = {
    "record_skipped": "a record was skipped",
    "job_failed": "a job failed",
    "discard_line_skipped": "a line is malformed",
}


@dataclass(frozen=True, slots=True)
class Announced:
    """A member that was announced: where it is, by the latest announcement. ``revision``: its serial."""

    revision: int
    address: str
    changed_by: str = "the authority"


Record = Suspension | Job | Request | Switch | RetiredMember | Announced
STEPS = tuple(sign * step for step in (120.0, 72_000.0, 864_000.0) for sign in (1, -1))


@lru_cache(maxsize=1)
def _directory() -> Path:
    memory = Path("/dev/shm")  # nothing of it need be durable: contents are in the database
    made = tempfile.mkdtemp(prefix="shadowrelay-records-", dir=memory if memory.is_dir() else None)
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


@lru_cache(maxsize=64)
def _settings(number: int, count: int, *, brief: bool) -> Settings:
    """Those of a node. One that is announced later is not in the settings of the others. ``brief``: resubmit
    requests are forgotten after 20 seconds.
    """
    others = [one for one in range(1, count + 1) if one != number]
    routes = {
        name: {"domains": [f"{name}.example"], "host": "127.0.0.1", "port": 9, "tls": "none"}
        for name in QUEUES
    }
    routes["inside"]["domains"] = ["*"]
    found = settings_from_tree(
        {
            "name": _name(number),
            "host": f"rack{number}",
            "data_dir": str(_directory() / f"mx{number}"),
            "relay_networks": ["127.0.0.0/8"],
            "receive": {"default": {"listen": "127.0.0.1:1"}},
            "peer": {"listen": "127.0.0.1:2", "externally_secured": ["127.0.0.0/8"]},
            "members": [
                {"name": _name(one), "address": f"127.0.0.1:{10 + one}", "host": f"rack{one}"}
                for one in others
            ],
            "routes": routes,
            "minimum_free_disk": 0,
            "discard_poll_interval": "1s",
            "shadow_heartbeat_frequency": "1s",
            "shadow_resubmit_time_span": "4s",
            "reconcile_timeout": "2s",
            "shadow_attempt_timeout": "2s",
            "orphan_check_interval": "5s",
            "unresponsive_primary_interval": "5s",
            **({"resubmit_request_age": "10s", "safety_net_hold_time": "16s"} if brief else {}),
        }
    )
    assert found.peer
    trusting = found.peer.model_copy(update={"ca": Path("ca.pem")})
    return found.model_copy(update={"peer": trusting})


def _name(number: int) -> ServerName:
    return ServerName(f"mx{number}.example.org")


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """An operator was told that an act is done: the record as that node has it then. ``disk``: which disk,
    and how often it had been put back.
    """

    at: float
    node: ServerName
    disk: tuple[int, int]
    kind: str
    key: str
    record: Record


def records(ledger: SqlLedger) -> dict[tuple[str, str], Record]:
    """Every record of a node, by kind and key. What a node keeps for itself in a record is left out."""
    found: dict[tuple[str, str], Record] = {}
    for suspension in ledger.suspensions():
        found["suspension", suspension.next_hop] = suspension
    for job in ledger.jobs():
        found["job", job.id] = job
    for request in ledger.requests():
        found["request", request.id] = request
    for switch in ledger.records(Switch):
        found["switch", switch.name] = replace(switch, against=None)
    for retired in ledger.records(RetiredMember):
        found["retired", retired.key] = retired
    for signed in announced.kept(ledger):
        announcement, _ = parse_signed(signed)
        found["member", announcement.name] = Announced(announcement.serial, announcement.address)
    return found


class Member:
    """A node, with its machine and its disk, through all of its incarnations."""

    def __init__(self, world: World, number: int, count: int, *, brief: bool) -> None:
        self.world = world
        self.name = _name(number)
        self.settings = _settings(number, count, brief=brief)
        self.machine = Machine(world)
        self.disks = 1
        self.number = number
        self.disk = Disk(number * 256)
        self.process: Process | None = None
        self.queues: Sequence[NextHop] = QUEUES  # that operators name here
        self.gone = False  # for good
        self.turn = asyncio.Lock()  # faults of one member come one after the other

    @property
    def up(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def node(self) -> Node:
        assert self.process is not None
        return self.process.node

    @property
    def ledger(self) -> SqlLedger:
        return self.node.database.ledger

    async def start(self) -> None:
        if self.gone:
            return
        process = Process(self.world, self.name)
        await process.start(self.settings, self.disk, self.machine)
        self.process = process

    async def kill(self) -> None:
        if self.process is not None and self.process.alive:
            await self.process.kill()

    def lose_disk(self) -> None:
        self.disk = Disk(self.number * 256 + self.disks)
        self.disks += 1

    @property
    def state_of_disk(self) -> tuple[int, int]:
        return self.disk.number, self.disk.put_back


@dataclass(slots=True)
class Run:
    """One history."""

    seed: int
    world: World = field(init=False)
    members: list[Member] = field(default_factory=list)
    acknowledged: list[Acknowledged] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    newcomer: Member | None = None
    retiring: Member | None = None  # who will be gone for good
    brief: bool = False
    queues: Sequence[NextHop] = QUEUES

    def go(self) -> Verdict:
        self.world = world = World(self.seed)
        few = world.draw.random() < FEW
        self.queues = MANY if few else QUEUES
        self.brief = world.draw.random() < BRIEF
        changes = [(module, "MOST_KEPT", 4) for module in (suspending, jobs)] if few else []
        with running_in(world, WATCHED, changes):
            world.loop.run_until_complete(self._whole())
        verdict = Verdict(self.seed)
        verdict.problems = world.problems
        verdict.faults = self.faults
        verdict.virtual = world.loop.now
        verdict.acknowledged = len(self.acknowledged)
        verdict.attempted = sum(self.kinds.values())
        return verdict

    async def _whole(self) -> None:
        world, draw = self.world, self.world.draw
        count = draw.choice((2, 3, 3, 3, 4))
        self.members = [Member(world, number, count, brief=self.brief) for number in range(1, count + 1)]
        world.late = draw.choice((0.0, 0.0, 0.02))
        for one in self.members:
            one.queues = self.queues
            await one.start()
        await self._mail()
        joins = self._joins(count + 1) if count < 4 and draw.random() < 0.3 else None
        going = random.Random(f"{self.seed} going")  # the other seeds keep their histories
        if count > 2 and going.random() < GOING:
            self.retiring = going.choice(self.members)
        plan: list[Awaitable[None]] = [self._fault() for _ in range(draw.choice((1, 2, 2, 3, 4)))]
        plan += [self._operator() for _ in range(draw.choice((3, 6, 10)))]
        plan += [joins] if joins else []
        plan += [self._goes(self.retiring)] if self.retiring else []
        tasks = [asyncio.ensure_future(one) for one in plan]
        await asyncio.gather(*tasks)
        if joins:
            await self._act(draw.choice([one for one in self.members[:count] if not one.gone]), _announce)
        if self.retiring:
            await self._act(draw.choice(self.living), _retire)
        world.say("all is healed")
        if self.brief:
            await asyncio.sleep(FORGOTTEN)
        checks = Checks(self)
        await self._settled(checks, "after all is healed")
        if not world.problems:
            last = await self._last_words()
            await self._settled(checks, "after the last acts", last)
        for one in self.members:
            await one.kill()

    @property
    def living(self) -> list[Member]:
        return [one for one in self.members if not one.gone]

    async def _settled(
        self, checks: Checks, when: str, last: Mapping[tuple[str, str], Acknowledged] | None = None
    ) -> None:
        until = self.world.loop.now + PATIENCE
        wrong: list[str] = ["?"]
        while wrong and self.world.loop.now < until and not self.world.problems:
            await asyncio.sleep(1.0)
            wrong = list(checks.wrong(last or {}))
        for problem in wrong if wrong != ["?"] else ():
            self.world.problem(f"{when}: {problem}")

    async def _joins(self, number: int) -> None:
        """A member that the settings of the others do not name; operators announce it, once or twice."""
        draw, others = self.world.draw, [*self.members]
        await asyncio.sleep(draw.random() * UNTIL / 2)
        one = Member(self.world, number, number, brief=self.brief)
        self.newcomer = one
        await one.start()
        self.members.append(one)
        for _ in range(draw.choice((1, 2))):
            await asyncio.sleep(draw.random() * UNTIL / 4)
            if up := [each for each in others if each.up]:
                await self._act(draw.choice(up), _announce)

    async def _goes(self, one: Member) -> None:
        """A member dies for good; operators retire it, here and there."""
        draw = self.world.draw
        await asyncio.sleep(draw.random() * UNTIL)
        async with one.turn:
            one.gone = True
            await one.kill()
            self.world.processes[one.name].gone = True
        self.world.say(f"{one.name} is gone for good")
        for _ in range(draw.choice((0, 1, 2))):
            await asyncio.sleep(draw.random() * UNTIL / 4)
            if up := [each for each in self.members if each.up]:
                await self._act(draw.choice(up), _retire)

    async def _mail(self) -> None:
        """What the nodes own, each message with a holder; and what they have in Safety Net."""
        draw, number = self.world.draw, 0
        await asyncio.sleep(0.5)
        for owner in self.members:
            for _ in range(draw.choice((2, 4, 8))):
                number += 1
                holder = draw.choice([one for one in self.members if one is not owner])
                settled = draw.random() < 0.3
                await _store(number, owner, holder, draw.choice(QUEUES), settled=settled)

    # Faults.

    async def _fault(self) -> None:
        world, draw = self.world, self.world.draw
        kind = draw.choice(
            ("cut", "cut one way", "slow", "kill", "kill", "disk lost", "put back", "clock", "isolated")
        )
        begins, lasts = draw.random() * UNTIL, draw.random() * LONGEST
        one, other = draw.sample(self.members, 2)
        reboots, step = draw.random() < 0.4, timedelta(seconds=draw.choice(STEPS) * (not self.brief))
        wrong_at_start = draw.random() < 0.3
        keeps = draw.random() * begins
        self.faults[kind] += 1
        if kind == "put back":
            await asyncio.sleep(keeps)
            one.disk.keep()
            begins -= keeps
        await asyncio.sleep(begins)
        world.say(f"{kind} {one.name} {other.name} for {lasts:.1f} s")
        links = [(one.name, other.name)]
        match kind:
            case "cut" | "cut one way" | "isolated":
                links += [(other.name, one.name)] if kind == "cut" else []
                if kind == "isolated":
                    links = [
                        link
                        for each in self.members
                        if each is not one
                        for link in ((one.name, each.name), (each.name, one.name))
                    ]
                world.cut.update(links)
                await asyncio.sleep(lasts)
                world.heal(links)
            case "slow":
                world.slow[links[0]] = 0.5 + 3 * draw.random()
                await asyncio.sleep(lasts)
                world.slow.pop(links[0], None)
            case "clock":
                one.machine.offset = step
                await asyncio.sleep(lasts)
                one.machine.offset = timedelta(0)
            case _:
                async with one.turn:
                    await one.kill()
                    if kind == "disk lost":
                        one.lose_disk()
                    elif kind == "put back":
                        one.disk.roll_back()
                    await asyncio.sleep(lasts)
                    if reboots:
                        one.machine.reboot()
                    if wrong_at_start:
                        one.machine.offset = step
                    await one.start()
                    world.say(f"{one.name} is up again")
                await asyncio.sleep(3.0)
                one.machine.offset = timedelta(0)

    # Operators.

    async def _operator(self) -> None:
        draw = self.world.draw
        await asyncio.sleep(1.0 + draw.random() * UNTIL)
        up = [one for one in self.members if one.up]
        if up:
            await self._act(draw.choice(up), draw.choice(_ACTS))

    async def _act(self, member: Member, act: Act) -> Acknowledged | None:
        """What one operator does: the node may be killed meanwhile."""
        assert member.process is not None
        process = member.process
        task = process.create_task(self._told(member, act), name=f"operator {act.__name__}")
        await asyncio.wait([task])
        return None if task.cancelled() or task.exception() else task.result()

    async def _told(self, member: Member, act: Act) -> Acknowledged | None:
        draw, at = self.world.draw, member.state_of_disk
        self.kinds[act.__name__] += 1
        try:
            key = await act(member, draw)
        except CannotDo as refused:
            self.refused[str(refused)] += 1
            self.world.say(f"{member.name} {act.__name__}: refused: {refused}")
            return None
        except DatabaseFailed:
            return None
        if key is None:
            return None
        record = records(member.ledger).get(key)
        if record is None:
            self.world.problem(f"{member.name} acknowledged {key}, and does not have it")
            return None
        done = Acknowledged(self.world.loop.now, member.name, at, *key, record)
        self.world.say(f"{member.name} {act.__name__} {key}: revision {record.revision}")
        self.acknowledged.append(done)
        return done

    async def _last_words(self) -> dict[tuple[str, str], Acknowledged]:
        """With all faults over, an operator says once more of each kind what counts, on any node."""
        found = {}
        for act in (_suspend, _switch, _set, _resume, _pause, _stop):
            await asyncio.sleep(self.world.draw.random())
            done = await self._act(self.world.draw.choice(self.living), act)
            if done is not None:
                found[done.kind, done.key] = done
        return found


Act = Callable[[Member, Any], Awaitable[tuple[str, str] | None]]


async def _suspend(member: Member, draw: Any) -> tuple[str, str]:
    queue = draw.choice(member.queues)
    until = member.node.clock() + timedelta(seconds=20) if draw.random() < 0.3 else None
    await member.node.services.suspensions.suspend(queue, "ann", "a broken queue", until)
    return "suspension", queue


async def _resume(member: Member, draw: Any) -> tuple[str, str]:
    queue = draw.choice(member.queues)
    await member.node.services.suspensions.resume(queue, "bob", "it is mended")
    return "suspension", queue


async def _switch(member: Member, draw: Any) -> tuple[str, str]:
    await member.node.redundancy.turn(on=draw.random() < 0.5, operator="ann", reason="work on a rack")
    return "switch", REDUNDANCY


async def _set(member: Member, draw: Any) -> tuple[str, str]:
    """A setting is set for all members, or unset."""
    key, values = draw.choice(SETTINGS)
    settings, value = member.node.cluster_settings, draw.choice((None, *values))
    if value is None:
        await settings.unset(key, "bob", "it is over")
    else:
        await settings.set(key, value, "ann", "a slow provider")
    return "switch", key


async def _job(member: Member, draw: Any) -> tuple[str, str]:
    verb = draw.choice((Verb.REMOVE, Verb.SUSPEND, Verb.RESUME, Verb.RETRY))
    made = await member.node.services.jobs.add(
        verb, Filter(queue=draw.choice(member.queues)), "ann", "a wave of it"
    )
    return "job", str(made["id"])


async def _announce(member: Member, draw: Any) -> tuple[str, str]:
    """The authority announces the newcomer, at another address each time."""
    del draw
    world = member.world
    name = _name(max(int(one[2]) for one in world.processes))
    serial = int(START.timestamp() * 1000 + world.loop.now * 1000)
    announcement = Announcement(
        serial=serial,
        name=name,
        address=f"127.0.0.1:{1024 + serial % 10_000}",
        site="default",
        host=f"rack{name[2]}",
    )
    try:
        await member.node.services.announcing.take(format_signed(announcement, b"the authority"))
    except AnnouncementRefused as refused:
        raise CannotDo(str(refused)) from refused
    return "member", name


async def _retire(member: Member, draw: Any) -> tuple[str, str] | None:
    """The member that is gone for good, as this node knows it. Who is retired already stays so."""
    del draw
    gone = next(name for name, one in member.world.processes.items() if one.gone)
    await member.node.retire(gone, "ann")
    made = next((one for one in member.ledger.records(RetiredMember) if one.member == gone), None)
    if made is None:
        return None
    return "retired", made.key


async def _stop(member: Member, draw: Any) -> tuple[str, str] | None:
    known = member.ledger.jobs()
    if not known:
        return None
    job = draw.choice(known)
    await member.node.services.jobs.stop(job.id, "bob")
    return "job", str(job.id)


async def _request(member: Member, draw: Any) -> tuple[str, str]:
    del draw
    until = member.node.clock() - timedelta(seconds=1)
    selector = Selector(since=until - timedelta(hours=2), until=until)
    made = await member.node.resubmission.add(selector, (), "ann", "a store is lost")
    return "request", str(made.id)


async def _change(member: Member, draw: Any) -> tuple[str, str] | None:
    return await _changed(
        member, draw, draw.choice((RequestState.PAUSED, RequestState.RUNNING, RequestState.REMOVED))
    )


async def _pause(member: Member, draw: Any) -> tuple[str, str] | None:
    return await _changed(member, draw, RequestState.PAUSED)


async def _changed(member: Member, draw: Any, state: RequestState) -> tuple[str, str] | None:
    known = member.ledger.requests()
    if not known:
        return None
    request = draw.choice(known)
    await member.node.resubmission.change(request, state, "bob")
    return "request", str(request.id)


_ACTS: Sequence[Act] = (
    _suspend,
    _suspend,
    _resume,
    _switch,
    _set,
    _set,
    _job,
    _job,
    _job,
    _stop,
    _request,
    _change,
    _change,
)


async def _store(number: int, owner: Member, holder: Member, queue: NextHop, *, settled: bool) -> None:
    """A message on its owner and on a holder."""
    at = START - timedelta(hours=1)
    status = Status.DELIVERED if settled else Status.READY
    recipient = Recipient(1, "b@example.net", queue, status=status, settled_at=at if settled else None)
    envelope = Envelope(sender="a@example.org", size=len(OCTETS))
    lineages = owner.node.database.lineage, holder.node.database.lineage
    copy = Copy(
        id=MessageId(f"01900000-0000-7000-8000-{number:012x}"),
        epoch=1,
        rank=0,
        role=Role.PRIMARY,
        stage=Stage.SAFETY_NET if settled else Stage.QUEUED,
        owner=owner.name,
        owner_database=lineages[0].database_id,
        offered_in=lineages[0].incarnation,
        envelope=envelope,
        recipients=(recipient,),
        holders=()
        if settled
        else (Holder(holder.name, lineages[1].database_id, lineages[1].mark, 1, HolderState.HOLDING),),
        ranks_given=1,
        digests=Digests(of_content(OCTETS), of_envelope(envelope, (recipient,))),
        received_at=at,
        settled_at=at if settled else None,
    )
    held = replace(copy, role=Role.SHADOW, rank=1, holders=(), ranks_given=0)
    for where, one in ((holder, held), (owner, copy)):
        stored = Decision(None, (SaveCopy(None, one, Content(data=OCTETS)),))
        await where.node.database.transact(lambda ledger, stored=stored: ledger.apply(stored))  # type: ignore[misc]


class Checks:
    """What has to be true once all is healed, and some time has passed."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def wrong(self, last: Mapping[tuple[str, str], Acknowledged]) -> Iterator[str]:
        found = {one.name: records(one.ledger) for one in self.run.living}
        yield from self._differ(found)
        for key in found[self.run.living[0].name] if self.run.brief else ():
            if key[0] == "request":
                yield f"{key} is not forgotten"
        yield from self._undone(found)
        yield from self._last(found, last)
        for one in self.run.living:
            yield from self._members(one)
            yield from self._jobs(one)
            yield from self._progress(one)
            yield from self._values(one)

    def _values(self, one: Member) -> Iterator[str]:
        """What was set for all members is in force, and nothing else is."""
        for key, _ in SETTINGS:
            switch = one.ledger.switch(key)
            value = getattr(one.settings, key) if switch is None or switch.value is None else value_of(switch)
            if (now := getattr(one.node.policy, key)) != value:
                yield f"{one.name} goes by {now} for {key}, and not by {value}"

    def _differ(self, found: Mapping[ServerName, Mapping[tuple[str, str], Record]]) -> Iterator[str]:
        for key in sorted({key for those in found.values() for key in those}):
            if len({repr(those.get(key)) for those in found.values()}) > 1:
                said = {name: _short(those.get(key)) for name, those in found.items()}
                yield f"members differ on {key}: {said}"

    def _undone(self, found: Mapping[ServerName, Mapping[tuple[str, str], Record]]) -> Iterator[str]:
        for act in self.run.acknowledged:
            member = next(one for one in self.run.members if one.name == act.node)
            if member.gone or member.state_of_disk != act.disk:
                continue
            now = found[act.node].get((act.kind, act.key))
            what = f"{act.kind} {act.key} that {act.node} acknowledged at {act.at:.1f}"
            if now is None:  # with room for few records, some are forgotten
                if self.run.queues is QUEUES and not (self.run.brief and act.kind == "request"):
                    yield f"{what} is forgotten"
            elif now.revision < act.record.revision and not _final(now):
                yield f"{what} was undone: {_short(now)}"
            elif _final(act.record) and not _final(now):
                yield f"{what} goes on, though it was ended for good"

    def _last(
        self,
        found: Mapping[ServerName, Mapping[tuple[str, str], Record]],
        last: Mapping[tuple[str, str], Acknowledged],
    ) -> Iterator[str]:
        for key, act in last.items():
            for name, those in found.items():
                if those.get(key, act.record if self.run.queues is MANY else None) != act.record:
                    said, wanted = _short(those.get(key)), _short(act.record)
                    yield f"{name} has {key} as {said}, the last word was {wanted}"

    def _members(self, one: Member) -> Iterator[str]:
        """Each member knows each other, and how many workers it has; none knows one that was retired."""
        others = {other.name for other in self.run.living} - {one.name}
        if (known := set(one.node.boundary.watches)) != others:
            yield f"{one.name} has the members {sorted(known)}"
        told = {name: count for name, count in one.node.membership.counts.items() if name in others}
        if told != dict.fromkeys(others, 1):  # of one that was retired it may remember the number
            yield f"{one.name} was told of workers: {told}"

    def _jobs(self, one: Member) -> Iterator[str]:
        ledger, members = one.ledger, one.node.contacts().members
        for job in ledger.jobs():
            own = jobs.own(ledger, job.id)
            if not jobs.over(ledger, job, members):
                told = {
                    each.node: (each.done, each.closed, each.pending) for each in ledger.job_progress(job.id)
                }
                yield f"{one.name} waits for job {job.verb.value} {job.id}: {told}"
            if job.state is JobState.RUNNING and job.verb is Verb.REMOVE:
                for copy in _queued(ledger):
                    to = {each.next_hop for each in copy.unsettled}
                    old = copy.request is None and copy.received_at < job.made_at
                    if job.filter.queue in to and old:
                        yield f"{one.name} still has {copy.id}, which job {job.id} removes"
            event = {Verb.REMOVE: "REMOVE", Verb.SUSPEND: "SUSPEND", Verb.RESUME: "RESUME"}.get(job.verb)
            if event:
                tracked = _acted(ledger, event, job)
                if own.did != len(tracked) or max(tracked.values(), default=1) > 1:
                    yield f"{one.name} counts {own.did} for job {job.id}, the log has {dict(tracked)}"

    def _progress(self, one: Member) -> Iterator[str]:
        """What members were told of each other's progress is what it is."""
        for other in self.run.living:
            for job in one.ledger.jobs() if other is not one else ():
                told = (each for each in one.ledger.job_progress(job.id) if each.node == other.name)
                known = next(told, JobProgress(job=job.id, node=other.name))
                actual = jobs.own(other.ledger, job.id)
                if job.state is JobState.STOPPED:  # nothing but what is pending counts any more
                    known, actual = (
                        JobProgress(job=job.id, node=other.name, pending=each.pending)
                        for each in (known, actual)
                    )
                if known != actual:
                    yield f"{one.name} takes {other.name} to be {known} with job {job.id}, it is {actual}"


def _final(record: Record) -> bool:
    return getattr(record, "state", None) in (JobState.STOPPED, RequestState.REMOVED)


def _short(record: Record | None) -> str:
    if record is None:
        return "nothing"
    state = next(
        (getattr(record, name) for name in ("state", "suspended", "value") if hasattr(record, name)), None
    )
    return f"{state} at revision {record.revision} by {record.changed_by.split('.')[0]}"


def _queued(ledger: SqlLedger) -> Iterator[Copy]:
    rows = ledger.connection.execute("SELECT id FROM message").fetchall()
    for (message_id,) in rows:
        copy = ledger.copy(message_id)
        if copy is not None and copy.owned:
            yield copy


def _acted(ledger: SqlLedger, event: str, job: Job) -> Counter[str]:
    """The messages of which the log of this database says that the job did it."""
    found: Counter[str] = Counter()
    for (columns,) in ledger.connection.execute("SELECT columns FROM outbox").fetchall():
        row = json.loads(columns)
        if row.get("event-id") == event and f"S:Job={job.id}" in str(row.get("custom-data")):
            found[str(row.get("internal-message-id") or row.get("network-message-id"))] += 1
    return found


def run_records(seed: int) -> tuple[Verdict, list[str]]:
    """The verdict of one seed, and its history."""
    run = Run(seed)
    try:
        verdict = run.go()
    except Exception as error:  # a bug in the simulation or in the code under it: the seed fails
        verdict = Verdict(seed)
        verdict.problems = [f"{type(error).__name__}: {error}"]
    return verdict, run.world.history
