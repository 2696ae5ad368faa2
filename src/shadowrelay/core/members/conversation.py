"""The conversation of two members, without offers: greetings, discard events, questions and answers.

Both ends are here: ``introduce`` and ``ask`` make what a caller says, ``asked`` answers it, ``met`` and
``told`` apply what was heard. ``wire`` has the spelling; the database remembers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from shadowrelay.core.decisions import OpenQuestion, Verdict, VerdictKind
from shadowrelay.core.events import discard
from shadowrelay.core.events.said_again import said_again
from shadowrelay.core.identifiers import DatabaseId, Incarnation, Lineage, Mark, MessageId, ServerName
from shadowrelay.core.ledger import Ledger, Transaction
from shadowrelay.core.members import answers, damage, questions
from shadowrelay.core.members.claims import Claim, Sighting, claim_of, judge, vouches, yields_to
from shadowrelay.core.members.damage import Wanted
from shadowrelay.core.members.questions import Speaker
from shadowrelay.core.messages import Copy
from shadowrelay.core.ownership import chores, heartbeat
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.arrivals import in_question
from shadowrelay.core.reception.holding import revoke, too_early
from shadowrelay.core.values import dataclass

MAX_LINES = 200
"""How many lines one answer to XQDISCARD may have."""

MAX_QUESTIONS = 60
"""How many ids one XQDISCARD may ask about, so that its line stays below 4,096 octets."""

CHECKS = 20
"""How many of them have room for copies whose ``check_at`` has come, however many questions are open."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """Who a member is: its name, the lineage as far as the listener needs it, and what it knows of ours.

    ``time``: what its wall clock says, in milliseconds; None if it does not tell.
    """

    name: ServerName
    lineage: Lineage
    known: Incarnation | None = None
    version: int = 5  # of the protocol, as this session speaks it
    time: datetime | None = None

    @property
    def speaker(self) -> Speaker:
        return Speaker(self.name, self.lineage.database_id, self.lineage.mark, self.version)


@dataclass(frozen=True, slots=True)
class Question:
    """*I have this message at this epoch; what do you know of it?*

    ``rank`` is given only if the asker owns the message, or claims a copy. ``damaged``: the asker's copy
    cannot be relied on.
    """

    message_id: MessageId
    epoch: int
    rank: int | None = None
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class Revocation:
    """*Drop that copy, and refuse it if it is still on its way.*"""

    message_id: MessageId
    epoch: int
    rank: int


@dataclass(frozen=True, slots=True)
class Query:
    """One XQDISCARD command: *give me up to* ``most`` *events; I applied those up to* ``after``.

    ``claimed``: copies whose promotion is pending, all with the owner and the reason of ``claim``, each with
    the asker's rank as a holder.
    """

    most: int
    at: Mark | None = None
    after: Mark | None = None
    questions: tuple[Question, ...] = ()
    revoke: Revocation | None = None
    sighting: Sighting | None = None
    claim: Claim | None = None
    claimed: tuple[Question, ...] = ()
    wanted: Wanted | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the answer. ``event`` is the event's number, None for the answer to a question."""

    event: int | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class QueryResponse:
    """The answer that this node gives to a query.

    ``seen``: the member that SEEN asked about, if this node had contact with it. ``give``: the message whose
    good copy is offered to the asker after this answer.
    """

    lines: tuple[Line, ...]
    seen: ServerName | None = None
    give: MessageId | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """The whole answer that a member gave, with its mark."""

    lines: tuple[Line, ...]
    mark: Mark
    seen: ServerName | None = None


class InquiryView(Protocol):
    """The process's memory of members' answers (``members.inquiry``), as far as a conversation needs it."""

    def forgotten(self, since: datetime | None) -> bool | None:
        """May all members have forgotten what is in question since then? None: it is not known yet."""
        ...

    def unasked(self, ledger: Ledger, member: ServerName, most: int) -> Sequence[OpenQuestion]:
        """Up to ``most`` open questions that this member has not answered yet: the next call goes on after
        them, and round again.
        """
        ...

    def go_on_after(self, member: ServerName, message_id: MessageId) -> None:
        """The questions behind this one were not asked: the next call of ``unasked`` begins with them."""
        ...

    def asked_again(self, member: ServerName, most: int) -> Sequence[MessageId]:
        """Up to ``most`` messages that this member is to be asked about once more; each is returned once."""
        ...

    def note(self, copy: Copy, member: ServerName, *, confirmed: bool = False) -> None:
        """This member has answered about the message; ``confirmed``: it holds a copy for us."""
        ...

    def forget(self, message_id: MessageId) -> None:
        """There is nothing more to ask about this message."""
        ...


def introduce(ledger: Ledger, to: ServerName) -> Greeting:
    """Our greeting for that member: the lineage goes back to the incarnation that the member knows."""
    member = ledger.member(to)
    lineage = ledger.lineage.since(member.knows_ours if member else None)
    return Greeting(ledger.name, lineage, member.lineage.incarnation if member and member.lineage else None)


