"""What happens to messages: an ordinary one, and one for each fault."""

from __future__ import annotations

import random
from collections.abc import Callable

from shadowlab.generate.message import HOLDER, OWNER, Message, host_of
from shadowlab.generate.operating import OPERATING
from shadowlab.generate.resubmitting import RESUBMITTING
from shadowrelay.core.events.reports import derived_id


def ordinary(message: Message, chance: random.Random) -> None:
    """Accepted with two copies, delivered, discarded."""
    message.accepted()
    dice = chance.random()
    wait = 5 + int(chance.expovariate(1 / 40))
    count = len(message.recipients)
    if dice < 0.03:
        message.defer(wait)
        wait += 60_000
    if count > 1 and dice > 0.5:
        message.deliver(wait, (1,))
        message.deliver(wait + 30, tuple(range(2, count + 1)), event="SENDEXTERNAL")
    elif dice > 0.98:
        for number in range(1, count + 1):
            message.fail(wait, number)
    else:
        message.deliver(wait, event="DELIVER" if dice < 0.4 else "SENDEXTERNAL")
    message.discard(wait + 200 + chance.randrange(900))


def _lost(m: Message) -> None:
    m.accepted()


def _partially(m: Message) -> None:
    m.accepted()
    m.deliver(40, (1,))
    m.discard(800, (1,))


def _duplicate(m: Message) -> None:
    m.accepted()
    m.deliver(40)
    m.deliver(90)
    m.discard(800)


def _one_copy(m: Message) -> None:
    m.receive()
    m.deliver(40)


def _late_copy(m: Message) -> None:
    m.receive()
    m.hold(20)
    m.redirect(25)
    m.deliver(40)
    m.discard(800)


def _false_copy(m: Message) -> None:
    m.redirect()
    m.receive()
    m.deliver(40)


def _premature(m: Message) -> None:
    m.accepted()
    m.discard(800)


def _unknown(m: Message) -> None:
    m.deliver(40)


def _vanished(m: Message) -> None:
    m.accepted()
    m.deliver(40)


def _exposed(m: Message, redundant: str = "Failed") -> None:
    m.add(0, OWNER, m.row("HAREDIRECTFAIL", client=m.owner, context="No suitable shadow servers"))
    m.receive(custom=f";S:Replication={redundant}")
    m.hold(5_000)
    m.redirect(5_010)
    m.deliver(9_000)
    m.discard(9_800)


def _found_after_a_start(m: Message) -> None:
    _exposed(m, "Unknown")


def _promoted(m: Message) -> None:
    m.accepted()
    m.take_over(60_000)
    m.deliver(60_100, who=HOLDER, epoch=2)
    m.yielded(90_000)
    m.discard(90_100, who=OWNER, epoch=2)


def _handed_over(m: Message) -> None:
    m.accepted()
    m.yielded(5_000)
    m.take_over(5_500, "handed-over")
    m.deliver(5_600, who=HOLDER, epoch=2)
    m.discard(6_400, who=OWNER, epoch=2)


def _falsely(m: Message) -> None:
    m.accepted()
    m.take_over(60_000)
    m.deliver(60_100, who=HOLDER, epoch=2)
    m.deliver(60_200)


def _falsely_dropped(m: Message) -> None:
    m.accepted()
    m.take_over(60_000)
    m.deliver(60_100, who=HOLDER, epoch=2)
    m.deliver(60_200, event="DUPLICATEDELIVER", custom=";S:InDoubt=true")


def _orphan(m: Message) -> None:
    m.hold()
    m.discard(70_000, reason="Orphaned")


def _late_discard(m: Message) -> None:
    m.accepted()
    m.deliver(40)
    m.discard(1_300_000)


def _dropped(m: Message) -> None:
    m.accepted()
    m.deliver(40)
    m.deliver(90, event="DUPLICATEDELIVER")
    m.discard(800)


def _in_doubt(m: Message) -> None:
    m.accepted()
    m.defer(40, custom=";S:InDoubt=true")
    m.deliver(9_000)
    m.deliver(9_100)
    m.discard(9_800)


def _altered(m: Message) -> None:
    m.accepted()
    m.deliver(40)
    m.steps[-1][2].digests = m.digests("another")
    m.discard(800)


def _resized(m: Message) -> None:
    m.accepted()
    m.deliver(40)
    m.steps[-1][2].size = 0
    m.discard(800)


