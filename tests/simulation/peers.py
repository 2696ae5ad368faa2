"""Sessions between members: both ends of every exchange, in the text of the production wire functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from shadowrelay.core.decisions import Content
from shadowrelay.core.digests import of_content, of_envelope
from shadowrelay.core.greeting import greet
from shadowrelay.core.identifiers import Digest, Mark, MessageId, ServerName
from shadowrelay.core.ledger import Transaction
from shadowrelay.core.members import conversation
from shadowrelay.core.members.conversation import Answered, Greeting
from shadowrelay.core.messages import Digests, Status, TlsWish
from shadowrelay.core.operating import ActAnswer
from shadowrelay.core.ownership import chores
from shadowrelay.core.reception.by_reference import MadeOf, may_refer
from shadowrelay.core.reception.holding import OfferAnswer, ShadowCopyOffer, hold
from shadowrelay.core.reception.redundancy import Concern, Leg, OfferAttempt
from shadowrelay.core.replicating import Merging
from shadowrelay.core.steps import Ask, Greet, OfferCopy, Operate, Step, Unanswered
from shadowrelay.members.giving import TAKES, takes
from shadowrelay.members.sharing import RULES, received
from shadowrelay.smtp.members.offer import concern_of
from shadowrelay.wire.esmtp import (
    RCPT_KEYWORDS,
    WITH_REQUIRETLS,
    MailFrom,
    RcptTo,
    format_mail,
    format_rcpt,
    parse_mail,
    parse_rcpt,
)
from shadowrelay.wire.replies import NO_ROOM, parse_reply
from shadowrelay.wire.xoperate import format_act, format_answer, parse_act, parse_answer
from shadowrelay.wire.xqdiscard import (
    format_line,
    format_query,
    format_seen,
    parse_line,
    parse_query,
    parse_seen,
)
from shadowrelay.wire.xshadow import (
    OfferParameter,
    fork_of,
    format_fork,
    format_greeting,
    format_mark,
    format_offer,
    format_origin,
    format_unread,
    parse_fork,
    parse_greeting,
    parse_mark,
    parse_offer,
    parse_origin,
    parse_unread,
)

if TYPE_CHECKING:
    from .node import Node

OFFERED = frozenset({"SIZE", "8BITMIME", "SMTPUTF8", "DSN", "REQUIRETLS"})
MAIL_HERE = WITH_REQUIRETLS | {"XSHADOW", "XMADEOF"}
RCPT_HERE = RCPT_KEYWORDS | {"XFORK", "XUNREAD"}
SEND_IT = "450 4.6.0 "
RESET = "connection reset"
Reply = Callable[[tuple[str, ...]], None]


@dataclass(frozen=True, slots=True)
class Session:
    """A connection that we opened and on which both sides introduced themselves."""

    number: int
    theirs: Greeting


@dataclass(frozen=True, slots=True)
class _Connect(Step[Greeting | Unanswered]):
    """Open a session for copies and greet on it."""

    greet: Greet
    number: int


class Peers:
    """The sessions of one process: those it opened (talk and shadow sessions), and those it answers."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.world = node.world
        self.open: dict[ServerName, Session] = {}  # the one that polls
        self.shadow: dict[ServerName, Session] = {}  # the one that carries copies
        self.speakers: dict[int, Greeting] = {}  # sessions that others opened
        self.wishes: dict[ServerName, list[Callable[[Session | None], None]]] = {}

    def session(self, name: ServerName) -> Greeting | None:
        session = self.open.get(name)
        return session.theirs if session else None

    def close(self, name: ServerName) -> bool:
        """Was there a session?"""
        return self.open.pop(name, None) is not None

    # Calling.

    def exchange(
        self,
        to: ServerName,
        session: int,
        lines: Sequence[str | bytes],
        timeout: float,
        done: Callable[[tuple[str, ...] | None, str], None],
    ) -> None:
        """Say something and wait for the answer; None and why when there is none. ``done`` is called once."""
        node, world = self.node, self.world
        target = world.nodes[to]
        open_ = [True]

        def finish(answer: tuple[str, ...] | None, why: str) -> None:
            if open_:
                open_.clear()
                done(answer, why)

        generation = node.generation

        def answered(answer: tuple[str, ...]) -> None:
            if node.generation != generation:
                return
            if not answer:
                node.attend(finish, None, RESET)
            else:
                node.attend(finish, answer, "")

        def reply(answer: tuple[str, ...]) -> None:
            world.carry(target.name, node.name, lambda: answered(answer))

        def arrive() -> None:
            if not target.up:
                reply(())
                return
            target.attend(target.peers.serve, session, lines, reply)

        world.carry(node.name, to, arrive)
        node.after(timeout, finish, None, "no answer")

    def greet(self, step: Greet, resume: Callable[[Any], None]) -> None:
        """On the session that polls; without one, connect first."""
        session = self.open.get(step.to)
        number = session.number if session else self.world.session(copies=False)

        def done(theirs: Greeting | None, why: str) -> None:
            if theirs is None:
                resume(Unanswered("xshadow", why))
                return
            self.open[step.to] = Session(number, theirs)
            self.node.boundary.greeted(step.to)
            resume(theirs)

        self._greet(step, number, self.patience, done)

    @property
    def patience(self) -> float:
        return max(1.0, self.node.policy.shadow_heartbeat_frequency.total_seconds())

    def _greet(
        self, step: Greet, number: int, timeout: float, done: Callable[[Greeting | None, str], None]
    ) -> None:
        def answered(answer: tuple[str, ...] | None, why: str) -> None:
            theirs = None if answer is None else parse_greeting(answer[-1].removeprefix("250 2.0.0 "))
            if (
                theirs is not None
                and theirs.time is not None
                and (voice := self.node.boundary.voice_of(theirs.name))
            ):
                self.node.time.heard(voice, theirs.time, asked)
            done(theirs, why)

        if (step.to, self.node.name) in self.world.blocked:  # no handshake without both directions
            self.node.after(timeout, answered, None, "connect timed out")
            return
        self.world.point("greeting", self.node.name, step.to)
        asked = self.node.machine.read().boot if self.world.tells_time else None
        line = "XSHADOW " + format_greeting(replace(step.greeting, time=self.time_told()))
        self.exchange(step.to, number, [line], timeout, answered)

    def time_told(self) -> datetime | None:
        """What the wall clock says; members of a release before do not tell it."""
        return self.node.machine.read().wall if self.world.tells_time else None

    def ask(self, step: Ask, resume: Callable[[Any], None]) -> None:
        if not step.query.most:  # not a poll: on a session from the pool
            timeout = self.node.policy.revoke_timeout.total_seconds()
            self._acquire(step.to, lambda opened: self._ask(opened, step, timeout, resume))
        else:
            self._ask(self.open.get(step.to), step, self.patience, resume)

    def _ask(self, session: Session | None, step: Ask, timeout: float, resume: Callable[[Any], None]) -> None:
        if session is None:
            resume(Unanswered("xqdiscard", "no session"))
            return

        def done(answer: tuple[str, ...] | None, why: str) -> None:
            if answer is None and self.shadow.get(step.to) is session:
                del self.shadow[step.to]
            if answer is None or answer[-1].startswith("5"):
                resume(Unanswered("xqdiscard", why or "refused"))
                return
            texts = [line.removeprefix("250-2.0.0 ") for line in answer[:-1]]
            seen = [name for text in texts if (name := parse_seen(text))]
            found = tuple(parse_line(text) for text in texts if parse_seen(text) is None)
            resume(Answered(found, parse_mark(answer[-1].rpartition(" ")[2]), seen[0] if seen else None))

        self.exchange(step.to, session.number, ["XQDISCARD " + format_query(step.query)], timeout, done)

    def operate(self, step: Operate, resume: Callable[[Any], None]) -> None:
        self._acquire(step.to, lambda opened: self._operate(opened, step, resume))

    def _operate(self, session: Session | None, step: Operate, resume: Callable[[Any], None]) -> None:
        if session is None:
            resume(Unanswered("xoperate", "no session"))
            return

        def done(answer: tuple[str, ...] | None, why: str) -> None:
            if answer is None:
                if self.shadow.get(step.to) is session:
                    del self.shadow[step.to]
                resume(Unanswered("xoperate", why))
            elif answer[0].startswith("5"):
                resume(ActAnswer({}, answer[0]))
            else:
                resume(parse_answer([line[len("250 2.0.0 ") :] for line in answer]))

        timeout = self.node.policy.shadow_attempt_timeout.total_seconds()
        self.exchange(step.to, session.number, ["XOPERATE " + format_act(step.act)], timeout, done)

    def offer(self, step: OfferCopy, resume: Callable[[Any], None]) -> None:
        """With what is stored, once it is compared; what arrives is at hand."""
        content = self.node.arriving.get(step.message_id)
        if content is None and (content := self.node.read(step.message_id)) is None:
            resume(OfferAttempt(step.to, Leg.REFUSED, step.rank, "damaged", concern=Concern.COPY))
            return

        def ended(attempt: OfferAttempt) -> None:
            self.node.boundary.attempted(attempt, self.world.now)
            resume(attempt)

        self._acquire(step.to, lambda opened: self._opened(opened, step, content, ended))

    def _opened(
        self, session: Session | None, step: OfferCopy, content: bytes, ended: Callable[[OfferAttempt], None]
    ) -> None:
        if session is None:
            ended(OfferAttempt(step.to, Leg.REFUSED, step.rank, "no session"))
            return
        self._offer(session, step, content, ended)

    def _acquire(self, name: ServerName, then: Callable[[Session | None], None]) -> None:
        """A greeted session for copies: the one at hand, the one being opened, or a new one."""
        node = self.node
        if name in self.shadow:
            then(self.shadow[name])
            return
        waiting = self.wishes.get(name)
        if waiting is not None:
            waiting.append(then)
            return
        self.wishes[name] = [then]
        node.start(
            self._meet(name), lambda _: [wish(self.shadow.get(name)) for wish in self.wishes.pop(name)]
        )

    async def _meet(self, name: ServerName) -> None:
        """As Members.greet does it."""
        boundary, asked_at = self.node.boundary, self.world.now
        number = self.world.session(copies=True)
        script = greet(name, self.node.clock, lambda: boundary.silent(name))
        step, answer = script.send(None), None
        try:
            while True:
                answer = await (_Connect(step, number) if isinstance(step, Greet) else step)
                step = script.send(answer)
        except StopIteration as met:
            if not isinstance(met.value, Unanswered):
                boundary.answered(name, asked_at)
                self.shadow[name] = Session(number, met.value)

    def connect(self, step: _Connect, resume: Callable[[Any], None]) -> None:
        def done(theirs: Greeting | None, why: str) -> None:
            if theirs is None:
                resume(Unanswered("xshadow", why))
                return
            self.node.boundary.greeted(theirs.name)
            resume(theirs)

        timeout = self.node.policy.shadow_attempt_timeout.total_seconds()
        self._greet(step.greet, step.number, timeout, done)

    def _offer(
        self, session: Session, step: OfferCopy, content: bytes, ended: Callable[[OfferAttempt], None]
    ) -> None:
        node = self.node
        envelope = step.envelope
        assert step.digests is not None
        mark = OfferParameter(
            step.message_id,
            step.epoch,
            step.rank,
            node.durable.mark,
            age=max(timedelta(0), node.certain(step.received_at) - step.received_at),
            envelope=step.digests.envelope,
            given_for=step.given_for,
        )
        extra = {"XSHADOW": format_offer(mark)}
        if step.content_of is not None:
            octets = envelope.size if step.refers else None
            extra["XMADEOF"] = format_origin(MadeOf(step.content_of, step.request, octets))
        lines: list[str | bytes] = [
            format_mail(
                MailFrom(
                    sender=envelope.sender,
                    size=envelope.size,
                    body=envelope.body,
                    ret=envelope.ret,
                    envid=envelope.envid,
                    requiretls=envelope.tls is TlsWish.REQUIRED,
                    extra=extra,
                ),
                OFFERED,
            )
        ]
        for r in step.recipients:
            offered = replace(r, status=Status.READY, settled_at=None) if r.waits else r
            told = {"XFORK": format_fork(*fork_of(offered))}
            if r.unread is not None and not offered.settled:
                told["XUNREAD"] = format_unread(r.unread)
            lines.append(format_rcpt(RcptTo(r.address, r.notify, r.orcpt, told), OFFERED))
        sent = b"" if step.refers else content
        lines.append(f"BDAT {len(sent)} LAST {step.digests.content}\r\n".encode() + sent)
        database = session.theirs.lineage.database_id

        def done(answer: tuple[str, ...] | None, why: str) -> None:
            if answer is None:
                if self.shadow.get(step.to) is session:
                    del self.shadow[step.to]
                concern = Concern.SESSION if why == RESET else Concern.MEMBER
                ended(OfferAttempt(step.to, Leg.LOST, step.rank, why, database, concern=concern))
                return
            reply, _, told = answer[-1].rpartition(" ")
            if step.refers and reply.startswith(SEND_IT):
                self._offer(session, replace(step, refers=False), content, ended)
                return
            if reply[0] != "2":
                concern = concern_of(parse_reply([reply.encode()]))
                ended(OfferAttempt(step.to, Leg.REFUSED, step.rank, reply, database, concern=concern))
                return
            self.world.point("acknowledged", node.name, step.message_id, step.to)
            if node.up:
                ended(OfferAttempt(step.to, Leg.ACKNOWLEDGED, step.rank, reply, database, parse_mark(told)))

        if self.world.verbose:
            self.world.say(
                node.name, f"offers {step.message_id} epoch {step.epoch} rank {step.rank} to {step.to}"
            )
        timeout = node.policy.shadow_attempt_timeout.total_seconds()
        self.world.point("offers", node.name, step.message_id, step.to)
        self.exchange(step.to, session.number, lines, timeout, done)

    # Answering.

    def serve(self, session: int, lines: Sequence[str | bytes], reply: Reply) -> None:
        first = lines[0]
        if isinstance(first, bytes):
            self._serve_offer(session, lines, reply)
            return
        verb, _, rest = first.partition(" ")
        if verb == "XSHADOW":
            self._serve_greeting(session, rest, reply)
        elif verb == "XOPERATE":
            self._serve_act(session, rest, reply)
        else:
            self._serve_query(session, rest, reply)

    def _serve_greeting(self, session: int, text: str, reply: Reply) -> None:
        """As `answering` does it: meet, note the call, introduce ourselves; each durable before the next."""
        node = self.node
        theirs = parse_greeting(text)
        name = theirs.name
        self.world.point("greets", name, node.name)
        known = node.ledger.member(name)
        if known is not None and known.replaced == theirs.lineage.incarnation:
            reply(())
            return
        silent = node.boundary.watches[name].silent
        new = silent or known is None or known.lineage is None
        new = new or known.lineage.incarnation != theirs.lineage.incarnation

        def then(_: None) -> None:
            node.boundary.called(name, self.world.now)
            self.speakers[session] = theirs
            if new:
                node.wake_link(name)
            self._transact(lambda ledger: conversation.introduce(ledger, name), answer)

        def answer(mine: Greeting) -> None:
            said = replace(mine, version=theirs.version, time=self.time_told())
            reply((f"250 2.0.0 {format_greeting(said)}",))

        node.boundary.greeted(name)
        self._transact(
            lambda ledger: conversation.met(ledger, theirs, node.clock(), after_silence=silent), then
        )

    def _transact(self, work: Callable[[Transaction], Any], then: Callable[[Any], None]) -> None:
        ready, result = self.node.transact(work, then)
        if ready:
            then(result)

    def _serve_query(self, session: int, text: str, reply: Reply) -> None:
        node = self.node
        theirs = self.speakers.get(session)
        if theirs is None:
            reply(())  # the connection of a process that is gone
            return
        query = parse_query(text)
        asker = theirs.speaker if query.at is None else replace(theirs.speaker, mark=query.at)

        given: list[MessageId] = []

        def work(ledger: Transaction) -> tuple[str, ...]:
            sighted = node.boundary.sighted(self.world.now)
            said = conversation.asked(
                ledger, asker, query, node.in_flight, sighted, node.policy, node.clock()
            )
            given.extend([said.give] if said.give else [])
            texts = [format_line(line) for line in said.lines]
            texts += [format_seen(said.seen)] if said.seen else []
            return tuple(f"250-2.0.0 {text}" for text in texts)

        def then(found: tuple[str, ...]) -> None:
            node.boundary.called(asker.name, self.world.now)
            last = "250 2.0.0 That is all" if found else "251 2.0.0 No discard events"
            reply((*found, f"{last} {format_mark(node.durable.mark)}"))
            for message_id in given:
                node.give(message_id, asker.name)

        self._transact(work, then)

    def _serve_act(self, session: int, text: str, reply: Reply) -> None:
        node = self.node
        theirs = self.speakers.get(session)
        if theirs is None:
            reply(())
            return
        act = parse_act(text)

        def work(ledger: Transaction) -> tuple[str, ...]:
            about = Merging(self.world.policy, node.time.endings())
            if act.action == TAKES:
                return tuple(f"250-2.0.0 {part}" for part in format_answer(takes(node.ready())))
            told = received(ledger, RULES[act.action], theirs.name, act.arguments, about)
            return tuple(f"250-2.0.0 {part}" for part in format_answer(told))

        def then(lines: tuple[str, ...]) -> None:
            node.boundary.called(theirs.name, self.world.now)
            node.take_switches()
            reply(lines)

        self._transact(work, then)

    def _serve_offer(self, session: int, lines: Sequence[str | bytes], reply: Reply) -> None:
        node = self.node
        theirs = self.speakers.get(session)
        if theirs is None:
            reply(())
            return
        if node.pressure is not None and not node.pressure.takes_copy():
            reply((f"{NO_ROOM} {format_mark(node.durable.mark)}",))
            return
        *commands, last = [line for line in lines if isinstance(line, bytes)]
        texts = [line.decode().removesuffix("\r\n") for line in commands]
        chunk, _, octets = last.partition(b"\r\n")
        mail = parse_mail(texts[0].removeprefix("MAIL "), keywords=MAIL_HERE)
        told = parse_offer(mail.extra["XSHADOW"])
        origin = parse_origin(mail.extra["XMADEOF"]) if "XMADEOF" in mail.extra else None
        recipients = []
        for text in texts[1:]:
            rcpt = parse_rcpt(text.removeprefix("RCPT "), smtputf8=False, keywords=RCPT_HERE)
            fork = parse_fork(rcpt.extra["XFORK"])
            recipient = fork.recipient(rcpt.address, rcpt.notify, rcpt.orcpt)
            if "XUNREAD" in rcpt.extra:
                recipient = replace(recipient, unread=parse_unread(rcpt.extra["XUNREAD"]))
            recipients.append(recipient)
        envelope = mail.envelope(mail.size or 0)
        digest, content = of_content(octets), Content(data=octets)
        if origin is not None and origin.octets is not None:
            found = self._referred_to(theirs.name, origin, chunk.decode().rpartition(" ")[2])
            if found is None:
                reply((f"{SEND_IT}Send the content {format_mark(node.durable.mark)}",))
                return
            digest, content = of_content(found), Content(of=origin.message_id)
        digests = Digests(digest, of_envelope(envelope, recipients))
        assert told.age is not None
        if (told.envelope, chunk.decode().rpartition(" ")[2]) != (digests.envelope, digests.content):
            reply((f"554 5.6.0 Differs from its digest {format_mark(node.durable.mark)}",))
            return
        offer = ShadowCopyOffer(
            message_id=told.message_id,
            epoch=told.epoch,
            rank=told.rank,
            owner=theirs.name,
            owner_database=theirs.lineage.database_id,
            mark=told.mark,
            received_at=node.clock() - told.age,
            envelope=envelope,
            recipients=tuple(recipients),
            digests=digests,
            given_for=told.given_for,
            content_of=origin.message_id if origin else None,
            request=origin.request if origin else None,
        )

        def work(ledger: Transaction) -> OfferAnswer | None:
            if chores.refuses(ledger, offer.message_id):
                return None
            return ledger.apply(hold(ledger, offer, content, node.policy, node.clock()))

        def then(held: OfferAnswer | None) -> None:
            mark: Mark = node.durable.mark
            node.boundary.called(theirs.name, self.world.now)
            if held is OfferAnswer.QUEUED:
                reply((f"250 2.6.0 {offer.message_id} Queued mail for redundancy {format_mark(mark)}",))
            elif held is OfferAnswer.SEND:
                reply((f"{SEND_IT}Send the content {format_mark(mark)}",))
            elif held is None:
                reply((f"451 4.3.2 Being opened, ask another member {format_mark(mark)}",))
            else:
                reply((f"451 4.4.0 {offer.message_id} {held.value} {format_mark(mark)}",))

        self._transact(work, then)

    def _referred_to(self, asker: ServerName, origin: MadeOf, digest: str) -> bytes | None:
        """As ``answering`` does it: who may refer to the content, and then what the disk has now."""
        allowed = may_refer(self.node.ledger, asker, origin.message_id, origin.octets or 0, Digest(digest))
        return self.node.read(origin.message_id) if allowed else None
