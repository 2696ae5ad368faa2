"""Retires members on a running node: as an operator asks here, and as another node has it on record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from shadowrelay.core.identifiers import RequestId, ServerName
from shadowrelay.core.records import next_revision
from shadowrelay.core.retirements import RetiredMember
from shadowrelay.ids import mint
from shadowrelay.operator.retire import Retirement, retire

if TYPE_CHECKING:
    from shadowrelay.service.node import Node

log = structlog.get_logger(__name__)


async def ask(node: Node, name: ServerName, operator: str) -> Retirement:
    """An operator says here that the member is gone for good; the other members are told."""
    now = node.clock()
    record = RetiredMember(
        id=RequestId(mint(now)),
        member=name,
        operator=operator,
        reason="it is gone for good",
        revision=next_revision(0, now),
        changed_by=node.name,
        changed_at=now,
    )
    done = await _retire(node, name, record)
    node.replication.wake.set()
    return done


async def follow(node: Node, record: RetiredMember) -> None:
    """An operator said so on another node."""
    await _retire(node, record.member, None, record.changed_by)


async def _retire(
    node: Node, name: ServerName, record: RetiredMember | None, told_by: ServerName | None = None
) -> Retirement:
    now = node.clock()
    done = await node.database.transact(lambda ledger: retire(ledger, name, now, record))
    log.warning(
        "member_retired",
        member=name,
        promoted=done.promoted,
        lost=done.lost,
        events_dropped=done.events,
        told_by=told_by,
    )
    node.retired(name)
    return done