def _another_sender(m: Message) -> None:
    m.accepted()
    m.deliver(40)
    m.steps[-1][2].sender = "eve@example.org"
    m.discard(800)


def _misdelivered(m: Message) -> None:
    m.accepted()
    m.deliver(40)
    m.steps[-1][2].recipients = ";".join(f"not.{one}" for one in m.recipients)
    m.discard(800)


def _another_at_its_owner(m: Message) -> None:
    m.accepted()
    m.deliver(40)
    for _, who, row in m.steps:
        if who == OWNER:
            row.recipients = ";".join(f"not.{one}" for one in m.recipients)
    m.discard(800)


def _one_more_held(m: Message) -> None:
    m.accepted()
    m.deliver(40)
    m.discard(800)
    for _, who, row in m.steps:
        if who == HOLDER:
            row.recipients, row.count = f"{row.recipients};more@example.com", row.count + 1


def _refused_reply(m: Message) -> None:
    m.accepted()
    m.deliver(40)
    m.steps[-1][2].context = "550 5.1.1 no such user"
    m.discard(800)


def _impossible_epoch(m: Message) -> None:
    m.accepted()
    m.deliver(40, epoch=7)
    m.discard(800)


def _bounced(m: Message) -> None:
    m.accepted()
    for number in range(1, len(m.recipients) + 1):
        m.fail(40, number)
    m.discard(800)


def _unreported(m: Message) -> None:
    m.accepted()
    for number in range(1, len(m.recipients) + 1):
        m.fail(40, number, reported=False)
    m.discard(800)


def _not_told(m: Message) -> None:
    _unreported(m)
    for _, _, row in m.steps:
        row.reference = ""


def _report_lost(m: Message) -> None:
    _bounced(m)
    m.others[0].steps[3:] = []
    m.others[0].found = ("lost", "vanished-copy")


def _beside(m: Message) -> None:
    m.hold(host=host_of(m.owner))
    m.redirect(host=host_of(m.owner))
    m.receive()
    m.deliver(40)
    m.discard(800)


def _damaged_copy(m: Message) -> None:
    m.accepted()
    m.damaged(5_000, HOLDER)
    m.hold(6_000, context="again", reference="")
    m.redirect(6_010)
    m.deliver(9_000)
    m.discard(9_800)


def _restored(m: Message) -> None:
    m.accepted()
    m.damaged(5_000, OWNER, "rows")
    m.restored(6_000)
    m.deliver(9_000)
    m.discard(9_800)


def _damaged_everywhere(m: Message) -> None:
    m.accepted()
    m.damaged(5_000, OWNER)
    m.damaged(5_000, HOLDER)
    m.set_aside(6_000)
    m.left = ((OWNER, "primary"), (HOLDER, "shadow"))


def _refused(m: Message) -> None:
    """Its sender heard 451; the holder never heard of that, and promotes what it has."""
    m.hold()
    m.take_over(60_000, "owner-forgot")
    m.deliver(60_100, who=HOLDER, epoch=2)


def _in_transit(m: Message) -> None:
    m.accepted()
    m.defer(50)
    m.left = ((OWNER, "primary"), (HOLDER, "shadow"))


FILE_FAULTS = ("gap", "footer", "hash", "file", "unreadable", "tail")
"""Faults of files: a row, the footer, an octet, a whole file, a readable row, the last file."""


def _to_members(m: Message) -> Message:
    """The message to the members of a list, made and held; that it is sent is another matter."""
    members = ("anna@example.com", "bob@example.org")
    made = Message(derived_id("list", m.id), m.at + 40, m.owner, m.holder, members, [], sender=m.sender)
    made.content = m.id
    made.add(1, OWNER, made.row("RECEIVE", source="ROUTING", server=m.owner, reference=m.id))
    made.hold(3)
    made.redirect(5)
    m.others.append(made)
    return made


def _settled(m: Message, made: Message) -> None:
    """The first recipient is a list, and it is settled; the others are delivered."""
    row = m.row("EXPAND", (1,), source="ROUTING", context="250 2.1.5 Expanded", reference=made.id)
    row.related = row.recipients
    m.add(40, OWNER, row)
    if others := tuple(range(2, len(m.recipients) + 1)):
        m.deliver(50, others)
    m.discard(800)


