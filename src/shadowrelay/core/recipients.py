"""Aliases, distribution lists and known recipients: what becomes of a recipient's address.

Addresses of the file are compared without regard to case, in the local part too. RFC 5321 2.4 leaves the
local part to the host that has the mailbox. The operator who lists a domain in the file speaks for that host,
and mail for ``Sales@`` must not bounce where ``sales@`` is listed. An address keeps its spelling on its way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from enum import StrEnum

from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.messages import Recipient
from shadowrelay.core.spelling import canonical
from shadowrelay.core.values import dataclass, replace

LISTS = NextHop("local/lists")
"""The next hop of a distribution list: the queue of this node expands it."""

_POSTMASTER = "postmaster"


@dataclass(frozen=True, slots=True)
class DistributionList:
    """The members of a list, each an address, in the file's order. ``owner``: the return path of what the
    list sends; '' keeps the sender (RFC 5321 3.9.1 and 3.9.2).
    """

    members: tuple[str, ...]
    owner: str = ""


class Becomes(StrEnum):
    """What an address leads to. LOOP: aliases lead to one another, so it leads nowhere."""

    MAILBOX = "mailbox"
    LIST = "list"
    UNKNOWN = "unknown"
    LOOP = "loop"


@dataclass(frozen=True, slots=True)
class Resolved:
    """Where an address leads. ``steps``: the addresses on the way, from the given one to the last one."""

    what: Becomes
    steps: tuple[str, ...]

    @property
    def address(self) -> str:
        return self.steps[-1]

    @property
    def rewritten(self) -> bool:
        return len(self.steps) > 1


@dataclass(frozen=True, slots=True)
class ListMember:
    """A recipient of what a list sends. ``unknown``: the file says that nobody has that address."""

    address: str
    unknown: bool = False


@dataclass(frozen=True, slots=True)
class Expanded:
    """The members of a list and of the lists in it, each member once. ``loops``: lists that were met inside
    themselves, and were cut there. ``depth``: lists inside one another, the first one included.
    """

    members: tuple[ListMember, ...]
    loops: tuple[str, ...]
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressBook:
    """What the recipients file says. Keys are as ``folded`` spells them.

    ``aliases``: an address, or ``@domain`` for all others of a domain, and what it becomes. ``known``: for
    each domain whose recipients are known, the mailboxes besides aliases and lists. ``delimiter``: what
    separates a local part from its detail (``user+detail``); '' if nothing does. ``most_depth``: lists inside
    one another at most; no file that goes deeper is taken. ``domains``: those for which the file speaks,
    computed once, since a file may have many thousand entries.
    """

    aliases: Mapping[str, str]
    lists: Mapping[str, DistributionList]
    known: Mapping[str, frozenset[str]]
    delimiter: str = ""
    most_depth: int = 10
    domains: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        keys = (*self.aliases, *self.lists)
        domains = frozenset(key.rpartition("@")[2] for key in keys) | frozenset(self.known)
        object.__setattr__(self, "domains", domains)

    def resolve(self, address: str) -> Resolved:
        """Follow aliases from an address: to a mailbox, a list, or an address that nobody has."""
        steps, seen = [address], {folded(address)}
        while True:
            key = self._entry(steps[-1])
            if key in self.lists:
                if key != folded(steps[-1]):  # a detail is no part of the list's address
                    steps.append(key)
                return Resolved(Becomes.LIST, tuple(steps))
            target = self.aliases.get(key)
            if target is None:
                what = Becomes.MAILBOX if self._known(steps[-1]) else Becomes.UNKNOWN
                return Resolved(what, tuple(steps))
            if folded(target) == folded(steps[-1]):  # an alias of itself is a mailbox
                return Resolved(Becomes.MAILBOX, tuple(steps))
            steps.append(target)
            if folded(target) in seen:
                return Resolved(Becomes.LOOP, tuple(steps))
            seen.add(folded(target))

    def expand(self, address: str) -> Expanded | None:
        """The members of the list of that address, through aliases and lists in it; None if it is no list."""
        first = self._entry(address)
        if first not in self.lists:
            return None
        members: dict[str, ListMember] = {}
        loops: dict[str, None] = {}
        deepest, seen, ours = 1, {first}, self.domains
        path: list[tuple[str, Iterator[str]]] = [(first, iter(self.lists[first].members))]
        while path:
            deepest = max(deepest, len(path))
            member = next(path[-1][1], None)
            if member is None:
                path.pop()
                continue
            found = self.resolve(member)
            if found.what is not Becomes.LIST:
                unknown = found.what is not Becomes.MAILBOX
                members.setdefault(_same(found.address, ours), ListMember(found.address, unknown))
                continue
            key = self._entry(found.address)
            if any(key == inside for inside, _ in path):
                loops[key] = None
            elif key not in seen and len(path) <= self.most_depth:
                seen.add(key)
                path.append((key, iter(self.lists[key].members)))
        return Expanded(tuple(members.values()), tuple(loops), deepest)

    def owner(self, address: str) -> str:
        """The owner of the list of that address, '' if it has none."""
        found = self.lists.get(self._entry(address))
        return found.owner if found else ""

    def _entry(self, address: str) -> str:
        """The key of the entry for an address, as ``lists`` or ``aliases`` have it; its own if none has."""
        own = folded(address)
        local, _, domain = own.rpartition("@")
        plain = self._without_detail(own)
        for key in (own, plain):
            if key in self.lists or key in self.aliases:
                return key
        if {own, plain} & self.known.get(domain, frozenset()):
            return own
        everyone = f"@{domain}"
        return everyone if local and everyone in self.aliases else own

    def _without_detail(self, key: str) -> str:
        local, _, domain = key.rpartition("@")
        name = local.partition(self.delimiter)[0] if self.delimiter else local
        return f"{name or local}@{domain}"

    def _known(self, address: str) -> bool:
        """Does somebody have this address? Only where the domain's recipients are known can nobody have it.

        Every domain that takes mail has a postmaster (RFC 5321 4.5.1).
        """
        key = folded(address)
        local, _, domain = key.rpartition("@")
        if domain not in self.known or local == _POSTMASTER:
            return True
        return bool({key, self._without_detail(key)} & self.known[domain])


EMPTY = AddressBook(aliases={}, lists={}, known={})
"""Without a recipients file every address leads to a mailbox."""


def no_book() -> AddressBook:
    """The book of a node without a recipients file."""
    return EMPTY


@dataclass(frozen=True, slots=True)
class Rewriting:
    """A recipient that the sender gave another address. ``number``: of the recipient that it became."""

    number: int
    original: str


def once(recipients: Sequence[Recipient]) -> tuple[Recipient, ...]:
    """Each recipient once, numbered anew, where the sender named one several times (RFC 5321 4.1.1.3).

    The local part is the same octet for octet, but for its quoting: its case may count where it is
    delivered. The domain is the same in any spelling. Of several, the one that remains has the NOTIFY of all
    and the first ORCPT, as if aliases had led to it.
    """
    made: dict[tuple[str, str], Recipient] = {}
    for one in recipients:
        local, _, domain = one.address.rpartition("@")
        same = unquoted(local), canonical(domain)
        first = made.setdefault(same, one)
        if first is not one:
            notify, orcpt = _either(first.notify, one.notify), first.orcpt or one.orcpt
            made[same] = replace(first, notify=notify, orcpt=orcpt)
    return tuple(replace(one, number=number) for number, one in enumerate(made.values(), 1))


def rewrite(
    recipients: Sequence[Recipient],
    book: AddressBook,
    typed: Callable[[str], str],
    *,
    merge: bool = True,
) -> tuple[tuple[Recipient, ...], tuple[Rewriting, ...]]:
    """The recipients with the addresses to which theirs lead. Only those of lists have a next hop already.

    ``typed`` spells an address as ORCPT (RFC 3461 4.2): a recipient that is rewritten keeps its ORCPT, or
    gets one with the address that the sender gave (5.2.1), so that reports name that one. Recipients that
    lead to one address become one, if one of them was rewritten or it is a list, with the NOTIFY of all.
    """
    made: list[Recipient] = []
    at: dict[str, int] = {}
    changed: set[str] = set()
    rewritings = []
    for one in recipients:
        found = book.resolve(one.address)
        key = folded(found.address)
        if found.rewritten or found.what is Becomes.LIST:
            changed.add(key)
        if merge and key in at and key in changed:
            first = made[at[key]]
            made[at[key]] = replace(first, notify=_either(first.notify, one.notify))
            rewritings.append(Rewriting(first.number, one.address))
            continue
        at.setdefault(key, len(made))
        number = len(made) + 1
        orcpt = one.orcpt or (typed(one.address) if found.rewritten else None)
        hop = LISTS if found.what is Becomes.LIST else one.next_hop
        made.append(replace(one, number=number, address=found.address, orcpt=orcpt, next_hop=hop))
        if found.rewritten:
            rewritings.append(Rewriting(number, one.address))
    return tuple(made), tuple(rewritings)


def _either(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    """NOTIFY of two recipients that become one: each report that one of them is due."""
    wanted = {word for notify in (one, other) for word in notify or ("FAILURE", "DELAY")} - {"NEVER"}
    if not one and not other:
        return ()
    return tuple(word for word in ("SUCCESS", "FAILURE", "DELAY") if word in wanted) or ("NEVER",)


def _same(address: str, ours: Collection[str]) -> str:
    """As two members that are one are spelt alike. In domains that are not ours, case may count."""
    local, _, domain = address.rpartition("@")
    return folded(address) if canonical(domain) in ours else f"{local}@{canonical(domain)}"


def folded(address: str) -> str:
    """One spelling for all addresses that are one in the file: lower case, no needless quotes, A-labels."""
    local, _, domain = address.rpartition("@")
    return f"{unquoted(local).lower()}@{canonical(domain)}"


def unquoted(local: str) -> str:
    """A local part without its quotes, if it has some."""
    if len(local) > 1 and local.startswith('"') and local.endswith('"'):
        return re.sub(r"\\(.)", r"\1", local[1:-1])
    return local
