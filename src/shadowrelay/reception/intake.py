"""The intake of mail from senders: who may relay, the header fields added, and the promise before the 250."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from email.utils import format_datetime
from functools import lru_cache
from pathlib import Path

import structlog

from shadowrelay import failpoints, measures
from shadowrelay.core.decisions import Content
from shadowrelay.core.digests import ContentDigest, of_envelope
from shadowrelay.core.hops import Handed
from shadowrelay.core.identifiers import MessageId, NextHop, ServerName
from shadowrelay.core.messages import Digests, Recipient
from shadowrelay.core.policy import Policy
from shadowrelay.core.pressure import Inflow
from shadowrelay.core.reception.arrivals import forgotten
from shadowrelay.core.reception.delays_and_repeats import LateQuestion
from shadowrelay.core.reception.redundancy import Answer, Arrival, Leg, OfferAttempt
from shadowrelay.core.reception.routing import Route, next_hop_of, postmaster_domain, route_for
from shadowrelay.core.reception.sites import SitePath, fanned_out
from shadowrelay.core.recipients import (
    EMPTY,
    LISTS,
    AddressBook,
    Becomes,
    Rewriting,
    no_book,
    once,
    rewrite,
)
from shadowrelay.core.spelling import in_ascii
from shadowrelay.core.steps import OfferCopy
from shadowrelay.core.values import dataclass, replace
from shadowrelay.core.workers import node_of
from shadowrelay.database.content import Spool, is_full
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.room import Room
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.in_hand import NOWHERE
from shadowrelay.members.boundary import Boundary
from shadowrelay.members.effective_policy import EffectivePolicy
from shadowrelay.members.pool import Members, seconds
from shadowrelay.reception.delayed_acknowledgements import DelayedAcknowledgements, LateSender, Waiting
from shadowrelay.reception.shadow_session import ShadowSession
from shadowrelay.reception.two_copies import Decided, make_redundant, offer
from shadowrelay.running import Countdown, Performer
from shadowrelay.smtp.receiving.contract import Client, Delayed, Hangup
from shadowrelay.wire.esmtp import MailFrom, RcptTo
from shadowrelay.wire.header import HeaderScan, came_by, received_field
from shadowrelay.wire.networks import Networks, within
from shadowrelay.wire.replies import NO_ROOM, Refused, Reply
from shadowrelay.wire.xtext import typed_recipient

log = structlog.get_logger(__name__)

STREAM_FROM = 256 * 1024  # octets above which a message streams to the shadow server while it arrives


def _nobody(_: Sequence[OfferAttempt]) -> None:
    """The member to ask for a copy if shadow redundancy is disabled: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeOptions:
    """The options of a connector for senders. ``submission``: Message-ID and Date are added if missing.
    ``delay``: how long a 250 waits at most, if no member has a copy. ``ways``: the paths to sites of other
    boundaries; empty if there are none.
    """

    connector: str
    relay_networks: Networks
    accepted_domains: tuple[str, ...]
    routes: Sequence[Route]
    content: Path
    room: Room
    submission: bool
    ways: Mapping[str, SitePath]
    book: Callable[[], AddressBook] = no_book
    delay: timedelta = timedelta(0)


