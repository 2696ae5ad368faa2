"""What Safety Net gives back, rightly or not, and copies that are made for a journal."""

from __future__ import annotations

from collections.abc import Callable

from shadowlab.generate.message import HOLDER, OWNER, Message
from shadowrelay.core.events.reports import derived_id, resubmitted_id
from shadowrelay.core.identifiers import MessageId, RequestId

_REQUEST = "5afe7e70-0000-4000-8000-000000000001"
_LATER = 120_000  # milliseconds: when it is given back


def _delivered(m: Message, event: str = "DELIVER") -> None:
    m.accepted()
    m.deliver(40, event=event)
    m.discard(800)


def _begun(m: Message, after: int = _LATER, who: int = OWNER, request: str = _REQUEST) -> Message:
    """A new message that gives this one back, made by its owner or its holder."""
    owner, holder = (m.owner, m.holder) if who == OWNER else (m.holder, m.owner)
    name = resubmitted_id(RequestId(request), MessageId(m.id))
    new = Message(
        name, m.at + after, owner, holder, m.recipients, [], sender=m.sender, content=m.content or m.id
    )
    _made(new, m, request)
    m.others.append(new)
    return new


def _made(new: Message, m: Message, request: str = _REQUEST, who: int = OWNER) -> None:
    row = new.row("RESUBMIT", source="SAFETYNET", context=f"request {request}", reference=m.id)
    row.server = (new.owner, new.holder)[who]
    row.custom += f";S:Request={request};S:Owner={m.owner}"
    row.digests = new.digests()
    new.add(who, who, row)


def _sent(new: Message) -> None:
    new.hold(2)
    new.redirect(4)
    new.deliver(30)
    new.discard(700)


def _resubmitted(m: Message) -> None:
    _delivered(m)
    _sent(_begun(m))


def _by_holder(m: Message) -> None:
    _delivered(m)
    _sent(_begun(m, who=HOLDER))


def _one_of_several(m: Message) -> None:
    """Of recipients that were delivered inside and outside, those inside."""
    m.recipients = (*m.recipients, "outside@example.org")
    m.accepted()
    m.deliver(40, tuple(range(1, len(m.recipients))))
    m.deliver(50, (len(m.recipients),), event="SENDEXTERNAL")
    m.discard(800)
    m.recipients = m.recipients[:-1]
    _sent(_begun(m))


def _alone(m: Message) -> None:
    _delivered(m)
    new = _begun(m)
    new.deliver(30)
    new.found = ("exposed",)


def _by_two(m: Message, event: str = "") -> None:
    """Owner and holder make it. The holder hears in time that it was sent, or sends it as well."""
    _delivered(m)
    new = _begun(m)
    _made(new, m, who=HOLDER)
    new.deliver(30)
    if event:
        new.deliver(40, who=HOLDER, event=event)
    else:
        new.discard(60, reason="DeliveredElsewhere")


def _made_twice(m: Message) -> None:
    _by_two(m)
    m.others[0].found = ("exposed",)


def _sent_twice(m: Message) -> None:
    _by_two(m, "DELIVER")
    m.others[0].found = ("duplicate", "exposed")


def _outside(m: Message) -> None:
    _delivered(m, "SENDEXTERNAL")
    _sent(_begun(m))


def _bounced(m: Message) -> None:
    m.accepted()
    for number in range(1, len(m.recipients) + 1):
        m.fail(40, number)
    m.discard(800)
    _sent(_begun(m))


def _early(m: Message) -> None:
    m.accepted()
    new = _begun(m, 20)
    _sent(new)
    m.deliver(40)
    m.discard(800)


def _early_by_holder(m: Message) -> None:
    _delivered(m)
    _sent(_begun(m, 100, HOLDER))


def _to_another(m: Message) -> None:
    _delivered(m)
    first, m.recipients = m.recipients, ("another@example.org",)
    _sent(_begun(m))
    m.recipients = first


def _altered(m: Message) -> None:
    _delivered(m)
    new = _begun(m)
    new.content = "another"
    new.steps[0][2].digests = new.digests()
    _sent(new)


def _resized(m: Message) -> None:
    _delivered(m)
    new = _begun(m)
    new.size = new.steps[0][2].size = 5000
    _sent(new)


