"""What an operator has another node do, from the node whose console is open: drain, or take mail again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime

from shadowrelay.core.identifiers import MessageId, RequestId, ServerName
from shadowrelay.core.operating import Act, Scope, Told
from shadowrelay.core.steps import Operate, Unanswered
from shadowrelay.core.values import dataclass
from shadowrelay.core.workers import node_of
from shadowrelay.operator.acts import NO_ACTION, Action, ActRefused
from shadowrelay.operator.asking import AskMember

DRAIN, UNDRAIN = "drain", "undrain"
"""The actions of XOPERATE by which a member begins and ends a drain of itself."""

PATIENCE = 5.0
"""Seconds that a member may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeActs:
    """One node's. ``members``: those in the settings that are not retired. ``drain``, ``undrain``: of this
    process, for an operator. ``ask``: asks a member, within that many seconds.
    """

    members: Callable[[], Iterable[ServerName]]
    drain: Callable[[str], Awaitable[object]]
    undrain: Callable[[str], Awaitable[object]]
    ask: AskMember
    mint: Callable[[datetime], MessageId]
    clock: Callable[[], datetime]

    def actions(self) -> dict[str, Action]:
        """What members may ask of this node, for an operator who may operate there and here."""
        return {
            DRAIN: Action(Scope.OPERATE, self._drain),
            UNDRAIN: Action(Scope.OPERATE, self._undrain),
        }

    async def give(self, node: str, action: str, operator: str, scope: Scope) -> None:
        """Have all workers of another node do it. Raises ActRefused, with what each says that does not."""
        workers = sorted(one for one in self.members() if node_of(one) == node)
        if not workers:
            raise ActRefused(f"no member is called {node}")
        job = RequestId(self.mint(self.clock()))
        act = Act(
            job=job,
            action=action,
            scope=scope,
            operator=operator,
            reason=f"{action}, ordered from another node",
            arguments={},
        )
        said = await asyncio.gather(*(self._asked(one, act) for one in workers))
        wrong = [f"{one}: {why}" for one, why in zip(workers, said, strict=True) if why]
        done = [one for one, why in zip(workers, said, strict=True) if not why]
        if wrong:
            raise ActRefused("; ".join([*([f"{', '.join(done)}: done"] if done else []), *wrong]))

    async def _asked(self, name: ServerName, act: Act) -> str:
        answer = await self.ask(Operate(name, act), PATIENCE)
        if isinstance(answer, Unanswered):
            return f"it does not answer ({answer.step}: {answer.error})"
        if answer.refused.startswith(NO_ACTION):
            return "it is of an older version, and takes no such order from here"
        return answer.refused and f"it refuses: {answer.refused}"

    async def _drain(self, member: ServerName, act: Act) -> Told:
        del member
        await self.drain(act.operator)
        return {}

    async def _undrain(self, member: ServerName, act: Act) -> Told:
        del member
        await self.undrain(act.operator)
        return {}
