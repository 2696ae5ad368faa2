"""One view of all nodes: any node answers for all. A node that is silent or refuses is an entry that says so.

What a node sees of itself is a *look*. The looks are given from above; here members are asked for theirs, by
XOPERATE with the scope read, all at once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any, TypeAlias, cast

from shadowrelay.core.identifiers import MessageId, RequestId, ServerName
from shadowrelay.core.operating import Act, ActAnswer, Scope, Told
from shadowrelay.core.steps import Operate, Unanswered
from shadowrelay.core.values import dataclass
from shadowrelay.core.workers import node_of
from shadowrelay.operator import finding, listing, tracing
from shadowrelay.operator.acts import NO_ACTION, Action, ActRefused
from shadowrelay.operator.asking import AskMember
from shadowrelay.shown.messages import (
    FindLook,
    FoundAnswer,
    ListAnswer,
    MessageAnswer,
    TraceAnswer,
    TraceLook,
)
from shadowrelay.shown.nodes import HopAnswer, QueuesAnswer, RatesAnswer, StatusesAnswer, TlsAnswer
from shadowrelay.shown.reading import read
from shadowrelay.smtp.members.client import NO_ANSWER

Json: TypeAlias = dict[str, Any]
OwnLook: TypeAlias = Callable[[Told], Awaitable[Mapping[str, object]]]
"""What this node sees of itself. Raises ActRefused for arguments that it does not understand."""

STATUS, QUEUES, QUEUE, FIND, TRACE = "look-status", "look-queues", "look-queue", "look-find", "look-trace"
DRAIN, MESSAGES, MESSAGE, RATES = "look-drain", "look-messages", "look-message", "look-rates"
LIST, NODE, TLS = "look-list", "look-node", "look-tls"

PATIENCE = 2.0
"""Seconds that all members together may take to answer."""

LITTLE_PATIENCE = 0.5
"""Seconds for a member that the heartbeats do not reach either."""

PART = 150_000
"""Octets of JSON in one answer; base64 makes 200,000 of them, and an answer may have 262,144."""

MOST_IDS = 50
"""Ids in one look at messages: a line between members has room for no more."""

_KEPT = 16  # answers of several parts that are kept for those who asked
_OLD = 10.0  # seconds


class NoSuchMessage(ActRefused):
    """No node that answers knows a message that is called so."""


@dataclass(slots=True, kw_only=True)
class View:
    """One node's. ``members``: those in the settings that are not retired. ``reachable``: those that the
    heartbeats reach. ``ask``: asks a member, within that many seconds. ``seconds``: a monotonic clock.
    """

    name: ServerName
    looks: Mapping[str, OwnLook]
    members: Callable[[], Iterable[ServerName]]
    reachable: Callable[[], Collection[ServerName]]
    ask: AskMember
    mint: Callable[[datetime], MessageId]
    clock: Callable[[], datetime]
    seconds: Callable[[], float]
    _kept: dict[tuple[ServerName, RequestId], tuple[float, Json]] = field(default_factory=dict)

    async def status(self) -> StatusesAnswer:
        """The status of each node."""
        return {"node": self.name, "nodes": await self.everybody(STATUS, {}, "status")}

    async def queues(self) -> QueuesAnswer:
        """The queues, the shadow queues, and the shadow queues of hops, of each node."""
        return {"node": self.name, "nodes": await self.everybody(QUEUES, {})}

    async def rates(self) -> RatesAnswer:
        """What came in the last minutes at each node, second by second."""
        return {"node": self.name, "nodes": await self.everybody(RATES, {})}

    async def tls(self) -> TlsAnswer:
        """What became of TLS with next hops, at each node."""
        return {"node": self.name, "nodes": await self.everybody(TLS, {})}

    async def queue(self, hop: str) -> HopAnswer:
        """All that each node knows of one next hop."""
        return {"node": self.name, "next_hop": hop, "nodes": await self.everybody(QUEUE, {"next_hop": hop})}

    async def find(self, query: str, after: str = "", limit: int = 50, *, here: bool = False) -> FoundAnswer:
        """A page of the messages that match on any node, newest first, each with where its copies are.

        ``next``: give it as ``after`` for the next page; None if there is no more. Raises ActRefused if the
        query says nothing. ``here``: of this node alone.
        """
        until = self.seconds() + PATIENCE
        arguments = {"query": query, "limit": limit, **({"after": after} if after else {})}
        nodes = [
            _read(FindLook, one) for one in await self.everybody(FIND, arguments, until=until, here=here)
        ]
        page = finding.page(nodes, limit)
        asked = {}
        for name in (entry["node"] for entry in nodes if entry["answers"]):
            missing = page.missing(name)
            asked.update({(name, at): missing[at : at + MOST_IDS] for at in range(0, len(missing), MOST_IDS)})
        more = await asyncio.gather(
            *(self._said(name, FIND, {"ids": ids}, until) for (name, _), ids in asked.items())
        )
        for (name, _), said in zip(asked, more, strict=True):
            found: Any = said if isinstance(said, str) else read(FindLook, said)["messages"]
            page.add(name, found)
        return page.shown(self.name, query)

    async def listed(self, wanted: listing.ListWanted) -> ListAnswer:
        """A page of the messages of all nodes in a state, or that a filter means. Raises ActRefused."""
        return listing.page(self.name, await self.everybody(LIST, wanted.arguments()), wanted)

    async def message(self, wanted: str) -> MessageAnswer:
        """All that is known of one message where most is known: at its owner, if that answers. By its id or
        the beginning of it. Raises NoSuchMessage if no node that answers knows it, and ActRefused if several
        messages begin so.
        """
        nodes = await self.everybody(MESSAGE, {"id": wanted}, "message")
        said = [{**one["message"], "node": one["node"]} for one in nodes if one["answers"]]
        known = [one for one in said if "id" in one]
        like = {str(one["id"]) for one in known}.union(*(one.get("like", ()) for one in said))
        if len(like) > 1:
            raise ActRefused(f"several messages begin with {wanted}: {', '.join(sorted(like))}")
        if not known:
            silent = [f"{one['node']}: {one['why']}" for one in nodes if not one["answers"]]
            told = f"; not all nodes answer: {'; '.join(silent)}" if silent else ""
            raise NoSuchMessage(f"no node that answers knows a message {wanted}{told}")
        best = sorted(known, key=lambda one: ("envelope" not in one, one.get("role") != "primary"))
        return cast(MessageAnswer, best[0])

    async def trace(self, message_id: str, after: str = "", *, here: bool = False) -> TraceAnswer:
        """The life of a message over all nodes, from their tracking logs: also of rows that no file has yet.

        The newest files come first; ``next``, given as ``after``, goes on with older ones. Raises ActRefused
        for what is no cursor.
        """
        try:
            older = tracing.places(after)
        except ValueError as error:
            raise ActRefused(str(error)) from None
        end = self.seconds() + PATIENCE
        wanted = [name for name in self._everybody(here=here) if not after or name in older]
        said = await asyncio.gather(
            *(self._said(name, TRACE, {"id": message_id, **_older(older.get(name))}, end) for name in wanted)
        )
        nodes = [
            _read(TraceLook, _entry(name, answer, "")) for name, answer in zip(wanted, said, strict=True)
        ]
        return {
            "node": self.name,
            "id": message_id,
            "events": tracing.in_order(nodes),
            "nodes": [{"node": one["node"], "answers": one["answers"], "why": one["why"]} for one in nodes],
            "next": tracing.cursor(nodes),
        }

    def _everybody(self, *, here: bool) -> tuple[ServerName, ...]:
        return (self.name, *(() if here else sorted(self.members())))

    async def workers(self, action: str, arguments: Told, under: str = "") -> list[Any]:
        """What each worker of this node answers to a look, as ``everybody`` does."""
        return await self.of_node(node_of(self.name), action, arguments, under)

    async def of_node(self, node: str, action: str, arguments: Told, under: str = "") -> list[Any]:
        """What each worker of a node answers to a look; nothing if no member is called so."""
        names = [name for name in self._everybody(here=False) if node_of(name) == node]
        return await self._all(names, action, arguments, under, self.seconds() + PATIENCE)

    def nodes(self) -> list[str]:
        """The names of all nodes, this one first."""
        return list(dict.fromkeys(str(node_of(name)) for name in self._everybody(here=False)))

    async def everybody(
        self,
        action: str,
        arguments: Told,
        under: str = "",
        until: float | None = None,
        *,
        here: bool = False,
    ) -> list[Any]:
        """What each node answers to a look, this node first, then the members by name.

        Each entry has ``node``, ``answers`` and ``why``: why there is no answer. What the node says follows;
        as the value of ``under``, if that is given. ``until``: when patience ends.
        """
        end = self.seconds() + PATIENCE if until is None else until
        return await self._all(self._everybody(here=here), action, arguments, under, end)

    async def _all(
        self, names: Sequence[ServerName], action: str, arguments: Told, under: str, end: float
    ) -> list[Any]:
        said = await asyncio.gather(*(self._said(name, action, arguments, end) for name in names))
        return [_entry(name, answer, under) for name, answer in zip(names, said, strict=True)]

    def actions(self) -> dict[str, Action]:
        """What members may ask of this node."""
        return {action: Action(Scope.READ, self._answer, quiet=True) for action in self.looks}

    async def _said(self, name: ServerName, action: str, arguments: Told, until: float) -> Json | str:
        """A node's answer; or why there is none."""
        if name == self.name:
            return dict(await self.looks[action](arguments))
        if name not in self.reachable():
            until = min(until, self.seconds() + LITTLE_PATIENCE)
        return await self._asked(name, RequestId(self.mint(self.clock())), action, arguments, until)

    async def _asked(
        self, name: ServerName, job: RequestId, action: str, arguments: Told, until: float
    ) -> Json | str:
        """A member's answer with all its parts; or why there is none."""
        whole: Json = {}
        part = 0
        while True:
            act = Act(
                job=job,
                action=action,
                scope=Scope.READ,
                operator="",
                reason=action,
                arguments={**arguments, "part": part},
            )
            left = max(0.01, until - self.seconds())
            answer = await self.ask(Operate(name, act), left)
            if isinstance(answer, Unanswered) or answer.refused:
                why = _why(answer, left)
                return {**whole, "incomplete": why} if whole else why
            _add(whole, answer.told)
            if not (following := answer.told.get("next_part")):
                return whole
            part = int(following)

    async def _answer(self, member: ServerName, act: Act) -> Told:
        """One part of a look, for a member. All parts are of the moment when the first was asked for."""
        arguments = {key: value for key, value in act.arguments.items() if key != "part"}
        part = act.arguments.get("part", 0)
        if not isinstance(part, int) or isinstance(part, bool) or part < 0:
            raise ActRefused("part is no number")
        now = self.seconds()
        for old in [key for key, (at, _) in self._kept.items() if now - at > _OLD]:
            del self._kept[old]
        kept = self._kept.get((member, act.job))
        found = kept[1] if kept and part else dict(await self.looks[act.action](arguments))
        answer = parted(found, part)
        if answer.get("next_part") and not (kept and part):
            while len(self._kept) >= _KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[member, act.job] = self.seconds(), found
        return answer


