"""What becomes of a recipient's address, by the recipients file."""

from __future__ import annotations

from typing import Any

import pytest

from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.messages import Recipient
from shadowrelay.core.recipients import (
    LISTS,
    AddressBook,
    Becomes,
    DistributionList,
    ListMember,
    Rewriting,
    folded,
    once,
    rewrite,
)
from shadowrelay.core.values import replace
from shadowrelay.wire.xtext import typed_recipient

D = "example.net"


def book(**given: Any) -> AddressBook:
    given.setdefault("aliases", {})
    given.setdefault("lists", {})
    given["known"] = {domain: frozenset(names) for domain, names in given.get("known", {}).items()}
    return AddressBook(**given)


def listed(*members: str, owner: str = "") -> DistributionList:
    return DistributionList(members, owner)


def steps(of: AddressBook, address: str) -> tuple[str, tuple[str, ...]]:
    found = of.resolve(address)
    return found.what.value, found.steps


def members(of: AddressBook, address: str) -> list[str]:
    found = of.expand(address)
    assert found
    return [one.address for one in found.members]


def test_an_alias_leads_through_others_to_a_mailbox() -> None:
    of = book(aliases={f"a@{D}": f"b@{D}", f"b@{D}": "c@elsewhere.example"})
    assert steps(of, f"a@{D}") == ("mailbox", (f"a@{D}", f"b@{D}", "c@elsewhere.example"))
    assert steps(of, f"c@{D}") == ("mailbox", (f"c@{D}",))


@pytest.mark.parametrize("given", [f"Sales@{D}", "sales@EXAMPLE.net", f'"sales"@{D}', f'"S\\ales"@{D}'])
def test_case_and_needless_quotes_make_no_difference(given: str) -> None:
    assert book(aliases={f"sales@{D}": f"Bob@{D}"}).resolve(given).address == f"Bob@{D}"


def test_a_domain_is_one_in_either_spelling() -> None:
    assert folded("Bob@BÜCHER.example") == "bob@xn--bcher-kva.example"


def test_a_catch_all_takes_what_nothing_else_takes() -> None:
    of = book(
        aliases={f"@{D}": f"all@{D}", f"a@{D}": f"b@{D}", f"b@{D}": f"b@{D}"},
        lists={f"l@{D}": listed(f"x@{D}")},
        known={D: {f"known@{D}"}},
    )
    assert steps(of, f"x@{D}") == ("mailbox", (f"x@{D}", f"all@{D}"))
    assert steps(of, f"all@{D}") == ("mailbox", (f"all@{D}",))  # it does not lead to itself for ever
    assert steps(of, f"a@{D}") == ("mailbox", (f"a@{D}", f"b@{D}"))  # an alias of itself is a mailbox
    assert steps(of, f"known@{D}") == ("mailbox", (f"known@{D}",))
    assert of.resolve(f"l@{D}").what is Becomes.LIST


def test_a_detail_leads_to_the_address_without_it_if_the_setting_says_so() -> None:
    entries: dict[str, Any] = {
        "aliases": {f"a@{D}": f"b@{D}", f"a+x@{D}": f"c@{D}", f"@{D}": f"d@{D}"},
        "lists": {f"l@{D}": listed(f"b@{D}")},
        "known": {D: {f"k@{D}"}},
    }
    of = book(**entries, delimiter="+")
    assert steps(of, f"a+y@{D}")[1][:2] == (f"a+y@{D}", f"b@{D}")
    assert steps(of, f"a+x@{D}")[1][1] == f"c@{D}"
    assert steps(of, f"l+x@{D}") == ("list", (f"l+x@{D}", f"l@{D}"))
    assert steps(of, f"k+x@{D}") == ("mailbox", (f"k+x@{D}",))  # the mailbox has use for it
    assert steps(of, f"+x@{D}")[1][1] == f"d@{D}"
    assert book(**entries).resolve(f"a+y@{D}").steps[1] == f"d@{D}"


def test_nobody_has_an_address_only_where_recipients_are_known() -> None:
    of = book(
        aliases={f"a@{D}": f"b@{D}", f"out@{D}": "x@other.example", f"gone@{D}": f"nobody@{D}"},
        lists={f"l@{D}": listed(f"b@{D}")},
        known={D: {f"b@{D}"}},
    )
    for address in (f"a@{D}", f"B@{D}", f"out@{D}", "x@other.example", f"Postmaster@{D}"):
        assert of.resolve(address).what is Becomes.MAILBOX, address
    assert of.resolve(f"l@{D}").what is Becomes.LIST
    for address in (f"x@{D}", f"b+x@{D}", f"gone@{D}"):
        assert of.resolve(address).what is Becomes.UNKNOWN, address