def _wrong_id(m: Message) -> None:
    _delivered(m)
    new = _begun(m)
    new.id = new.steps[0][2].id = resubmitted_id(RequestId("another"), MessageId(m.id))
    new.steps[0][2].digests = new.digests()
    _sent(new)
    new.found = ("rows-contradict",)


def _again(m: Message) -> None:
    _resubmitted(m)
    (new,) = m.others
    _sent(_begun(new, request="5afe7e70-0000-4000-8000-000000000002"))
    new.found = ("resubmitted-again",)
    m.others += new.others


def _journal(m: Message) -> None:
    _delivered(m)
    _copied(m, derived_id("journal", m.id))


def _copied(m: Message, name: str) -> Message:
    copy = Message(name, m.at, m.owner, m.holder, ("journal@example.com",), [], sender=m.sender)
    copy.content = m.id
    row = copy.row("RECEIVE", source="AGENT", server=m.owner, reference=m.id)
    copy.add(1, OWNER, row)
    _sent(copy)
    m.others.append(copy)
    return copy


def _journal_drawn(m: Message) -> None:
    """Under an id as a client's message has it: what was accepted with one copy may pass for it."""
    _delivered(m)
    _copied(m, f"{m.id[:-1]}{'0' if m.id[-1] != '0' else '1'}").found = ("rows-contradict",)


def _tracked(m: Message) -> None:
    """A hop beyond the boundary took it, and says later that it is delivered."""
    _delivered(m, "SENDEXTERNAL")
    context = f"ExplicitlyDiscarded;{m.id}"
    m.add(5_000, OWNER, m.row("HADISCARD", source="REDUNDANCY", server="edge.example.net", context=context))


def _past_a_hop_that_delivered(m: Message) -> None:
    """It goes another way, though the hop has said that it is delivered."""
    _tracked(m)
    _past(m)


def _past_a_hop(m: Message) -> None:
    """The hop lost it, so it goes another way."""
    _delivered(m, "SENDEXTERNAL")
    _past(m)


def _past(m: Message) -> None:
    hop = "e1a5e7e7-0000-4000-8000-000000000001"
    numbers = ",".join(str(number) for number, _ in enumerate(m.recipients, 1))
    name = derived_id("hop", m.id, hop, numbers)
    new = Message(name, m.at + _LATER, m.owner, m.holder, m.recipients, [], sender=m.sender)
    new.content = m.content or m.id
    row = new.row("RESUBMIT", source="REDUNDANCY", context="database-replaced", reference=f"{m.id}/{hop}")
    row.server = "edge.example.net"
    row.custom += f";S:Hop=edge.example.net;S:HopDb={hop};S:Reason=database-replaced"
    row.digests = new.digests()
    new.add(0, OWNER, row)
    new.hold(2)
    new.redirect(4)
    new.deliver(30, event="SENDEXTERNAL")
    new.discard(700)
    m.others.append(new)


RESUBMITTING: dict[str, tuple[Callable[[Message], None], tuple[str, ...]]] = {
    "resubmitted": (_resubmitted, ()),
    "resubmitted-by-holder": (_by_holder, ()),
    "resubmitted-in-part": (_one_of_several, ()),
    "resubmitted-alone": (_alone, ()),
    "resubmitted-by-two": (_made_twice, ()),
    "resubmitted-and-sent-twice": (_sent_twice, ()),
    "resubmitted-outside": (_outside, ("resubmitted-across-the-boundary",)),
    "resubmitted-bounce": (_bounced, ("resubmitted-across-the-boundary",)),
    "resubmitted-early": (_early, ("resubmitted-though-never-delivered",)),
    "resubmitted-early-by-holder": (_early_by_holder, ("resubmitted-though-never-delivered",)),
    "resubmitted-to-another": (_to_another, ("resubmitted-though-never-delivered",)),
    "resubmitted-altered": (_altered, ("altered",)),
    "resubmitted-resized": (_resized, ("altered",)),
    "resubmitted-under-another-id": (_wrong_id, ()),
    "resubmitted-again": (_again, ()),
    "tracked-by-a-hop": (_tracked, ()),
    "sent-again-past-a-hop": (_past_a_hop, ()),
    "sent-again-past-a-hop-that-delivered": (
        _past_a_hop_that_delivered,
        ("resubmitted-across-the-boundary",),
    ),
    "journal-copy": (_journal, ()),
    "journal-copy-under-a-drawn-id": (_journal_drawn, ()),
}
"""As ``stories.FAULTS``. What is found of the new message, the new message says."""
