"""Sets settings for all members of a running cluster, shows them, and lets each settings file count again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from shadowrelay.core.policy import Policy
from shadowrelay.core.switching import SWITCHED, carried, fault, value_of
from shadowrelay.core.values import dataclass, replace
from shadowrelay.operator.redundancy import Switching
from shadowrelay.operator.resubmit_estimate import CannotDo
from shadowrelay.shown.records import HavingEntry, SetEntry, SettingEntry, SettingsAnswer
from shadowrelay.shown.rendering import rendered


class Notation(Protocol):
    """How settings are written, and what they have to go with on this node."""

    def value_of(self, key: str, given: object) -> Any:
        """Raises ValueError."""
        ...

    def written(self, key: str, value: Any) -> str | int | bool: ...

    def why_not(self, key: str) -> str:
        """Why a setting is not set for all members."""
        ...


@dataclass(slots=True, kw_only=True)
class ClusterSettings(Switching):
    """What an operator may ask of them on this node. ``wrong``: which values of a policy do not go together
    here.
    """

    notation: Notation
    wrong: Callable[[Policy], Sequence[str]]

    async def show(self) -> SettingsAnswer:
        """Each setting that may be set for all, and which members have the record of its last change."""
        return {"name": self.name, "settings": [self.entry(key) for key in SWITCHED]}

    def entry(self, key: str) -> SettingEntry:
        """One of them."""
        switch, written = self.in_force.switches.get(key), self.notation.written
        known = None if switch is None or fault(switch) else value_of(switch)
        value = None if known is None else written(key, known)
        return {
            "key": key,
            "value": written(key, getattr(self.in_force.policy, key)),
            "settings_file": written(key, getattr(self.in_force.file_policy, key)),
            "pending": switch is not None and switch.pending,
            "set": rendered(SetEntry, switch, value=value) if switch else None,
            "members": [rendered(HavingEntry, one) for one in self.members(switch)],
        }

    async def set(self, key: str, given: object, operator: str, reason: str) -> SettingEntry:
        """Set it for all members. Raises CannotDo, or ValueError for a value that it cannot have."""
        self._known(key)
        value = self.notation.value_of(key, given)
        self._checked(replace(self.in_force.policy, **{key: value}))
        return await self._changed(key, value, operator, reason)

    async def unset(self, key: str, operator: str, reason: str) -> SettingEntry:
        """Let the settings file of each member count again. Raises CannotDo."""
        self._known(key)
        switch = self.in_force.switches.get(key)
        if switch is None or switch.value is None:
            raise CannotDo(f"{key} is not set for all members: each settings file counts")
        self._checked(replace(self.in_force.policy, **{key: getattr(self.in_force.file_policy, key)}))
        return await self._changed(key, None, operator, reason)

    async def _changed(self, key: str, value: Any, operator: str, reason: str) -> SettingEntry:
        await self.change(key, carried(value), operator, reason)
        return self.entry(key)

    def _known(self, key: str) -> None:
        if key not in SWITCHED:
            raise CannotDo(f"{key} is not set for all members: {self.notation.why_not(key)}")

    def _checked(self, policy: Policy) -> None:
        if found := self.wrong(policy):
            raise CannotDo("; ".join(found))
