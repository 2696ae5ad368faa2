"""What a member does for an operator on another node: the contents of the verb XOPERATE."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

from shadowrelay.core.identifiers import RequestId
from shadowrelay.core.values import dataclass

Told: TypeAlias = Mapping[str, Any]
"""Arguments or an answer: what JSON can say, keyed by name."""


@dataclass(frozen=True, slots=True)
class By:
    """Who did something to messages here, and why; ``job`` names the order that the operator gave."""

    operator: str
    reason: str
    job: RequestId


class Scope(StrEnum):
    """What a token, or a member, may do: nothing, look, or act."""

    NONE = "none"
    READ = "read"
    OPERATE = "operate"

    def allows(self, needed: Scope) -> bool:
        order = tuple(Scope)
        return order.index(needed) <= order.index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """An act for an operator, asked of another member. It is never sent on.

    ``job``: an act with the same job again changes nothing more. ``scope``: that of the token at the node
    which the operator asked.
    """

    job: RequestId
    action: str
    scope: Scope
    operator: str
    reason: str
    arguments: Told


@dataclass(frozen=True, slots=True)
class ActAnswer:
    """The answer to an act. ``refused``: why it was not done; that is final. Then ``told`` is empty."""

    told: Told
    refused: str = ""


class Ordered(Protocol):
    """A record of what an operator ordered of all members."""

    @property
    def id(self) -> RequestId: ...

    @property
    def operator(self) -> str: ...

    @property
    def reason(self) -> str: ...


def act_about(record: Ordered, action: str, scope: Scope, arguments: Told) -> Act:
    """What a member is asked to do about a record, for the operator who ordered it."""
    return Act(
        job=record.id,
        action=action,
        scope=scope,
        operator=record.operator,
        reason=record.reason,
        arguments=arguments,
    )
