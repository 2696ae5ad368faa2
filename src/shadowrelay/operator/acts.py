"""Acts for operators on other nodes: who may do what here, how often, and what is logged of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field

import structlog

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.operating import Act, ActAnswer, Scope, Told
from shadowrelay.core.values import dataclass
from shadowrelay.wire.replies import Refused

log = structlog.get_logger(__name__)

NO_ACTION = "this node knows no action"
"""How the refusal of an action begins that this node's version does not have."""

MOST_PER_SECOND = 50
"""Acts of one member; more of them are asked to come later."""


class ActRefused(Exception):
    """An act is not done; the text says why, to the operator. That is final."""


@dataclass(frozen=True, slots=True)
class Action:
    """What can be done: the scope that it takes, and how. ``quiet``: what it changes is logged elsewhere."""

    needs: Scope
    perform: Callable[[ServerName, Act], Awaitable[Told]]
    quiet: bool = False


@dataclass(slots=True)
class Acts:
    """The actions of this node. ``most``: the setting ``peer_operate``; ``seconds``: a monotonic clock."""

    most: Scope
    actions: Mapping[str, Action]
    seconds: Callable[[], float]
    _spent: dict[ServerName, tuple[int, int]] = field(default_factory=dict)

    async def perform(self, member: ServerName, act: Act) -> ActAnswer:
        """Do it, if the member may. Raises Refused if it asks too often."""
        self._count(member)
        action = self.actions.get(act.action)
        if action is None:
            return ActAnswer({}, f"{NO_ACTION} {act.action}")
        for scope, whose in ((act.scope, "the token"), (self.most, "peer_operate here")):
            if not scope.allows(action.needs):
                why = f"{act.action} takes the scope {action.needs.value}; {whose} gives {scope.value}"
                return _refused(member, act, why)
        try:
            told = await action.perform(member, act)
        except ActRefused as refused:
            return _refused(member, act, str(refused))
        if not action.quiet:
            log.info(
                "act_done",
                member=member,
                action=act.action,
                operator=act.operator,
                job=act.job,
                reason=act.reason,
            )
        return ActAnswer(told)

    def _count(self, member: ServerName) -> None:
        second, count = self._spent.get(member, (0, 0))
        now = int(self.seconds())
        count = count + 1 if now == second else 1
        self._spent[member] = now, count
        if count > MOST_PER_SECOND:
            raise Refused(450, "4.4.5", "Too many acts, ask later")


def _refused(member: ServerName, act: Act, why: str) -> ActAnswer:
    log.warning("act_refused", member=member, action=act.action, operator=act.operator, job=act.job, why=why)
    return ActAnswer({}, why)