class Intake:
    """The ``Receiver`` of a connector for senders."""

    _shadow_session = ShadowSession

    def __init__(
        self,
        members: Members,
        database: TransportDatabase,
        boundary: Boundary,
        options: IntakeOptions,
        in_force: EffectivePolicy,
        clock: Callable[[], datetime],
        mint: Callable[[datetime], MessageId],
        in_flight: set[MessageId],
        acknowledgements: DelayedAcknowledgements | None = None,
        wall: Callable[[datetime], datetime] | None = None,
    ) -> None:
        self.wall = wall or (lambda at: at)  # what the wall clock says for a time of ours
        self.acknowledgements = acknowledgements
        self.members = members
        self.database = database
        self.boundary = boundary
        self.clock = clock
        self.options = options
        self._in_force = in_force
        self.in_flight = in_flight
        self._mint = mint
        self._trusted = lru_cache(maxsize=1024)(self._in_relay_networks)
        self.own = node_of(boundary.own.name)
        self._addressing = Addressing(
            self.own, options.accepted_domains, options.routes, options.ways, options.book
        )
        self._begun: dict[str, tuple[Policy, ShadowSession | None]] = {}
        self._sink = IntakeSink

    @property
    def policy(self) -> Policy:
        """What a message that begins now goes by."""
        return self._in_force.relied

    async def mail(self, session: Client, mail: MailFrom) -> Reply | None:
        room = self.options.room
        if room.presses and await room.hold_back(self._inflow(session)):
            log.warning("mail_refused_under_pressure", client=session.address, why=room.told)
            return NO_ROOM
        if not room.admits(mail.size or 0):
            log.warning("mail_refused_disk_full", free=room.free, needed=room.minimum, size=mail.size)
            return NO_ROOM
        policy, shadow = self.policy, None  # it counts for this message to the end, whatever is switched
        if policy.shadow_redundancy_enabled:
            shadow = self._shadow_session(self.members, self.boundary.candidates(seconds(), policy))
        self._begun[session.id] = policy, shadow
        return None

    async def rcpt(
        self,
        session: Client,
        mail: MailFrom,  # noqa: ARG002
        rcpt: RcptTo,
        accepted: Sequence[RcptTo],  # noqa: ARG002
    ) -> Reply | None:
        return self._addressing.refused(rcpt, trusted=self._inflow(session) is Inflow.TRUSTED)

    def _inflow(self, session: Client) -> Inflow:
        trusted = session.login or self._trusted(session.address)
        return Inflow.TRUSTED if trusted else Inflow.OUTSIDE

    async def content(
        self,
        session: Client,
        mail: MailFrom,
        recipients: Sequence[RcptTo],
        handed: Callable[[MessageId], Handed] | None = None,
    ) -> IntakeSink:
        """``handed``: who hands the message over, for the id that it gets here."""
        now = self.clock()
        envelope = mail.envelope()
        # A peer that tracks its message knows each recipient by its number: none may become another one.
        addressed, rewritten = self._addressing.recipients(recipients, merge=handed is None)
        message_id = self._mint(now)
        arrival = Arrival(
            id=message_id,
            envelope=envelope,
            recipients=addressed,
            digests=Digests(None, of_envelope(envelope, addressed)),
            received_at=now,
            client_ip=session.address,
            client_hostname=session.helo,
            connector=self.options.connector,
            session=session.id,
            login=session.login,
            rewritten=rewritten,
            handed=handed(message_id) if handed else None,
        )
        policy, shadow = self._begun.pop(session.id, (self.policy, None))
        if shadow is not None:
            shadow.announce(lambda to: offer(arrival, to, 1))
        # A peer that keeps its copy until it is delivered waits for no more than this node's own.
        waits = shadow is not None and handed is None
        late = self._as_sent(session, mail, recipients) if waits else None
        return self._sink(self, session, arrival, policy, shadow, late)

    def _as_sent(self, session: Client, mail: MailFrom, recipients: Sequence[RcptTo]) -> LateSender | None:
        """What the 250 of this message may wait with; None: it never waits."""
        if self.acknowledgements is None or not self.options.delay:
            return None
        return LateSender(self.acknowledgements, self.options.delay, session, mail, recipients)

    async def reset(self, session: Client) -> None:
        begun = self._begun.pop(session.id, None)
        if begun is not None and begun[1] is not None:
            begun[1].drop()

    def _in_relay_networks(self, address: str) -> bool:
        return within(address, self.options.relay_networks)


