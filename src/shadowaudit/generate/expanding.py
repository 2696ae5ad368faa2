"""Messages to lists and to aliases: what the members get, or do not get."""

from __future__ import annotations

from collections.abc import Callable

from shadowaudit.core.fingerprint import derived
from shadowaudit.generate.message import OWNER, Message


def _to_members(m: Message) -> Message:
    """The message to the members of a list, made and held; that it is sent is another matter."""
    members = ("anna@example.com", "bob@example.org")
    made = Message(derived(f"list\0{m.id}"), m.at + 40, m.owner, m.holder, members, [], sender=m.sender)
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
