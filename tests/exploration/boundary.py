"""Every step that is possible in a situation, faults included, and the situation that it leads to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import orders
from .ages import tidy
from .automaton import View
from .faults import AT_ONCE, BESIDE, DISK, KILLS, LASTING, ROT
from .members import Members, in_order, is_offer
from .setup import Move
from .situation import Situation, Wrong


class Boundary(Members):
    """The members, everything between them, and whatever goes wrong."""

    def moves(self, at: Situation) -> list[Move]:
        views = self.views(at)
        found: list[Move] = []
        for index, view in enumerate(views):
            found += [("step", index, position) for position in range(len(view.steps))]
            if view.up and not view.frozen:
                found += [("scrub", index)] if view.stored.unseen else []
                there = sorted(view.stored.set_aside & self.good(at)) if view.stored.set_aside else ()
                found += [("resume", index, message_id) for message_id in there]
        for item in dict.fromkeys(at.packets):
            found.append(("packet", item))
            if self._orphaned(views, item[1]):
                found.append(("gone", item))
            elif item[1][0] == "send" and at.deferred < self.setup.defers:
                found.append(("defer", item))
        unsent = next((n for n, mail in enumerate(at.mail) if not mail.home), None)
        if unsent is not None and not self.over(at):
            homes = self.names[:1] if self.setup.messages == 1 else self.names[:2]
            found += [("message", unsent, name) for name in homes if views[self.index[name]].up]
        if self.setup.resubmits and not at.asked:
            asks: list[Move] = [("ask", view.node.name) for view in views if view.up and not view.frozen]
            if self.setup.at_once:
                return asks
            found += asks
        if self.setup.orders:
            found += orders.moves(at, views)
        found += self._faults(at, views)
        if not self._urgent(at, views):
            found += self._ages(views)
            found.append(("second",))
        return found

    def make(self, at: Situation, move: Move) -> Situation:
        self.made = move
        self.told = []
        self.causes = []
        self.asked = False
        self.rejects = move[0] == "reject"
        kind, *given = move[1:] if self.rejects else move
        after: Situation = self._history(tidy(self._hung_up(getattr(self, f"_{kind}")(at, *given))))
        if self.setup.orders:
            after = orders.noted(after, self.views(after))
        self._check(after)
        return after

    def steps(self, at: Situation) -> Iterator[tuple[int, Move, Situation]]:
        """Every step, by an index, and what it leads to: where an open policy was asked, under either."""
        for index, move in enumerate(self.moves(at)):
            yield 2 * index, move, self.make(at, move)
            if self.asked:
                other = ("reject", *move)
                yield 2 * index + 1, other, self.make(at, other)

    def step_of(self, at: Situation, index: int) -> Move:
        move = self.moves(at)[index // 2]
        return ("reject", *move) if index % 2 else move

    def _ages(self, views: list[View]) -> Iterator[Move]:
        """Copies about which nobody asks until they expire. It matters where a page of before was put back:
        what was said of the message meanwhile is not said again.
        """
        stale = {message_id for view in views for message_id in view.stored.stale}
        for index, view in enumerate(views):
            for message_id in sorted(view.stored.unasked & stale):
                if view.up and not view.frozen:
                    yield ("age", index, message_id)

    def _history(self, at: Situation) -> Situation:
        """When nothing waits anywhere, nor is on its way, nobody asks any more what happened when."""
        if at.told:
            bad = {(view.node.name, id_) for view in self.views(at) for id_ in view.stored.bad}
            at = at._replace(told=tuple(item for item in at.told if item in bad))
        if not (at.taken or at.known or at.wrong) or not self._all_settled(at):
            return at
        return at.settled()

    def _all_settled(self, at: Situation) -> bool:
        """All mail came, and nothing of it waits anywhere, nor is on its way."""
        if self.setup.refused or not all(m.home for m in at.mail):
            return False
        if self.setup.resubmits and not (at.asked and self.spent(at) and not self._rest(at)[0]):
            return False  # more may be made of what is settled
        if at.fault.startswith(("rollback", "page")):
            return False
        if any(packet[0] == "send" or is_offer(packet) for _, packet in at.packets):
            return False
        return not any(
            view.stored.open or view.node.in_flight or view.node.repairing or view.dirty
            for view in self.views(at)
        )

    # Faults.

    def _faults(self, at: Situation, views: list[View]) -> list[Move]:
        if at.fault:
            kind, *words = at.fault.split()
            if kind == "rollback" and views[self.index[words[0]]].up:
                return list(self._begins(at, views, at.fault)) if self._is_safe(at, words[0]) else []
            if kind == "page" and views[self.index[words[0]]].dirty:
                return []
            octets = any(packet[0] == "send" and self._orphaned(views, packet) for _, packet in at.packets)
            return [] if octets else [("end",)]
        if at.begun == len(self.setup.faults):
            return []
        before = self.setup.faults[at.begun - 1] if at.begun else ()
        if before and not all(fault.split()[0] in BESIDE for fault in before) and self._rest(at)[1]:
            return []  # a second fault comes when the first is repaired
        if before and not self._can_be_harmed(at):
            return []
        found: list[Move] = []
        for fault in self.setup.faults[at.begun]:
            kind, *words = fault.split()
            if kind in (*DISK, *ROT) and not self._is_safe(at, words[0]):
                continue
            found += self._begins(at, views, fault)
        return found

    def _can_be_harmed(self, at: Situation) -> bool:
        """Can a fault make a recipient lost, or served twice? Or is anything still to be told?"""
        return not self._all_settled(at) or bool(self._rest(at)[1])

    def _begins(self, at: Situation, views: list[View], fault: str) -> Iterator[Move]:
        kind, *words = fault.split()
        if kind in ROT:
            yield from self._rots(views[self.index[words[0]]], kind, fault)
            return
        if kind not in AT_ONCE and kind != "late":
            if (
                kind == "cut"
                or (views[self.index[words[0]]].up and not views[self.index[words[0]]].dirty)
                or kind != "rollback"
            ):
                yield ("begin", fault)
                if kind in KILLS and self.setup.grain == "talks" and (kind != "rollback" or at.fault):
                    yield ("begin", fault, "unnoticed")
            return
        if kind == "drain":
            node = views[self.index[words[0]]]
            if node.up and any(copy.owned for copy in node.node.ledger.state.copies.values()):
                yield ("drain", words[0])
            return
        for late, packet in dict.fromkeys(at.packets):
            between = packet[0] in ("request", "answer")
            if (kind in ("lost", "late") and between and not late) or (
                kind == "hop" and packet[0] == "send" and not self._orphaned(views, packet)
            ):
                yield ("mishap", kind, (late, packet))

    def _rots(self, view: View, kind: str, fault: str) -> Iterator[Move]:
        """What is stored of any message. (Not the content of one that was compared just now, and is promoted
        because of that: nobody can do better.)
        """
        if view.dirty:
            return
        stored = view.stored
        whole = stored.contents - stored.compared - stored.bad
        for message_id in sorted(whole if kind == "content" else stored.rows):
            if kind == "page":
                yield ("begin", fault, message_id)
            yield ("rot", fault, message_id)

    def _rot(self, at: Situation, fault: str, message_id: str) -> Situation:
        kind, name = fault.split()
        at = at._replace(begun=at.begun + 1)
        return self._damaged(at, name, ("forget_page" if kind == "page" else kind, message_id))

    def _damaged(self, at: Situation, name: str, event: tuple[Any, ...]) -> Situation:
        """Damage explains no second delivery. But a page of its owner may say that nothing was delivered."""
        index = self.index[name]
        view = self.views(at)[index]
        at = self._excuse(at, view)
        if event[0].endswith(("page", "page_back")) and view.stored.owns:
            at = at._replace(wrong=(*at.wrong, Wrong(LASTING["page"], name, None, end=0)))
        return self._react(at, index, event)

    def _mishap(self, at: Situation, kind: str, item: tuple[bool, Any]) -> Situation:
        at = at._replace(begun=at.begun + 1)
        packet = item[1]
        if kind == "hop":
            return self._hop_takes(at, item, reply_lost=True)
        one, other = packet[1], packet[4] if packet[0] == "request" else packet[3]
        at = at._replace(lost=(*at.lost, (0, one, other)))
        if kind == "lost":
            return self._gone(at, item)
        packets = [(True, packet) if entry == item else entry for entry in at.packets]
        return at._replace(packets=tuple(sorted(packets, key=in_order)))

    def _drain(self, at: Situation, name: str) -> Situation:
        return self._react(at._replace(begun=at.begun + 1), self.index[name], ("hand_over",))

    def _begin(self, at: Situation, fault: str, how: str = "") -> Situation:
        kind, *words = fault.split()
        if kind == "page":
            at = at._replace(begun=at.begun + 1, fault=fault)
            return self._react(at, self.index[words[0]], ("note_page", how))
        if kind == "rollback" and not at.fault:
            at = at._replace(begun=at.begun + 1, fault=fault)
            return self._react(at, self.index[words[0]], ("snapshot",))
        if not at.fault:
            at = at._replace(begun=at.begun + 1, fault=fault)
        if kind == "cut":
            one, other = words[0], words[-1]
            blocked = ((one, other),) if ">" in words else ((one, other), (other, one))
            wrong = Wrong(LASTING[kind], *sorted((one, other)))  # which way is cut is said by ``blocked``
            return self._links(at._replace(blocked=blocked, wrong=(*at.wrong, wrong)))
        at = at._replace(wrong=(*at.wrong, Wrong(LASTING[kind], words[0], None)))
        index = self.index[words[0]]
        if kind == "freeze":
            return self._react(at, index, ("freeze",))
        at = self._react(at, index, ("kill",))
        for item in at.packets:  # what its connections still carried to it goes with them
            if item[0] and item[1][0] == "request" and item[1][4] == words[0]:
                at = self._gone(at, item)
        resets = [
            (False, ("reset", words[0], -1, name, view.generation))
            for name, view in zip(self.names, self.views(at), strict=True)
            if name != words[0] and view.up
        ]
        if self.setup.grain == "talks":  # the kernel closes its connections, or the power fails
            for item in () if how == "unnoticed" else resets:
                at = self._packet(at._replace(packets=(*at.packets, item)), item)
            return at
        return at._replace(packets=tuple(sorted((*at.packets, *resets), key=in_order)))

    def _links(self, at: Situation) -> Situation:
        for index in range(len(self.names)):
            at = self._react(at, index, ("links", at.blocked))
        return at

    def _end(self, at: Situation) -> Situation:
        kind, *words = at.fault.split()
        if kind == "page":
            return self._damaged(at._replace(fault=""), words[0], ("put_page_back",))
        span = self.policy.shadow_resubmit_time_span.total_seconds()
        at = at._replace(
            fault="",
            wrong=tuple(
                w if w.end is not None else w._replace(end=0, long=w.start >= span) for w in at.wrong
            ),
        )
        if kind == "cut":
            return self._links(at._replace(blocked=()))
        index = self.index[words[0]]
        if kind == "freeze":
            return self._react(at, index, ("thaw",))
        if kind in DISK:
            at = self._excuse(at, self.views(at)[index])
            at = self._react(at, index, (DISK[kind],))
            self._check(at)
        return self._react(at, index, ("open",))

    def _excuse(self, at: Situation, view: View) -> Situation:
        """Messages that policy let in exposed, and that were so when this disk was lost."""
        mail = tuple(
            m._replace(excused=True) if m.id in view.stored.exposed and not m.redundant else m
            for m in at.mail
        )
        return at._replace(mail=mail)