class IntakeSink:
    """Takes in one message from a sender."""

    _stream_from = STREAM_FROM

    def __init__(
        self,
        intake: Intake,
        session: Client,
        arrival: Arrival,
        policy: Policy,
        shadow: ShadowSession | None,
        late: LateSender | None = None,
    ) -> None:
        self._intake = intake
        self._policy = policy
        self._session = session
        self._arrival = arrival
        self._shadow = shadow
        self._scan = HeaderScan()
        self._spool = Spool(intake.options.content, arrival.id)
        self._streaming = False
        self._slot = intake.database.in_hand.take(arrival.id)
        self._late = late
        # Where members may take a copy, it is made only if none does.
        alone = late is not None and (shadow is None or shadow.first is None)
        self._as_sent = ContentDigest() if alone else None
        self._added = 0  # octets in front of what the client sent
        self._waiting: Waiting | None = None

    async def write(self, data: bytes) -> None:
        if not self._scan.complete:
            if not self._scan.feed(data):
                return None
            return await self._keep(self._header() + self._scan.rest, self._added)
        return await self._keep(data)

    async def finish(self) -> Sequence[Reply] | Hangup | Delayed:
        began = measures.now()
        try:
            if not self._scan.complete:
                self._scan.finish()
                await self._keep(self._header() + self._scan.rest, self._added)
            decided = await self._accept(await self._sealed())
        except Refused as refused:
            self._spool.discard()
            return [refused.reply]
        except OSError:  # the content cannot be read back, so no row was written
            self._spool.discard()
            raise
        finally:
            self._over()
            if self._shadow is not None:
                self._shadow.drop()
        answer = decided.answer
        waiting, admitted = self._waiting, decided.admitted
        if answer is Answer.ACCEPTED and waiting is not None and admitted is not None:
            if not admitted.made:
                self._spool.discard()
            await waiting.admitted(admitted, self._accepted(admitted.awaits))
            return waiting
        if waiting is not None:
            waiting.drop()
        if answer is Answer.ACCEPTED:
            failpoints.passed("before-250")
            if (late := self._intake.acknowledgements) is not None:
                late.at_once.since(began)
            return [self._accepted(self._arrival.id)]
        self._spool.discard()
        if answer is Answer.REPEATED and (handed := self._arrival.handed):
            log.info("handed_over_again", peer=handed.peer, handed_as=handed.their_id)
            return [Reply(250, "2.6.0", f"{handed.their_id} Taken before")]
        if answer is Answer.HANG_UP:
            log.error("hang_up_after_unconfirmed_revoke", message=self._arrival.id)
            return Hangup()
        return [Reply(451, "4.4.0", "Message failed to be made redundant")]

    @staticmethod
    def _accepted(message_id: MessageId) -> Reply:
        return Reply(250, "2.6.0", f"{message_id} Queued mail for delivery")

    def _over(self) -> None:
        self._intake.in_flight.discard(self._arrival.id)
        self._intake.database.in_hand.leave(self._slot)
        self._slot = NOWHERE

    async def abort(self) -> None:
        self._over()
        self._spool.discard()
        if self._shadow is not None:
            self._shadow.drop()

    async def _sealed(self) -> Content:
        """Make the content durable. If the disk fails here, nothing was promised yet."""
        try:
            content = await self._spool.seal()
        except OSError as error:
            raise self._no_room(error) from error
        self._intake.options.room.wrote(self._spool.size)
        return content

    def _no_room(self, error: OSError) -> Refused:
        log.error("spool_failed", message=self._arrival.id, error=str(error))
        if not is_full(error):
            self._intake.database.fail(error)
        return Refused.by(NO_ROOM)

    async def _accept(self, content: Content) -> Decided:
        intake, members = self._intake, self._intake.members
        self._intake.in_flight.add(self._arrival.id)
        arrival = self._arrival
        self._arrival = replace(
            arrival,
            envelope=replace(arrival.envelope, size=self._spool.size),
            digests=replace(arrival.digests, content=self._spool.digest),
        )
        clock, shadow, policy = intake.clock, self._shadow, self._policy

        async def offered(step: OfferCopy) -> OfferAttempt:
            if shadow is None:
                raise TypeError("nobody was to be asked")
            began = measures.now()
            try:
                async with asyncio.timeout_at(latest):
                    attempt = await shadow.offer(step, self._spool.blocks())
            except TimeoutError:
                attempt = await members.lost(step)
            if attempt.leg is Leg.ACKNOWLEDGED:
                members.copied.since(began)
            else:
                await self._read_as_sent()
            return attempt

        deadline = clock() + policy.shadow_time_cap
        latest = asyncio.get_running_loop().time() + policy.shadow_time_cap.total_seconds()
        revoking = Countdown(policy.revoke_timeout.total_seconds())
        whom = shadow.candidates.after if shadow is not None else _nobody
        performer = Performer(
            transact=intake.database.transact_briefly,
            offer=offered,
            known=intake.database.ledger.known,
            ask=lambda step: members.ask(step, revoking.left()),
        )
        script = make_redundant(self._arrival, content, whom, policy, clock, deadline, self._ask)
        try:
            decided = await performer.run(script)
        except BaseException:
            if self._waiting is not None:
                self._waiting.drop()
            await intake.database.transact_briefly(self._forget)
            raise
        if decided.record is not None:
            # The transaction is queued before the sender gets its reply, and the reply does not wait for it.
            intake.database.transact_briefly(decided.record.work).add_done_callback(self._recorded)
        return decided

    def _ask(self) -> LateQuestion | None:
        """No member has a copy: what decides whether the 250 waits."""
        if self._late is None or self._as_sent is None:
            return None
        self._waiting = self._late.begin(self._arrival, self._as_sent)
        return self._waiting.question()

    async def _read_as_sent(self) -> None:
        """A member did not take the copy: perhaps none will."""
        if self._late is None or self._as_sent is not None:
            return
        digest, ours = ContentDigest(), self._added
        async for block in self._spool.blocks():
            digest.update(memoryview(block)[ours:])
            ours = max(0, ours - len(block))
        self._as_sent = digest

    def _forget(self, ledger: SqlLedger) -> None:
        """No decision was reached, and the sender gets no reply: no later start may accept the message."""
        if arrived := ledger.arrival(self._arrival.id):
            ledger.apply(forgotten(arrived, self._policy, self._intake.clock()))

    def _recorded(self, recording: asyncio.Future[Answer]) -> None:
        if isinstance(error := recording.exception(), Exception):  # the next start records the arrival
            self._intake.database.fail(error)

    async def _keep(self, data: bytes, ours: int = 0) -> None:
        """Keep the next octets. The first ``ours`` of them were added here."""
        try:
            self._spool.write(data)
        except OSError as error:
            raise self._no_room(error) from error
        if self._as_sent is not None:
            self._as_sent.update(memoryview(data)[ours:])
        if self._shadow is None or self._shadow.first is None:
            return
        if self._streaming:
            await self._shadow.stream(data)
        elif self._spool.size > self._stream_from:
            self._streaming = True
            self._intake.in_flight.add(self._arrival.id)
            step = offer(self._arrival, self._shadow.first, 1)
            await self._shadow.begin(step)
            async for block in self._spool.blocks():
                await self._shadow.stream(block)

    def _refuse_what_comes_back(self, section: bytes) -> None:
        """A member of a list forwards what it gets to the list: each round would make more messages."""
        lists = [one.address for one in self._arrival.recipients if one.next_hop == LISTS]
        if lists:
            boundary = self._intake.boundary
            names = {node_of(place.name) for place in (boundary.own, *boundary.places)}
            if any(came_by(section, names, address) for address in lists):
                raise Refused(554, "5.4.6", "Mail loop: the list has had this message")

    def _header(self) -> bytes:
        """Our Received field; for submission, fields that the sender left out; then the sender's header."""
        scan, at = self._scan, self._intake.wall(self._arrival.received_at)
        if scan.received > self._policy.loop_hop_limit:
            raise Refused(554, "5.4.6", "Too many hops: mail loop")
        own = self._intake.own
        self._refuse_what_comes_back(scan.section)
        added, message_id = trace_field(self._arrival, at, self._session, own), scan.message_id
        if self._intake.options.submission:
            fields, message_id = completed(self._arrival, at, own, scan.names, message_id)
            added += fields
        tls = self._arrival.envelope.tls or scan.tls  # MAIL counts before the header section (RFC 8689 4.1)
        envelope = replace(self._arrival.envelope, message_id=message_id, subject=scan.subject, tls=tls)
        self._arrival = replace(self._arrival, envelope=envelope)
        self._added = len(added)
        return added + scan.section