def _expanded(m: Message) -> None:
    m.accepted()
    made = _to_members(m)
    _settled(m, made)
    made.deliver(30)
    made.discard(700)


def _members_lost(m: Message) -> None:
    """The list is settled, and no node made what its members were to get."""
    _expanded(m)
    m.others.clear()


def _member_lost(m: Message) -> None:
    m.accepted()
    made = _to_members(m)
    _settled(m, made)
    made.deliver(30, (1,))
    made.discard(700, (1,))
    made.found = ("partially-lost", "vanished-copy")


def _rewritten(m: Message, delivered_to: str = "") -> None:
    m.accepted()
    row = m.row("RESOLVE", (1,), source="ROUTING")
    row.related = "alias@example.com"
    row.recipients = delivered_to or row.recipients
    m.add(1, OWNER, row)
    m.deliver(40)
    m.discard(800)


def _rewritten_to_another(m: Message) -> None:
    _rewritten(m, "eve@example.org")


EXPANDING: dict[str, tuple[Callable[[Message], None], tuple[str, ...]]] = {
    "expanded": (_expanded, ()),
    "members-lost": (_members_lost, ("lost",)),
    "member-lost": (_member_lost, ()),
    "rewritten": (_rewritten, ()),
    "rewritten-to-another": (_rewritten_to_another, ("altered",)),
}
"""As ``stories.FAULTS``. What is found of the members' message, that message says."""


FAULTS: dict[str, tuple[Callable[[Message], None], tuple[str, ...]]] = {
    "lost": (_lost, ("lost", "vanished-copy")),
    "partially-lost": (_partially, ("partially-lost", "vanished-copy")),
    "duplicate": (_duplicate, ("duplicate",)),
    "one-copy": (_one_copy, ("acknowledged-with-one-copy",)),
    "late-copy": (_late_copy, ("redundant-after-acknowledgement",)),
    "false-copy": (_false_copy, ("copy-never-held",)),
    "premature-discard": (_premature, ("discarded-before-delivery", "lost", "vanished-copy")),
    "unknown-origin": (_unknown, ("unknown-origin",)),
    "vanished-copy": (_vanished, ("vanished-copy",)),
    "exposed": (_exposed, ("exposed",)),
    "found-after-a-start": (_found_after_a_start, ("exposed",)),
    "promotion": (_promoted, ("promoted-rightly", "exposed")),
    "handover": (_handed_over, ("promoted-rightly", "exposed")),
    "false-promotion": (_falsely, ("promoted-falsely", "duplicate-allowed", "exposed")),
    "false-promotion-dropped": (
        _falsely_dropped,
        ("promoted-falsely", "sent-in-doubt", "duplicate-dropped-at-mailbox", "exposed"),
    ),
    "orphan": (_orphan, ("orphan-shadow",)),
    "late-discard": (_late_discard, ("late-discard",)),
    "dropped-duplicate": (_dropped, ("duplicate-dropped-at-mailbox",)),
    "in-doubt": (_in_doubt, ("duplicate-allowed",)),
    "altered": (_altered, ("altered",)),
    "resized": (_resized, ("altered",)),
    "another-sender": (_another_sender, ("altered",)),
    "misdelivered": (_misdelivered, ("misdelivered",)),
    "another-at-its-owner": (_another_at_its_owner, ("altered",)),
    "one-more-held": (_one_more_held, ("altered",)),
    "refused-reply": (_refused_reply, ("rows-contradict",)),
    "impossible-epoch": (_impossible_epoch, ("rows-contradict",)),
    "bounced": (_bounced, ()),
    "unreported": (_unreported, ("report-missing",)),
    "not-told": (_not_told, ("report-missing",)),
    "report-lost": (_report_lost, ()),
    "beside": (_beside, ("exposed",)),
    "damaged-copy": (_damaged_copy, ("exposed",)),
    "restored": (_restored, ("exposed",)),
    "damaged-everywhere": (_damaged_everywhere, ("damaged-everywhere", "exposed", "set-aside")),
    "refused": (_refused, ("delivered-never-acknowledged", "promoted-rightly", "exposed")),
    "in-transit": (_in_transit, ("in-transit",)),
    **OPERATING,
    **RESUBMITTING,
    **EXPANDING,
}
"""Faults of messages: how each is told, and the classes that the audit has to find."""
