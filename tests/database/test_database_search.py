"""Messages are found by address, domain, Message-ID header, id and subject, newest first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from admin.admin_node import MX2, FakeNode, a_node, attempted, fill, held, meet, message_id, received

from shadowrelay.core.delivery.settling import Ending
from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.messages import Copy
from shadowrelay.database import search
from shadowrelay.database.search import SearchBy, SearchFor, SearchPage


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[FakeNode]:
    async with a_node(tmp_path) as made:
        await fill(made, meet(MX2), received(1, MX2), received(2, None), held(3, MX2), received(4, MX2))
        await fill(made, attempted(4, Ending.ACCEPTED, "250 2.0.0 ok"))
        yield made


async def found(
    node: FakeNode, text: str, after: str = search.LAST, most: int = 50, **more: Any
) -> SearchPage:
    seconds = more.get("seconds", lambda: 0.0)
    return await search.search(node.database.transact, search.query(text), MessageId(after), most, seconds)


async def one(node: FakeNode, number: int) -> Copy:
    copy = await node.database.transact(lambda ledger: ledger.copy(message_id(number)))
    assert copy is not None
    return copy


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("Anna@Example.ORG", SearchFor(SearchBy.ADDRESS, "Anna@Example.ORG")),
        ("*@example.org", SearchFor(SearchBy.DOMAIN, "example.org")),
        ("<one@host>", SearchFor(SearchBy.HEADER, "<one@host>")),
        ("019a", SearchFor(SearchBy.ID, "019a")),
        ("019a5c3e-1", SearchFor(SearchBy.ID, "019a5c3e-1")),
        ("invoice 7", SearchFor(SearchBy.WORDS, "invoice 7")),
        ("anna", SearchFor(SearchBy.WORDS, "anna")),
        ("anna@exam", SearchFor(SearchBy.WORDS, "anna@exam")),
        ("decade", SearchFor(SearchBy.WORDS, "decade")),
        ("subject:beef", SearchFor(SearchBy.SUBJECT, "beef")),
        ("address: postmaster", SearchFor(SearchBy.ADDRESS, "postmaster")),
        ("domain:*@a.test", SearchFor(SearchBy.DOMAIN, "a.test")),
        ("re: hello", SearchFor(SearchBy.WORDS, "re: hello")),
    ],
)
def test_what_an_operator_means_is_guessed_unless_it_is_said(text, meant):
    assert search.query(text) == meant


@pytest.mark.parametrize("text", ["", "  ", "*@", "id:", "<>"])
def test_a_query_that_says_nothing_is_refused(text):
    with pytest.raises(ValueError, match="look for"):
        search.query(text)


async def test_queues_shadow_queues_and_safety_net_are_searched_by_recipient_and_by_sender(node):
    def ids(*numbers: int) -> SearchPage:
        return SearchPage(tuple(message_id(number) for number in numbers), None)

    assert await found(node, "ANN@outside.TEST") == ids(4, 2, 1)
    assert await found(node, "a@b.test") == ids(3)
    assert await found(node, "Bob@example.net") == ids(4, 3, 2, 1)
    assert await found(node, "*@Outside.test") == ids(4, 2, 1)
    assert await found(node, "*@example.net") == ids(4, 3, 2, 1)
    assert await found(node, "*@ample.net") == ids()
    assert await found(node, "nobody@nowhere.test") == ids()


async def test_a_message_id_header_is_found_with_and_without_its_brackets(node):
    header = (await one(node, 1)).envelope.message_id
    assert header
    for text in (header, header.strip("<>"), f"message-id:{header.strip('<>')}"):
        assert message_id(1) in (await found(node, text)).found


async def test_an_id_is_found_by_its_beginning(node):
    assert (await found(node, f"id:{message_id(2)}")).found == (message_id(2),)
    assert len((await found(node, f"id:{message_id(2)[:4]}")).found) == 4


async def test_words_of_the_subject_are_found_in_any_order_and_signs_of_sql_mean_themselves(node):
    words = (await one(node, 1)).envelope.subject.split()
    assert message_id(1) in (await found(node, "subject:" + " ".join(reversed(words)).upper())).found
    assert (await found(node, "subject:%")).found == ()
    assert (await found(node, "subject:_")).found == ()


async def test_pages_follow_one_another_without_a_gap_or_a_repetition(node):
    for text in ("ann@outside.test", "*@outside.test"):
        seen: list[MessageId] = []
        page = await found(node, text, most=2)
        while page.until is not None:
            seen += page.found
            page = await found(node, text, page.until, most=2)
        assert [*seen, *page.found] == [message_id(number) for number in (4, 2, 1)]


async def test_looking_through_subjects_ends_in_time_and_says_where(node, monkeypatch):
    monkeypatch.setattr(search, "PART", 1)
    ticks = iter([0.0, 0.1, 2.0])
    page = await found(node, "subject:nothing has this", seconds=lambda: next(ticks))
    assert page == SearchPage((), message_id(3))
    assert await found(node, "subject:nothing has this", page.until or "") == SearchPage((), None)


async def test_what_is_only_remembered_of_a_message_is_known_too(node):
    known = await node.database.transact(
        lambda ledger: search.known(ledger, [message_id(4), MessageId("unknown")])
    )
    assert [one.id for one in known] == [message_id(4)]


GREETINGS = "=?utf-8?B?R3LDvMOfZSBhdXM=?= =?iso-8859-1?Q?_K=F6ln?="


async def test_an_encoded_subject_is_found_by_what_a_person_reads_without_regard_to_case(node):
    await fill(node, received(7, MX2, subject=GREETINGS))
    for text in ("Grüße", "GRÜSSE köln", "subject:grüsse", "üße", "Gru\u0308ße"):
        assert (await found(node, text)).found == (message_id(7),), text
    assert (await found(node, "subject:R3LDvMOfZSBhdXM")).found == ()
    assert (await found(node, "subject:Kolle")).found == ()


async def test_a_part_of_an_address_is_found_among_senders_and_recipients_and_with_words_of_the_subject(node):
    await fill(node, received(7, MX2, "Anna.Berg@outside.test", subject="offer for 2027"))
    for text in ("anna", "BERG", "anna.berg@outs", "berg offer", "2027 anna"):
        assert (await found(node, text)).found == (message_id(7),), text
    assert (await found(node, "subject:anna")).found == ()
    assert (await found(node, "anna invoice")).found == ()


@pytest.mark.parametrize("stored", ["ann@xn--mnchen-3ya.example", "ann@München.example"])
async def test_a_domain_is_found_in_unicode_and_in_ascii(node, stored):
    await fill(node, received(7, MX2, stored))
    for text in (
        "ann@münchen.example",
        "ANN@MÜNCHEN.example",
        "ann@xn--mnchen-3ya.example",
        "*@münchen.example",
        "*@XN--mnchen-3ya.example",
        "münch",
        "ann@münch",
        "xn--mnchen",
    ):
        assert (await found(node, text)).found == (message_id(7),), text
