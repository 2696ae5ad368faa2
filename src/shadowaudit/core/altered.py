"""Is what was held and sent what was accepted? Size, sender and digests tell, on every node.

A report is made by two nodes at times: its id is the same, its envelope too, and each maker has a content of
its own. So what is held and sent has to have the content and the size of one of its makers. What two nodes
resubmit has one content.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shadowaudit.core.events import COMPARED, ORIGINS, Event, Kind, is_derived
from shadowaudit.core.findings import Class, Finding

_OF_ITS_MAKER = frozenset({"content", "size"})


def altered(events: Mapping[int, Event], *, untold: bool) -> Iterator[Finding]:
    """``events`` by their index. ``untold``: there may be more rows than these."""
    given_back = any(event.kind in (Kind.RESUBMITTED, Kind.SENT_AGAIN) for event in events.values())
    for name, said in _told(events):
        several = (
            name in _OF_ITS_MAKER and not given_back and any(_is_report(events[index]) for index in said)
        )
        if several and untold:
            continue  # the row of another maker may be one that is missing
        origins = [index for index in said if events[index].kind in ORIGINS]
        first = next(iter(origins or said))
        right = {said[index] for index in (first, *(origins if several else ()))}
        if others := tuple(index for index, text in said.items() if text not in right):
            detail = f"another {name} than {_where(events, (first,))}: {_where(events, others)}"
            yield Finding(Class.ALTERED, detail, rows=(first, *others))


def _told(events: Mapping[int, Event]) -> Iterator[tuple[str, Mapping[int, str]]]:
    """What can be compared, and what each row says. A digest is made once, by one algorithm, and is kept."""
    for name in ("Content", "Envelope"):
        if said := {index: event.entries[name] for index, event in events.items() if event.entries.get(name)}:
            yield name.lower(), said
    compared = {index: event for index, event in events.items() if event.kind in COMPARED}
    if sizes := {index: str(event.size) for index, event in compared.items() if event.size is not None}:
        yield "size", sizes
    if senders := {index: event.sender for index, event in compared.items() if event.sender}:
        yield "sender", senders


def _where(events: Mapping[int, Event], rows: tuple[int, ...]) -> str:
    return ", ".join(sorted({f"{events[at].kind} at {events[at].node}" for at in rows}))


def _is_report(event: Event) -> bool:
    return event.kind is Kind.DSN or is_derived(event.message)
