"""Steps of Exchange's rows: recipients by address, order by place in the file, no sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from shadowaudit.core.events import FINALS, Kind, kind_of, listed
from shadowaudit.core.fingerprint import digest, weights
from shadowaudit.core.text import number_in
from shadowaudit.logs.cells import Cells, keys
from shadowaudit.logs.kinds import KINDS, is_any
from shadowaudit.logs.rows import NONE, Table, members, moments, uniques
from shadowaudit.logs.steps import Learnt, Steps

COLUMNS = (
    "date-time", "client-hostname", "server-hostname", "source-context", "source", "event-id", "message-id",
    "network-message-id", "recipient-address", "recipient-count", "related-recipient-address", "custom-data",
)  # fmt: skip

PLAIN = (Kind.RECEIVE, Kind.SENDEXTERNAL, Kind.DELIVER, Kind.FAIL, Kind.DEFER, Kind.OTHER)
"""What a message that stayed on one server has: all others are for the exact pass."""

_FINALS = FINALS - {Kind.EXPAND}
"""Exchange's EXPAND names members, who get this very message."""

_COUNTED = (Kind.RECEIVE, *_FINALS)
"""Rows whose recipients are those that they count."""


class ExchangeSteps:
    """Reads Exchange's rows, of any version. 2010 has no network-message-id: the Message-ID stands for it."""

    def __init__(self, learnt: Learnt) -> None:
        self.learnt = learnt
        self._rows = 0

    def of(self, table: Table) -> Steps:
        learnt = self.learnt
        events, event = uniques(table["event-id"])
        kind = np.array([KINDS[kind_of(name.upper())] for name in events], dtype=np.int64)[event]
        ids = table["network-message-id"]
        ids = pc.if_else(pc.equal(pc.binary_length(ids), 0), table["message-id"], ids)
        named, message = Cells.of(ids).numbered()
        high, low, _ = keys(named)
        lists, which = uniques(table["recipient-address"])
        parsed = [tuple(digest(one) for one in members(text)) for text in lists]
        count = np.array([len(one) for one in parsed], dtype=np.int64)[which]
        expanded = is_any(kind, Kind.EXPAND)
        if expanded.any():  # it ends the list: its members have ends of their own
            replaced, by = uniques(table["related-recipient-address"])
            sizes = np.array([max(len(members(text)), 1) for text in replaced], dtype=np.int64)
            count = np.where(expanded, sizes[by], count)
        print_ = np.array([weights(one) for one in parsed], dtype=np.int64)[which]
        salt = digest(learnt.database)
        salted = np.array([weights(one, salt=salt) for one in parsed], dtype=np.int64)[which]
        servers, server = uniques(table["server-hostname"])
        for name in servers[:100]:
            learnt.names.setdefault(str(digest(name)), name)
        hops = np.array([digest(name) for name in servers], dtype=np.int64)[server]
        first = self._rows + 1
        self._rows += len(table)
        final = is_any(kind, *_FINALS)
        return Steps(
            row=table.index,
            sequence=np.arange(first, first + len(table), dtype=np.int64),
            at=moments(table["date-time"]),
            kind=kind,
            message=message,
            high=high,
            low=low,
            count=count,
            print=print_,
            salted=salted,
            copies=np.zeros(len(table), dtype=np.int64),
            odd=~is_any(kind, *PLAIN) | _failed(table["custom-data"]),
            hop=np.where(final, hops, 0),
            digests=np.full(len(table), -1, dtype=np.int64),
            reports=np.zeros(len(table), dtype=np.int64),
            made=(),
            enters=is_any(kind, Kind.RECEIVE),
            leaves=final,
        )


def sound(table: Table) -> NDArray[np.bool_]:
    """Which rows say something: they have a time, whole addresses, and as many as they count."""
    lists, which = uniques(table["recipient-address"])
    size = np.array([len(listed(text)) for text in lists], dtype=np.int64)[which]
    whole = np.array(["\ufffd" not in text for text in lists], dtype=np.bool_)[which]
    counts, said = uniques(table["recipient-count"])
    count = np.array([number_in(text) for text in counts], dtype=np.int64)[said]
    told = np.array([bool(text) for text in counts], dtype=np.bool_)[said]
    events, event = uniques(table["event-id"])
    counted = np.array([kind_of(name.upper()) in _COUNTED for name in events], dtype=np.bool_)[event]
    found: NDArray[np.bool_] = (moments(table["date-time"]) != NONE) & whole
    found &= ~(counted & told & (size != count))
    return found


def first_server(table: Table) -> str:
    """The server that wrote the log: the receiving side of RECEIVE, the sending side of SEND."""
    for event, server, client in zip(
        table["event-id"].to_pylist(),
        table["server-hostname"].to_pylist(),
        table["client-hostname"].to_pylist(),
        strict=True,
    ):
        name = {"RECEIVE": server, "HARECEIVE": server, "SEND": client, "SENDEXTERNAL": client}.get(
            event.upper()
        )
        if name:
            return str(name)
    return ""


def is_ours(table: Table) -> bool:
    """Has a row the sequence of our logs? In custom-data no stranger writes, and Exchange writes none."""
    return bool(pc.any(pc.starts_with(table["custom-data"], "S:Seq=")).as_py())


def _failed(custom: Any) -> Any:
    return pc.match_substring(custom, "Replication=Failed").to_numpy(zero_copy_only=False)
