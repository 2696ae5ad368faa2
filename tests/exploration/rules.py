"""The rules of the promise, asked of a situation of the whole boundary."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

from shadowrelay.core.messages import Stage
from shadowrelay.core.policy import Policy
from shadowrelay.core.requests import Selector
from tests.simulation.checks import Broken, under_repair, unrest

from .automaton import Automaton, View
from .faults import ROT
from .orders import NUMBERS
from .setup import Setup
from .situation import Situation, Taken, cause, disks_changed, returned


class Rules:
    """What must hold. Broken is raised where it does not."""

    setup: Setup
    policy: Policy
    names: tuple[str, ...]
    index: dict[str, int]
    automata: list[Automaton]
    causes: list[str]
    _quiet: dict[tuple[int, ...], tuple[str, str]]

    def views(self, at: Situation) -> list[View]:
        return [automaton.views[number] for automaton, number in zip(self.automata, at.nodes, strict=True)]

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
                if at.removed and number in NUMBERS:
                    continue
                if waiting is None:
                    waiting = frozenset().union(*(view.stored.waiting for view in self.views(at)))
                if (mail.id, number) not in waiting:
                    raise Broken(f"LOST: recipient {number} of an acknowledged message")

    def _check_report(self, at: Situation) -> None:
        """The message itself waits, or its report does, or has been sent; and there is one report only."""
        sent = {item.id for item in at.taken}
        if len(sent) > 1:
            raise Broken("two reports about one recipient")
        if not sent and not any(view.stored.waiting for view in self.views(at)):
            raise Broken("LOST: an acknowledged message, refused by its next hop, without a report")

    def _again(self, at: Situation, before: list[Taken], made: Taken, begun: int) -> None:
        """Every second delivery is judged when it happens, by what is known at that moment."""
        causes = [cause(at, self.policy, len(self.names), first, made, begun) for first in before]
        wrong = [text for text in causes if text.startswith("!")]
        if wrong:
            raise Broken(f"avoidable duplicate: {wrong[0][1:]}")
        self.causes.append(causes[0])

    def _should_have_asked(
        self, at: Situation, sender: str, view: View, message_id: str, recipients: tuple[int, ...]
    ) -> None:
        """A node that returned, or whose member returned, asks that member before it sends anything that
        the member may know more of. Ages are whole seconds, so only what is older for certain counts.
        """
        contacts = dict(view.contacts)
        for known in at.known:
            contact = contacts.get(known.node, float("inf"))
            other = self.views(at)[self.index[known.node]]
            if known.id != message_id or known.recipient not in recipients or known.until is not None:
                continue
            if not other.up or other.frozen or at.blocked or known.node == sender:
                continue
            for item in at.wrong:
                if not returned(item) or item.end is None or known.since <= item.end:
                    continue
                if item.kind == "freeze" and not item.long:
                    continue
                met = contact < item.end
                if item.kind != "freeze":
                    met = met or (known.node, other.incarnation) in view.met
                mine = item.one == sender and known.node in contacts
                if mine or (item.one == known.node and met):
                    raise Broken(f"avoidable duplicate: {sender} sends what {known.node} knew to be settled")

    def _should_have_agreed(self, at: Situation, sender: str, view: View, message_id: str) -> None:
        """Of all members that hold a copy, one takes over: as long as nothing is wrong but with its owner."""
        mine = view.node.ledger.state.copies.get(message_id)
        if mine is None or mine.former_owner is None or at.blocked:
            return
        if self.setup.causes and any(
            item.other is not None or item.one != mine.former_owner for item in at.wrong
        ):
            return
        for name, other in zip(self.names, self.views(at), strict=True):
            if name == sender or any({one, two} == {name, sender} for _, one, two in at.lost):
                continue
            theirs = other.node.ledger.state.copies.get(message_id)
            if theirs is not None and theirs.owned and theirs.queued and theirs.epoch == mine.epoch:
                raise Broken(f"avoidable duplicate: {sender} and {name} both took the message over")

    def _should_have_believed(self, at: Situation, view: View, told: str) -> None:
        """A member whose disk never changed is not taken for one whose database is another, nor has it ever
        to say that it does not know what it gave away. What is said not to be known is not let go. And
        nothing damaged is taken over.
        """
        kind, message_id, *words = told.split()
        if kind == "RESUBMIT" and words[0].startswith("original="):
            self._should_be_its_own(at, view.node.name, words[1].removeprefix("owner="))
            return
        if kind == "HADISCARD" and "reason=Orphaned" in words:
            raise Broken("a copy was released because of an unknown")
        if kind != "RESUBMIT":
            return
        if message_id in view.stored.bad:
            raise Broken("a damaged copy was taken over")
        changed = {f"former-owner={name}" for name in disks_changed(at)}
        if any(word.startswith("reason=database") for word in words) and changed.isdisjoint(words):
            raise Broken("a sound database was taken for another one")
        changed = {f"former-owner={name}" for name in disks_changed(at, pages=True)}
        if "reason=owner-forgot" in words and changed.isdisjoint(words):
            raise Broken("an owner whose disk is sound did not know what it had given away")

    def _should_be_its_own(self, at: Situation, name: str, owner: str) -> None:
        """A node makes what it settled itself, or what an owner settled that lost it or is silent."""
        if owner == name or owner in disks_changed(at):
            return
        silence = int(self.policy.unresponsive_primary_interval.total_seconds())
        for item in at.wrong:
            between = {item.one, item.other} == {owner, name} or (item.one == owner and item.other is None)
            if between and item.start >= silence - 1 and (item.end is None or item.end <= silence):
                return
        raise Broken(f"{name} made what was {owner}'s to make")

    def _check_given_back(self, at: Situation) -> None:
        """At rest, what was asked for was delivered once more: unless nobody has it any more, or the request,
        or something of it was damaged.
        """
        views = self.views(at)
        requests = [request for view in views for request in view.node.ledger.state.requests.values()]
        if not requests or (at.begun and self.setup.faults[0][0].split()[0] in ROT):
            return
        for mail in at.mail:
            keepers = [view.node.name for view in views if self._keeps(view, requests[0].selector, mail.id)]
            again = {item.id for item in at.taken} - {one.id for one in at.mail}
            if keepers and not again:
                raise Broken(f"not given back: in Safety Net at {' and '.join(keepers)}")

    def _keeps(self, view: View, selector: Selector, message_id: str) -> bool:
        copy = view.node.ledger.state.copies.get(message_id)
        if copy is None or copy.stage is not Stage.SAFETY_NET:
            return False
        return any(selector.covers(one.settled_at) for one in copy.recipients)

    def _should_not_give_up(self, at: Situation, name: str, set_aside: frozenset[str]) -> None:
        """A message is set aside for an operator only when nobody has a good copy of it. (One that was put
        off on its way may come later.)
        """
        if not set_aside.isdisjoint(self.good(at)):
            raise Broken(f"{name} set aside what is there")

    def good(self, at: Situation) -> set[str]:
        """Messages of which somebody has a good copy with unsettled recipients."""
        return {message_id for view in self.views(at) for message_id, _ in view.stored.waiting}

    def _is_safe(self, at: Situation, name: str) -> bool:
        """May that member's disk lose what it has? Not while a copy elsewhere is damaged or gone, unless its
        owner was told so, and believes that there is a good one all the same.
        """
        views = self.views(at)
        good = {(view.node.name, message_id) for view in views for message_id, _ in view.stored.waiting}
        copies = Counter(message_id for _, message_id in good)
        hit = {entry for view in views for entry in view.stored.hit}
        lacking = {entry for entry in hit - good if entry[0] != name and copies[entry[1]] == 1}
        return lacking <= set(at.told) and not (lacking and any(view.stored.exposed for view in views))

    def rest(self, at: Situation) -> str:
        return self._rest(at)[0]

    def _rest(self, at: Situation) -> tuple[str, str]:
        """What keeps the boundary from rest, and from being repaired, as far as its members go: where they
        count on what is not there, the next fault shows it.
        """
        known = self._quiet.get(at.nodes)
        if known is None:
            hit = frozenset().union(*(view.stored.hit for view in self.views(at)))
            nodes = {view.node.name: view.node for view in self.views(at)}
            world: Any = SimpleNamespace(
                nodes=nodes, hit=hit, reports={}, journaled={}, expanded={}, policy=self.policy
            )
            known = self._quiet[at.nodes] = (unrest(world) or self._rows_to_mend(at), under_repair(world))
        return known

    def _rows_to_mend(self, at: Situation) -> str:
        for view in self.views(at):
            state = view.node.ledger.state
            unseen = state.rotten.keys() - state.damaged.keys()
            if unseen or any(not rows.set_aside for rows in state.damaged.values()):
                return f"{view.node.name} has damaged rows"
        return ""

    def at_rest(self, at: Situation) -> bool:
        """All mail sent, no fault lasts, nothing under way, queues and events empty."""
        if at.fault or at.packets:
            return False
        if self.setup.resubmits:
            rests = at.asked and not self._rest(at)[0]
            if rests:
                self._check_given_back(at)
            return rests
        return not self._rest(at)[0] if all(mail.home for mail in at.mail) else self.over(at)

    def over(self, at: Situation) -> bool:
        """Is everything repaired again, before any message came? What comes now comes to a sound boundary."""
        if not at.begun or any(mail.home for mail in at.mail) or not self.spent(at):
            return False
        return not at.fault and not self._rest(at)[1]

    def spent(self, at: Situation) -> bool:
        """No fault is left to come."""
        return at.begun == len(self.setup.faults)
