"""What a filter means is the same in SQL, which counts and selects, and in the core, which decides."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from opened import NOW, SECOND, database, message, save, shadow

from shadowrelay.core import filtering
from shadowrelay.core.identifiers import FIRST, NextHop
from shadowrelay.core.jobs import Filter
from shadowrelay.core.messages import FOREVER, Copy, Envelope, Recipient, Stage, Status
from shadowrelay.core.spelling import canonical
from shadowrelay.database import job_selection
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.wire.records import record_from, record_told

KELVIN, DOTTED = "\N{KELVIN SIGN}", "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}"
LOCAL = st.sampled_from(
    ["ann", "Ann", "kim", "KIM", f"{KELVIN}im", "ÄNN", "änn", f"{DOTTED}da", "100%_", "'"]
)
DOMAIN = st.sampled_from(
    ["example.net", "EXAMPLE.net", "sub.example.net", "k.example", f"{KELVIN}.example", "müller.example",
     "MÜLLER.example", "xn--mller-kva.example", "example.net.", "ß.example"]
)  # fmt: skip
ADDRESS = st.one_of(
    st.builds(lambda local, domain: f"{local}@{domain}", LOCAL, DOMAIN),
    st.sampled_from(["postmaster", "a@b@c"]),
)
HOPS = [
    "inside",
    "Inside",
    "inside/",
    "inside/a.example",
    "inside/b.example",
    "insider",
    "in_ide",
    "local/lists",
]
HOP = st.sampled_from([NextHop(one) for one in HOPS])
TEXT = st.sampled_from(
    [
        "",
        "hello",
        "HELLO world",
        "451 4.7.1 no",
        "STRASSE",
        "straße",
        f"{DOTTED}",
        "i̇",
        "Σας",
        "a\nb",
        "=?utf-8?Q?STRA=C3=9FE?=",
        "=?koi8-r?B?8NLJ18XU?= =?nosuch?Q?STRASSE?=",
        "=?utf-8?B?a?=",
        "%",
        "_",
    ]
)
OCTETS = st.sampled_from([0, 1, 999, 1000, 1001, 2**31])
MOMENT = st.integers(-5, 2).map(lambda steps: NOW + steps * timedelta(microseconds=1))
SPAN = st.integers(0, 4).map(lambda steps: steps * timedelta(microseconds=1))


@pytest.fixture
async def transport(tmp_path: Path) -> AsyncIterator[TransportDatabase]:
    async with database(tmp_path) as found:
        yield found


SETTLED = [one for one in Status if one is not Status.READY]


@st.composite
def recipients(draw: st.DrawFn) -> tuple[Recipient, ...]:
    found = []
    for number in range(1, draw(st.integers(1, 3)) + 1):
        status = draw(st.sampled_from([Status.READY, Status.READY, Status.READY, *SETTLED]))
        found.append(
            Recipient(
                number,
                draw(ADDRESS),
                draw(HOP),
                status=status,
                last_reply=draw(TEXT),
                settled_at=NOW if status is not Status.READY else None,
                suspended=draw(st.one_of(st.none(), st.just(FOREVER), MOMENT)),
            )
        )
    return tuple(found)


@st.composite
def copies(draw: st.DrawFn) -> Copy:
    given = draw(recipients())
    changes: dict[str, Any] = {
        "envelope": Envelope(
            sender=draw(st.one_of(st.just(""), ADDRESS)),
            size=draw(OCTETS),
            subject=draw(TEXT),
            message_id="<1@a>",
        ),
        "recipients": given,
        "received_at": draw(MOMENT),
    }
    if all(one.settled for one in given):
        return message(**changes, stage=Stage.SAFETY_NET, settled_at=NOW)
    made = shadow if draw(st.integers(0, 5)) == 0 else message
    return made(**changes)


@st.composite
def asked(draw: st.DrawFn) -> tuple[list[Copy], Filter]:
    """A queue and a filter. Most conditions are taken from one message, so that filters mean something."""
    kept = draw(st.lists(copies(), min_size=1, max_size=5))
    like = draw(st.sampled_from(kept))
    to = draw(st.sampled_from(like.recipients))

    conditions = iter(draw(st.permutations([True, True, *[False] * 8])))

    def maybe(near: Any, far: st.SearchStrategy[Any]) -> Any:
        return draw(st.sampled_from([near, near, near, draw(far)])) if next(conditions) else None

    def pattern(address: str) -> Any:
        near = draw(st.sampled_from([address, f"*@{domain(address)}"]))
        return maybe(near.lower(), ADDRESS.map(str.lower))

    def part(text: str) -> Any:
        begin, end = draw(st.integers(0, 3)), draw(st.integers(0, 9))
        return maybe(text[begin:end].swapcase(), TEXT)

    return kept, Filter(
        ids=draw(st.sampled_from([(), (), (), (), (like.id,), tuple(one.id for one in kept)])),
        queue=maybe(draw(st.sampled_from([to.next_hop, NextHop(to.next_hop.partition("/")[0])])), HOP),
        sender=pattern(like.envelope.sender),
        recipient=pattern(to.address),
        domain=maybe(canonical(domain(to.address)), DOMAIN.map(canonical)),
        subject=part(like.envelope.subject),
        error=part(to.last_reply),
        suspended=draw(st.sampled_from([None, None, None, True, False])),
        older=maybe(max(NOW - like.received_at, timedelta(0)), SPAN),
        younger=maybe(max(NOW - like.received_at, timedelta(0)), SPAN),
        larger=maybe(like.envelope.size, OCTETS),
        smaller=maybe(like.envelope.size, OCTETS),
    )


def domain(address: str) -> str:
    return address.rpartition("@")[2]


def one_to(address: str, suspended: datetime | None = None) -> Copy:
    to = Recipient(1, address, NextHop("inside"), suspended=suspended)
    return message(recipients=(to,), received_at=NOW - SECOND)


class Undo(Exception):
    """Nothing of an example stays."""


def compare(ledger: SqlLedger, kept: list[Copy], wanted: Filter) -> None:
    for copy in kept:
        save(copy)(ledger)
    meant = {
        copy.id: filtering.numbers(wanted, copy, NOW, NOW) for copy in kept if filtering.reaches(wanted, copy)
    }
    meant = {id_: numbers for id_, numbers in meant.items() if numbers}
    if wanted.ids:
        count = job_selection.named(ledger, wanted, NOW)
    else:
        count = job_selection.counted((ledger.connection,), wanted, NOW)
    assert (count.messages, count.recipients) == (len(meant), sum(map(len, meant.values())))
    assert count.octets == sum(copy.envelope.size for copy in kept if copy.id in meant)
    assert [one.id for one in count.sample] == sorted(meant)
    page = job_selection.page(ledger, wanted, NOW, NOW, FIRST, 100)
    if wanted.ids:  # the core judges each of them
        assert page.ids == sorted(wanted.ids)
    else:
        assert (page.ids, page.last) == (sorted(meant), None)


@settings(max_examples=200, suppress_health_check=list(HealthCheck), deadline=None)
@given(asked())
@example(([one_to(f"{KELVIN}im@k.example")], Filter(recipient="kim@k.example")))
@example(([one_to(f"ann@{KELVIN}.example")], Filter(recipient="*@k.example")))
@example(([one_to("ann@EXAMPLE.net."), one_to("ann@müller.example")], Filter(domain="xn--mller-kva.example")))
@example(([one_to("ann@xn--mller-kva.example")], Filter(recipient="ann@müller.example")))
@example(([one_to("Ann@MÜLLER.example")], Filter(recipient="*@xn--mller-kva.example")))
@example(([one_to("ann@example.net", FOREVER), one_to("ann@example.net")], Filter(suspended=True)))
@example(([one_to("ann@example.net", FOREVER), one_to("ann@example.net")], Filter(suspended=False)))
async def test_a_count_and_a_walk_find_exactly_what_the_core_says_is_meant(
    transport: TransportDatabase, given: tuple[list[Copy], Filter]
) -> None:
    assert record_from(Filter, record_told(given[1])) == given[1]

    def work(ledger: SqlLedger) -> None:
        compare(ledger, *given)
        raise Undo

    with pytest.raises(Undo):
        await transport.transact(work)
