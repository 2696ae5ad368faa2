"""One node of the simulation by itself: what reaches it comes from outside, what it sends goes outside.

The node and its sessions are the simulation's own, production scripts and decisions included. Its world has
stand-ins for the other members and for next hops, which only note what they are sent. Time is counted in
whole seconds: what takes less than a quarter of one (a commit, a packet, the first words after a start) is a
step that may come in any order within its second, what takes longer is due in the second that it ends in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from shadowrelay.core.digests import of_content, of_envelope
from shadowrelay.core.identifiers import MessageId, NextHop, RequestId, ServerName
from shadowrelay.core.jobs import Verb
from shadowrelay.core.ledger import Transaction
from shadowrelay.core.messages import Digests, Envelope, Recipient, TlsWish
from shadowrelay.core.ownership.set_aside import resume
from shadowrelay.core.ownership.transfer import saved
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.redundancy import Arrival
from shadowrelay.core.requests import Request, Selector
from shadowrelay.members.record_replication import Spread
from tests.simulation import operators
from tests.simulation.by_hand import give
from tests.simulation.checks import Broken
from tests.simulation.node import Node
from tests.simulation.world import START, Noise, World

from .stand_ins import Beyond, Due, Elsewhere, Instant, Midway, OpenPolicy, Reply, Rules, is_over, runs

QUICK = 0.25
"""Seconds: whatever takes less is a step, whatever takes more is a deadline."""

FIRST_SEND = 64 * 9000
"""Calls are numbered by their session; those from here on are deliveries that wait for their next hop."""

SENDER = "sender@example.org"

WINDOW = Selector(since=START - timedelta(hours=1), until=START)
"""What was delivered when the exploration begins; what is delivered in it comes later."""

Page = tuple[Any, ...]
"""What is stored of a message: its id, the copy, and the content."""

Event = tuple[Any, ...]
"""Something that reaches the node, see ``Alone.reach``."""


def mailbox(number: int, hop: str) -> str:
    """The address of that recipient."""
    return f"user{number}@{hop}"


class Patient(Node):
    """It reads what it stores when the explorer says so."""

    def _scrub(self) -> None:
        """Not at fixed times: it would be in other states at each of them."""

    def spread(self) -> Spread:
        """Members are given requests when a contact begins or something changes, and not again and again."""
        return Spread(math.inf)


class Alone(World):
    """The world of that one node."""

    def __init__(self, policy: Policy, places: tuple[Any, ...], index: int, *, commits_apart: bool) -> None:
        self.index = index
        super().__init__(0, policy, places)
        self.random = Midway()  # type: ignore[assignment]
        self.now = Instant(1.0)
        self.noise = Noise(delay=(0.005, 0.005), commit=(0.002, 0.002))
        self.commits_apart = commits_apart
        self.todo: list[Due] = []
        self.sent: list[tuple[Any, ...]] = []
        self.calls: dict[int, Callable[..., None]] = {}
        self.vain: set[int] = set()  # calls that nobody will answer
        self.minted = 0
        self.page: Page = ()  # of one message, as it was when it was noted
        self.stale: set[MessageId] = set()  # messages of which a page of before was put back
        self.me = places[index].name
        for place in places:
            self.nodes[place.name] = Elsewhere(self, place.name)  # type: ignore[assignment]
        for name in ("example.net", "inside.example", "back"):
            self.hops[NextHop(name)] = Beyond(self, NextHop(name))  # type: ignore[assignment]
        self.node = Patient(self, places[index], Rules(self), sql=False)
        self.nodes[self.me] = self.node

    def compare_wish(self, message_id: MessageId, tls: TlsWish | None) -> None:
        """Every message came with REQUIRETLS, and so does what is made of it."""
        if tls is not TlsWish.REQUIRED:
            raise Broken(f"REQUIRETLS: {self.me} sends {message_id} without it")

    def session(self, *, copies: bool) -> int:
        """The lowest number of this process, for that purpose, that is not in use."""
        peers = self.node.peers
        used = {session.number for session in (peers.shadow if copies else peers.open).values()}
        first = self.index * 1000 + self.node.generation * 20 + 10 * copies
        return next(number for number in range(first, first + 10) if number not in used)

    def token(self, bits: int) -> str:
        self.minted += 1
        return f"{self.index + 1:x}{self.minted:0{bits // 4 - 1}x}"

    def put(self, *packet: Any) -> None:
        """It leaves the node."""
        self.sent.append(packet)

    def used(self) -> frozenset[int]:
        """Sessions that this process has opened, or is opening."""
        peers = self.node.peers
        opened = {session.number for session in (*peers.open.values(), *peers.shadow.values())}
        return frozenset(opened | {number // 64 for number in self.calls})

    def call(self, reply: Callable[..., None], line: int) -> int:
        """Its number depends on the session, not on what else is said meanwhile."""
        number = next(number for number in range(64 * line, 64 * line + 64) if number not in self.calls)
        self.calls[number] = reply
        return number

    def after(self, delay: float, run: Callable[..., None], *arguments: Any) -> None:
        owner = getattr(run, "__self__", None)
        if isinstance(owner, Elsewhere):
            return
        if isinstance(owner, Beyond):
            _, generation, _, message_id, recipients, content, finish = arguments
            self._compare(message_id, owner.name, recipients, content)
            numbers = tuple(number for number, _ in recipients)
            number = self.call(
                finish, FIRST_SEND // 64 + 10 * (int(message_id[-4:], 16) % 500) + min(numbers)
            )
            self.put("send", self.me, generation, number, message_id, owner.name, numbers, 0)
            return
        at = int(self.now) + (0 if delay < QUICK else max(1, math.ceil(delay - QUICK)))
        self.todo.append(Due(run, arguments, at))

    def _compare(
        self, message_id: MessageId, hop: str, recipients: tuple[tuple[int, str], ...], content: bytes
    ) -> None:
        """What leaves for a next hop is what its sender sent, or a report, for those it was sent to."""
        if hop == "back":
            whole, mailboxes = content.startswith(f"report {message_id} made by".encode()), {(1, SENDER)}
        else:
            copy = self.node.ledger.copy(message_id)
            original = copy.content_of if copy and copy.content_of else message_id
            whole, mailboxes = content == original.encode(), {(n, mailbox(n, hop)) for n, _ in recipients}
        if not whole:
            raise Broken(f"DAMAGED: {self.me} sends {content!r}")
        if not mailboxes >= set(recipients):
            raise Broken(f"WRONG MAILBOX: {self.me} sends to {recipients}")

    def carry(self, source: str, target: str, arrive: Callable[[], None], *, quiet: bool = False) -> bool:
        if source == self.me and (source, target) in self.blocked:
            return False
        arrive()
        return True

    def end(self) -> None:
        """Nobody needs it any more. Its parts know one another, so they would wait for the collector."""
        vars(self.node).clear()
        vars(self).clear()

    # What reaches the node.

    def reach(self, event: Event) -> None:
        policy = self.policy
        if isinstance(policy, OpenPolicy):
            reject = event[0] == "reject"
            event = event[1:] if reject else event
            policy.answer(reject=reject)
        kind, *given = event
        getattr(self, f"_{kind}")(*given)
        self._settle()
        self.node.versions.clear()  # pages are noted when a fault begins
        if isinstance(policy, OpenPolicy) and policy.asked:
            self.put("asked")

    def steps(self) -> list[Due]:
        """What the process itself may do now."""
        return [entry for entry in self.todo if entry.at <= self.now]

    def _step(self, position: int) -> None:
        entry = self.steps()[position]
        self.todo.remove(entry)
        entry.run(*entry.arguments)

    def _second(self) -> None:
        """A second has passed."""
        self.now = self.now + 1.0

    def _request(
        self,
        caller: str,
        generation: int,
        number: int,
        session: int,
        lines: tuple[Any, ...],
        given_up: tuple[int, ...],
    ) -> None:
        """``given_up``: earlier calls of that caller on whose answers it does not wait any more."""
        reply = Reply(self, ServerName(caller), generation, number)
        if self.node.frozen:
            self._said_before(session, lines, reply, given_up)
        self.node.attend(self.node.peers.serve, session, lines, reply)

    def _said_before(
        self, session: int, lines: tuple[Any, ...], reply: Reply, given_up: tuple[int, ...]
    ) -> None:
        """A frozen process has the same request waiting, on which its caller has given up, and nothing but
        requests came since: answering both would come to the same as answering the last.
        """
        deferred = self.node.deferred
        for position in range(len(deferred) - 1, -1, -1):
            run, given = deferred[position]
            if run != self.node.peers.serve:
                return
            before = given[2]
            caller = before.to == reply.to and before.generation == reply.generation
            if caller and given[:2] == (session, lines) and before.number in given_up:
                del deferred[position]
                self.put("unanswered", before.to, before.generation, before.number)
                return

    def _answer(self, number: int, answer: tuple[str, ...]) -> None:
        self.vain.discard(number)
        self.calls.pop(number)(answer)

    def _taken(self, number: int, recipients: tuple[int, ...] | None) -> None:
        """The next hop took it; None: its reply does not come."""
        answers = None if recipients is None else dict.fromkeys(recipients, "250 2.0.0 Taken")
        self.calls.pop(number)(answers, ())

    def _refused(self, number: int, recipients: tuple[int, ...] | None) -> None:
        """The next hop refused it for good."""
        answers = None if recipients is None else dict.fromkeys(recipients, "550 5.1.1 No such user")
        self.calls.pop(number)(answers, ())

    def _deferred(self, number: int, recipients: tuple[int, ...]) -> None:
        """The next hop wants it later."""
        self.calls.pop(number)(dict.fromkeys(recipients, "451 4.3.2 Not now"), ())

    def _hung_up(self, session: int) -> None:
        """Its caller will not use that session any more."""
        self.node.peers.speakers.pop(session)

    def _vain(self, number: int) -> None:
        self.vain.add(number)

    def _reset(self, name: str) -> None:
        self.node.reset_from(ServerName(name), self.node.generation)

    def _message(self, message_id: MessageId, hops: tuple[str, ...]) -> None:
        """A sender's message, complete. Its age plays no part, so it has none."""
        recipients = tuple(Recipient(n, mailbox(n, hop), NextHop(hop)) for n, hop in enumerate(hops, 1))
        envelope = Envelope(sender=SENDER, size=len(message_id), tls=TlsWish.REQUIRED)
        arrival = Arrival(
            id=message_id,
            envelope=envelope,
            recipients=recipients,
            digests=Digests(of_content(message_id.encode()), of_envelope(envelope, recipients)),
            received_at=START,
        )
        self.node.attend(
            self.node.receive,
            arrival,
            lambda answer: self.put("reply", message_id, answer),
        )

    def _ask(self) -> None:
        """An operator asks for what was delivered before the exploration began."""
        request = Request(
            id=RequestId("01900000-0000-7000-9000-000000000001"),
            number=0,
            made_by=self.places[0].name,  # whoever was asked: it is the same request,
            made_at=START,
            operator="op",
            reason="",
            selector=WINDOW,
            changed_by=self.places[0].name,
            changed_at=START,
        )
        self.node.attend(operators.put, self.node, request)

    def _remove(self, message_id: MessageId, numbers: tuple[int, ...]) -> None:
        """An operator removes the message for these recipients."""
        self.node.attend(give, self.node, Verb.REMOVE, message_id, numbers)

    def _hand_over(self) -> None:
        self.node.attend(self.node.hand_over)

    def _links(self, blocked: tuple[tuple[str, str], ...]) -> None:
        self.blocked = set(blocked)

    def _freeze(self) -> None:
        self.node.freeze()

    def _thaw(self) -> None:
        self.node.thaw()

    def _kill(self) -> None:
        self.node.crash()
        self.todo.clear()
        self.calls.clear()
        self.vain.clear()

    def _open(self) -> None:
        """What was saved of the time is of another moment: one situation stands for many of them."""
        self.node.ledger.state.reckoning = None
        self.node.open()

    def _new_disk(self) -> None:
        self.node.lose_disk()

    def _snapshot(self) -> None:
        self.node.snapshots.append(self.node.ledger.snapshot())

    def _roll_back(self) -> None:
        self.node.roll_back(self.node.snapshots.pop())

    # What a disk does by itself: see ``tests.simulation.rot``.

    def _content(self, message_id: MessageId) -> None:
        """Whatever is wrong with a content, its digest says no more than that it is another one."""
        state = self.node.ledger.state
        keeper = state.keeper(message_id)
        self.hit |= {(self.me, one) for one in (message_id, keeper, *state.users(keeper))}
        state.contents[keeper] = b"damaged"

    def _row(self, message_id: MessageId) -> None:
        self.hit.add((self.me, message_id))
        self.node.ledger.rot_row(message_id)

    def _note_page(self, message_id: MessageId) -> None:
        state = self.node.ledger.state
        self.page = (message_id, state.copies.get(message_id), state.content(message_id))

    def _forget_page(self, message_id: MessageId) -> None:
        """The page is the one of before there was anything of that message."""
        self.page = (message_id, None, None)
        self._put_page_back()

    def _put_page_back(self) -> None:
        message_id, copy, content = self.page
        self.page = ()
        self.stale.add(message_id)
        self.hit.add((self.me, message_id))
        self.node.ledger.put_back(message_id, copy, content)

    def _scrub(self) -> None:
        """It reads everything that it stores, to find damage before it is needed."""
        for message_id in tuple(self.node.ledger.state.copies):
            self.node.attend(self.node.read, message_id)

    def _resume(self, message_id: MessageId) -> None:
        """What was set aside has turned up, and an operator asks for it: what ``message resume`` does."""
        self.node.attend(
            self.node.transact, lambda b: b.apply(resume(b, message_id, self.node.clock())), lambda _: None
        )

    def _age(self, message_id: MessageId) -> None:
        """Kept for so long that its owner is asked before it goes: what ``safety_net.expiry`` does."""

        def work(ledger: Transaction) -> None:
            copy = ledger.copy(message_id)
            if copy is not None and copy.held and copy.owner in self.node.boundary.reachable():
                ledger.apply(saved(copy, replace(copy, check_at=self.node.clock())))

        self.node.attend(self.node.transact, work, lambda _: None)

    def _acquainted(self, disk: Any, delay: int) -> None:
        """Begin as a member that everybody knows, and that turns to the others after so many seconds."""
        node = self.node
        node.open()
        node.ledger.restore(disk)
        node.durable = node.ledger.lineage
        node.boundary._turn = 0
        at = self.now + delay
        self.todo = [entry for entry in self.todo if not runs(entry, Node._talk)]
        for other in node.others:
            node.boundary.answered(other.name, self.now)
            node.next_talk[other.name] = at
            self.todo.append(Due(node._due, (node.generation, node._talk, (other.name, at)), int(at)))

    def _settle(self) -> None:
        """End a step: what the node does of its own accord begins at once, and groups become durable (unless
        commits are steps of their own). The obsolete goes.
        """
        while entry := next((e for e in self.steps() if self._is_prompt(e)), None):
            self.todo.remove(entry)
            entry.run(*entry.arguments)
        self.todo = [entry for entry in self.todo if not self._obsolete(entry)]
        for number in [number for number in self.vain if is_over(self.calls[number])]:
            del self.calls[number]
            self.vain.discard(number)

    def _is_prompt(self, entry: Due) -> bool:
        if runs(entry, Node.tick):  # it looks at the queue too: not before the look that is a step
            return not any(runs(other, Node.pump) for other in self.steps())
        return runs(entry, Node._talk) or (runs(entry, Node._commit) and not self.commits_apart)

    def _obsolete(self, entry: Due) -> bool:
        """Would nothing come of it? Only what is certain: anything else is tried."""
        run, arguments = entry.run, entry.arguments
        if run != self.node._due:
            return False
        generation, inner, given = arguments
        if generation != self.node.generation or is_over(inner):
            return True
        return runs(entry, Node._talk) and self.node.next_talk.get(given[0]) != given[1]
