"""Reads the settings files of running nodes again: what an operator may ask, and what each node answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Protocol

from shadowrelay.core.identifiers import MessageId, RequestId, ServerName
from shadowrelay.core.operating import Act, Scope, Told
from shadowrelay.core.steps import Operate, Unanswered
from shadowrelay.core.values import dataclass
from shadowrelay.core.workers import node_of
from shadowrelay.operator.acts import NO_ACTION, Action, ActRefused
from shadowrelay.operator.asking import AskMember
from shadowrelay.shown.nodes import ReloadsAnswer
from shadowrelay.shown.status import ReloadEntry, SettingChange

RELOAD = "reload"
"""The action of XOPERATE by which a member reads its settings again."""

PATIENCE = 20.0
"""Seconds that a node may take: a long recipients file is read in a second or two."""

MOST_CHANGES = 200
"""Changes that a member lists in its answer; and characters of a value, at most."""


@dataclass(frozen=True, slots=True)
class Change:
    """A setting that has another value. A whole table that comes or goes is one change.

    Values are in the notation of the file; a secret is hidden.
    """

    key: str
    was: str
    now: str

    def __str__(self) -> str:
        return f"{self.key}: {self.was} -> {self.now}"

    def told(self) -> SettingChange:
        return {"key": self.key, "was": self.was[:MOST_CHANGES], "now": self.now[:MOST_CHANGES]}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadShown:
    """What the settings file comes to on a node. ``taken``: the node runs with it now.

    ``now``: what changes without a restart; ``restart``: what the file says otherwise than the node runs
    with, until it is started again; ``wrong``: why the file is refused, whole; ``warnings``: what is hardly
    meant.
    """

    taken: bool = False
    now: Sequence[Change] = ()
    restart: Sequence[Change] = ()
    wrong: Sequence[str] = ()
    warnings: Sequence[str] = ()

    def told(self, name: ServerName) -> ReloadEntry:
        return {
            "name": name,
            "taken": self.taken,
            "now": [one.told() for one in self.now[:MOST_CHANGES]],
            "restart": [one.told() for one in self.restart[:MOST_CHANGES]],
            "wrong": list(self.wrong[:MOST_CHANGES]),
            "warnings": list(self.warnings[:MOST_CHANGES]),
        }


class Reloads(Protocol):
    """Reads the settings of a node again. Only one call at a time does anything; others wait."""

    async def reload(self, *, dry_run: bool = False) -> ReloadShown:
        """Take the file whole, or refuse it whole. ``dry_run``: only say what it would come to."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReload:
    """One node's. ``here``: what reloads this node; None while it starts. ``ask``: asks a member, within that
    many seconds.
    """

    name: ServerName
    here: Callable[[], Reloads | None]
    members: Callable[[], Iterable[ServerName]]
    ask: AskMember
    mint: Callable[[datetime], MessageId]
    clock: Callable[[], datetime]
    told: Callable[[], None] = lambda: None  # a member asked, and the file was taken

    def actions(self) -> dict[str, Action]:
        """What members may ask of this node."""
        return {RELOAD: Action(Scope.OPERATE, self._asked)}

    async def own(self, *, dry_run: bool) -> ReloadEntry:
        """Reload this node. Raises ActRefused while it starts."""
        here = self.here()
        if here is None:
            raise ActRefused("the node is starting: try again in a moment")
        return (await here.reload(dry_run=dry_run)).told(self.name)

    async def everywhere(self, operator: str, *, dry_run: bool) -> ReloadsAnswer:
        """Reload this node and every member, all at once. Each reads its own file, and answers for itself."""
        act = self._act(operator, dry_run=dry_run)
        asked = (self._other(name, act) for name in sorted(self.members()))
        own, *others = await asyncio.gather(self.own(dry_run=dry_run), *asked)
        here: Any = {"node": self.name, "answers": True, "why": "", **own}
        return {"nodes": [here, *others]}

    async def at(self, node: str, operator: str, *, dry_run: bool) -> ReloadsAnswer:
        """Reload all workers of another node."""
        act = self._act(operator, dry_run=dry_run)
        workers = sorted(one for one in self.members() if node_of(one) == node)
        return {"nodes": list(await asyncio.gather(*(self._other(name, act) for name in workers)))}

    def _act(self, operator: str, *, dry_run: bool) -> Act:
        return Act(
            job=RequestId(self.mint(self.clock())),
            action=RELOAD,
            scope=Scope.OPERATE,
            operator=operator,
            reason="settings are read again",
            arguments={"dry_run": dry_run},
        )

    async def _other(self, name: ServerName, act: Act) -> Any:
        answer = await self.ask(Operate(name, act), PATIENCE)
        if isinstance(answer, Unanswered):
            return {"node": name, "answers": False, "why": f"{answer.step}: {answer.error}"}
        if answer.refused.startswith(NO_ACTION):
            why = "it is of an older version: restart it"
            return {"node": name, "answers": False, "why": why}
        if answer.refused:
            return {"node": name, "answers": False, "why": f"it refuses: {answer.refused}"}
        return {"node": name, "answers": True, "why": "", **answer.told}

    async def _asked(self, member: ServerName, act: Act) -> Told:
        del member
        dry_run = act.arguments.get("dry_run") is True
        shown = await self.own(dry_run=dry_run)
        if not dry_run:
            self.told()
        return shown