_ACCEPTED_DOMAIN = NextHop("accepted")


class Addressing:
    """The addresses of one connector. ``own``: this node's name. ``ways``: the paths to sites of other
    boundaries. ``book``: the aliases and lists of this moment.
    """

    def __init__(
        self,
        own: ServerName,
        accepted_domains: tuple[str, ...],
        routes: Sequence[Route],
        ways: Mapping[str, SitePath],
        book: Callable[[], AddressBook],
    ) -> None:
        self._accepted = (Route(_ACCEPTED_DOMAIN, accepted_domains),)
        self._postmaster_domain = postmaster_domain(own, accepted_domains)
        self._routes = routes
        self._ways = ways
        self._book = book

    def refused(self, rcpt: RcptTo, *, trusted: bool) -> Reply | None:
        """Why RCPT is refused; None: it is accepted. ``trusted``: this client may send to any domain."""
        address = self._address(rcpt)
        if not trusted and route_for(address, self._accepted) is None:
            return Reply(550, "5.7.1", "Relaying denied")
        if (book := self._book()) is not EMPTY:
            found = book.resolve(address)
            if found.what in (Becomes.UNKNOWN, Becomes.LOOP):
                return Reply(550, "5.1.1", "No such recipient here")
            if found.what is Becomes.LIST:
                return None
            address = found.address
        if route_for(address, self._routes) is None:
            log.warning("no_route", recipient=address)
            return Reply(451, "4.4.4", "No route to that domain for now")
        return None

    def recipients(
        self, named: Sequence[RcptTo], *, merge: bool
    ) -> tuple[tuple[Recipient, ...], tuple[Rewriting, ...]]:
        """The recipients with their next hops, and which addresses were rewritten. ``merge``: a recipient
        that was named several times, or two names for one address, make one recipient.
        """
        book = self._book()
        found = tuple(
            [
                Recipient(number, self._address(rcpt), NextHop(""), rcpt.notify, rcpt.orcpt)
                for number, rcpt in enumerate(named, 1)
            ]
        )
        if merge and len(found) > 1:
            found = once(found)
        rewritings: tuple[Rewriting, ...] = ()
        if book is not EMPTY:
            found, rewritings = rewrite(found, book, typed_recipient, merge=merge)
        routed = tuple(map(self._routed, found))
        return fanned_out(routed, self._ways) if self._ways else routed, rewritings

    def _routed(self, recipient: Recipient) -> Recipient:
        if recipient.next_hop:  # a list
            return recipient
        next_hop = next_hop_of(recipient.address, self._routes)
        return replace(recipient, next_hop=next_hop) if next_hop else recipient

    def _address(self, rcpt: RcptTo) -> str:
        return rcpt.address if "@" in rcpt.address else f"{rcpt.address}@{self._postmaster_domain}"


