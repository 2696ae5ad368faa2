"""Every order of verbs, said to real ports: each is answered as the model of a session says, and the messages
that leave have the sender, the recipients and the content of one transaction.

Behind each order comes a whole transaction of its own, so that whatever an order leaves behind is seen.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any, TypeVar

import pytest
from receiving import Kept, MemoryReceiver, RawClient, connected, listening
from transaction_model import (
    MEMBERS,
    SENDERS,
    Envelope,
    Phase,
    Port,
    State,
    Verb,
    orders,
    spoken,
    step,
)

from shadowrelay.core.identifiers import Beginning, DatabaseId, Digest, Incarnation, Lineage, Mark, ServerName
from shadowrelay.core.members.conversation import Greeting, Query, QueryResponse
from shadowrelay.smtp.members.session import MemberSession
from shadowrelay.smtp.receiving.contract import Client
from shadowrelay.smtp.receiving.session import ReceiveSession
from shadowrelay.wire.replies import Reply

T = TypeVar("T")


def batched(found: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(found)
    while batch := list(islice(rest, size)):
        yield batch


PROBE = (Verb.MAIL, Verb.RCPT, Verb.LAST)
"""The transaction behind an order. Where the order left one open, its MAIL is refused, as the model says."""

REFUSALS = {
    "refused@example.org": Reply(550, "5.7.1", "Not this sender"),
    "refused@example.net": Reply(550, "5.1.1", "No such recipient"),
}


@dataclass
class Desk(MemoryReceiver):
    """A member's desk that takes everything but what ``refusals`` names."""

    def open(self) -> Desk:
        return self

    keeps = True

    def admits(self, client: Client) -> bool:
        return True

    def mark(self) -> Mark:
        return Mark(Incarnation("00000000000000bb"), 7)

    async def greet(self, client: Client, theirs: Greeting) -> Greeting:
        lineage = Lineage(
            DatabaseId("6f0d7a3e-0000-4000-8000-0000000000bb"), (Beginning(self.mark().incarnation, 0),), 7
        )
        return Greeting(ServerName("mx.example.net"), lineage, theirs.lineage.incarnation)

    async def ask(self, query: Query) -> QueryResponse:
        return QueryResponse(())

    def said(self, said: QueryResponse) -> None:
        """Nothing follows."""

    def promised(self, digest: Digest) -> None:
        """No content is compared here."""


@dataclass
class Talk:
    """What is to be said on one connection, and what the model expects: the codes, and what leaves."""

    parts: list[tuple[bytes, tuple[int, ...], str]] = field(default_factory=list)
    left: list[Envelope] = field(default_factory=list)

    def add(
        self, port: Port, order: Sequence[Verb], state: State, name: object, behind: Sequence[Verb] = PROBE
    ) -> State:
        """An order and the transaction behind it; returns the state after both."""
        for place, verb in enumerate((*order, *behind)):
            taken = step(port, state, verb, f"{name}.{place}")
            said = spoken(port, verb, f"{name}.{place}", state)
            self.parts.append((said, taken.replies, f"{verb.value} in {[one.value for one in order]}"))
            if taken.left:
                self.left.append(taken.left)
            state = taken.state
        return state


async def talk(client: RawClient, said: Talk, *, greeted: bool = False) -> None:
    """Say it command by command, and compare each reply."""
    assert greeted or (await client.line()).startswith("220 ")
    for octets, replies, where in said.parts:
        client.send(octets)
        heard = [int((await client.reply())[:3] or 0) for _ in replies]
        assert tuple(heard) == replies, where


async def talk_at_once(client: RawClient, said: Talk) -> None:
    """Say all of it in one write, and then compare the replies."""
    client.send(b"".join(octets for octets, _, _ in said.parts) + b"QUIT\r\n")
    async with asyncio.timeout(30):
        lines = (await client.reader.read()).split(b"\r\n")
    heard = [int(line[:3]) for line in lines[1:] if line[3:4] == b" "]
    for _, replies, where in said.parts:
        assert tuple(heard[: len(replies)]) == replies, where
        del heard[: len(replies)]
    assert heard == [221]


def envelopes(kept: Sequence[Kept]) -> set[Envelope]:
    return {
        Envelope(one.mail.sender, tuple(rcpt.address for rcpt in one.recipients), one.content) for one in kept
    }


GREETED = {
    Port.SMTP: (Verb.EHLO,),
    Port.LMTP: (Verb.EHLO,),
    Port.MEMBERS: (Verb.EHLO, Verb.XSHADOW),
}
ALIKE = {Port.SMTP: SENDERS, Port.LMTP: SENDERS, Port.MEMBERS: MEMBERS}


