"""What can happen between two lone nodes, a client before them and a sink behind them.

A client sends one message to A. A hands it to B, which tracks it, and B hands it to the sink, which does not.
Time stands still: any step may come at any time after what it needs. A transaction is one step, because no
node says anything before its commit: a crash in it is a crash before it.
"""

from __future__ import annotations

from collections.abc import Iterator

from shadowrelay.core.delivery.settling import Ending
from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.messages import Reason
from shadowrelay.wire import hops as grammar

from .causes import Delivery
from .sides import arrival
from .talks import Talks
from .world import ATTEMPTS, GIVEN_UP, Node, Process, Step, World, is_open, short


class Hops(Talks):
    """Both boundaries. ``faults``: which may happen, one of them; ``other``: A's route has another host,
    which never fails.

    What makes a difference for some faults alone is explored with these. ``apart``: to hear an answer and to
    store it are two steps, for B may be another one between them. ``waits``: the client waits a moment for
    its 250, for A may be killed or lost in it. ``others``: sessions with other mail ask B, at any time.
    """

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
        if not at.fault and (at.client == "done" or not self.late):
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
        return (
            bool(rows) and not any(self._look(at, n, "due") for n in (0, 1)) and {m for m, _ in rows} <= told
        )

    def judge(self, at: World) -> str:
        """At rest: what is wrong with that? '' if nothing is; 'exposed' if it was lost as a lone node may."""
        if not at.sink:
            return "exposed" if at.exposed else "LOST: the acknowledged message is at no sink and on no disk"
        return (
            ""
            if not self._look(at, 1, "events")
            else "waiting"
            if at.fault
            else "B KEEPS EVENTS, and nothing was lost"
        )

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
            yield Step(
                "A stores a message of the client, and the client gets its 250", after._replace(client="done")
            )
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
                yield Step(f"the sink takes {short(copy.id)} of B", after.with_node(1, node.put(None, now)))
            elif self._goes_past(node, copy.id):
                yield self._unreached(at, None, task)
            elif at.linked:
                yield Step(f"A connects to B, to send {short(copy.id)}", self._greets(at, None, task))
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
            yield Step(f"A sends B {short(task.about)}", to(task._replace(phase="sent", wire=("out", said))))
        elif task.kind == "idle":
            yield from self._talks(at, task, self.scripts.begin("poll"))
        else:
            yield from self._writes_down(at, 0, task, task)

    # Faults.

    def _faults(self, at: World) -> Iterator[Step]:
        for fault in self.faults:
            kind, _, where = fault.rpartition(" ")
            if fault == "cut off":
                yield Step(
                    "A and B are cut off from one another",
                    self._broken(at)._replace(fault=fault, cut=True),
                    needed=False,
                )
            elif fault == "session":
                for task in at.nodes[0].tasks:
                    if is_open(task):
                        yield Step(
                            "the session of A with B is lost",
                            self._lost(at, task)._replace(fault=fault),
                            needed=False,
                        )
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
            if is_open(task):
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
