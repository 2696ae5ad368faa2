"""Attempts and talks: what A says to B, and what each makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shadowrelay.core.delivery.hop_shadows import Tracker
from shadowrelay.core.delivery.settling import AttemptResult, Ending, Hop
from shadowrelay.core.identifiers import MessageId, ServerName
from shadowrelay.core.members.conversation import Answered, Greeting
from shadowrelay.core.steps import Ask, Greet, SendOn, Sent, Unanswered, WriteReports
from shadowrelay.wire import hops as grammar
from shadowrelay.wire.xshadow import parse_mark
from tests.simulation.checks import Broken

from .causes import Delivery, cause
from .sides import NO_PAUSE, OUT, Done, Scripts, Side
from .world import GIVEN_UP, Process, Request, Step, World, results_of, short


class Talks:
    """The part of ``Hops`` that is about attempts and sessions. Its options are explained there."""

    def __init__(self, faults: tuple[str, ...] = (), *, other: bool = False, late: bool = False) -> None:
        self.faults = faults
        self.ways = frozenset({OUT} if other else ())
        self.other = other
        self.late = late
        self.apart = any(fault.endswith(" B") for fault in faults)
        self.waits = bool({"kill A", "disk A"} & set(faults))
        self.replaced = bool({"disk A", "put back A"} & set(faults))
        self.others = set(faults) <= {"session"}
        self.scripts = Scripts()
        self.sides = Side(0, self.scripts), Side(1, self.scripts)

    def _goes_on(self, at: World, number: int, task: Process) -> Iterator[Step]:
        raise NotImplementedError

    def _to_the_sink(self, at: World, task: Process) -> Iterator[Step]:
        heard = self._answered(task, results_of("250 2.0.0 sink", Ending.ACCEPTED))
        yield from self._writes_down(at, 1, task, heard)
        if not at.fault and "sink's reply" in self.faults:
            heard = self._answered(task, results_of("no reply", Ending.IN_DOUBT))
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
        yield Step(f"{'AB'[number]} writes down what became of {short(task.about)}: {heard.phase}", after)

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
        return Step(f"the other host takes {short(task.about)}", after.with_node(0, node.put(former, now)))

    # What A and B say to one another.

    def _greets(self, at: World, former: Process | None, task: Process) -> World:
        """A session begins with XSHADOW. When B reads it matters, not when A looked up what to say."""
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
        yield Step(
            f"A says {said[0]} {said[1] if said[0] != 'XSHADOW' else ''}",
            at.with_node(0, node.put(former, now)),
        )

    def _talked(self, at: World, task: Process, result: Any) -> World:
        """A talk is over."""
        node = at.nodes[0]
        if isinstance(result, Greeting):
            talk = self.scripts.begin("poll") if task.kind == "ask" else -1
            if task.kind == "send":  # the hop is at hand; a session of its own counts when it was asked
                node = node._replace(failures=0)
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
        text, _, mark = (
            reply.rpartition(" ")
            if "\n" not in reply
            else (reply.rpartition("\n")[0], "", reply.rpartition(" ")[2])
        )
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

    # Looks and notes.

    def _look(self, at: World, number: int, what: str) -> Any:
        return self.sides[number].do(at.nodes[number].disk, what).result if at.nodes[number].disk >= 0 else ()

    def _wrote(self, at: World, number: int, done: Done) -> World:
        for told in done.told:
            if told.kind == "sent again":
                at = at._replace(again=(*at.again, told))
            elif not any(one.by_a == told.message_id for one in at.sink):
                raise Broken(
                    f"TOO EARLY: {short(told.message_id)} left the shadow queue, and B has not delivered it"
                )
        return at.with_node(number, at.nodes[number]._replace(disk=done.disk))

    def _delivered(self, at: World, new: Delivery) -> World:
        return at._replace(sink=(*at.sink, new))

    def cause(self, at: World) -> str:
        """Why the last delivery is not the first one; '' if it is. '!…' if nothing explains it."""
        return cause(at.sink, at.again, at.fault)
