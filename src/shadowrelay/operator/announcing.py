"""Announcements of members: what an operator may ask of a node, and which members it has from where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.values import dataclass


class AnnouncementRefused(Exception):
    """The announcement is not taken; the text says why, to the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberShown:
    """A member, and where this node has it from: ``settings`` or ``announcement``."""

    name: ServerName
    address: str
    site: str
    host: str
    source: str


class Announces(Protocol):
    """Takes members that the cluster's authority announces, and tells the other members of them."""

    async def take(self, signed: str) -> tuple[ServerName, bool]:
        """Verify an announcement, keep it, and take the member into the boundary. Returns its name, and
        whether it was new. Raises AnnouncementRefused.
        """
        ...

    def members(self) -> Sequence[MemberShown]:
        """All members that were not retired."""
        ...
