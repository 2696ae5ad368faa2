"""Recipients files: TOML, or a table as Postfix reads it. ``docs/how-to/aliases.md`` describes both."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from shadowrelay.core.recipients import (
    AddressBook,
    Becomes,
    DistributionList,
    folded,
)
from shadowrelay.core.spelling import canonical
from shadowrelay.core.values import dataclass
from shadowrelay.wire.addresses import AddressError, is_domain, read_path

_TABLES = {"aliases", "lists", "domains"}
_LIST_KEYS = {"members", "owner"}
_DOMAIN_KEYS = {"known", "recipients"}
_AN_ADDRESS = "write an address such as user@example.net"


class RecipientsInvalid(ValueError):
    """The file is invalid. The text says where, and what to do."""


@dataclass(frozen=True, slots=True)
class BookLimits:
    """How large the file may make a message. ``delimiter``: see ``AddressBook``."""

    delimiter: str = ""
    most_depth: int = 10
    most_members: int = 5000


def read_recipients(path: Path, limits: BookLimits) -> AddressBook:
    """The content of the file: TOML if its name ends with ``.toml``, else a table.

    Raises RecipientsInvalid, OSError.
    """
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        raise RecipientsInvalid("is not UTF-8: save it as UTF-8") from None
    parse = parse_toml if path.suffix == ".toml" else parse_table
    return parse(text, limits)


class _Making:
    """An address book in the making. ``where`` names the place in the file for a text that is in it."""

    def __init__(self, where: Callable[[str], str]) -> None:
        self.aliases: dict[str, str] = {}
        self.lists: dict[str, DistributionList] = {}
        self.known: dict[str, set[str]] = {}
        self.where = where
        self._spelt: dict[str, str] = {}

    def wrong(self, key: str, what: str) -> RecipientsInvalid:
        return RecipientsInvalid(f"{self.where(self._spelt.get(key, key))}: {what}")

    def name(self, text: str) -> str:
        """The key of an entry: an address, or ``@domain``. Each may be there once."""
        domain = text[1:] if text.startswith("@") else None
        if domain is not None and not is_domain(domain):
            raise self.wrong(text, f'"{text}" names no domain: write @example.net')
        key = f"@{canonical(domain)}" if domain is not None else folded(self.address(text, text))
        if key in self._spelt:
            raise self.wrong(text, f'"{text}" has an entry already: keep one of the two')
        self._spelt[key] = text
        return key

    def address(self, text: object, at: str, *, ours: bool = True) -> str:
        """An address. ``ours``: mail comes to it, so that its spelling may be in UTF-8."""
        try:
            if not isinstance(text, str):
                raise AddressError
            _, address, rest = read_path(f"<{text}>")
        except AddressError:
            raise self.wrong(at, f'"{text}" is no address: {_AN_ADDRESS}') from None
        if rest or address != text or "@" not in address:
            raise self.wrong(at, f'"{text}" is no address: {_AN_ADDRESS}')
        if not ours and not address.isascii():
            raise self.wrong(
                at, f'"{text}" is not ASCII: not every message may be sent there; write its domain as xn--'
            )
        return address

    def book(self, limits: BookLimits) -> AddressBook:
        """The finished book. Raises RecipientsInvalid for loops of aliases, and for lists past the limits."""
        book = AddressBook(
            aliases=self.aliases,
            lists=self.lists,
            known={domain: frozenset(names) for domain, names in self.known.items()},
            delimiter=limits.delimiter,
            most_depth=limits.most_depth,
        )
        for key, target in self.aliases.items():
            found = book.resolve(target)
            if found.what is Becomes.LOOP:
                ways = " leads to ".join(found.steps)
                raise self.wrong(key, f"a loop of aliases: {ways}; let one of them lead elsewhere")
        for key in self.lists:
            expanded = book.expand(key)
            if expanded and expanded.depth > limits.most_depth:
                raise self.wrong(
                    key,
                    f'lists are nested {expanded.depth} deep in "{key}": write their members into one, '
                    f"or raise max_list_depth ({limits.most_depth})",
                )
            if expanded and len(expanded.members) > limits.most_members:
                raise self.wrong(
                    key,
                    f'"{key}" has {len(expanded.members)} members: make it several lists, or raise '
                    f"max_list_members ({limits.most_members})",
                )
        return book


def parse_toml(text: str, limits: BookLimits) -> AddressBook:
    """The book of a TOML file. Raises RecipientsInvalid."""
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipientsInvalid(f"is no TOML: {error}") from None
    made = _Making(lambda key: _line_of(key, text))
    for name in given.keys() - _TABLES:
        raise made.wrong(name, f'"{name}" is unknown here: the tables are [aliases], [lists] and [domains]')
    for name, target in _table(made, given, "aliases").items():
        one = target[0] if isinstance(target, list) and len(target) == 1 else target
        if isinstance(target, list) and len(target) != 1:
            raise made.wrong(
                name, f'"{name}" has {len(target)} targets: an alias has one; make it a list in [lists]'
            )
        made.aliases[made.name(name)] = made.address(one, name, ours=False)
    for name, table in _table(made, given, "lists").items():
        made.lists[made.name(name)] = _list(made, name, _only(made, name, table, _LIST_KEYS))
    for name, table in _table(made, given, "domains").items():
        _domain(made, name, _only(made, name, table, _DOMAIN_KEYS))
    return made.book(limits)


def _list(made: _Making, name: str, table: Mapping[str, Any]) -> DistributionList:
    members = table.get("members")
    if not isinstance(members, list) or not members:
        raise made.wrong(name, f'"{name}" has no members: write members = ["user@example.net", ...]')
    if name.startswith("@"):
        raise made.wrong(name, f'"{name}" is no address: a list has one')
    owner = made.address(table["owner"], name, ours=False) if "owner" in table else ""
    return DistributionList(tuple(made.address(one, name, ours=False) for one in members), owner)


def _domain(made: _Making, name: str, table: Mapping[str, Any]) -> None:
    if not is_domain(name):
        raise made.wrong(name, f'"{name}" is no domain: write a table such as [domains."example.net"]')
    known, recipients = table.get("known"), table.get("recipients", [])
    if not isinstance(known, bool):
        raise made.wrong(name, f'known has to be true or false for "{name}"')
    if not isinstance(recipients, list):
        raise made.wrong(name, f'recipients has to be a list of addresses for "{name}"')
    domain, names = canonical(name), set()
    for one in recipients:
        address = folded(made.address(one, name))
        if address.rpartition("@")[2] != domain:
            raise made.wrong(str(one), f'"{one}" is not in {name}: move it to the table of its domain')
        names.add(address)
    if recipients and not known:
        raise made.wrong(name, f'"{name}" has recipients and known = false: say known = true, or drop them')
    if known:
        made.known.setdefault(domain, set()).update(names)


def _table(made: _Making, given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = given.get(name, {})
    if not isinstance(found, dict):
        raise made.wrong(name, f"{name} has to be a table: write [{name}]")
    return found


def _only(made: _Making, name: str, table: object, keys: set[str]) -> Mapping[str, Any]:
    if not isinstance(table, dict):
        raise made.wrong(name, f'"{name}" has to be a table with {" and ".join(sorted(keys))}')
    for key in table.keys() - keys:
        raise made.wrong(name, f'{key} is unknown in "{name}": there are {" and ".join(sorted(keys))}')
    return table


def _line_of(key: str, text: str) -> str:
    """The first line that has the text of a key; tomllib does not say where it found one."""
    lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if not line.lstrip().startswith("#")]
    for spelt in (f'"{key}"', f"'{key}'", key):
        for number, line in lines:
            if spelt in line:
                return f"line {number}"
    return "the file"


def parse_table(text: str, limits: BookLimits) -> AddressBook:
    """The book of a table as Postfix's ``virtual`` (virtual(5)): a name, and the addresses that it becomes.

    A name is an address, ``@domain`` for all others of a domain, or a domain, whose recipients are then
    known. Several addresses make a list. A line that begins with white space continues the one before.
    Raises RecipientsInvalid.
    """
    lines = list(_logical(text))
    numbers = {name: number for number, name, _ in lines}
    made = _Making(lambda key: f"line {numbers[key]}" if key in numbers else "the file")
    for number, name, targets in lines:
        numbers[name] = number  # of a name that is there twice, the line of now
        if not targets:
            raise made.wrong(name, f'"{name}" becomes nothing: write an address behind it')
        if "@" not in name:
            if not is_domain(name) or "." not in name:
                raise made.wrong(name, f'"{name}" is no address: {_AN_ADDRESS}')
            made.known.setdefault(canonical(name), set())
            continue
        key = made.name(name)
        addresses = tuple(made.address(one, name, ours=False) for one in targets)
        if len(addresses) == 1:
            made.aliases[key] = addresses[0]
        elif name.startswith("@"):
            raise made.wrong(name, f'"{name}" becomes several addresses: let it lead to a list')
        else:
            made.lists[key] = DistributionList(addresses)
    return made.book(limits)


def _logical(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """The lines with their continuations: number, name, targets."""
    begun: tuple[int, list[str]] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        words = [word for word in re.split(r"[\s,]+", line.strip()) if word]
        if line[0].isspace():
            if begun is None:
                raise RecipientsInvalid(f"line {number}: it continues no line: begin it in the first column")
            begun[1].extend(words)
            continue
        if begun is not None:
            yield begun[0], begun[1][0], begun[1][1:]
        begun = number, words
    if begun is not None:
        yield begun[0], begun[1][0], begun[1][1:]


def oddities(book: AddressBook) -> Iterator[str]:
    """What the file may say, and hardly means: loops of lists, and addresses that nobody has."""
    for key, target in book.aliases.items():
        if book.resolve(target).what is Becomes.UNKNOWN and folded(target) != key:
            yield f"{key} leads to {book.resolve(target).address}, which nobody has: mail for it is refused"
    for key, one in book.lists.items():
        expanded = book.expand(key)
        for loop in expanded.loops if expanded else ():
            yield f"{key} comes to {loop} again inside itself: it is expanded once"
        for member in expanded.members if expanded else ():
            if member.unknown:
                yield f"{key} has the member {member.address}, which nobody has: each message to it bounces"
        if one.owner and book.resolve(one.owner).what is Becomes.UNKNOWN:
            yield f"the owner of {key}, {one.owner}, is an address that nobody has"
