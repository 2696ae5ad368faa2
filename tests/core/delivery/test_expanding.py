"""A list is settled once, and announced when the message to its members is safe."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from decision_inputs import HOP, attempt, holder
from ledger_at_hand import DB, NOW, A, B, LedgerAtHand, M, ledger_of, message

from shadowrelay.core.delivery.settling import AttemptResult, Ending, Expansion, Report, expansion_of, settle
from shadowrelay.core.events.reports import ReportKind, is_derived, report_id
from shadowrelay.core.events.side_effects import waited_in_vain
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.messages import Confirmation, Copy, Envelope, Recipient, Role, Stage, Status
from shadowrelay.core.reception import redundancy
from shadowrelay.core.reception.redundancy import Leg
from shadowrelay.core.recipients import LISTS, AddressBook, DistributionList
from shadowrelay.wire.xtext import typed_recipient

LIST, OTHER = "team@example.net", "other@example.net"
OUT = NextHop("out")


def book(*members: str, owner: str = "", **more: Any) -> AddressBook:
    lists = {LIST: DistributionList(members or ("x@example.com", "y@example.com"), owner)}
    lists[OTHER] = DistributionList(("z@example.com",))
    return AddressBook(aliases={}, lists=lists, known={}, **more)


def to_list(**changes: Any) -> Copy:
    recipients = (Recipient(1, LIST, LISTS), Recipient(2, "bob@example.net", OUT), Recipient(3, OTHER, LISTS))
    return message(recipients=recipients, holders=(holder(B),), **changes)


def expansion(copy: Copy, of: AddressBook | None = None, number: int = 1) -> Expansion:
    about = copy.recipients[number - 1]
    found = expansion_of(copy, about, of or book(), lambda _: OUT, typed_recipient)
    assert found
    return found


def expand(
    on: LedgerAtHand, *numbers: int, of: AddressBook | None = None, report: Report | None = None
) -> None:
    copy = on.copies[M]
    made = [expansion(copy, of, number) for number in numbers]
    ending = {True: Ending.POSTED, False: Ending.EXPANDED}
    results = [
        AttemptResult(one.about, ending[one.posted], "250 2.1.5 Expanded", remote=False) for one in made
    ]
    on.apply(settle(on, M, results, (*made, *([report] if report else [])), replace(HOP, server=""), NOW))


def told(on: LedgerAtHand) -> list[tuple[int, ...]]:
    return [event.verdict.recipients for event in on.told]


def safe(on: LedgerAtHand, message_id: Any) -> None:
    on.apply(redundancy.repaired(on, message_id, attempt(Leg.ACKNOWLEDGED), NOW))


def test_the_members_get_a_message_with_the_content_of_the_one_to_the_list() -> None:
    on = ledger_of(A, to_list())
    expand(on, 1)
    made = on.copies[expansion(to_list()).id]
    assert is_derived(made.id)
    assert (made.content_of, made.reports_on, made.owned, made.exposed) == (M, M, True, True)
    assert [(one.number, one.address, one.next_hop) for one in made.recipients] == [
        (1, "x@example.com", OUT),
        (2, "y@example.com", OUT),
    ]
    settled = on.copies[M].recipients[0]
    assert (settled.status, settled.report) == (Status.RELAYED, made.id)
    rows = [(e.event_id, e.source, e.columns()["reference"]) for e in on.events]
    assert rows == [("EXPAND", "ROUTING", made.id), ("RECEIVE", "ROUTING", M)]


def test_a_list_is_announced_once_the_message_to_its_members_has_a_second_copy() -> None:
    on = ledger_of(A, to_list())
    expand(on, 1)
    assert told(on) == []
    safe(on, expansion(to_list()).id)
    assert told(on) == [(1,)]
    assert on.copies[M].recipients[0].report is None


def test_a_list_is_announced_once_the_message_to_its_members_is_settled() -> None:
    on = ledger_of(A, to_list())
    expand(on, 1)
    made = expansion(to_list()).id
    for number in (1, 2):
        assert told(on) == []
        on.apply(settle(on, made, [AttemptResult(number, Ending.ACCEPTED, "250")], (), HOP, NOW))
    assert told(on) == [(1,)]


def test_each_list_of_a_message_waits_for_its_own_members() -> None:
    on = ledger_of(A, to_list())
    expand(on, 1, 3)
    safe(on, expansion(to_list(), number=3).id)
    assert told(on) == [(3,)]
    safe(on, expansion(to_list()).id)
    assert told(on) == [(3,), (1,)]


def test_two_recipients_that_are_one_list_wait_for_one_message() -> None:
    twice = (Recipient(1, LIST, LISTS), Recipient(2, "Team@example.net", LISTS))
    copy = message(recipients=twice, holders=(holder(B),))
    on = ledger_of(A, copy)
    made = replace(expansion(copy), about=2)
    results = [AttemptResult(n, Ending.EXPANDED, "250", remote=False) for n in (1, 2)]
    settled = settle(on, M, results, (expansion(copy), made), HOP, NOW)
    assert [write.after.id for write in settled.writes].count(made.id) == 1
    on.apply(settled)
    assert [e.event_id for e in on.events] == ["EXPAND", "RECEIVE", "EXPAND"]
    safe(on, made.id)
    assert told(on) == [()]


@pytest.mark.parametrize("report_first", [False, True])
def test_a_list_waits_for_its_members_message_and_for_the_report_on_it(report_first: bool) -> None:
    on = ledger_of(A, to_list())
    dsn = report_id(M, 1, ReportKind.EXPANDED)
    expand(on, 1, report=Report(id=dsn, about=1, content=b"report", next_hop=OUT))
    made = expansion(to_list()).id
    first, last = (dsn, made) if report_first else (made, dsn)
    safe(on, first)
    assert told(on) == []
    safe(on, last)
    assert told(on) == [(1,)]


def test_a_holder_that_expands_again_asks_about_the_same_message_first() -> None:
    on = ledger_of(B, to_list(epoch=2, owner=B, owner_database=DB[B], former_owner=A))
    expand(on, 1)
    made = on.copies[expansion(to_list()).id]
    assert (made.confirmation, made.confirm_since) == (Confirmation.ASK, NOW)
    assert made.former_owner == A  # which is asked once more when it is back


def test_what_a_holder_made_already_is_not_made_again() -> None:
    copy = to_list()
    wanted = expansion(copy)
    held = message(
        Role.SHADOW, id=wanted.id, owner=B, owner_database=DB[B], recipients=wanted.recipients, content_of=M
    )
    on = ledger_of(A, copy, held)
    expand(on, 1)
    assert on.copies[wanted.id] == held
    assert on.copies[M].recipients[0].report is None  # B has it, and so have we
    assert [e.event_id for e in on.events] == ["EXPAND"]


def test_a_wait_that_nothing_will_end_is_ended() -> None:
    on = ledger_of(A, to_list())
    expand(on, 1)
    made = expansion(to_list()).id
    on.put(replace(on.copies[made], stage=Stage.SAFETY_NET))
    on.apply(waited_in_vain(on, on.copies[M], NOW))
    assert told(on) == [(1,)]


def test_other_members_or_another_owner_make_another_message() -> None:
    copy = to_list()
    books = (
        book(),
        book("x@example.com"),
        book("y@example.com", "x@example.com"),
        book(owner="o@example.com"),
    )
    assert len({expansion(copy, of).id for of in books}) == 4
    assert expansion(copy, book()).id == expansion(replace(copy, epoch=2), book()).id
    assert expansion(copy, number=3).id != expansion(copy).id


def test_an_owner_gets_the_reports_and_the_senders_wishes_end_with_the_list() -> None:
    asked = Recipient(1, LIST, LISTS, ("SUCCESS", "DELAY"), "rfc822;a@b.example")
    envelope = Envelope(sender="s@example.org", size=1, ret="FULL", envid="e")
    copy = replace(to_list(), envelope=envelope, recipients=(asked,))
    owned = expansion(copy, book(owner="o@example.com"))
    assert (owned.envelope.sender, owned.envelope.ret, owned.envelope.envid, owned.posted) == (
        "o@example.com",
        None,
        None,
        True,
    )
    assert {(one.notify, one.orcpt) for one in owned.recipients} == {((), None)}
    plain = expansion(copy)
    assert (plain.envelope, plain.posted) == (envelope, False)
    assert {(one.notify, one.orcpt) for one in plain.recipients} == {(("DELAY",), "rfc822;a@b.example")}
    only = replace(copy, recipients=(replace(asked, notify=("SUCCESS",), orcpt=None),))
    assert {(one.notify, one.orcpt) for one in expansion(only).recipients} == {(("NEVER",), f"rfc822;{LIST}")}


def test_reports_to_a_list_never_lead_to_more_reports() -> None:
    copy = replace(to_list(), envelope=Envelope(sender="", size=1))
    assert expansion(copy, book(owner=LIST)).envelope.sender == ""


def test_a_member_that_nobody_has_is_tried_here_and_fails() -> None:
    of = replace(book("x@known.example", "y@example.com"), known={"known.example": frozenset()})
    assert [one.next_hop for one in expansion(to_list(), of).recipients] == [LISTS, OUT]


def test_what_is_no_list_or_has_no_members_is_not_expanded() -> None:
    copy = to_list()
    for of, number in ((book(LIST), 1), (book(), 2)):
        assert expansion_of(copy, copy.recipients[number - 1], of, lambda _: OUT, typed_recipient) is None
