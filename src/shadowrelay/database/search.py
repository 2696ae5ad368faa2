"""Finds messages by an address, a Message-ID header, an id, or words of the subject and parts of addresses:
newest first, by pages.

Addresses, headers and ids have indexes. Domains and words are looked for message by message: in parts,
each in a transaction of its own, so that no writer waits; and for a limited time. Then a page says where it
ended.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any

from shadowrelay.core.decisions import DamagedRow, Outcome, Tombstone
from shadowrelay.core.identifiers import MessageId, NextHop
from shadowrelay.core.messages import Copy, Stage
from shadowrelay.core.spelling import canonical, compared, in_ascii, in_unicode, without_case
from shadowrelay.core.values import dataclass
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queries import load
from shadowrelay.database.views import active_hops

SQL = load("search.sql")

PART = 3_000
"""Messages that are looked through in one transaction: some 20 ms, if all have encoded subjects."""

LONGEST = 1.0
"""Seconds after which a page ends, even if little was found."""

LAST = MessageId("~")
"""Behind all ids: where a search begins."""

MOST_WORDS = 8

_ID = re.compile(r"[0-9a-f]{4,8}|[0-9a-f]{8}-[0-9a-f-]{0,27}")
_ASCII = str.maketrans({letter: letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"})


class SearchBy(StrEnum):
    """What a query looks for. Written before the query and a colon, it overrules the guess."""

    ADDRESS = "address"
    DOMAIN = "domain"
    HEADER = "message-id"
    ID = "id"
    SUBJECT = "subject"
    WORDS = "words"


@dataclass(frozen=True, slots=True)
class SearchFor:
    """What is looked for."""

    by: SearchBy
    text: str


def query(text: str) -> SearchFor:
    """What an operator means: ``anna@example.org``, ``*@example.org``, ``<id@host>``, an id or its beginning,
    or words, each of which is a part of the subject or of an address. Raises ValueError if it says nothing.
    """
    wanted = text.strip()
    kind, colon, rest = wanted.partition(":")
    by = next((one for one in SearchBy if colon and kind.lower() == one), None)
    if by is not None:
        wanted = rest.strip()
    elif re.fullmatch(r"<[^<>]+>", wanted):
        by = SearchBy.HEADER
    elif wanted.startswith("*@"):
        by = SearchBy.DOMAIN
    elif re.fullmatch(r"\S+@\S+\.[^\s.]{2,}", wanted):
        by = SearchBy.ADDRESS
    elif _ID.fullmatch(wanted.lower()) and re.search(r"\d", wanted):
        by = SearchBy.ID
    else:
        by = SearchBy.WORDS
    wanted = wanted.removeprefix("*@") if by is SearchBy.DOMAIN else wanted
    if not wanted.strip("<>"):
        raise ValueError("look for an address, *@DOMAIN, a Message-ID, an id, or words")
    return SearchFor(by, wanted)


@dataclass(frozen=True, slots=True)
class SearchPage:
    """Ids that match, newest first. ``until``: all ids from this one on were looked at; None: all ids."""

    found: tuple[MessageId, ...]
    until: MessageId | None


@dataclass(frozen=True, slots=True)
class Known:
    """What this node has of a message, or remembers of it."""

    id: MessageId
    copy: Copy | None
    damaged: DamagedRow | None
    outcome: Outcome | None
    tombstone: Tombstone | None
    active: frozenset[NextHop] = frozenset()


async def search(
    ask: Callable[[Callable[[SqlLedger], Any]], Awaitable[Any]],
    wanted: SearchFor,
    after: MessageId,
    most: int,
    seconds: Callable[[], float],
) -> SearchPage:
    """One page of at most that many messages. ``ask`` runs work for the database."""
    if wanted.by in (SearchBy.DOMAIN, SearchBy.SUBJECT, SearchBy.WORDS):
        return await _looked_through(ask, wanted, after, most, seconds)
    found: tuple[MessageId, ...] = await ask(lambda ledger: _by_index(ledger, wanted, after, most))
    return SearchPage(found, found[-1] if len(found) == most else None)


def _by_index(ledger: SqlLedger, wanted: SearchFor, after: MessageId, most: int) -> tuple[MessageId, ...]:
    given: dict[str, Any] = {"after": after, "most": most}
    lower = wanted.text.translate(_ASCII)
    header = wanted.text.strip("<>")
    headers = {wanted.text, f"<{header}>", f"<{in_ascii(header) or header}>"}
    asked: Sequence[tuple[str, dict[str, Any]]]
    match wanted.by:
        case SearchBy.ID:
            asked = [("by_id", {"wanted": lower, "end": lower + "~"})]
        case SearchBy.HEADER:
            asked = [("by_header", {"wanted": text}) for text in headers]
        case _:  # a Message-ID without its brackets looks like an address
            spelt = {lower, compared(wanted.text), in_unicode(compared(wanted.text))}
            asked = [
                *((name, {"wanted": one}) for name in ("by_recipient", "by_sender") for one in spelt),
                *(("by_header", {"wanted": one}) for one in headers),
            ]
    found: set[MessageId] = set()
    for name, more in asked:
        found.update(MessageId(row[0]) for row in ledger.connection.execute(SQL[name], given | more))
    return tuple(sorted(found, reverse=True)[:most])


async def _looked_through(
    ask: Callable[[Callable[[SqlLedger], Any]], Awaitable[Any]],
    wanted: SearchFor,
    after: MessageId,
    most: int,
    seconds: Callable[[], float],
) -> SearchPage:
    name, given = _like(wanted)
    found: list[MessageId] = []
    began = seconds()
    while True:

        def part(ledger: SqlLedger, after: MessageId = after, left: int = most - len(found)) -> Any:
            run = ledger.connection.execute
            last = run(SQL["part"], {"after": after, "most": PART - 1}).fetchone()
            bounds = {"after": after, "until": last[0] if last else "", "most": left}
            return last and MessageId(last[0]), [MessageId(row[0]) for row in run(SQL[name], given | bounds)]

        last, more = await ask(part)
        found += more
        if len(found) == most:
            return SearchPage(tuple(found), found[-1])
        if last is None:
            return SearchPage(tuple(found), None)
        after = last
        if seconds() - began > LONGEST:
            return SearchPage(tuple(found), last)


def _like(wanted: SearchFor) -> tuple[str, dict[str, Any]]:
    if wanted.by is SearchBy.DOMAIN:
        return "by_domain", {"wanted": f"@{canonical(wanted.text)}"}
    words = [without_case(word) for word in wanted.text.split()[:MOST_WORDS]]
    return f"by_{wanted.by.value}", {"words": json.dumps(words)}


def known(ledger: SqlLedger, ids: Sequence[MessageId]) -> list[Known]:
    """What this node knows of these messages; those of which it knows nothing are left out."""
    found = []
    for id_ in ids:
        copy = ledger.copy(id_)
        if copy is not None and copy.stage is Stage.ARRIVING:
            continue
        damaged = None if copy else ledger.damaged(id_)
        outcome, tombstone = ledger.outcome(id_), ledger.tombstone(id_)
        if copy or damaged or outcome or tombstone:
            found.append(Known(id_, copy, damaged, outcome, tombstone, active_hops(ledger, id_)))
    return found
