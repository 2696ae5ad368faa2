"""Is what was held and sent what was accepted? The digests of content and envelope tell, on every node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from shadowaudit.core.events import ORIGINS, Event, Kind
from shadowaudit.core.findings import Class, Finding


def altered(events: Mapping[int, Event], *, untold: bool) -> Iterator[Finding]:
    """``events`` by their index. ``untold``: there may be more rows than these.

    A report is made by two nodes at times: its id is the same, its envelope too, and each maker has a content
    of its own. So what is held and sent has to have the content of one of its makers.
    """
    for name in ("Content", "Envelope"):
        for said in _by_algorithm(events, name):
            several = name == "Content" and any(_is_report(events[index]) for index in said)
            if several and untold:
                continue  # the row of another maker may be one that is missing
            origins = [index for index in said if events[index].kind in ORIGINS]
            first = next(iter(origins or said))
            right = {said[index] for index in (first, *(origins if several else ()))}
            if others := tuple(index for index, digest in said.items() if digest not in right):
                where = ", ".join(sorted({f"{events[at].kind} at {events[at].node}" for at in others}))
                detail = f"another {name.lower()} than {events[first].kind} at {events[first].node}: {where}"
                yield Finding(Class.ALTERED, detail, rows=(first, *others))


def _by_algorithm(events: Mapping[int, Event], name: str) -> Iterator[dict[int, str]]:
    """The digests of that name by row; only those of one algorithm can be compared."""
    found: dict[str, dict[int, str]] = defaultdict(dict)
    for index, event in events.items():
        if digest := event.entries.get(name):
            found[digest.partition(":")[0]][index] = digest
    yield from found.values()


def _is_report(event: Event) -> bool:
    """Its id is derived then, not drawn: a UUID of version 8."""
    return event.kind is Kind.DSN or event.message[14:15] == "8"