def test_aliases_that_lead_to_one_another_are_a_loop() -> None:
    of = book(aliases={f"a@{D}": f"b@{D}", f"b@{D}": f"A@{D}", "@one.example": "x@two.example"})
    assert steps(of, f"a@{D}") == ("loop", (f"a@{D}", f"b@{D}", f"A@{D}"))
    crossed = book(aliases={"@one.example": "x@two.example", "@two.example": "x@one.example"})
    assert crossed.resolve("y@one.example").what is Becomes.LOOP


def test_members_are_resolved_nested_lists_expanded_and_each_member_is_there_once() -> None:
    of = book(
        aliases={f"a@{D}": f"b@{D}"},
        lists={
            f"l@{D}": listed(f"b@{D}", f"a@{D}", f"inner@{D}", f"B@{D}", "X@other.example", f"nobody@{D}"),
            f"inner@{D}": listed(f"c@{D}", f"b@{D}", "x@other.example"),
        },
        known={D: {f"b@{D}", f"c@{D}"}},
    )
    found = of.expand(f"L@{D}")
    assert found
    assert found.members == (
        ListMember(f"b@{D}"),
        ListMember(f"c@{D}"),
        ListMember("x@other.example"),
        ListMember("X@other.example"),  # there case may count
        ListMember(f"nobody@{D}", unknown=True),
    )
    assert (found.loops, found.depth) == ((), 2)
    assert of.expand(f"b@{D}") is None


def test_a_list_inside_itself_is_cut_there() -> None:
    of = book(
        lists={
            f"a@{D}": listed(f"x@{D}", f"b@{D}"),
            f"b@{D}": listed(f"y@{D}", f"a@{D}", f"z@{D}"),
            f"self@{D}": listed(f"self@{D}"),
        }
    )
    assert members(of, f"a@{D}") == [f"x@{D}", f"y@{D}", f"z@{D}"]
    assert members(of, f"b@{D}") == [f"y@{D}", f"x@{D}", f"z@{D}"]
    found = of.expand(f"a@{D}")
    assert found
    assert found.loops == (f"a@{D}",)
    assert members(of, f"self@{D}") == []


def test_a_list_that_is_there_twice_is_no_loop() -> None:
    of = book(
        lists={
            f"a@{D}": listed(f"b@{D}", f"c@{D}"),
            f"b@{D}": listed(f"c@{D}"),
            f"c@{D}": listed(f"x@{D}"),
        }
    )
    found = of.expand(f"a@{D}")
    assert found
    assert (found.members, found.loops, found.depth) == ((ListMember(f"x@{D}"),), (), 3)


def test_a_rewritten_recipient_keeps_the_address_that_the_sender_gave_as_orcpt() -> None:
    of = book(aliases={f"a@{D}": f"b@{D}"}, lists={f"l@{D}": listed(f"b@{D}")})
    given = [
        Recipient(1, f"A@{D}", NextHop("")),
        Recipient(2, f"c@{D}", NextHop(""), ("NEVER",)),
        Recipient(3, f"l@{D}", NextHop("")),
    ]
    made, rewritings = rewrite(given, of, typed_recipient)
    assert [(one.number, one.address, one.orcpt, one.next_hop) for one in made] == [
        (1, f"b@{D}", f"rfc822;A@{D}", ""),
        (2, f"c@{D}", None, ""),
        (3, f"l@{D}", None, LISTS),
    ]
    assert rewritings == (Rewriting(1, f"A@{D}"),)
    (with_orcpt,), _ = rewrite(
        [Recipient(1, f"a@{D}", NextHop(""), (), "rfc822;z@first.example")], of, typed_recipient
    )
    assert with_orcpt.orcpt == "rfc822;z@first.example"


