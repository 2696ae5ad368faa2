"""What happens to messages by an operator's hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shadowlab.generate.message import HOLDER, OWNER, Message
from shadowlab.generate.writing import GeneratedRow
from shadowrelay.core.events.reports import ReportKind, report_id
from shadowrelay.core.identifiers import MessageId

_JOB = "0a5fbe0c-1111-4222-8333-{:012x}"
_REASON = "spam of the night"


def ordered(
    m: Message, event: str, after: int, which: tuple[int, ...] = (), who: int = OWNER, **more: Any
) -> GeneratedRow:
    """A row of an operator's job about these recipients."""
    me = (m.owner, m.holder)[who]
    custom = more.pop("custom", f";S:Fork={which[0] if which else 1}")
    custom += f";S:Operator=kim;S:Reason={_REASON};S:Job={_JOB.format(m.at)}"
    row = m.row(event, which, client=me, source="ADMIN", context=_REASON, custom=custom, **more)
    m.add(after, who, row)
    return row


def _reported(m: Message, after: int) -> None:
    """The removal of all recipients, with a report on the first."""
    report = Message(
        report_id(MessageId(m.id), 1, ReportKind.FAILED),
        m.at + after,
        m.owner,
        m.holder,
        (m.sender,),
        [],
        sender="<>",
    )
    ordered(m, "REMOVE", after, reference=report.id)
    report.add(0, OWNER, report.row("DSN", source="DSN", server=report.owner, reference=m.id))
    report.hold(2)
    report.redirect(4)
    report.deliver(30, event="SENDEXTERNAL")
    report.discard(700)
    m.others.append(report)


def _removed(m: Message) -> None:
    m.accepted()
    m.defer(50)
    ordered(m, "REMOVE", 9_000)
    m.discard(9_800)


def _removed_in_part(m: Message) -> None:
    m.accepted()
    m.deliver(50, (1,))
    m.discard(800, (1,))
    ordered(m, "REMOVE", 9_000, (2,))
    if more := tuple(range(3, len(m.recipients) + 1)):
        m.deliver(9_100, more)
    m.discard(9_800, tuple(range(2, len(m.recipients) + 1)))


def _removed_with_report(m: Message) -> None:
    m.accepted()
    _reported(m, 9_000)
    m.discard(9_800)


def _removed_unreported(m: Message) -> None:
    _removed_with_report(m)
    m.others.clear()


def _bounced_by_hand(m: Message) -> None:
    m.accepted()
    for number in range(1, len(m.recipients) + 1):
        m.fail(9_000, number)
        row = m.steps[-1][2]
        row.source = "ADMIN"
        row.custom += f";S:Fork={number};S:Operator=kim;S:Reason={_REASON};S:Job={_JOB.format(m.at)}"
    m.discard(9_800)


def _removed_too_late(m: Message) -> None:
    """A holder that was away delivers what the owner had removed: the removal was pending."""
    m.accepted()
    ordered(m, "REMOVE", 9_000)
    m.take_over(60_000)
    m.deliver(60_100, who=HOLDER, epoch=2)


def _delivered_by_who_heard(m: Message) -> None:
    m.accepted()
    m.take_over(5_000)
    ordered(m, "REMOVE", 9_000)
    m.discard(9_800, epoch=2)
    m.deliver(60_100, who=HOLDER, epoch=2)


def _delivered_by_who_removed(m: Message) -> None:
    m.accepted()
    ordered(m, "REMOVE", 9_000)
    m.deliver(9_500)
    m.discard(9_800)


def _removed_after_delivery(m: Message) -> None:
    m.accepted()
    m.deliver(8_000)
    ordered(m, "REMOVE", 9_000)
    m.discard(9_800)


def _suspended(m: Message) -> None:
    m.accepted()
    m.defer(50)
    ordered(m, "SUSPEND", 9_000)
    m.left = ((OWNER, "primary"), (HOLDER, "shadow"))


def _resumed(m: Message) -> None:
    m.accepted()
    ordered(m, "SUSPEND", 9_000)
    ordered(m, "RESUME", 19_000)
    m.left = ((OWNER, "primary"), (HOLDER, "shadow"))


def _resumed_by_another(m: Message) -> None:
    """The former owner holds a copy, and did not hear that the new one resumed it."""
    m.accepted()
    ordered(m, "SUSPEND", 9_000)
    m.take_over(60_000)
    m.yielded(90_000)
    ordered(m, "RESUME", 99_000, who=HOLDER, epoch=2)
    m.left = ((OWNER, "shadow"), (HOLDER, "primary"))
    m.left_in = 2


def _resumed_and_sent_twice(m: Message) -> None:
    """To resume what was suspended is no cause of a duplicate, as to release what was set aside is."""
    m.accepted()
    ordered(m, "SUSPEND", 9_000)
    ordered(m, "RESUME", 19_000)
    m.deliver(19_100)
    m.deliver(19_200)
    m.discard(19_800)


def _retried(m: Message) -> None:
    m.accepted()
    m.defer(50)
    ordered(m, "RETRY", 9_000)
    m.deliver(9_100)
    m.discard(9_800)


def _queue_suspended(m: Message) -> None:
    """A queue is suspended, retried and resumed: rows about no message, among the rows of this one."""
    m.accepted()
    m.defer(50)
    for after, event in enumerate(("SUSPEND", "RETRY", "RESUME")):
        row = ordered(m, event, 1_000 + after, custom=";S:Queue=relay.example.net")
        row.custom += f";S:ChangedBy={m.owner}"
        row.id, row.recipients, row.count, row.sender, row.size = "", "", 0, "", 0
        row.context = "relay.example.net"
    m.deliver(9_100)
    m.discard(9_800)


OPERATING: dict[str, tuple[Callable[[Message], None], tuple[str, ...]]] = {
    "removed": (_removed, ("removed",)),
    "removed-in-part": (_removed_in_part, ("removed",)),
    "removed-with-report": (_removed_with_report, ("removed",)),
    "removed-unreported": (_removed_unreported, ("removed", "report-missing")),
    "bounced-by-hand": (_bounced_by_hand, ()),
    "removed-too-late": (
        _removed_too_late,
        ("removed", "removed-too-late", "promoted-unverified", "exposed"),
    ),
    "delivered-by-who-heard": (
        _delivered_by_who_heard,
        ("removed", "delivered-after-removal", "promoted-unverified", "exposed"),
    ),
    "delivered-by-who-removed": (_delivered_by_who_removed, ("removed", "delivered-after-removal")),
    "removed-after-delivery": (_removed_after_delivery, ("removed", "rows-contradict")),
    "suspended": (_suspended, ("suspended",)),
    "resumed": (_resumed, ("in-transit",)),
    "resumed-by-another": (_resumed_by_another, ("in-transit", "promoted-rightly", "exposed")),
    "resumed-and-sent-twice": (_resumed_and_sent_twice, ("duplicate",)),
    "retried": (_retried, ()),
    "queue-suspended": (_queue_suspended, ()),
}
"""What operators did: how each is told, and the classes that the audit has to find."""