def met(
    ledger: Transaction,
    theirs: Greeting,
    now: datetime,
    *,
    after_silence: bool,
    asked_at: Lineage | None = None,
) -> None:
    """A member introduced itself, as the caller or in answer to our greeting.

    ``asked_at``: for an answer, the member's lineage as we knew it when we asked.
    """
    heartbeat.meet(
        ledger,
        theirs.name,
        theirs.lineage,
        theirs.known,
        now,
        after_silence=after_silence,
        asked_at=asked_at,
    )


def ask(ledger: Ledger, to: ServerName, inquiry: InquiryView, now: datetime, version: int = 4) -> Query:
    """The next XQDISCARD for that member: it fetches events, and asks about copies.

    It asks about messages that may not be delivered before the members are asked, copies whose promotion is
    pending, copies held for that member whose ``check_at`` has come, and messages to be asked about again.
    ``version`` is the protocol version of the session.
    """
    member = ledger.member(to)
    due: dict[MessageId, Copy] = {}
    claim: Claim | None = None
    claimed: list[Question] = []
    before = left_out_after = None
    checks = list(ledger.copies_to_check(to, now, CHECKS))
    for question in inquiry.unasked(ledger, to, MAX_QUESTIONS - len(checks)):
        copy = in_question(ledger, question.message_id)
        claims = claim_of(copy) if copy else None
        if copy and claims is None:
            due[copy.id] = copy
        elif copy and claim in {None, claims}:
            claim = claims
            claimed.append(Question(copy.id, copy.epoch, copy.rank, copy.damaged and version > 1))
        elif copy and not left_out_after:
            left_out_after = before
        before = question.message_id
    if left_out_after:  # one command has one claim
        inquiry.go_on_after(to, left_out_after)
    room = MAX_QUESTIONS - len(due) - len(claimed)
    if len(checks) == CHECKS < room:
        checks = list(ledger.copies_to_check(to, now, room))
    due.update((copy.id, copy) for copy in checks if copy.id not in due)
    for message_id in inquiry.asked_again(to, MAX_QUESTIONS - len(due) - len(claimed)):
        again = ledger.copy(message_id)
        if again and questions.shared_with(again, to):
            due.setdefault(again.id, again)
    return Query(
        MAX_LINES,
        ledger.lineage.mark,
        member.applied if member else None,
        tuple(
            Question(c.id, c.epoch, c.rank)
            if c.unfinished
            else Question(c.id, c.epoch, damaged=c.damage is not None and version > 1)
            for c in due.values()
        ),
        claim=claim,
        claimed=tuple(claimed),
    )


def asked(
    ledger: Transaction,
    asker: Speaker,
    query: Query,
    in_flight: Collection[MessageId],
    sighted: Collection[ServerName],
    policy: Policy,
    now: datetime,
    *,
    closed: bool = False,
) -> QueryResponse:
    """Answer one XQDISCARD. Questions about ids ``in_flight`` get no line.

    ``sighted``: members with which this node had contact within three heartbeats. ``closed``: this node is
    being opened, and answers *pending* about every message, so that the member asks again.
    A query from a process that has a successor is late, and nobody waits for the answer: ``_has_successor``.
    """
    if _has_successor(ledger, asker):
        return QueryResponse(())
    if query.at:
        ledger.apply(heartbeat.heard(ledger, asker.name, query.at))
    if query.after:
        ledger.apply(discard.acknowledge(asker.database_id, query.after))
    lines: list[Line] = []
    if query.revoke:
        gone = query.revoke
        verdict = ledger.apply(
            revoke(ledger, asker.name, gone.message_id, gone.epoch, gone.rank, policy, now)
        )
        lines.append(Line(None, verdict))
    closed = closed or chores.closed(ledger)
    for question in query.questions:
        if question.message_id in in_flight:
            continue
        if closed:
            lines.append(_not_yet(question.message_id, question.epoch))
            continue
        id_, epoch, rank = question.message_id, question.epoch, question.rank
        said = answers.answer(ledger, asker, id_, epoch, rank, now, damaged=question.damaged)
        lines += [Line(None, _spoken(verdict, asker, rank)) for verdict in ledger.apply(said)]
    for question in query.claimed:
        id_, epoch, rank = question.message_id, question.epoch, question.rank or 0
        if closed:
            lines.append(_not_yet(id_, epoch))
        elif query.claim and id_ not in in_flight:
            judged = judge(
                ledger, asker, query.claim, id_, epoch, rank, sighted, now, damaged=question.damaged
            )
            lines += [Line(None, _spoken(verdict, asker, rank)) for verdict in ledger.apply(judged)]
    give: MessageId | None = None
    if query.wanted and closed:
        lines.append(_not_yet(query.wanted.message_id, query.wanted.epoch))
    elif query.wanted and query.wanted.message_id not in in_flight:
        verdicts, give = ledger.apply(damage.answer(ledger, asker, query.wanted, now))
        lines += [Line(None, verdict) for verdict in verdicts]
    room = max(0, min(query.most, MAX_LINES - len(lines)))
    lines += [Line(event.number, event.verdict) for event in ledger.events_for(asker.database_id, room)]
    ledger.apply(said_again(ledger, ledger.take_unsound_events(), now))
    seen = query.sighting.owner if query.sighting and vouches(ledger, sighted, query.sighting) else None
    return QueryResponse(tuple(lines), seen, give)


