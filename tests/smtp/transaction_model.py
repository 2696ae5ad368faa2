"""A model of a session: which verb is allowed in which state, what is answered, and which envelopes leave.

It is written from RFC 5321 (3.3, 4.1.1.4, 4.1.4), RFC 2033 (4.2) and RFC 3030 (2), and from nothing of the
code. In short:

- MAIL begins a transaction where none is open; RSET, EHLO and every end of data end it, accepted or not
  (4.1.4, 4.1.1.4). BDAT LAST is an end of data whatever is answered, and DATA is one if no recipient is left
  for the content.
- A verb out of order is 503, and the state stays (4.1.4).
- A chunk that is refused makes the transaction a failed one (RFC 3030 2): it takes no recipient any more,
  each later chunk is refused in the same way, and LAST ends it.
- Between members a copy has all recipients that it was offered with, or is none (docs/reference/protocol.md).

Each verb of an order has addresses and content of its own, told by its place, so that nothing can be mixed
unseen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum


class Verb(Enum):
    """What a client says. ``_NO``: the receiver refuses that sender or recipient. ``_BAD``: content that is
    refused at its end.
    """

    EHLO = "EHLO"
    MAIL = "MAIL"
    MAIL_NO = "MAIL refused"
    RCPT = "RCPT"
    RCPT_NO = "RCPT refused"
    DATA = "DATA"
    DATA_BAD = "DATA of bad content"
    BDAT = "BDAT"
    LAST = "BDAT LAST"
    LAST_0 = "BDAT 0 LAST"
    LAST_BAD = "BDAT LAST of bad content"
    RSET = "RSET"
    NOOP = "NOOP"
    STARTTLS = "STARTTLS"
    XSHADOW = "XSHADOW"
    XQDISCARD = "XQDISCARD"


_LASTS = frozenset({Verb.LAST, Verb.LAST_0, Verb.LAST_BAD})
_CHUNKS = _LASTS | {Verb.BDAT}

SENDERS = (
    Verb.EHLO, Verb.MAIL, Verb.MAIL_NO, Verb.RCPT, Verb.RCPT_NO, Verb.DATA, Verb.DATA_BAD, Verb.BDAT,
    Verb.LAST, Verb.LAST_0, Verb.LAST_BAD, Verb.RSET, Verb.NOOP,
)  # fmt: skip
MEMBERS = (*(verb for verb in SENDERS if verb is not Verb.DATA_BAD), Verb.XSHADOW, Verb.XQDISCARD)


class Port(Enum):
    """What the model is asked about."""

    SMTP = "SMTP"
    LMTP = "LMTP"
    MEMBERS = "members"


class Phase(Enum):
    STRANGER = "nobody has said hello"
    IDLE = "no transaction"
    OPEN = "MAIL was taken"
    CHUNKING = "a chunk came"


@dataclass(frozen=True)
class Envelope:
    """What left a session: one message, with its sender, its recipients and its content."""

    sender: str
    recipients: tuple[str, ...]
    content: bytes


@dataclass(frozen=True)
class State:
    phase: Phase
    sender: str = ""
    recipients: tuple[str, ...] = ()
    refused: bool = False  # a recipient was
    content: bytes = b""
    failed: int = 0  # the code that a chunk was refused with
    introduced: bool = False  # XSHADOW was accepted

    def ended(self) -> State:
        """Without a transaction; what the client said of itself stays."""
        return State(Phase.IDLE, introduced=self.introduced)

    def kind(self) -> object:
        """The state without the names in it: orders that lead to the same kind go on alike."""
        few = min(len(self.recipients), 2)
        return self.phase, few, self.refused, bool(self.content), self.failed, self.introduced


@dataclass(frozen=True)
class Step:
    """What a verb leads to: the state, the code of each reply, and the envelope that left."""

    state: State
    replies: tuple[int, ...]
    left: Envelope | None = None


def sender(place: object) -> str:
    return f"s{place}@example.org"


def recipient(place: object) -> str:
    return f"r{place}@example.net"


def content(place: object) -> bytes:
    return f"Subject: {place}\r\n\r\nof {place}\r\n".encode()


def step(port: Port, state: State, verb: Verb, place: object) -> Step:
    """What the standards say of this verb in this state."""
    stay = state
    match verb:
        case Verb.NOOP:
            return Step(stay, (250,))
        case Verb.EHLO | Verb.RSET if verb is Verb.EHLO or state.phase is not Phase.STRANGER:
            return Step(state.ended(), (250,))
        case Verb.RSET:
            return Step(stay, (250,))
        case Verb.STARTTLS:
            return Step(State(Phase.STRANGER), (220,))
        case Verb.XSHADOW:
            if state.phase is not Phase.IDLE:
                return Step(stay, (503,))
            return Step(replace(state, introduced=True), (250,))
        case Verb.XQDISCARD:
            return Step(stay, (251 if state.introduced else 503,))
        case Verb.MAIL | Verb.MAIL_NO:
            if state.phase is not Phase.IDLE or (port is Port.MEMBERS and not state.introduced):
                return Step(stay, (503,))
            if verb is Verb.MAIL_NO:
                return Step(stay, (550,))
            return Step(State(Phase.OPEN, sender(place), introduced=state.introduced), (250,))
        case Verb.RCPT | Verb.RCPT_NO:
            if state.phase is not Phase.OPEN:
                return Step(replace(state, refused=state.refused or state.phase is Phase.CHUNKING), (503,))
            if verb is Verb.RCPT_NO:
                return Step(replace(state, refused=True), (550,))
            return Step(replace(state, recipients=(*state.recipients, recipient(place))), (250,))
        case Verb.DATA | Verb.DATA_BAD:
            return _data(port, state, verb, place)
        case _:
            return _chunk(port, state, verb, place)


def _lacking(port: Port, state: State) -> int:
    """The code that refuses content in an open transaction; 0: it may come."""
    if port is Port.MEMBERS and state.refused:
        return 451
    if state.recipients:
        return 0
    return 554 if state.refused and port is Port.SMTP else 503


def _data(port: Port, state: State, verb: Verb, place: object) -> Step:
    if port is Port.MEMBERS and state.introduced:
        return Step(state, (502,))
    if state.phase is not Phase.OPEN:
        return Step(state, (503,))
    if lacking := _lacking(port, state):
        return Step(state.ended() if state.refused else state, (lacking,))
    return _ended(port, state, verb, content(place), begins=(354,))


def _chunk(port: Port, state: State, verb: Verb, place: object) -> Step:
    if state.phase in {Phase.STRANGER, Phase.IDLE}:
        return Step(state, (503,))
    failed = state.failed or _lacking(port, state)
    octets = b"" if verb is Verb.LAST_0 else content(place)
    if verb in _LASTS:
        return _ended(port, replace(state, failed=failed), verb, state.content + octets)
    after = replace(state, phase=Phase.CHUNKING, content=state.content + octets, failed=failed)
    return Step(after, (failed or 250,))


def _ended(port: Port, state: State, verb: Verb, whole: bytes, begins: tuple[int, ...] = ()) -> Step:
    """The end of data: the transaction is over whatever the replies say."""
    bad = 550 if verb in {Verb.DATA_BAD, Verb.LAST_BAD} else 0
    code = state.failed or bad or 250
    each = max(1, len(state.recipients)) if port is Port.LMTP else 1
    left = Envelope(state.sender, state.recipients, whole) if code == 250 else None
    return Step(state.ended(), (*begins, *([code] * each)), left)


def spoken(port: Port, verb: Verb, place: object, state: State) -> bytes:
    """The octets of it. The content of DATA is there only if it is asked for."""
    match verb:
        case Verb.EHLO:
            return b"LHLO c.example\r\n" if port is Port.LMTP else b"EHLO c.example\r\n"
        case Verb.MAIL | Verb.MAIL_NO:
            who = sender(place) if verb is Verb.MAIL else "refused@example.org"
            return f"MAIL FROM:<{who}>\r\n".encode()
        case Verb.RCPT | Verb.RCPT_NO:
            who = recipient(place) if verb is Verb.RCPT else "refused@example.net"
            return f"RCPT TO:<{who}>\r\n".encode()
        case Verb.DATA | Verb.DATA_BAD:
            asked = 354 in step(port, state, verb, place).replies
            return b"DATA\r\n" + (_octets(verb, place) + b".\r\n" if asked else b"")
        case Verb.BDAT | Verb.LAST | Verb.LAST_0 | Verb.LAST_BAD:
            octets = _octets(verb, place)
            last = b" LAST" if verb in _LASTS else b""
            return b"BDAT %d%s\r\n" % (len(octets), last) + octets
        case Verb.XSHADOW:
            return b"XSHADOW %s\r\n" % GREETING
        case Verb.XQDISCARD:
            return b"XQDISCARD 200\r\n"
        case _:
            return verb.value.encode() + b"\r\n"


GREETING = (
    b"mx1.example.org 6f0d7a3e-0000-4000-8000-000000000001 00000000000000aa:0 00000000000000aa@0 VERSION=2"
)


def _octets(verb: Verb, place: object) -> bytes:
    if verb is Verb.LAST_0:
        return b""
    bad = b"bare\nend\r\n" if verb in {Verb.DATA_BAD, Verb.LAST_BAD} else b""
    return content(place) + bad


def orders(
    port: Port, verbs: Sequence[Verb], begin: State, most: int, *, idle: int
) -> Iterator[tuple[Verb, ...]]:
    """The orders of up to ``most`` verbs, pruned by state: none says the same verb twice in one kind of
    state, and at most ``idle`` of its verbs are such as the model says change nothing there.
    """

    def longer(
        order: tuple[Verb, ...], state: State, said: frozenset[object], idle: int
    ) -> Iterator[tuple[Verb, ...]]:
        if order:
            yield order
        for verb in verbs if len(order) < most else ():
            here = state.kind(), verb
            after = step(port, state, verb, len(order)).state
            idles = after.kind() == state.kind()
            if here not in said and idles <= idle:
                yield from longer((*order, verb), after, said | {here}, idle - idles)

    return longer((), begin, frozenset(), idle)