def talks(port: Port, most: int, idle: int, each: int) -> tuple[int, list[Talk]]:
    """All orders, so many on a connection, behind a greeting; and some of strangers. With their number."""
    found: list[Talk] = []
    begin = State(Phase.IDLE, introduced=port is Port.MEMBERS)
    number = count()
    for batch in batched(orders(port, ALIKE[port], begin, most, idle=idle), each):
        said, state = Talk(), State(Phase.STRANGER)
        state = said.add(port, GREETED[port], state, "greeting")
        for order in batch:
            state = said.add(port, order, state, next(number))
        found.append(said)
    for order in orders(port, ALIKE[port], State(Phase.STRANGER), 3, idle=1):
        found.append(Talk())
        found[-1].add(port, order, State(Phase.STRANGER), next(number))
    return next(number), found


def served(port: Port) -> tuple[MemoryReceiver, dict[str, Any]]:
    limits: dict[str, Any] = {"max_protocol_errors": 10**6, "max_junk_commands": None}
    if port is Port.MEMBERS:
        return Desk(REFUSALS), limits | {"session": MemberSession}
    outcome = (lambda to: [Reply(250, "2.0.0", "Queued")] * len(to)) if port is Port.LMTP else None
    receiver = MemoryReceiver(REFUSALS, outcome) if outcome else MemoryReceiver(REFUSALS)
    return receiver, limits | {"session": ReceiveSession, "lmtp": port is Port.LMTP}


async def tried(port: Port, most: int, idle: int, *, pipelined: bool) -> int:
    """Say all orders; the number of them."""
    number, said = talks(port, most, idle, each=50)
    receiver, options = served(port)
    async with listening(receiver, max_inbound_connections_per_source=None, **options) as connector:

        async def one(part: Talk) -> None:
            async with connected(connector) as client:
                await (talk_at_once if pipelined else talk)(client, part)

        for some in batched(said, 16):
            await asyncio.gather(*map(one, some))
    assert envelopes(receiver.kept) == {envelope for part in said for envelope in part.left}
    assert len(receiver.kept) == sum(len(part.left) for part in said)
    return number


@pytest.mark.parametrize("port", Port, ids=lambda port: port.value)
async def test_no_order_of_up_to_six_verbs_mixes_two_transactions(port: Port) -> None:
    assert await tried(port, 6, 1, pipelined=True) > 5_000


@pytest.mark.parametrize("port", Port, ids=lambda port: port.value)
async def test_an_order_is_answered_alike_if_each_verb_waits_for_the_reply_before(port: Port) -> None:
    assert await tried(port, 4, 1, pipelined=False) > 1_000


@pytest.mark.slow
@pytest.mark.parametrize("port", Port, ids=lambda port: port.value)
async def test_orders_with_two_verbs_out_of_place_mix_nothing_either(port: Port) -> None:
    assert await tried(port, 5, 2, pipelined=True) > 20_000
    assert await tried(port, 6, 1, pipelined=False) > 5_000


async def test_tls_ends_the_transaction_in_every_state(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    server_side, client_side = contexts
    begin = State(Phase.IDLE)
    reached: dict[object, tuple[Verb, ...]] = {}
    for order in orders(Port.SMTP, SENDERS, begin, 4, idle=0):
        state = begin
        for place, verb in enumerate(order):
            state = step(Port.SMTP, state, verb, place).state
        reached.setdefault(state.kind(), order)
    assert len(reached) > 8
    receiver, options = served(Port.SMTP)
    async with listening(receiver, tls=server_side, **options) as connector:
        for number, order in enumerate(reached.values()):
            async with connected(connector) as client:
                before = Talk()
                state = before.add(Port.SMTP, (Verb.EHLO,), State(Phase.STRANGER), f"{number}.hello")
                state = before.add(Port.SMTP, order, state, number, behind=())
                await talk(client, before)
                assert (await client.say("STARTTLS")).startswith("220 ")
                await client.writer.start_tls(client_side, server_hostname="mx.example.net")
                behind = Talk()
                stranger = step(Port.SMTP, state, Verb.STARTTLS, number).state
                state = behind.add(Port.SMTP, (), stranger, f"{number}.tls")
                behind.add(Port.SMTP, (Verb.EHLO,), state, f"{number}.again")
                await talk(client, behind, greeted=True)
                expected = {*before.left, *behind.left}
                assert envelopes(receiver.kept) == expected
                receiver.kept.clear()
