"""The nodes at both sides of a hop: what is on their disks, and what the production code makes of it.

A disk is a number: each state of a transport database is kept once. So is a script: what it was begun with,
and what it was told since. Whatever a node does to one disk is worked out once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any, NamedTuple

from shadowrelay.core.decisions import Content
from shadowrelay.core.delivery.hop_shadows import send_again, to_send_again
from shadowrelay.core.digests import of_content, of_envelope
from shadowrelay.core.hops import Handed
from shadowrelay.core.identifiers import DatabaseId, Incarnation, MessageId, NextHop, ServerName
from shadowrelay.core.members import hops
from shadowrelay.core.members.concluding import QuestionState, conclude
from shadowrelay.core.messages import Confirmation, Copy, Digests, Envelope, Reason, Recipient
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.redundancy import Answer, Arrival
from shadowrelay.core.steps import AnyStep, Script, Transact
from shadowrelay.core.tracking import HopDiscard, SentAgain
from shadowrelay.delivery.hop_talk import greet, poll
from shadowrelay.delivery.queue import deliver
from shadowrelay.reception.two_copies import make_redundant
from shadowrelay.wire import hops as grammar
from tests.simulation.memory_ledger import MemoryLedger, State
from tests.simulation.world import START

A, B = ServerName("a.example"), ServerName("b.example")
NAMES = (A, B)
OUT = NextHop("out")
POLICY = Policy(shadow_heartbeat_retry_count=2)
TEXT = b"the message"
NOBODY = QuestionState(
    by=frozenset(),
    reachable=frozenset(),
    confirmed=False,
    waited=True,
    forgotten=False,
    sound=True,
)
"""There is no member to ask, so what a lone node asks about after an opening is concluded at once."""


def clock() -> Any:
    """Time stands still: nothing that is explored expires."""
    return START


def arrival(number: int, side: int, handed: Handed | None = None) -> Arrival:
    """The message as it comes to a node for the ``number``-th time."""
    envelope = Envelope(sender="sender@example.org", size=len(TEXT))
    recipients = (Recipient(1, "user@example.net", OUT),)
    return Arrival(
        id=message_id(number, side),
        envelope=envelope,
        recipients=recipients,
        digests=Digests(of_content(TEXT), of_envelope(envelope, recipients)),
        received_at=START,
        handed=handed,
    )


def message_id(number: int, side: int) -> MessageId:
    return MessageId(f"01900000-0000-7000-8000-{side:06x}{number:06x}")


class Told(NamedTuple):
    """A row of the tracking log that matters here: what left the shadow queue of the hop, and why."""

    kind: str
    message_id: MessageId
    original: MessageId | None = None
    reason: Reason | None = None


class Done(NamedTuple):
    """The disk afterwards, what the work returned, and what the tracking log says of it."""

    disk: int
    result: Any
    told: tuple[Told, ...]


def _key(state: State) -> tuple[Any, ...]:
    rows = (
        state.copies,
        state.contents,
        state.shared,
        state.outcomes,
        state.events,
        state.hop_peers,
        state.hop_shadows,
        state.handed,
    )
    return (
        state.database_id,
        state.last_event,
        state.sequence,
        state.incarnations,
        *(tuple(sorted(kept.items(), key=lambda item: item[0])) for kept in rows),
    )


def _nobody(_: Any) -> None:
    """Whom to offer a copy: a lone node has no member."""


_BEGUN: dict[str, Callable[..., Script[Any]]] = {
    "take": lambda came: make_redundant(came, Content(data=TEXT), _nobody, POLICY, clock, START),
    "deliver": lambda copy: deliver(copy, OUT, copy.unsettled, clock),
    "greet": lambda: greet(B),
    "poll": lambda: poll(B, clock),
}


class Scripts:
    """Scripts between two steps, by number: begun again and told the same, each comes to the same step."""

    def __init__(self) -> None:
        self._known: list[tuple[str, tuple[Any, ...], tuple[Any, ...]]] = []
        self._numbers: dict[Any, int] = {}
        self._at: dict[int, tuple[AnyStep | None, Any]] = {}

    def begin(self, kind: str, *given: Any) -> int:
        return self._number(kind, given, ())

    def tell(self, number: int, answer: Any) -> int:
        """The script after its step had that result."""
        kind, given, answers = self._known[number]
        return self._number(kind, given, (*answers, answer))

    def at(self, number: int) -> tuple[AnyStep | None, Any]:
        """The step for whose result it waits; None and its own result, if it has ended."""
        if number not in self._at:
            kind, given, answers = self._known[number]
            script = _BEGUN[kind](*given)
            try:
                step = script.send(None)
                for answer in answers:
                    step = script.send(answer)
                self._at[number] = step, None
                script.close()
            except StopIteration as end:
                self._at[number] = None, end.value
        return self._at[number]

    def _number(self, kind: str, given: tuple[Any, ...], answers: tuple[Any, ...]) -> int:
        key = kind, given, answers
        number = self._numbers.setdefault(key, len(self._known))
        if number == len(self._known):
            self._known.append(key)
        return number


class Side:
    """One node: A, which hands over, or B, the hop."""

    def __init__(self, number: int, scripts: Scripts) -> None:
        self.number = number
        self.name = NAMES[number]
        self.scripts = scripts
        self._states: list[State] = []
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._done: dict[tuple[Any, ...], Done] = {}

    def __len__(self) -> int:
        return len(self._states)

    def state(self, disk: int) -> State:
        return self._states[disk]

    def keep(self, state: State) -> int:
        number = self._numbers.setdefault(_key(state), len(self._states))
        if number == len(self._states):
            self._states.append(state)
        return number

    def new(self, run: int) -> int:
        """An empty database, made at that start of the node."""
        return self.keep(State(DatabaseId(f"6f0d7a3e-0000-4000-8000-{self.number:06x}{run:06x}")))

    def do(self, disk: int, what: str, *given: Any) -> Done:
        """Work on that disk, in a transaction that commits."""
        key = disk, what, given
        if key not in self._done:
            ledger = MemoryLedger(self.name, self._states[disk].snapshot())
            result = getattr(self, f"_{what}")(ledger, *given)
            told = tuple(_told(ledger))
            ledger.commit()
            self._done[key] = Done(self.keep(ledger.state), result, told)
        return self._done[key]

    def _open(self, ledger: MemoryLedger, run: int) -> None:
        ledger.open(Incarnation(f"{self.number + 10:x}{run:015x}"), START)
        while ledger.carry_on():
            pass
        for question in ledger.open_questions(MessageId(""), 100):
            if copy := ledger.copy(question.message_id):
                conclude(ledger, copy, question, NOBODY, POLICY, START)

    def _step(self, ledger: MemoryLedger, script: int) -> int:
        """The script's transaction; the result: the script after it."""
        step, _ = self.scripts.at(script)
        assert isinstance(step, Transact)
        return self.scripts.tell(script, step.work(ledger))

    def _due(self, ledger: MemoryLedger) -> tuple[Copy, ...]:
        """What the queue would claim, but for what is claimed already."""
        return tuple(
            copy
            for copy in ledger.state.copies.values()
            if copy.owned and copy.unsettled and copy.confirmation is Confirmation.NONE
        )

    def _ours(self, ledger: MemoryLedger, of: MessageId) -> bool:
        """May the attempt go on? What ``StillOurs`` looks at."""
        copy = ledger.copy(of)
        return copy is not None and copy.owned and bool(copy.unsettled)

    def _rows(self, ledger: MemoryLedger) -> bool:
        return bool(ledger.state.hop_shadows)

    def _events(self, ledger: MemoryLedger) -> bool:
        return bool(ledger.state.events)

    def _holds(self, ledger: MemoryLedger) -> bool:
        """Is there a message that has to go on, or may have to?"""
        copies = ledger.state.copies.values()
        return bool(ledger.state.hop_shadows) or any(copy.unsettled for copy in copies)

    # A: what the hop has failed to deliver.

    def _again(
        self, ledger: MemoryLedger, failed: Reason | None, ways: Collection[NextHop]
    ) -> tuple[MessageId, ...]:
        """What ``HopShadows.send_again`` does. The result: the messages that were made."""
        rows = [row for row in ledger.hop_shadows(B)[0] if to_send_again(ledger, row, failed, ways)]
        return tuple(send_again(ledger, rows, failed, ways, (), START))

    # B: what a session of A says, as text. The result is the answer, with our mark.

    def _said(self, ledger: MemoryLedger, verb: str, text: str, introduced: str, number: int) -> str:
        answer = getattr(self, f"_{verb}")(ledger, text, introduced, number)
        return f"{answer} {ledger.lineage.mark}"

    def _xshadow(self, ledger: MemoryLedger, text: str, _: str, __: int) -> str:
        met = hops.called(ledger, grammar.parse_greeting(text), ())
        return "451" if isinstance(met, hops.Unwelcome) else f"250 {grammar.format_greeting(met[0])}"

    def _xqdiscard(self, ledger: MemoryLedger, text: str, introduced: str, _: int) -> str:
        said = hops.asked(ledger, grammar.parse_greeting(introduced), grammar.parse_query(text), START)
        lines = [grammar.format_line(line) for line in said.lines]
        return "\n".join(["250", *lines, ""]) if lines else "251"

    def _data(self, ledger: MemoryLedger, text: str, introduced: str, number: int) -> str:
        handed = None
        if introduced:
            giver, (mail, rcpt) = grammar.parse_greeting(introduced), text.split()
            handed = Handed(
                message_id(number, self.number),
                giver.name,
                giver.lineage.database_id,
                grammar.parse_tracked(mail),
                (grammar.parse_fork(rcpt),),
            )
        script = self.scripts.begin("take", arrival(number, self.number, handed))
        script = self._step(ledger, script)
        step, decided = self.scripts.at(script)
        assert step is None
        assert decided.record is None
        return "250" if decided.answer in {Answer.ACCEPTED, Answer.REPEATED} else "451"

    def whose(self, disk: int, of: MessageId) -> MessageId:
        """A's id of that message of B's."""
        handed = self._states[disk].handed.get(of)
        return handed.their_id if handed else MessageId("")


def _told(ledger: MemoryLedger) -> list[Told]:
    found = []
    for event in ledger.tracked:
        if isinstance(event, HopDiscard):
            found.append(Told("discarded", event.copy.id))
        elif isinstance(event, SentAgain):
            found.append(Told("sent again", event.copy.id, event.original, event.reason))
    return found


NO_PAUSE = timedelta(0)
