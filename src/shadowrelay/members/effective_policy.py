"""The policy in force on this node: that of its settings file, and what was switched for all since."""

from __future__ import annotations

from shadowrelay.core.policy import Policy
from shadowrelay.core.switches import Switch
from shadowrelay.core.switching import in_force
from shadowrelay.core.values import replace


class EffectivePolicy:
    """Knows the policy in force, in the memory of this process. ``switch``: the record, if there is one.

    Whoever asks whether shadow redundancy is on asks here, each time: it may change between two questions.
    """

    def __init__(self, file: Policy) -> None:
        self._file = file
        self.policy = file
        self._noted = file.shadow_redundancy_enabled
        self.switch: Switch | None = None

    @property
    def redundancy(self) -> bool:
        """Is shadow redundancy on?"""
        return self.policy.shadow_redundancy_enabled

    @property
    def file_policy(self) -> Policy:
        """The policy of the settings file."""
        return self._file

    @property
    def file(self) -> bool:
        """What the settings file says of shadow redundancy."""
        return self._file.shadow_redundancy_enabled

    @property
    def overruled(self) -> bool:
        """Does the settings file count again, because it says something else than at the switch?"""
        return self.switch is not None and self.switch.against != self.file

    def reread(self, file: Policy) -> None:
        """The settings file says something else; ``take`` tells whether that changed the value in force."""
        self._file = file
        self.policy = self._with(self.switch)

    def take(self, switch: Switch | None) -> bool:
        """The record as it is now. Returns whether the value in force changed since the last call."""
        self.switch = switch
        self.policy = self._with(switch)
        before, self._noted = self._noted, self.redundancy
        return self.redundancy != before

    def _with(self, switch: Switch | None) -> Policy:
        return replace(self._file, shadow_redundancy_enabled=in_force(switch, file=self.file))
