"""Members that are gone for good, as operators said: what every member has on record of them."""

from __future__ import annotations

from typing import ClassVar

from shadowrelay.core.identifiers import DatabaseId, ServerName
from shadowrelay.core.records import Record
from shadowrelay.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RetiredMember(Record):
    """The record of a member that was retired. ``database_id``: its database then, as the node knew it that
    was asked. Nothing takes it back, and no node forgets it.
    """

    kind: ClassVar[str] = "retired"

    member: ServerName
    database_id: DatabaseId | None = None

    @property
    def key(self) -> str:
        return f"{self.member}/{self.database_id or ''}"

    @property
    def final(self) -> bool:
        return True
