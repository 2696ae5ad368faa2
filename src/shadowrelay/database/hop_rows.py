"""Converts peers beyond the boundary, and what they handed over, to and from rows."""

from __future__ import annotations

import json

from shadowrelay.core.hops import Handed, HopPeer
from shadowrelay.core.identifiers import Beginning, DatabaseId, Incarnation, Lineage, MessageId, ServerName
from shadowrelay.database.sums import SqlRow, believed, row_sum
from shadowrelay.wire.xshadow import parse_mark


def peer_row(peer: HopPeer) -> SqlRow:
    lineage = peer.lineage
    told = {
        "lineage": lineage
        and {
            "database_id": lineage.database_id,
            "beginnings": [[one.incarnation, one.sequence] for one in lineage.beginnings],
            "sequence": lineage.sequence,
        },
        "knows_ours": peer.knows_ours,
        "applied": str(peer.applied) if peer.applied else None,
        "replaced": peer.replaced,
    }
    return peer.name, json.dumps(told)


def peer_of(row: SqlRow) -> HopPeer:
    """Raises one of ``sums.IMPOSSIBLE`` for a row that cannot be read."""
    told = json.loads(row[1])
    lineage, applied = told["lineage"], told["applied"]
    return HopPeer(
        ServerName(row[0]),
        lineage
        and Lineage(
            DatabaseId(lineage["database_id"]),
            tuple(Beginning(Incarnation(token), int(began)) for token, began in lineage["beginnings"]),
            int(lineage["sequence"]),
        ),
        told["knows_ours"],
        parse_mark(applied) if applied else None,
        told["replaced"],
    )


def handed_row(handed: Handed) -> SqlRow:
    numbers = ",".join(map(str, handed.numbers))
    row = (handed.message_id, handed.peer, handed.database_id, handed.their_id, numbers)
    return (*row, row_sum(*row))


def handed_of(row: SqlRow) -> Handed:
    """Raises Unbelievable for a row that differs from its sum."""
    message_id, peer, database_id, their_id, numbers = believed(row[:-1], row[-1], old=False)
    return Handed(
        MessageId(message_id),
        ServerName(peer),
        DatabaseId(database_id),
        MessageId(their_id),
        tuple(map(int, numbers.split(","))),
    )
