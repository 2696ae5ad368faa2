"""Puts the pages of a sorted list together: each node gives the part that may be on the page. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from shadowrelay.core.jobs import Filter
from shadowrelay.core.operating import Told
from shadowrelay.core.values import dataclass
from shadowrelay.operator.acts import ActRefused
from shadowrelay.shown.messages import ListAnswer, ListedMessage, NodeListed
from shadowrelay.wire.records import record_told

_Told: TypeAlias = dict[str, Any]

_LONGEST_PLACE = 16_000  # characters; a subject may be long


@dataclass(frozen=True, slots=True, kw_only=True)
class ListWanted:
    """A page of a list. ``sort``: what it is sorted by, with ``-`` before it for the greatest first.
    ``after`` and ``before``: a place, as ``next`` and ``previous`` have it; '' for none.
    """

    state: str = "queued"
    filter: Filter | None = None
    sort: str = "received"
    after: str = ""
    before: str = ""
    limit: int = 50

    def arguments(self) -> Told:
        """What nodes are asked. Raises ActRefused."""
        return {
            "state": self.state,
            "sort": self.sort,
            "limit": self.limit,
            **({"filter": record_told(self.filter)} if self.filter else {}),
            **({"after": place(self.after)} if self.after else {}),
            **({"before": place(self.before)} if self.before else {}),
        }


def place(text: str) -> list[int | str]:
    """A place in a list. Raises ActRefused."""
    try:
        found = json.loads(text) if len(text) <= _LONGEST_PLACE else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or len(found) != 2 or not isinstance(found[1], str):
        raise ActRefused("after and before are the next and the previous of a page")
    return found


def page(node: str, nodes: Sequence[_Told], wanted: ListWanted) -> ListAnswer:
    """The page of all nodes that answer. Messages of one place are on one page."""
    down, most = wanted.sort.startswith("-"), wanted.limit
    every = [_message(one, entry["node"]) for entry in nodes for one in entry.get("messages", ())]
    every.sort(key=_place, reverse=down)
    back = bool(wanted.before)
    if back:
        every.reverse()
    more = len(every) > most
    shown = [one for at, one in enumerate(every) if at < most or _place(one) == _place(every[most - 1])]
    more = more and len(shown) < len(every)
    if back:
        shown.reverse()
    first, last = (_told(shown[0]), _told(shown[-1])) if shown else (None, None)
    return {
        "node": node,
        "total": sum(one.get("total", 0) for one in nodes if one["answers"]),
        "messages": shown,
        "nodes": [_node(one) for one in nodes],
        "next": last if more or back else None,
        "previous": first if (more if back else wanted.after) else None,
    }


def _message(told: Told, node: str) -> Any:
    return {**{name: told.get(name) for name in ListedMessage.__annotations__}, "node": node}


def _node(one: _Told) -> NodeListed:
    return {"node": one["node"], "answers": one["answers"], "why": one["why"], "total": one.get("total")}


def _place(one: _Told) -> tuple[bool, Any, str]:
    value, id_ = one["place"]
    return isinstance(value, str), value, id_


def _told(one: _Told) -> str:
    return json.dumps(one["place"], separators=(",", ":"))