@lru_cache(maxsize=16)
def _date(second: datetime) -> str:
    """A date as header fields write it. Cached: many messages arrive within one second."""
    return format_datetime(second)


def trace_field(arrival: Arrival, at: datetime, session: Client, own: ServerName) -> bytes:
    """The Received field (RFC 5321 section 4.4); ``at``: when, by the wall clock. It names the recipient if
    there is only one: in ASCII as far as that is possible, so that the field alone makes no message one that
    needs SMTPUTF8.
    """
    recipients = [one.address for one in arrival.recipients]
    return received_field(
        helo=session.helo,
        address=session.address,
        by=own,
        protocol=session.protocol(smtputf8=arrival.envelope.smtputf8),
        message_id=arrival.id,
        date=_date(at.replace(microsecond=0)),
        login=session.login,
        recipient=(in_ascii(recipients[0]) or recipients[0]) if len(recipients) == 1 else "",
    )


def completed(
    arrival: Arrival, at: datetime, own: ServerName, names: Set[str], message_id: str
) -> tuple[bytes, str]:
    """For submission (RFC 6409 section 8): the fields that the header lacks, and the Message-ID.

    ``names``: the fields that the header has. ``message_id``: its Message-ID, '' if it has none.
    """
    added = ""
    if "message-id" not in names:
        message_id = f"<{arrival.id}@{own}>"
        added += f"Message-ID: {message_id}\r\n"
    if "date" not in names:
        added += f"Date: {_date(at.replace(microsecond=0))}\r\n"
    return added.encode(), message_id
