"""The policy in force on this node: that of its settings file, and what was switched for all since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from operator import attrgetter

from shadowrelay.core.policy import Policy
from shadowrelay.core.switches import Switch
from shadowrelay.core.switching import REDUNDANCY, in_force, relied_on


class LivePolicy(Policy):
    """A policy whose values are always those of ``now``. ``now`` has all of one moment."""

    __slots__ = ("now",)
    now: Policy

    def __init__(self, now: Policy) -> None:
        object.__setattr__(self, "now", now)

    def take(self, policy: Policy) -> None:
        object.__setattr__(self, "now", policy)


for _tunable in fields(Policy):
    setattr(LivePolicy, _tunable.name, property(attrgetter(f"now.{_tunable.name}")))


class EffectivePolicy:
    """Knows the policy in force, in the memory of this process. ``policy``: that of this moment, which never
    changes: who begins something asks for it once. ``live``: for parts that ask each time, always the policy
    of now. ``relied`` and ``live_relied``: the same, with the shortest time span after which any member may
    promote. ``switches``: the records, by the settings that they are about.
    """

    def __init__(self, file: Policy) -> None:
        self._file = file
        self.policy = self.relied = self._noted = file
        self.live, self.live_relied = LivePolicy(file), LivePolicy(file)
        self.switches: Mapping[str, Switch] = {}

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
    def switch(self) -> Switch | None:
        """The record of shadow redundancy, if there is one."""
        return self.switches.get(REDUNDANCY)

    @property
    def overruled(self) -> bool:
        """Does the settings file count again, because it says something else than at the switch?"""
        return self.switch is not None and self.switch.against != self.file

    def with_file(self, file: Policy) -> Policy:
        """The policy that would be in force with another settings file."""
        return in_force(file, self.switches.values())

    def reread(self, file: Policy) -> None:
        """The settings file says something else; ``take`` tells which values in force that changed."""
        self._file = file
        self._renew()

    def take(self, switches: Iterable[Switch]) -> frozenset[str]:
        """The records as they are now. Returns the settings with another value in force than at the last
        call.
        """
        self.switches = {one.name: one for one in switches}
        self._renew()
        before, self._noted = self._noted, self.policy
        if before is self.policy:
            return frozenset()
        names = (one.name for one in fields(Policy))
        return frozenset(name for name in names if getattr(before, name) != getattr(self.policy, name))

    def _renew(self) -> None:
        self.policy = self.with_file(self._file)
        self.relied = relied_on(self._file, self.switches.values())
        self.live.take(self.policy)
        self.live_relied.take(self.relied)