@pytest.mark.parametrize(
    ("one", "other", "notify"),
    [
        ((), (), ()),
        (("NEVER",), (), ("FAILURE", "DELAY")),
        (("NEVER",), ("NEVER",), ("NEVER",)),
        (("SUCCESS",), ("FAILURE",), ("SUCCESS", "FAILURE")),
    ],
)
def test_two_recipients_that_lead_to_one_address_become_one(
    one: tuple[str, ...], other: tuple[str, ...], notify: tuple[str, ...]
) -> None:
    of = book(aliases={f"a@{D}": f"b@{D}"})
    for first, second, originals in (
        (f"a@{D}", f"B@{D}", [f"a@{D}", f"B@{D}"]),
        (f"b@{D}", f"a@{D}", [f"a@{D}"]),
    ):
        given = [
            Recipient(1, first, NextHop(""), one),
            Recipient(2, second, NextHop(""), other),
            Recipient(3, f"c@{D}", NextHop("")),
        ]
        made, rewritings = rewrite(given, of, typed_recipient)
        assert [(r.number, r.address, r.notify) for r in made] == [(1, f"b@{D}", notify), (2, f"c@{D}", ())]
        assert [r.original for r in rewritings] == originals
        assert {r.number for r in rewritings} == {1}


def test_a_list_that_the_sender_named_twice_is_one_recipient() -> None:
    given = [Recipient(1, f"l@{D}", NextHop("")), Recipient(2, f"L@{D}", NextHop(""))]
    made, rewritings = rewrite(given, book(lists={f"l@{D}": listed(f"b@{D}")}), typed_recipient)
    assert [(one.number, one.address) for one in made] == [(1, f"l@{D}")]
    assert [one.original for one in rewritings] == [f"L@{D}"]


def test_recipients_that_a_peer_knows_by_their_numbers_stay_as_many() -> None:
    given = [Recipient(1, f"a@{D}", NextHop("")), Recipient(2, f"b@{D}", NextHop(""))]
    made, _ = rewrite(given, book(aliases={f"a@{D}": f"b@{D}"}), typed_recipient, merge=False)
    assert [(one.number, one.address) for one in made] == [(1, f"b@{D}"), (2, f"b@{D}")]


def test_recipients_whose_local_parts_differ_in_case_stay_two_if_nothing_was_rewritten() -> None:
    given = [Recipient(1, f"b@{D}", NextHop("")), Recipient(2, f"B@{D}", NextHop(""))]
    made, _ = rewrite(once(given), book(aliases={f"a@{D}": f"b@{D}"}), typed_recipient)
    assert [(one.number, one.address) for one in made] == [(1, f"b@{D}"), (2, f"B@{D}")]


@pytest.mark.parametrize(
    ("named", "kept"),
    [
        (["b@x.example"] * 3, ["b@x.example"]),
        (["b@X.Example", "b@x.example", "b@x.eXample"], ["b@X.Example"]),
        (["b@bücher.example", "b@xn--bcher-kva.example"], ["b@bücher.example"]),
        (['"b"@x.example', "b@x.example", r'"\b"@X.example'], ['"b"@x.example']),
        (["b@x.example", "B@x.example"], ["b@x.example", "B@x.example"]),
        (["b@x.example", "c@x.example", "b@x.example"], ["b@x.example", "c@x.example"]),
        (["b@[192.0.2.1]", "b@[192.0.2.1]"], ["b@[192.0.2.1]"]),
    ],
)
def test_a_recipient_that_is_named_several_times_is_one(named: list[str], kept: list[str]) -> None:
    made = once([Recipient(number, address, NextHop("")) for number, address in enumerate(named, 1)])
    assert [(one.number, one.address) for one in made] == list(enumerate(kept, 1))


@pytest.mark.parametrize(
    ("notify", "one"),
    [
        ([(), ()], ()),
        ([("NEVER",), ("NEVER",)], ("NEVER",)),
        ([("NEVER",), ("SUCCESS",), ()], ("SUCCESS", "FAILURE", "DELAY")),
    ],
)
def test_what_is_one_recipient_gets_each_report_that_was_asked_for(
    notify: list[tuple[str, ...]], one: tuple[str, ...]
) -> None:
    given = [Recipient(number, f"b@{D}", NextHop(""), words) for number, words in enumerate(notify, 1)]
    given[-1] = replace(given[-1], orcpt="rfc822;last@example.org")
    (made,) = once(given)
    assert (made.notify, made.orcpt) == (one, "rfc822;last@example.org")
    first = replace(given[0], orcpt="rfc822;first@example.org")
    assert once([first, *given[1:]])[0].orcpt == "rfc822;first@example.org"
