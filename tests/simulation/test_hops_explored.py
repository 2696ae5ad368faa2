"""Two boundaries of one node each, and one message: each single fault, at every moment, to the end.

The decisions are those of the nodes; only the order of steps is that of this test. A node is its ledger. A
fault hits once: a reply is lost, a node is put back to an earlier moment, the hop loses its disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from decision_inputs import arrival
from ledger_at_hand import NOW, A, B, LedgerAtHand, ledger_of, message

from shadowrelay.core.decisions import Content
from shadowrelay.core.delivery.hop_shadows import Tracker, send_again
from shadowrelay.core.delivery.settling import AttemptResult, Ending, Hop, settle
from shadowrelay.core.hops import Handed
from shadowrelay.core.identifiers import DatabaseId, Incarnation, MessageId
from shadowrelay.core.members import hop_discards, hops
from shadowrelay.core.members.conversation import Answered
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception import redundancy
from shadowrelay.core.reception.redundancy import Answer

LAX = Policy(reject_message_on_shadow_failure=False)
END = Hop("end", inside=False, mailbox=False)
ROUNDS = 12  # after which nothing may be left to do
STEPS = 5  # of a message that nothing happens to


@dataclass
class World:
    """The sender's ledger and the hop's, how they were before each step, and how often the message came."""

    sender: LedgerAtHand
    hop: LedgerAtHand
    delivered: int = 0
    runs: int = 0
    taken: int = 0
    before: list[tuple[object, object]] = field(default_factory=list)

    @classmethod
    def made(cls) -> World:
        recipients = message().recipients[:1]
        return cls(ledger_of(A, message(recipients=recipients)), ledger_of(B))

    def remember(self) -> None:
        self.before.append((self.sender.snapshot(), self.hop.snapshot()))

    # Faults

    def put_back(self, which: str, to: int) -> None:
        """A node has the database that it had before that step, in another incarnation."""
        ledger = getattr(self, which)
        ledger.restore(self.before[to][which == "hop"])
        self._begin(ledger)

    def wipe(self) -> None:
        """The hop loses its disk."""
        self.hop = ledger_of(B)
        self.hop.state.database_id = DatabaseId("another")
        self.hop.state.sequence = 0
        self.hop.state.incarnations = ()
        self._begin(self.hop)

    def _begin(self, ledger: LedgerAtHand) -> None:
        self.runs += 1
        state = ledger.state
        run = (Incarnation(f"{self.runs:016x}"), state.sequence, state.last_event + 1)
        state.incarnations = (*state.incarnations, run)
        ledger._lineage = None

    # Steps

    def greet(self) -> None:
        self.hop.apply(hops.met(self.hop, hops.introduce(self.sender, B)))
        asked_at = found.lineage if (found := self.sender.hop_peer(B)) else None
        self.sender.apply(hops.met(self.sender, hops.introduce(self.hop, A), asked_at))

    def hand_over(self, *, reply: bool = True) -> None:
        """Each message in the sender's queue."""
        for copy in list(self.sender.copies.values()):
            if not copy.unsettled:
                continue
            self.taken += 1
            ours = MessageId(f"01900000-0000-7000-8000-{0xABC000 + self.taken:012x}")
            handed = Handed(ours, A, self.sender.lineage.database_id, copy.id, (1,))
            came = replace(arrival(), id=ours, recipients=copy.recipients, handed=handed)
            answer = self.hop.apply(
                redundancy.accept(self.hop, came, Content(data=b"x"), [], LAX, NOW, last_resort=True)
            )
            assert answer in (Answer.ACCEPTED, Answer.REPEATED)
            if not reply:
                continue
            lineage = self.hop.lineage
            to = Hop("b", False, False, Tracker(B, lineage.database_id, lineage.mark))
            result = AttemptResult(1, Ending.ACCEPTED, "250")
            self.sender.apply(settle(self.sender, copy.id, [result], (), to, NOW))

    def deliver(self, *, reply: bool = True) -> None:
        for copy in list(self.hop.copies.values()):
            if copy.unsettled:
                self.delivered += 1
                if reply:
                    result = AttemptResult(1, Ending.ACCEPTED, "250")
                    self.hop.apply(settle(self.hop, copy.id, [result], (), END, NOW))

    def ask(self, *, reply: bool = True) -> None:
        query = hop_discards.ask(self.sender, B)
        said = hops.asked(self.hop, hops.introduce(self.sender, B), query)
        if reply:
            hop_discards.told(self.sender, B, Answered(said.lines, self.hop.lineage.mark), NOW)

    def send_again(self) -> None:
        rows, _ = self.sender.hop_shadows(B)
        send_again(self.sender, rows, None, (), (), NOW)


@dataclass(frozen=True)
class Trouble:
    """What happens before that step: a reply is lost (None), or a node is put back to before step ``to``."""

    at: int
    what: str
    to: int = 0

    def __str__(self) -> str:
        return f"{self.what}-{self.to}-before-{self.at}"


def troubles() -> Iterator[Trouble]:
    for at in range(2 * STEPS + 1):
        yield Trouble(at, "wipe")
        for to in range(at + 1):
            yield Trouble(at, "hop", to)
            yield Trouble(at, "sender", to)
        if at % STEPS in (2, 3, 4):
            yield Trouble(at, "reply lost")


def story(trouble: Trouble | None) -> World:
    world = World.made()
    step = 0

    def due() -> bool:
        """The fault happens now. Returns whether the reply of this step is to be lost."""
        nonlocal step
        world.remember()
        now, step = step, step + 1
        if trouble is None or trouble.at != now:
            return False
        if trouble.what == "wipe":
            world.wipe()
        elif trouble.what in ("hop", "sender"):
            world.put_back(trouble.what, trouble.to)
        return trouble.what == "reply lost"

    for _ in range(ROUNDS):
        due()
        world.greet()
        due()
        world.send_again()
        world.hand_over(reply=not due())
        world.deliver(reply=not due())
        world.ask(reply=not due())
    return world


def test_without_a_fault_the_message_comes_once_and_nothing_is_left() -> None:
    world = story(None)
    assert world.delivered == 1
    assert not world.sender.state.hop_shadows
    assert not world.hop.told
    assert all(not copy.unsettled for copy in world.sender.copies.values())


@pytest.mark.parametrize("trouble", list(troubles()), ids=str)
def test_no_single_fault_loses_the_message_and_few_repeat_it(trouble: Trouble) -> None:
    world = story(trouble)
    assert world.delivered >= 1
    assert all(not copy.unsettled for copy in world.sender.copies.values())
    assert all(not copy.unsettled for copy in world.hop.copies.values())
    if trouble.what == "reply lost":
        assert world.delivered == (2 if trouble.at % STEPS == 3 and trouble.at < STEPS else 1)
    elif trouble.what == "sender":  # the hop knows what it took, by the sender's own id and number
        assert world.delivered == 1
    else:  # the hop forgot what it had delivered
        assert world.delivered <= 2
    if trouble.what != "sender":
        assert not world.sender.state.hop_shadows
