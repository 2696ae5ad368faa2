"""The members as automata, and the packets between them: what each step leads to."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from tests.simulation.checks import Broken, repaired, unrest
from tests.simulation.seeds import PLACES

from .automaton import Automaton, View
from .setup import Setup
from .situation import TIMINGS, Known, Mail, Situation, Taken, cause

HOPS = ("example.net", "inside.example")


class Members:
    """Everything but faults. Where a rule of the promise falls, Broken is raised."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.policy = replace(TIMINGS, reject_message_on_shadow_failure=setup.reject)
        places = PLACES[: setup.nodes]
        self.names = tuple(str(place.name) for place in places)
        self.index = {name: index for index, name in enumerate(self.names)}
        self.automata = [
            Automaton(self.policy, places, index, commits_apart=setup.commits_apart)
            for index in range(setup.nodes)
        ]
        self._quiet: dict[tuple[int, ...], tuple[str, str]] = {}
        self.told: list[str] = []
        self.causes: list[str] = []

    def start(self) -> Situation:
        """Everybody knows everybody, and nothing is under way."""
        ids = tuple(Mail(f"01900000-0000-7000-8000-{n:012d}") for n in range(1, self.setup.messages + 1))
        strangers = Situation(tuple(a.begin(("open",)) for a in self.automata), mail=())
        for _ in range(4):
            strangers = self._run_dry(self._second(self._run_dry(strangers)))
        disks = [view.node.books.state for view in self.views(strangers)]
        first = Situation(
            tuple(a.begin(("acquainted", disks[i], i % 2)) for i, a in enumerate(self.automata)), mail=ids
        )
        return self._message(first, 0, self.names[0]) if self.setup.at_once else first

    def views(self, at: Situation) -> list[View]:
        return [automaton.views[number] for automaton, number in zip(self.automata, at.nodes, strict=True)]

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
        before = self.automata[index].views[at.nodes[index]]
        now = self.automata[index].views[number]
        at = replace(at, nodes=(*at.nodes[:index], number, *at.nodes[index + 1 :]))
        if before.knows != now.knows:
            at = replace(at, known=self._learnt(at, self.names[index], before, now))
        packets = []
        for packet in sent:
            if packet[0] == "told":
                self.told.append(f"{packet[1]}: {packet[2]}")
            elif packet[0] == "decided":
                self.told.append(f"{self.names[index]} decides: {packet[2]}")
                at = self._decided(at, *packet[1:])
            elif packet[0] == "reply":
                at = self._replied(at, *packet[1:])
            elif packet[0] == "unanswered":
                at = self._in_vain(at, *packet[1:])
            else:
                packets.append((False, packet))
                if packet[0] == "send":
                    self._should_have_asked(at, self.names[index], now, packet[4])
        if not packets:
            return at
        at = replace(at, packets=tuple(sorted((*at.packets, *packets), key=in_order)))
        for item in packets:
            if self.setup.coarse and item[1][0] == "answer" and not is_receipt(item[1]):
                at = self._packet(at, item)
        return at

    def _learnt(self, at: Situation, name: str, before: View, now: View) -> tuple[Known, ...]:
        gone, new = before.knows - now.knows, now.knows - before.knows
        kept = [
            replace(k, until=0) if k.node == name and k.until is None and (k.id, k.recipient) in gone else k
            for k in at.known
        ]
        return (*kept, *(Known(id_, number, name, 0) for id_, number in sorted(new)))

    def _decided(self, at: Situation, message_id: str, answer: str, redundant: bool) -> Situation:
        changed = []
        for mail in at.mail:
            if mail.id == message_id:
                mail = replace(mail, redundant=redundant, refused=answer == "not redundant")  # noqa: PLW2901
            changed.append(mail)
        return replace(at, mail=tuple(changed))

    def _replied(self, at: Situation, message_id: str, answer: str) -> Situation:
        """The sender hears it at once: an answer that is lost on its way only takes a duty away."""
        self.told.append(f"the sender is told {answer}")
        if answer != "250":
            return at
        return replace(
            at, mail=tuple(replace(m, acknowledged=True) if m.id == message_id else m for m in at.mail)
        )

    def _in_vain(self, at: Situation, caller: str, generation: int, number: int) -> Situation:
        """The answer to that call will not come."""
        index = self.index[caller]
        view = self.automata[index].views[at.nodes[index]]
        if not view.up or view.generation != generation:
            return at
        return self._react(at, index, ("vain", number))

    def _without(self, at: Situation, item: tuple[bool, Any]) -> Situation:
        packets = list(at.packets)
        packets.remove(item)
        return replace(at, packets=tuple(packets))

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

    def _message(self, at: Situation, number: int, home: str) -> Situation:
        mail = list(at.mail)
        mail[number] = replace(mail[number], home=home)
        hops = HOPS[: self.setup.recipients]
        return self._react(
            replace(at, mail=tuple(mail)), self.index[home], ("message", mail[number].id, hops)
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
                at = replace(at, packets=tuple(sorted((*at.packets, refusal), key=in_order)))
                return self._packet(at, refusal) if self.setup.coarse else at
            return self._react(at, target, ("request", caller, generation, number, session, lines))
        _, _, _, _, generation, number, answer = packet
        if not views[target].up or views[target].generation != generation:
            return at
        return self._react(at, target, ("answer", number, answer))

    def _hop_takes(self, at: Situation, item: tuple[bool, Any], *, reply_lost: bool) -> Situation:
        _, source, generation, number, message_id, hop, recipients = item[1]
        at = self._without(at, item)
        refused = self.setup.refused and hop != "back"
        for recipient in () if refused else recipients:
            made = Taken(message_id, recipient, source, 0, reply_lost)
            before = [t for t in at.taken if (t.id, t.recipient) == (message_id, recipient)]
            at = replace(at, taken=(*at.taken, made))
            if before:
                self._again(at, before, made)
        if any(mail.id == message_id and mail.refused for mail in at.mail):
            raise Broken("delivered after its 451")
        self.told.append(f"{hop} {'refuses' if refused else 'takes'} {message_id} from {source}")
        view = self.views(at)[self.index[source]]
        if not view.up or view.generation != generation:
            return at
        kind = "refused" if refused else "taken"
        return self._react(at, self.index[source], (kind, number, None if reply_lost else recipients))

    # Rules.

    def _check(self, at: Situation) -> None:
        waiting: frozenset[tuple[str, int]] | None = None
        for mail in at.mail:
            if not mail.acknowledged or mail.excused:
                continue
            if self.setup.refused:
                self._check_report(at)
                continue
            for number in range(1, self.setup.recipients + 1):
                if any((t.id, t.recipient) == (mail.id, number) for t in at.taken):
                    continue
                if waiting is None:
                    waiting = frozenset().union(*(view.waiting for view in self.views(at)))
                if (mail.id, number) not in waiting:
                    raise Broken(f"LOST: recipient {number} of an acknowledged message")

    def _check_report(self, at: Situation) -> None:
        """The message itself waits, or its report does, or has been sent; and there is one report only."""
        sent = {item.id for item in at.taken}
        if len(sent) > 1:
            raise Broken("two reports about one recipient")
        if not sent and not any(view.waiting for view in self.views(at)):
            raise Broken("LOST: an acknowledged message, refused by its next hop, without a report")

    def _again(self, at: Situation, before: list[Taken], made: Taken) -> None:
        """Every second delivery is judged when it happens, by what is known at that moment."""
        causes = [cause(at, self.policy, len(self.names), first, made) for first in before]
        wrong = [text for text in causes if text.startswith("!")]
        if wrong:
            raise Broken(f"avoidable duplicate: {wrong[0][1:]}")
        self.causes.append(causes[0])

    def _should_have_asked(self, at: Situation, sender: str, view: View, message_id: str) -> None:
        """A node that returned, or whose member returned, asks that member before it sends anything that
        the member may know more of. Ages are whole seconds, so only what is older for certain counts.
        """
        contacts = dict(view.contacts)
        for known in at.known:
            contact = contacts.get(known.node)
            other = self.views(at)[self.index[known.node]]
            if known.id != message_id or known.until is not None or contact is None:
                continue
            if not other.up or other.frozen or at.blocked or known.node == sender:
                continue
            for item in at.wrong:
                if item.other is not None or item.end is None or known.since <= item.end:
                    continue
                if item.kind == "freeze" and not item.long:
                    continue
                if item.one == sender or (item.one == known.node and contact < item.end):
                    raise Broken(f"avoidable duplicate: {sender} sends what {known.node} knew to be settled")

    def rest(self, at: Situation) -> str:
        return self._rest(at)[0]

    def _rest(self, at: Situation) -> tuple[str, str]:
        """What keeps the boundary from rest, and from being repaired, as far as its members go."""
        known = self._quiet.get(at.nodes)
        if known is None:
            nodes = {view.node.name: view.node for view in self.views(at)}
            world: Any = SimpleNamespace(nodes=nodes)
            known = self._quiet[at.nodes] = (unrest(world), repaired(world))
        return known

    def at_rest(self, at: Situation) -> bool:
        """All mail sent, no fault lasts, nothing under way, queues and events empty."""
        if at.fault or at.packets or not all(mail.home for mail in at.mail):
            return False
        return not self._rest(at)[0]

    def spent(self, at: Situation) -> bool:
        """No fault is left to come."""
        return at.begun == len(self.setup.faults)


def in_order(item: tuple[bool, tuple[Any, ...]]) -> tuple[Any, ...]:
    packet = item[1]
    return (packet[0], packet[1], packet[2], packet[3], str(packet[4:]), item[0])


def is_receipt(packet: tuple[Any, ...]) -> bool:
    """The answer to an offer."""
    return any(line[:9] in ("250 2.6.0", "450 4.7.1") for line in packet[6])