def parted(found: Json, begin: int, most: int = PART) -> Json:
    """The part of a look that begins at the item ``begin`` of all its lists, one list after the other.

    The first part has the other values too. ``next_part``: where the next part begins; absent if there is
    none. An item that is too long for any part is left out.
    """
    part: Json = {} if begin else {key: value for key, value in found.items() if not isinstance(value, list)}
    left, at = most - _octets(part), 0
    for key, items in found.items():
        if not isinstance(items, list):
            continue
        taken: list[Any] = []
        for item in items:
            if at >= begin:
                size = _octets(item) + 1
                if size <= left:
                    taken.append(item)
                    left -= size
                elif size < most:
                    return {**part, key: taken, "next_part": at}
            at += 1
        part[key] = taken
    return part


def _octets(value: Any) -> int:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode("utf-8", "surrogateescape"))


def _add(whole: Json, told: Told) -> None:
    for key, value in told.items():
        if key == "next_part":
            continue
        if isinstance(value, list):
            whole[key] = [*whole.get(key, ()), *value]
        else:
            whole.setdefault(key, value)


def _why(answer: ActAnswer | Unanswered, waited: float) -> str:
    """Why a node gave no answer."""
    if isinstance(answer, Unanswered):
        if answer.error == NO_ANSWER:
            return f"it is silent: no answer within {waited:.1g} s"
        return f"{answer.step}: {answer.error}"
    if answer.refused.startswith(NO_ACTION):
        return "it is of an older version, and cannot be looked at from here"
    return f"it refuses: {answer.refused}"


def _read(model: type, entry: Json) -> Json:
    """The entry of a node, with all that its look has to tell, if it answers."""
    return {**entry, **read(model, dict(entry))} if entry["answers"] else entry


def _older(place: str | None) -> Json:
    return {"older": place} if place else {}


def _entry(name: ServerName, answer: Json | str, under: str) -> Json:
    if isinstance(answer, str):
        return {"node": name, "answers": False, "why": answer}
    why = answer.pop("incomplete", "")
    return {"node": name, "answers": True, "why": why, **({under: answer} if under else answer)}
