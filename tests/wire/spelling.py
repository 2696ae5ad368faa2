"""Hypothesis strategies for everything that members say to each other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from shadowrelay.core.decisions import Verdict, VerdictKind
from shadowrelay.core.digests import of_content
from shadowrelay.core.identifiers import (
    Beginning,
    DatabaseId,
    Incarnation,
    Lineage,
    Mark,
    MessageId,
    NextHop,
    RequestId,
    ServerName,
)
from shadowrelay.core.members.conversation import (
    MAX_LINES,
    MAX_QUESTIONS,
    Greeting,
    Line,
    Query,
    Question,
    Revocation,
)
from shadowrelay.core.members.damage import Wanted
from shadowrelay.core.messages import FOREVER, Status, Unread
from shadowrelay.core.reception.by_reference import MadeOf
from shadowrelay.wire.xshadow import VERSIONS, Fork, OfferParameter

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

numbers = st.integers(0, 10**18 - 1)
incarnations = st.integers(0, 2**64 - 1).map(lambda value: Incarnation(f"{value:016x}"))
marks = st.builds(Mark, incarnations, numbers)
message_ids = st.uuids().map(lambda value: MessageId(str(value)))
databases = st.uuids().map(lambda value: DatabaseId(str(value)))
names = st.from_regex(
    r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?){0,4}", fullmatch=True
)
server_names = names.map(ServerName)


@st.composite
def lineages(draw: st.DrawFn) -> Lineage:
    tokens = draw(st.lists(incarnations, min_size=1, max_size=8, unique=True))
    *starts, sequence = sorted(draw(st.lists(numbers, min_size=len(tokens) + 1, max_size=len(tokens) + 1)))
    return Lineage(draw(databases), tuple(map(Beginning, tokens, starts)), sequence)


greetings = st.builds(
    Greeting, server_names, lineages(), st.one_of(st.none(), incarnations), st.sampled_from(VERSIONS)
)
digests = st.binary().map(of_content)
milliseconds = st.integers(0, 31_556_952_000_000).map(lambda value: timedelta(milliseconds=value))
marked = (message_ids, numbers, numbers, marks)
offers = st.one_of(
    st.builds(OfferParameter, *marked, received_at=milliseconds.map(lambda value: EPOCH + value)),
    st.builds(
        OfferParameter,
        *marked,
        age=milliseconds,
        envelope=digests,
        given_for=st.one_of(st.none(), server_names),
    ),
)
origins = st.builds(
    MadeOf,
    message_ids,
    st.one_of(st.none(), st.uuids().map(lambda value: RequestId(str(value)))),
    st.one_of(st.none(), numbers),
)
moments = st.integers(0, 4_000_000_000_000).map(lambda ms: EPOCH + timedelta(milliseconds=ms))
SETTLED = [Status.DELIVERED, Status.RELAYED, Status.FAILED, Status.REMOVED]
outcomes = st.one_of(
    st.just((Status.READY, None)),
    st.tuples(st.sampled_from(SETTLED), st.one_of(st.none(), moments)),
    st.tuples(st.just(Status.READY), st.none(), st.one_of(st.none(), st.just(FOREVER), moments), moments),
)
forks = st.tuples(
    st.integers(1, 1_000_000), st.text(st.characters(codec="utf-8"), max_size=30).map(NextHop), outcomes
).map(lambda fork: Fork(*fork[:2], *fork[2]))
unread = st.builds(Unread, st.integers(0, 1_000_000), st.text(st.characters(codec="utf-8"), max_size=30))
questions = st.builds(Question, message_ids, numbers, st.one_of(st.none(), numbers), st.booleans())
wanted = st.one_of(st.builds(Wanted, message_ids), st.builds(Wanted, message_ids, numbers, digests))
queries = st.builds(
    Query,
    st.integers(0, MAX_LINES),
    st.one_of(st.none(), marks),
    st.one_of(st.none(), marks),
    st.lists(questions, max_size=MAX_QUESTIONS).map(tuple),
    st.one_of(st.none(), st.builds(Revocation, message_ids, numbers, numbers)),
    wanted=st.one_of(st.none(), wanted),
)
recipient_lists = st.lists(st.integers(1, 1_000_000), max_size=40, unique=True).map(
    lambda x: tuple(sorted(x))
)


@st.composite
def verdicts(draw: st.DrawFn) -> Verdict:
    kind = draw(st.sampled_from(VerdictKind))
    arguments = {
        VerdictKind.TAKEN: names,
        VerdictKind.RECORDED: numbers.map(str),
        VerdictKind.SUPERSEDED: numbers.map(str),
        VerdictKind.DAMAGED: st.one_of(st.just(""), numbers.map(str)),
        VerdictKind.DELIVERED: st.sampled_from(["", "relayed", "failed", "removed"]),
        VerdictKind.UNREAD: unread.map(lambda found: f"{found.tries};{found.host}"),
        VerdictKind.SUSPENDED: st.one_of(st.just(""), st.integers(0, 4_000_000_000_000).map(str)),
    }
    argument = draw(arguments.get(kind, st.just("")))
    settled_at = draw(st.one_of(st.none(), moments)) if kind is VerdictKind.DELIVERED else None
    if kind in (VerdictKind.SUSPENDED, VerdictKind.RESUMED):
        settled_at = draw(moments)
    return Verdict(draw(message_ids), draw(numbers), kind, argument, draw(recipient_lists), settled_at)


lines = st.builds(Line, st.one_of(st.none(), numbers), verdicts())
