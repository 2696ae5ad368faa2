"""The members as automata, and the packets between them: what each step leads to."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from shadowrelay.wire.xqdiscard import parse_query
from tests.simulation.checks import Broken
from tests.simulation.seeds import PLACES
from tests.simulation.world import START

from . import orders
from .automaton import Memory, View
from .rules import Rules
from .setup import Move, Setup
from .situation import OLD, TIMINGS, Known, Mail, Situation, Taken
from .stand_ins import OpenPolicy

ASKED = ("asked",)
"""Said by a node beside whatever it sends: an open policy decided about it."""

RECEIPTS = ("250 2.6.0", "450 4.7.1", "554 5.6.0")
"""How an answer to an offer begins: taken, not taken, not what its digests say."""

HOPS = ("example.net", "inside.example")


class Members(Rules):
    """Everything but faults. Where a rule of the promise falls, Broken is raised."""

    def __init__(self, setup: Setup, memory: Memory) -> None:
        self.setup = setup
        policy = replace(
            TIMINGS,
            max_retries_for_remote_site_shadow=setup.attempts * (setup.nodes - 1),
            max_retries_for_local_site_shadow=setup.attempts,
        )
        self.policy = OpenPolicy(policy)
        if setup.reject is not None:
            self.policy = replace(policy, reject_message_on_shadow_failure=setup.reject)
        places = PLACES[: setup.nodes]
        self.names = tuple(str(place.name) for place in places)
        self.index = {name: index for index, name in enumerate(self.names)}
        self.automata = memory.automata(self.policy, places, commits_apart=setup.commits_apart)
        self._quiet = {}
        self.rejects = False  # what an open policy says in the step that is being made
        self.asked = False  # and whether it was asked in it
        self.made: Move = ()  # that step
        self.told: list[str] = []
        self.causes: list[str] = []

    def start(self) -> Situation:
        """Everybody knows everybody, and nothing is under way."""
        ids = tuple(Mail(f"01900000-0000-7000-8000-{n:012d}") for n in range(1, self.setup.messages + 1))
        strangers = Situation(tuple(a.begin(("open",)) for a in self.automata), mail=())
        for _ in range(4):
            strangers = self._run_dry(self._second(self._run_dry(strangers)))
        disks = [view.node.ledger.state for view in self.views(strangers)]
        first = Situation(
            tuple(a.begin(("acquainted", disks[i], i % 2)) for i, a in enumerate(self.automata)), mail=ids
        )
        if self.setup.resubmits:
            return self._delivered(first)
        return self._message(first, 0, self.names[0]) if self.setup.at_once else first

    def _delivered(self, at: Situation) -> Situation:
        """The message is through, and its copies are in Safety Net: since when counts from the beginning."""
        at = self._message(at, 0, self.names[0])
        while at.packets or any(view.steps for view in self.views(at)) or self._rest(at)[0]:
            at = self._second(self._run_dry(at))
        disks = []
        for view in self.views(at):
            disk = view.node.ledger.state.snapshot()
            for copy in tuple(disk.copies.values()):
                settled = (replace(one, settled_at=START) for one in copy.recipients)
                disk.copies[copy.id] = replace(copy.with_recipients(settled), settled_at=START)
            disks.append(disk)
        nodes = (a.begin(("acquainted", disks[i], i % 2)) for i, a in enumerate(self.automata))
        known = tuple(item._replace(since=OLD) for item in at.known)
        return at._replace(nodes=tuple(nodes), known=known)

    def _ask(self, at: Situation, name: str) -> Situation:
        return self._react(at._replace(asked=True), self.index[name], ("ask",))

    def _remove(self, at: Situation, name: str, message_id: str) -> Situation:
        at = at._replace(order=name)
        return self._react(at, self.index[name], ("remove", message_id, orders.NUMBERS))

    def _urgent(self, at: Situation, views: list[View]) -> bool:
        """Is there something that will not wait for the next second? A next hop may be as slow as it likes,
        but not with the octets of a process that is gone.
        """
        return any(view.steps for view in views) or any(
            not late and (packet[0] != "send" or self._orphaned(views, packet)) for late, packet in at.packets
        )

    def _orphaned(self, views: list[View], packet: tuple[Any, ...]) -> bool:
        """The process that sent it is gone, so it may have got lost with it, or not."""
        if packet[0] == "reset":
            return True
        view = views[self.index[packet[1]]]
        return packet[2] >= 0 and (not view.up or view.generation != packet[2])

    def _react(self, at: Situation, index: int, event: tuple[Any, ...]) -> Situation:
        """That node, and what comes of what it sends."""
        number, sent = self.automata[index].react(at.nodes[index], event)
        if ASKED in sent:
            self.asked = True
            if self.rejects:
                number, sent = self.automata[index].react(at.nodes[index], ("reject", *event))
        goes_on = self.setup.grain == "talks" and event[0] == "answer" and not self._may_be_lost(at)
        before = self.automata[index].views[at.nodes[index]]
        now = self.automata[index].views[number]
        at = at._replace(nodes=(*at.nodes[:index], number, *at.nodes[index + 1 :]))
        if before.stored.knows != now.stored.knows:
            at = at._replace(known=self._learnt(at, self.names[index], before, now))
        self._should_not_give_up(at, self.names[index], now.stored.set_aside - before.stored.set_aside)
        packets = []
        for packet in sent:
            if packet[0] == "told":
                self.told.append(f"{packet[1]}: {packet[2]}")
                self._should_have_believed(at, now, packet[2])
            elif packet[0] == "decided":
                self.told.append(f"{self.names[index]} decides: {packet[2]}")
                at = self._decided(at, now, *packet[1:])
            elif packet[0] == "reply":
                at = self._replied(at, *packet[1:])
            elif packet == ASKED:
                continue
            elif packet[0] == "unanswered":
                at = self._in_vain(at, *packet[1:])
            else:
                packets.append((False, packet))
                if packet[0] == "send":
                    self._should_have_asked(at, self.names[index], now, packet[4], packet[6])
                    self._should_have_agreed(at, self.names[index], now, packet[4])
        if not packets:
            return at
        at = at._replace(packets=tuple(sorted((*at.packets, *packets), key=in_order)))
        if self.setup.grain == "packets":
            return at
        for item in packets:
            kind = item[1][0]
            if (kind == "answer" and not is_receipt(item[1])) or (
                goes_on and kind == "request" and not is_offer(item[1])
            ):
                at = self._packet(at, item)
        return at

    def _may_be_lost(self, at: Situation) -> bool:
        """Is a packet the next that a fault may hit? Then each has to be seen."""
        if at.begun == len(self.setup.faults):
            return False
        return any(fault in ("lost", "late") for fault in self.setup.faults[at.begun])

    def _learnt(self, at: Situation, name: str, before: View, now: View) -> tuple[Known, ...]:
        gone, new = before.stored.knows - now.stored.knows, now.stored.knows - before.stored.knows
        kept = [
            k._replace(until=0) if k.node == name and k.until is None and (k.id, k.recipient) in gone else k
            for k in at.known
        ]
        return tuple(sorted((*kept, *(Known(id_, number, name, 0) for id_, number in new)), key=repr))

    def _decided(self, at: Situation, view: View, message_id: str, answer: str, redundant: bool) -> Situation:
        """What arrived may have been damaged meanwhile: the only copy, where policy lets it in exposed."""
        only = not redundant and message_id in view.stored.bad
        refused = answer == "not redundant"
        return at._replace(
            mail=tuple(
                m._replace(redundant=redundant, refused=refused, excused=only) if m.id == message_id else m
                for m in at.mail
            )
        )

    def _replied(self, at: Situation, message_id: str, answer: str) -> Situation:
        """The sender hears it at once: an answer that is lost on its way only takes a duty away."""
        self.told.append(f"the sender is told {answer}")
        if answer != "250":
            return at
        return at._replace(
            mail=tuple(m._replace(acknowledged=True) if m.id == message_id else m for m in at.mail)
        )

    def _in_vain(self, at: Situation, caller: str, generation: int, number: int) -> Situation:
        """The answer to that call will not come."""
        index = self.index[caller]
        view = self.automata[index].views[at.nodes[index]]
        if not view.up or view.generation != generation:
            return at
        return self._react(at, index, ("vain", number))

    def _hung_up(self, at: Situation) -> Situation:
        """The same without sessions that nobody will use any more: a member looks one up when something is
        said on it, and nothing will be, before its caller has introduced itself on a new one of that number.
        """
        if self.setup.commits_apart:
            return at  # a session may be on its way to its caller's memory
        views = self.views(at)
        for index, view in enumerate(views):
            if not view.served or view.frozen:
                continue
            for session in view.served:
                caller = views[session // 1000]
                if caller.frozen or (caller.up and session in caller.used):
                    continue
                if any(packet[0] == "request" and packet[5] == session for _, packet in at.packets):
                    continue
                at = self._react(at, index, ("hung_up", session))
        return at

    def _without(self, at: Situation, item: tuple[bool, Any]) -> Situation:
        packets = list(at.packets)
        packets.remove(item)
        return at._replace(packets=tuple(packets))

    def _step(self, at: Situation, index: int, position: int) -> Situation:
        return self._react(at, index, ("step", position))

    def _second(self, at: Situation) -> Situation:
        idle = bool(at.mail) and not at.fault and not any(self._rest(at))
        for index in range(len(self.names)):
            at = self._react(at, index, ("second",))
        at = at.older()
        return self._run_dry(at) if idle else at

    def _run_dry(self, at: Situation) -> Situation:
        """Heartbeats of an idle boundary in which all is well are no steps of interest."""
        while True:
            views = self.views(at)
            index = next((i for i, view in enumerate(views) if view.steps), None)
            if index is not None:
                at = self._step(at, index, 0)
            elif at.packets:
                at = self._packet(at, at.packets[0])
            else:
                return at

    def _scrub(self, at: Situation, index: int) -> Situation:
        return self._react(at, index, ("scrub",))

    def _resume(self, at: Situation, index: int, message_id: str) -> Situation:
        return self._react(at, index, ("resume", message_id))

    def _age(self, at: Situation, index: int, message_id: str) -> Situation:
        return self._react(at, index, ("age", message_id))

    def _message(self, at: Situation, number: int, home: str) -> Situation:
        mail = list(at.mail)
        mail[number] = mail[number]._replace(home=home)
        hops = HOPS[1:] if self.setup.resubmits else HOPS[: self.setup.recipients]
        return self._react(
            at._replace(mail=tuple(mail)), self.index[home], ("message", mail[number].id, hops)
        )

    def _gone(self, at: Situation, item: tuple[bool, Any]) -> Situation:
        packet = item[1]
        at = self._without(at, item)
        if packet[0] == "request":
            return self._in_vain(at, packet[1], packet[2], packet[3])
        if packet[0] == "answer":
            return self._in_vain(at, packet[3], packet[4], packet[5])
        return at

    def _packet(self, at: Situation, item: tuple[bool, Any]) -> Situation:
        packet = item[1]
        kind, source = packet[0], packet[1]
        views = self.views(at)
        if kind == "send":
            return self._hop_takes(at, item, reply_lost=False)
        if kind == "reset":
            target = self.index[packet[3]]
            at = self._without(at, item)
            if not views[target].up or views[target].generation != packet[4]:
                return at
            if (source, packet[3]) in at.blocked:
                return at
            return self._react(at, target, ("reset", source))
        target_name = packet[4] if kind == "request" else packet[3]
        if (source, target_name) in at.blocked:
            return self._gone(at, item)
        at = self._without(at, item)
        target = self.index[target_name]
        if kind == "request":
            _, caller, generation, number, _, session, lines = packet
            if not views[target].up:  # the kernel answers
                refusal = (False, ("answer", target_name, -1, caller, generation, number, ()))
                at = at._replace(packets=tuple(sorted((*at.packets, refusal), key=in_order)))
                return at if self.setup.grain == "packets" else self._packet(at, refusal)
            over: tuple[int, ...] = ()
            if views[target].frozen and generation == views[self.index[caller]].generation:
                over = views[self.index[caller]].given_up
            if not views[target].frozen:
                at = self._told(at, caller, target_name, lines)
            return self._react(at, target, ("request", caller, generation, number, session, lines, over))
        _, _, _, _, generation, number, answer = packet
        if not views[target].up or views[target].generation != generation:
            return at
        return self._react(at, target, ("answer", number, answer))

    def _told(self, at: Situation, caller: str, owner: str, lines: tuple[Any, ...]) -> Situation:
        """Does the caller say to the owner of a message that its copy is damaged?"""
        text = lines[0]
        if isinstance(text, bytes) or not text.startswith("XQDISCARD"):
            return at
        if not ("FETCH" in text or "damaged" in text):
            return at
        query = parse_query(text.removeprefix("XQDISCARD "))
        damaged = {one.message_id for one in (*query.questions, *query.claimed) if one.damaged}
        damaged |= {query.wanted.message_id} if query.wanted else set()
        owned = self.views(at)[self.index[owner]].node.ledger.state.copies
        told = {(caller, id_) for id_ in damaged if id_ in owned and owned[id_].owned}
        return at._replace(told=tuple(sorted({*at.told, *told})))

    def _defer(self, at: Situation, item: tuple[bool, Any]) -> Situation:
        _, source, _, number, _, _, recipients, _ = item[1]
        at = self._without(at, item)._replace(deferred=at.deferred + 1)
        return self._react(at, self.index[source], ("deferred", number, recipients))

    def _hop_takes(self, at: Situation, item: tuple[bool, Any], *, reply_lost: bool) -> Situation:
        _, source, generation, number, message_id, hop, recipients, begun = item[1]
        orders.check_delivery(self, at, item[1])
        at = self._without(at, item)
        refused = self.setup.refused and hop != "back"
        for recipient in () if refused else recipients:
            made = Taken(message_id, recipient, source, reply_lost)
            before = [t for t in at.taken if (t.id, t.recipient) == (message_id, recipient)]
            at = at._replace(taken=tuple(sorted({*at.taken, made})))
            if before:
                self._again(at, before, made, begun)
        if any(mail.id == message_id and mail.refused for mail in at.mail):
            raise Broken("delivered after its 451")
        self.told.append(f"{hop} {'refuses' if refused else 'takes'} {message_id} from {source}")
        view = self.views(at)[self.index[source]]
        if not view.up or view.generation != generation:
            return at
        kind = "refused" if refused else "taken"
        return self._react(at, self.index[source], (kind, number, None if reply_lost else recipients))


def is_receipt(packet: tuple[Any, ...]) -> bool:
    """The answer to an offer."""
    return any(line[:9] in RECEIPTS for line in packet[6])


def is_offer(packet: tuple[Any, ...]) -> bool:
    """A copy, for its holder."""
    return packet[0] == "request" and isinstance(packet[6][0], bytes)


@cache
def in_order(item: tuple[bool, tuple[Any, ...]]) -> tuple[Any, ...]:
    packet = item[1]
    return (packet[0], packet[1], packet[2], packet[3], str(packet[4:]), item[0])
