"""Puts together what each node finds of a search: each message once, with where its copies are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any, TypeAlias

from shadowrelay.core.values import dataclass
from shadowrelay.shown.messages import FoundAnswer, FoundCopy, FoundMessage

Entry: TypeAlias = dict[str, Any]
"""What a node answered: ``node``, ``answers``, ``why``; and ``messages``, ``by`` and ``until`` if it did."""

_OF_THE_MESSAGE = tuple(name for name in FoundMessage.__annotations__ if name not in ("id", "copies"))
_OF_THE_COPY = tuple(name for name in FoundCopy.__annotations__ if name != "node")


@dataclass(slots=True)
class FoundPage:
    """One page. ``next``: where the next one begins; None if all nodes that answer have looked at all ids."""

    nodes: Sequence[Entry]
    ids: Sequence[str]
    next: str | None
    copies: dict[str, dict[str, Entry]] = field(default_factory=dict)  # by message and node

    def missing(self, node: str) -> list[str]:
        """Messages of the page that this node did not find: it may know of them all the same."""
        return [id_ for id_ in self.ids if node not in self.copies[id_]]

    def add(self, node: str, said: Iterable[Entry] | str) -> None:
        """What a node knows of messages that others found; or why it does not answer."""
        if isinstance(said, str):
            entry = next(one for one in self.nodes if one["node"] == node)
            entry["why"] = (
                entry["why"] or f"it found its part, but did not say what it has of other messages: {said}"
            )
            return
        for one in said:
            if one["id"] in self.copies:
                self.copies[one["id"]][node] = one

    def shown(self, node: str, query: str) -> FoundAnswer:
        """The page as the API of that node shows it."""
        order = [entry["node"] for entry in self.nodes]
        by = next((entry["by"] for entry in self.nodes if entry.get("by")), None)
        return {
            "node": node,
            "query": query,
            "by": by,
            "messages": [_message(id_, self.copies[id_], order) for id_ in self.ids],
            "nodes": [
                {"node": one["node"], "answers": one["answers"], "why": one["why"], "until": one.get("until")}
                for one in self.nodes
            ],
            "next": self.next,
        }


def page(nodes: Sequence[Entry], limit: int) -> FoundPage:
    """The page that all nodes have looked at: it ends where the first of them ended, or at the limit."""
    ends = []
    for one in nodes:
        if one["answers"] and one["why"]:  # a part of its answer did not come
            one["until"] = one["messages"][-1]["id"] if one.get("messages") else "~"
        if one.get("until") is not None:
            ends.append(one["until"])
    horizon = max(ends, default="")
    copies: dict[str, dict[str, Entry]] = {}
    for one in nodes:
        for message in one.get("messages", ()):
            if message["id"] >= horizon:
                copies.setdefault(message["id"], {})[one["node"]] = message
    ids = sorted(copies, reverse=True)[:limit]
    following = ids[-1] if len(copies) > limit else horizon or None
    return FoundPage(nodes, ids, following, {id_: copies[id_] for id_ in ids})


def _message(id_: str, copies: dict[str, Entry], order: Sequence[str]) -> Any:
    """A message once. Of two copies the owner's tells what it is: another may lack recipients."""
    told = [copies[node] for node in order if node in copies]
    whole = sorted(
        (one for one in told if one.get("sender") is not None), key=lambda one: one["role"] != "primary"
    )
    about = whole[0] if whole else {}
    return {
        "id": id_,
        **{name: about.get(name) for name in _OF_THE_MESSAGE},
        "copies": [
            {"node": node, **{name: copies[node].get(name) for name in _OF_THE_COPY}}
            for node in order
            if node in copies
        ],
    }
