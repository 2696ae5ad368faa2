"""How a node merges records that members give it: one law for all kinds, and what a kind says for itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic

from shadowrelay.core.decisions import Decision
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.policy import Policy
from shadowrelay.core.reckoning import Endings
from shadowrelay.core.records import R, RecordPart, merged
from shadowrelay.core.shared_records import ForgetRecord
from shadowrelay.core.tracking import QueueActed
from shadowrelay.core.values import dataclass


@dataclass(frozen=True, slots=True)
class Merging:
    """What a node knows when it merges records. ``policy``: the file's. ``members``: the others, without
    those that were retired. ``age``: how long the record that is merged certainly has been there.
    """

    policy: Policy
    ends: Endings
    members: Collection[ServerName] = ()
    age: timedelta = timedelta(0)


def newer(part: RecordPart, known: RecordPart | None) -> bool:
    """What a member says of itself counts over what it said before."""
    return part != known


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules(Generic[R]):
    """What a kind of records says for itself; None: nothing.

    ``part``: how far nodes are with one. ``own``: how far this node is; ``done``: the same as a number, which
    members are told at once when it changes. ``live``: it is given again and again, since what nodes tell of
    it changes. ``newer``: does such a part count over the one before?

    ``fault``: why no member may give such a record; empty if it may. ``room``: what has to be forgotten so
    that one that is unknown here can be kept; None: it is not kept. ``learnt``: a new revision, and the one
    before, with what this node adds. ``tracked``: what the tracking log has of it.
    """

    kind: type[R]
    part: type[RecordPart] | None = None
    own: Callable[[Ledger, R], Sequence[Any]] | None = None
    done: Callable[[Sequence[Any]], int] = len
    live: Callable[[Ledger, R, Merging], bool] | None = None
    newer: Callable[[Any, Any | None], bool] = newer
    fault: Callable[[R], str] | None = None
    room: Callable[[Ledger, R, Merging], Sequence[ForgetRecord] | None] | None = None
    learnt: Callable[[R, R | None, Merging], R] | None = None
    tracked: Callable[[R, datetime], QueueActed] | None = None


def merge(
    ledger: Ledger,
    rules: Rules[R],
    given: R,
    parts: Sequence[RecordPart],
    teller: ServerName,
    about: Merging,
) -> Decision[R | None]:
    """A member gave its record, and how far it is itself. The result is the record as it is now; None if it
    is not kept.
    """
    known, now = ledger.record(rules.kind, given.key), about.ends.now
    room = rules.room(ledger, given, about) if rules.room and known is None else ()
    if room is None:
        return Decision(None)
    after = merged(known, given, now, about.age)
    told = {one.key: one for one in ledger.parts(rules.part, after.id)} if rules.part else {}
    newer = tuple(
        one
        for one in parts
        if one.node == teller and one.key[0] == given.id and rules.newer(one, told.get(one.key))
    )
    if after == known:
        return Decision(after, newer)
    after = rules.learnt(after, known, about) if rules.learnt else after
    return Decision(after, (*room, after, *newer), (rules.tracked(after, now),) if rules.tracked else ())