def _spoken(verdict: Verdict, asker: Speaker, rank: int | None) -> Verdict:
    return answers.for_version_1(verdict, rank) if asker.version == 1 else verdict


def _not_yet(message_id: MessageId, epoch: int) -> Line:
    return Line(None, Verdict(message_id, epoch, VerdictKind.PENDING))


def told(
    ledger: Transaction,
    speaker: Speaker,
    query: Query,
    lines: Sequence[Line],
    inquiry: InquiryView,
    policy: Policy,
    now: datetime,
) -> bool:
    """Apply a whole answer in one transaction. True if there is more to fetch or to ask at once.

    Nothing of the answer counts if the process that gave it has a successor by now: see ``_has_successor``.
    An order to stop counts only when no attempt is under way any more (``holding.too_early``). Until then it
    is not applied, and no event from it on is acknowledged: the next poll brings these events again. That an
    owner does not know a message counts only once it is known how long this node was away.
    """
    if _has_successor(ledger, speaker):
        return False
    ledger.apply(heartbeat.heard(ledger, speaker.name, speaker.mark))
    checked = {q.message_id: copy.check_at for q in query.questions if (copy := ledger.copy(q.message_id))}
    early = [
        line
        for line in lines
        if too_early(ledger, line.verdict) or _not_yet_known(ledger, line.verdict, speaker, inquiry)
    ]
    for line in lines:
        if line in early:
            continue
        owner = _database_of(ledger, speaker, line.verdict)
        ledger.apply(questions.learn(ledger, line.verdict, speaker, owner, policy, now))
    first = min((line.event for line in early if line.event is not None), default=None)
    events = [line.event for line in lines if line.event is not None]
    last = max((event for event in events if first is None or event < first), default=None)
    if last is not None:
        ledger.apply(discard.applied(ledger, speaker.name, Mark(speaker.mark.incarnation, last)))
    answered = {line.verdict.message_id for line in lines if line.event is None}
    answered -= {line.verdict.message_id for line in early}
    pending = {line.verdict.message_id for line in lines if _waits(ledger, line.verdict, speaker)}
    confirmed = {line.verdict.message_id for line in lines if _confirms(line.verdict)}
    for question in (*query.questions, *query.claimed):
        copy = in_question(ledger, question.message_id)
        if copy is None:
            inquiry.forget(question.message_id)
        elif copy.id in answered - pending:
            inquiry.note(copy, speaker.name, confirmed=copy.id in confirmed)
        if copy is None or copy.check_at is None or copy.check_at > now:
            continue
        asked_as_holder = (question.message_id, question.epoch, question.rank) == (copy.id, copy.epoch, None)
        as_its_holder = speaker.name == copy.owner and asked_as_holder
        if as_its_holder and copy.check_at == checked[copy.id]:  # the answer left it out, or decided nothing
            ledger.apply(questions.check_later(copy, now + policy.orphan_check_interval))
    more_to_ask = len(query.questions) + len(query.claimed) >= MAX_QUESTIONS and bool(answered - pending)
    return more_to_ask or (len(lines) >= MAX_LINES and not early)


def _not_yet_known(ledger: Ledger, verdict: Verdict, owner: Speaker, inquiry: InquiryView) -> bool:
    """The owner does not know the message: has it still to be found out whether it may have forgotten it?"""
    if verdict.kind is not VerdictKind.UNKNOWN:
        return False
    copy = ledger.copy(verdict.message_id)
    of_it = copy is not None and copy.held and copy.owner == owner.name and copy.pending is None
    return copy is not None and of_it and inquiry.forgotten(copy.confirm_since) is None


def _confirms(verdict: Verdict) -> bool:
    """Does the speaker have a copy of the message, in transit: for us, or like us for the silent owner?"""
    return verdict.kind is VerdictKind.YOURS or (
        verdict.kind is VerdictKind.PENDING and bool(verdict.argument)
    )


def _has_successor(ledger: Ledger, speaker: Speaker) -> bool:
    """Has that member introduced itself in another incarnation than the one that says this?

    Then these words are late: their process is gone, and its database may have been lost or put back since.
    *I hold it* would make us believe in a copy that is not there. The successor says and asks itself whatever
    still matters.
    """
    member = ledger.member(speaker.name)
    lineage = member.lineage if member else None
    return lineage is not None and lineage.incarnation != speaker.mark.incarnation


def _waits(ledger: Ledger, verdict: Verdict, speaker: Speaker) -> bool:
    """Must the speaker be asked again about this message?"""
    if verdict.kind is not VerdictKind.PENDING:
        return False
    copy = ledger.copy(verdict.message_id)
    return copy is None or yields_to(ledger, copy, verdict, speaker)


def _database_of(ledger: Ledger, speaker: Speaker, verdict: Verdict) -> DatabaseId | None:
    if verdict.kind is not VerdictKind.TAKEN:
        return None
    if verdict.argument == speaker.name:
        return speaker.database_id
    member = ledger.member(ServerName(verdict.argument))
    return member.lineage.database_id if member and member.lineage else None
