"""Keeps peers beyond the boundary, and what they handed over."""

from __future__ import annotations

import json
import sqlite3
from typing import assert_never

from shadowrelay.core.hops import Handed, HopPeer
from shadowrelay.core.identifiers import Beginning, DatabaseId, Incarnation, Lineage, MessageId, ServerName
from shadowrelay.database.queries import load
from shadowrelay.database.sums import SqlRow, sound
from shadowrelay.wire.xshadow import parse_mark

SQL = load("queries.sql")


class HopRows:
    """The part of the ledger for peers beyond the boundary; bound to one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._run = connection.execute
        self._any_handed = False

    def refresh(self) -> None:
        """Read again what is kept in memory."""
        self._any_handed = bool(self._run(SQL["any_handed"]).fetchone()[0])

    @property
    def any_handed(self) -> bool:
        """Whether a peer handed anything over that is still known. Callable outside a transaction."""
        return self._any_handed

    def peer(self, name: ServerName) -> HopPeer | None:
        # A damaged row counts as none: the peer introduces itself again.
        row = self._run(SQL["hop_peer"], (name,)).fetchone()
        return sound(peer_of, row) if row else None

    def peers_but(self, name: ServerName) -> list[HopPeer]:
        """All peers but that one; a handful."""
        rows = self._run(SQL["hop_peers_but"], (name,)).fetchall()
        return [found for row in rows if (found := sound(peer_of, row))]

    def handed(self, message_id: MessageId) -> Handed | None:
        if not self._any_handed:  # settling asks for every message
            return None
        found = self._handed("handed", message_id)
        return found[0] if found else None

    def handed_as(self, database_id: DatabaseId, their_id: MessageId) -> list[Handed]:
        return self._handed("handed_as", database_id, their_id)

    def _handed(self, query: str, *asked: str) -> list[Handed]:
        # A damaged row counts as none: its peer keeps its copy, and hears nothing that may be wrong.
        rows = self._run(SQL[query], asked).fetchall()
        return [found for row in rows if (found := sound(handed_of, row))]

    def write(self, write: HopPeer | Handed) -> None:
        match write:
            case HopPeer():
                self._run(SQL["put_hop_peer"], peer_row(write))
            case Handed():
                self._any_handed = True
                self._run(SQL["put_handed"], handed_row(write))
            case _:
                assert_never(write)

    def drop(self, message_id: MessageId) -> None:
        """The message is gone, and with it who handed it over."""
        if self._any_handed:
            self._run(SQL["drop_handed"], (message_id,))


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
    return handed.message_id, handed.peer, handed.database_id, handed.their_id, numbers


def handed_of(row: SqlRow) -> Handed:
    """Raises one of ``sums.IMPOSSIBLE`` for a row that cannot be read."""
    message_id, peer, database_id, their_id, numbers = row
    return Handed(
        MessageId(message_id),
        ServerName(peer),
        DatabaseId(database_id),
        MessageId(their_id),
        tuple(map(int, numbers.split(","))),
    )
