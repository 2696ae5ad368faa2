"""What can happen between two lone nodes, a client before them and a sink behind them.

A client sends one message to A. A hands it to B, which tracks it, and B hands it to the sink, which does not.
Time stands still: any step may come at any time after what it needs. A transaction is one step, because no
node says anything before its commit: a crash in it is a crash before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from shadowrelay.core.delivery.hop_shadows import Tracker
from shadowrelay.core.delivery.settling import AttemptResult, Ending, Hop
from shadowrelay.core.identifiers import MessageId, ServerName
from shadowrelay.core.members.conversation import Answered, Greeting
from shadowrelay.core.messages import Reason
from shadowrelay.core.steps import Ask, Greet, SendOn, Sent, Transact, Unanswered, WriteReports
from shadowrelay.wire import hops as grammar
from shadowrelay.wire.xshadow import parse_mark
from tests.simulation.checks import Broken

from .causes import Delivery, cause
from .sides import NO_PAUSE, OUT, POLICY, A, B, Done, Scripts, Side, Told, arrival

GIVEN_UP = POLICY.shadow_heartbeat_retry_count
ATTEMPTS = 2
"""Attempts at a hop out of reach, with no other host: more of them change nothing but their number."""

FAULTS = (
    "client's reply",
    "session",
    "cut off",
    "sink's reply",
    *(f"{what} {node}" for what in ("kill", "disk", "put back") for node in "AB"),
)

Request = tuple[str, str, str]
"""What A says on a session: the verb, its text, and as whom A introduced itself there."""


class Process(NamedTuple):
    """A task of a node: ``kind`` send (an attempt), idle (a session that owes a
    question) or ask (a session of its own). ``sub``: the talk inside it. ``wire``: what is under way on its
    session. ``hop``: B's name and database, as it introduced itself there, and as whom A did.
    """

    kind: str
    script: int
    phase: str = ""
    about: MessageId = MessageId("")  # noqa: RUF009
    sub: int = -1
    wire: tuple[str, Any] | None = None
    hop: tuple[str, str, str] | None = None


class Node(NamedTuple):
    disk: int
    up: bool = True
    run: int = 0
    tasks: tuple[Process, ...] = ()
    failures: int = 0  # heartbeats that failed in a row, as A's process knows
    past: tuple[MessageId, ...] = ()  # go past the hop while it is given up

    def put(self, former: Process | None, now: Process | None) -> Node:
        tasks = list(self.tasks)
        if former is not None:
            tasks.remove(former)
        return self._replace(tasks=tuple(sorted([*tasks, now] if now else tasks, key=repr)))


class World(NamedTuple):
    nodes: tuple[Node, Node]
    client: str = "has it"
    offers: int = 0
    minted: int = 0
    sink: tuple[Delivery, ...] = ()
    fault: str = ""  # the one that has happened
    cut: bool = False
    backup: int = -1
    orphans: tuple[Request, ...] = ()  # of sessions that A has lost, and that B may still read
    exposed: bool = False  # the only copy was on the disk that was lost
    again: tuple[Told, ...] = ()

    def with_node(self, number: int, node: Node) -> World:
        nodes = list(self.nodes)
        nodes[number] = node
        return self._replace(nodes=(nodes[0], nodes[1]))

    @property
    def linked(self) -> bool:
        return self.nodes[1].up and not self.cut


class Step(NamedTuple):
    """``needed``: it comes in the end, if nothing else does. Others may come."""

    what: str
    after: World
    needed: bool = True


class Hops:
    """Both boundaries. ``faults``: which may happen, one of them; ``other``: A's route has another host, which
    never fails.

    What makes a difference for some faults alone is explored with these. ``apart``: to hear an answer and to
    store it are two steps, for B may be another one between them. ``waits``: the client waits a moment for
    its 250, for A may be killed or lost in it. ``others``: sessions with other mail ask B, at any time.
    """

    def __init__(self, faults: tuple[str, ...] = (), *, other: bool = False) -> None:
        self.faults = faults
        self.ways = frozenset({OUT} if other else ())
        self.other = other
        self.apart = any(fault.endswith(" B") for fault in faults)
        self.waits = bool({"kill A", "disk A"} & set(faults))
        self.replaced = bool({"disk A", "put back A"} & set(faults))
        self.others = set(faults) <= {"session"}
        self.scripts = Scripts()
        self.sides = Side(0, self.scripts), Side(1, self.scripts)

    def start(self) -> World:
        nodes = [Node(side.do(side.new(0), "open", 0).disk) for side in self.sides]
        return World((nodes[0], nodes[1]))

    def steps(self, at: World) -> Iterator[Step]:
        """All that can happen next."""
        yield from self._client(at)
        for number, node in enumerate(at.nodes):
            if not node.up:
                yield self._starts(at, number)
                continue
            if at.fault == "" and at.backup < 0 and f"put back {'AB'[number]}" in self.faults:
                yield Step(f"a backup of {'AB'[number]}", at._replace(backup=node.disk), needed=False)
            yield from self._begins(at, number)
            for task in node.tasks:
                yield from self._goes_on(at, number, task)
        if at.cut:
            yield Step("A and B reach one another again", at._replace(cut=False))
        if at.nodes[1].up:
            for request in set(at.orphans):
                yield from self._late(at, request)
        if not at.fault:
            yield from self._faults(at)

    def at_rest(self, at: World) -> bool:
        """Is there nothing left to do?"""
        if at.client != "done" or at.cut or not all(node.up and not node.tasks for node in at.nodes):
            return False
        rows = self._look(at, 0, "rows")
        return not rows and not any(self._look(at, number, "due") for number in (0, 1))

    def waits_for_age(self, at: World) -> bool:
        """A was put back to a state with a row of which B had told before. B has forgotten that, and neither
        can know. The row stays until it is too old, or until B fails: then the message is sent once more.
        """
        if at.fault != "put back A" or at.client != "done" or not all(node.up for node in at.nodes):
            return False
        if any(node.tasks for node in at.nodes) or at.orphans or self._look(at, 1, "events"):
            return False
        rows = self.sides[0].state(at.nodes[0].disk).hop_shadows
        told = {one.by_a for one in at.sink}
        return bool(rows) and not any(self._look(at, n, "due") for n in (0, 1)) and {m for m, _ in rows} <= told

    def judge(self, at: World) -> str:
        """At rest: what is wrong with that? '' if nothing is; 'exposed' if it was lost as a lone node may."""
        if not at.sink:
            return "exposed" if at.exposed else "LOST: the acknowledged message is at no sink and on no disk"
        return "" if not self._look(at, 1, "events") else "waiting" if at.fault else "B KEEPS EVENTS, and nothing was lost"

    def asked_once_more(self, at: World) -> World:
        """At rest: another message makes A connect to B, at whatever time."""
        at = self._greets(at, None, Process("ask", -1))
        while tasks := at.nodes[0].tasks:
            (step,) = self._goes_on(at, 0, tasks[0])
            at = step.after
        return at

    def events_left(self, at: World) -> bool:
        return bool(self._look(at, 1, "events"))

    # The client.

    def _client(self, at: World) -> Iterator[Step]:
        node = at.nodes[0]
        if at.client == "has it" and node.up:
            done = self.sides[0].do(node.disk, "step", self.scripts.begin("take", arrival(at.offers + 1, 0)))
            assert self.scripts.at(done.result)[0] is None
            after = self._wrote(at, 0, done)._replace(offers=at.offers + 1)
            if self.waits:
                yield Step("A stores a message of the client", after._replace(client="waits"))
                return
            yield Step("A stores a message of the client, and the client gets its 250", after._replace(client="done"))
            if not at.fault and "client's reply" in self.faults:
                lost = after._replace(fault="client's reply")
                yield Step("A stores a message of the client, and its 250 is lost", lost, needed=False)
        elif at.client == "waits" and node.up:
            yield Step("the client gets its 250", at._replace(client="done"))

    # What nodes begin.

    def _begins(self, at: World, number: int) -> Iterator[Step]:
        node = at.nodes[number]
        sent = {task.about for task in node.tasks if task.kind == "send"}
        busy = any(task.kind in {"send", "idle"} for task in node.tasks)  # A has one session for the hop
        for copy in self._look(at, number, "due"):
            if copy.id in sent or (number == 0 and busy):
                continue
            task = Process("send", self.scripts.begin("deliver", copy), "begun", copy.id)
            if number == 1:
                theirs = self.sides[1].whose(node.disk, copy.id)
                after = self._delivered(at, Delivery("B", theirs, copy.id))
                now = task._replace(phase="sent")
                yield Step(f"the sink takes {_m(copy.id)} of B", after.with_node(1, node.put(None, now)))
            elif self._goes_past(node, copy.id):
                yield self._unreached(at, None, task)
            elif at.linked:
                yield Step(f"A connects to B, to send {_m(copy.id)}", self._greets(at, None, task))
            elif self.other or max(one.attempts for one in copy.unsettled) < ATTEMPTS:
                yield self._unreached(at, None, task)
        if number == 0:
            yield from self._shadows(at, node)

    def _goes_past(self, node: Node, message_id: MessageId) -> bool:
        """``HopShadows.avoided``: is it on its way past the hop, which is given up?"""
        return self.other and message_id in node.past and node.failures >= GIVEN_UP

    def _shadows(self, at: World, node: Node) -> Iterator[Step]:
        """The stage that looks after the hop. A session with another message asks it too, at any time."""
        rows = self._look(at, 0, "rows")
        if not any(task.kind in {"ask", "idle"} for task in node.tasks):
            if at.linked and (rows or (self.others and self._look(at, 0, "due"))):
                task = Process("ask", -1)
                yield Step("A asks B in a session of its own", self._greets(at, None, task), needed=rows)
            elif rows and not at.linked and node.failures < GIVEN_UP:
                yield Step("a heartbeat fails", at.with_node(0, node._replace(failures=node.failures + 1)))
        failed = Reason.HEARTBEAT_LOST if node.failures >= GIVEN_UP else None
        if rows:
            done = self.sides[0].do(node.disk, "again", failed, self.ways if failed else frozenset())
            if done.result:
                after = self._wrote(at, 0, done)
                if failed:
                    past = tuple(sorted({*node.past, *done.result}))
                    after = after.with_node(0, after.nodes[0]._replace(past=past))
                yield Step("A sends again what B has failed to deliver", after)

    # What goes on.

    def _goes_on(self, at: World, number: int, task: Process) -> Iterator[Step]:
        node = at.nodes[number]

        def to(now: Process | None, world: World = at) -> World:
            return world.with_node(number, world.nodes[number].put(task, now))

        if task.kind == "send" and number == 1:
            yield from self._to_the_sink(at, task)
        elif task.wire is not None:
            yield from self._on_the_wire(at, task)
        elif task.sub >= 0:
            yield from self._talks(at, task, task.sub)
        elif task.phase == "begun":
            if at.linked:
                yield Step("A connects to B once more", self._greets(at, task, task))
            else:
                yield self._unreached(at, task, task)
        elif task.phase == "met":
            if not self.sides[0].do(node.disk, "ours", task.about).result:
                yield Step("A finds that the message has gone on", to(self._heard(task, None, "")))
                return
            if task.hop:
                mail, rcpt = grammar.format_tracked(task.about), grammar.format_fork(1)
                said = ("DATA", f"{mail} {rcpt}", task.hop[2])
            else:
                said = ("DATA", "", "")
            yield Step(f"A sends B {_m(task.about)}", to(task._replace(phase="sent", wire=("out", said))))
        elif task.kind == "idle":
            yield from self._talks(at, task, self.scripts.begin("poll"))
        else:
            yield from self._writes_down(at, 0, task, task)

    def _to_the_sink(self, at: World, task: Process) -> Iterator[Step]:
        node = at.nodes[1]
        heard = self._answered(task, _results("250 2.0.0 sink", Ending.ACCEPTED))
        yield from self._writes_down(at, 1, task, heard)
        if not at.fault and "sink's reply" in self.faults:
            heard = self._answered(task, _results("no reply", Ending.IN_DOUBT))
            for _, after, _ in self._writes_down(at, 1, task, heard):
                yield Step("the sink's 250 is lost", after._replace(fault="sink's reply"), needed=False)

    def _writes_down(self, at: World, number: int, task: Process, heard: Process) -> Iterator[Step]:
        """The attempt is over: its outcome is stored."""
        done = self.sides[number].do(at.nodes[number].disk, "step", heard.script)
        after = self._wrote(at, number, done)
        assert self.scripts.at(done.result)[0] is None
        left = None
        if number == 0 and heard.hop is not None and heard.phase == "accepted":
            left = Process("idle", -1, hop=heard.hop)
        after = after.with_node(number, after.nodes[number].put(task, left))
        yield Step(f"{'AB'[number]} writes down what became of {_m(task.about)}: {heard.phase}", after)

    def _answered(self, task: Process, sent: Sent) -> Process:
        """The attempt has a result: what the script does until its next transaction."""
        step, _ = self.scripts.at(task.script)
        assert isinstance(step, SendOn)
        script = self.scripts.tell(task.script, sent)
        step, _ = self.scripts.at(script)
        assert isinstance(step, WriteReports)
        phase = sent.results[0].ending.value if sent.results else "withdrawn"
        return task._replace(script=self.scripts.tell(script, ()), phase=phase, sub=-1, wire=None)

    def _heard(self, task: Process, ending: Ending | None, reply: str, mark: str = "") -> Process:
        by = None
        if task.hop is not None and mark:
            by = Tracker(ServerName(task.hop[0]), task.hop[1], parse_mark(mark))  # type: ignore[arg-type]
        hop = Hop("b.example:25", inside=False, mailbox=False, tracks=by)
        results = (AttemptResult(1, ending, reply, NO_PAUSE),) if ending else ()
        return self._answered(task, Sent(results, hop))

    def _unreached(self, at: World, former: Process | None, task: Process) -> Step:
        """B cannot be reached: the route's other host is tried in the same attempt."""
        node = at.nodes[0]
        if not self.other:
            now = self._heard(task._replace(hop=None), Ending.DEFERRED, "451 4.4.1 connect")
            return Step("A cannot reach B", at.with_node(0, node.put(former, now)))
        now = self._heard(task._replace(hop=None), Ending.ACCEPTED, "250 2.0.0 other host")
        after = self._delivered(at, Delivery("the other host", task.about, MessageId("")))
        return Step(f"the other host takes {_m(task.about)}", after.with_node(0, node.put(former, now)))

    # What A and B say to one another.

    def _greets(self, at: World, former: Process | None, task: Process) -> World:
        """A session begins with XSHADOW. When A looked up what to say does not matter, but when B reads it."""
        (step,) = self._said(at, former, task._replace(phase="met"), self.scripts.begin("greet"))
        return step.after

    def _talks(self, at: World, task: Process, talk: int) -> Iterator[Step]:
        """The next step of the talk inside the task."""
        node = at.nodes[0]
        done = self.sides[0].do(node.disk, "step", talk)
        step, result = self.scripts.at(done.result)
        if isinstance(step, Greet | Ask):
            yield from self._said(at, task, task, talk)
            return
        after = self._wrote(at, 0, done)
        after = after.with_node(0, after.nodes[0].put(task, task._replace(sub=done.result)))
        now = task._replace(sub=done.result)
        if step is None:
            after = self._talked(after, now, result)
        yield Step("A stores what B said", after)

    def _said(self, at: World, former: Process | None, task: Process, talk: int) -> Iterator[Step]:
        """A looks up what to say, and says it."""
        node = at.nodes[0]
        done = self.sides[0].do(node.disk, "step", talk)
        assert done.disk == node.disk
        step, _ = self.scripts.at(done.result)
        if isinstance(step, Greet):
            text = grammar.format_greeting(step.greeting)
            said = ("XSHADOW", text, text)
        else:
            assert isinstance(step, Ask)
            assert task.hop is not None
            said = ("XQDISCARD", grammar.format_query(step.query), task.hop[2])
        now = task._replace(sub=done.result, wire=("out", said))
        yield Step(f"A says {said[0]} {said[1] if said[0] != 'XSHADOW' else ''}", at.with_node(0, node.put(former, now)))

    def _talked(self, at: World, task: Process, result: Any) -> World:
        """A talk is over."""
        node = at.nodes[0]
        if isinstance(result, Greeting):
            talk = self.scripts.begin("poll") if task.kind == "ask" else -1
            return at.with_node(0, node.put(task, task._replace(sub=talk)))
        if isinstance(result, Unanswered):
            if task.kind == "send":  # B does not track for us: it gets the message all the same
                return at.with_node(0, node.put(task, task._replace(sub=-1, hop=None)))
            return at.with_node(0, node.put(task, None)._replace(failures=min(node.failures + 1, GIVEN_UP)))
        past = () if task.kind == "ask" else node.past
        return at.with_node(0, node.put(task, None)._replace(failures=0, past=past))

    def _on_the_wire(self, at: World, task: Process) -> Iterator[Step]:
        node = at.nodes[0]
        assert task.wire is not None
        way, said = task.wire
        if way == "out":
            after, reply = self._read(at, said)
            now = task._replace(wire=("back", (said, reply)))
            yield Step(f"B reads {said[0]}", after.with_node(0, after.nodes[0].put(task, now)))
            return
        (verb, _, ours), reply = said
        text, _, mark = reply.rpartition(" ") if "\n" not in reply else (reply.rpartition("\n")[0], "", reply.rpartition(" ")[2])
        now = task._replace(wire=None)
        if verb == "XSHADOW" and text.startswith("250"):
            theirs = grammar.parse_greeting(text.removeprefix("250 "))
            known = (theirs.name, theirs.lineage.database_id, ours)
            now = now._replace(sub=self.scripts.tell(task.sub, theirs), hop=known)
        elif verb == "XSHADOW":
            after = self._talked(at.with_node(0, node.put(task, now)), now, Unanswered("xshadow", "refused"))
            yield Step("B does not want to know A", after)
            return
        elif verb == "XQDISCARD":
            lines = tuple(grammar.parse_line(line) for line in text.split("\n")[1:])
            now = now._replace(sub=self.scripts.tell(task.sub, Answered(lines, parse_mark(mark))))
        else:
            accepted = text.startswith("250")
            node = node._replace(failures=0 if accepted and task.hop else node.failures)
            now = self._heard(now, Ending.ACCEPTED if accepted else Ending.DEFERRED, text, mark)
        after = at.with_node(0, node.put(task, now))
        if self.apart:
            yield Step(f"A hears {text.splitlines()[0][:3]} to {verb}", after)
        else:
            yield from self._goes_on(after, 0, now)

    def _read(self, at: World, request: Request) -> tuple[World, str]:
        """B does what it was told, and its answer."""
        verb, text, introduced = request
        minted = at.minted + (verb == "DATA")
        if verb == "XSHADOW":  # B has long read what was said on sessions before this one
            at = at._replace(orphans=tuple(one for one in at.orphans if one[0] != verb))
        done = self.sides[1].do(at.nodes[1].disk, "said", verb.lower(), text, introduced, minted)
        return self._wrote(at._replace(minted=minted), 1, done), done.result

    def _late(self, at: World, request: Request) -> Iterator[Step]:
        """B may read, or never read, what it was told on a session that A has lost."""
        orphans = list(at.orphans)
        orphans.remove(request)
        without = at._replace(orphans=tuple(orphans))
        yield Step(f"B never reads {request[0]} of the lost session", without)
        yield Step(f"B reads {request[0]} of the lost session", self._read(without, request)[0], needed=False)

    # Faults.

    def _faults(self, at: World) -> Iterator[Step]:
        for fault in self.faults:
            kind, _, where = fault.rpartition(" ")
            if fault == "cut off":
                yield Step("A and B are cut off from one another", self._broken(at)._replace(fault=fault, cut=True), needed=False)
            elif fault == "session":
                for task in at.nodes[0].tasks:
                    if _open(task):
                        yield Step("the session of A with B is lost", self._lost(at, task)._replace(fault=fault), needed=False)
            elif kind in {"kill", "disk", "put back"}:
                if kind == "put back" and (at.backup < 0 or at.backup == at.nodes["AB".index(where)].disk):
                    continue
                what = {"kill": f"{where} is killed", "disk": f"{where} is lost with its disk"}
                yield Step(
                    what.get(kind, f"{where} is put back to the backup"),
                    self._killed(at, "AB".index(where), kind)._replace(fault=fault),
                    needed=False,
                )

    def _killed(self, at: World, number: int, kind: str) -> World:
        disk = at.nodes[number].disk
        if kind == "disk":
            disk = -1
        elif kind == "put back":
            disk = at.backup
        if number == 1:
            at = self._broken(at)._replace(orphans=())
            exposed = False
        else:
            for task in at.nodes[0].tasks:
                at = self._left_to_read(at, task)
            client = "has it" if at.client == "waits" else at.client
            held = self._look(at, 1, "holds") or (disk >= 0 and self.sides[0].do(disk, "holds").result)
            exposed = client == "done" and not at.sink and not held and kind != "kill"
            at = at._replace(client=client)
        node = Node(disk, up=False, run=at.nodes[number].run)
        return at.with_node(number, node)._replace(exposed=at.exposed or exposed, backup=-1)

    def _starts(self, at: World, number: int) -> Step:
        node, side = at.nodes[number], self.sides[number]
        run = node.run + 1
        disk = side.new(run) if node.disk < 0 else node.disk
        opened = side.do(disk, "open", run)
        return Step(f"{'AB'[number]} starts", at.with_node(number, Node(opened.disk, run=run)))

    def _broken(self, at: World) -> World:
        """Every session between A and B is lost."""
        for task in at.nodes[0].tasks:
            if _open(task):
                at = self._lost(at, task)
            elif task.hop:  # the answer was heard, and is not written down yet
                at = at.with_node(0, at.nodes[0].put(task, task._replace(hop=None)))
        return at

    def _lost(self, at: World, task: Process) -> World:
        """What A makes of it that a session is lost."""
        node = at.nodes[0]
        at = self._left_to_read(at, task)
        if task.kind == "idle":
            return at.with_node(0, node.put(task, None))
        if task.kind == "ask":
            return at.with_node(0, node.put(task, None)._replace(failures=min(node.failures + 1, GIVEN_UP)))
        if task.phase == "sent":
            now = self._heard(task._replace(hop=None), Ending.IN_DOUBT, "no reply")
            return at.with_node(0, node.put(task, now))
        again = task._replace(phase="begun", sub=-1, wire=None, hop=None)
        return at.with_node(0, node.put(task, again))

    def _left_to_read(self, at: World, task: Process) -> World:
        """What B may still read of a lost session. XQDISCARD without an answer changes nothing that a later
        one does not change; nor does XSHADOW, unless A may be another one by then.
        """
        if not task.wire or task.wire[0] != "out":
            return at
        verb = task.wire[1][0]
        if verb == "DATA" or (verb == "XSHADOW" and self.replaced):
            return at._replace(orphans=tuple(sorted((*at.orphans, task.wire[1]))))
        return at

    # Looks and notes.

    def _look(self, at: World, number: int, what: str) -> Any:
        return self.sides[number].do(at.nodes[number].disk, what).result if at.nodes[number].disk >= 0 else ()

    def _wrote(self, at: World, number: int, done: Done) -> World:
        for told in done.told:
            if told.kind == "sent again":
                at = at._replace(again=(*at.again, told))
            elif not any(one.by_a == told.message_id for one in at.sink):
                raise Broken(f"TOO EARLY: {_m(told.message_id)} left the shadow queue, and B has not delivered it")
        return at.with_node(number, at.nodes[number]._replace(disk=done.disk))

    def _delivered(self, at: World, new: Delivery) -> World:
        return at._replace(sink=(*at.sink, new))

    def cause(self, at: World) -> str:
        """Why the last delivery is not the first one; '' if it is. '!…' if nothing explains it."""
        return cause(at.sink, at.again, at.fault)


def _open(task: Process) -> bool:
    """Has the task a session with B?"""
    if task.kind in {"idle", "ask"}:
        return True
    return task.kind == "send" and task.phase in {"met", "sent"}


def _results(reply: str, ending: Ending) -> Sent:
    return Sent((AttemptResult(1, ending, reply, NO_PAUSE),), Hop("sink:25", inside=False, mailbox=False))


def _m(message_id: MessageId) -> str:
    """A short name: by whom the message was made, and its number there."""
    side, number = message_id[-12:-6], message_id[-6:]
    if message_id.startswith("01900000") and side in {"000000", "000001"}:
        return f"{'ab'[int(side)]}{int(number, 16)}"
    return f"again-{message_id[:4]}"
