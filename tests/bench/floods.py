"""How long another client waits for its 250 while strangers drip, knock, stall or err."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from pathlib import Path

from shadowrelay.core.reception.users import SALT, format_users, hashed

from .attackers import attackers
from .context import Bench
from .figures import Row
from .latency import SHARES, Cell, measured, spread_of
from .smtp_tools import sink
from .subjects import lab

BESIDE = {
    "nothing else": None,
    "1,000 clients that drip": "drip",
    "100 connections a second, reset after EHLO": "knock",
    "100 handshakes a second that stall, at the members' port": "shake",
    "50 clients that send wrong commands": "err",
    "50 clients that log in with wrong passwords": "guess",
}
_CELL, _SHORT_CELL = Cell(1, 500), Cell(1, 20)


def _logins(room: Path) -> tuple[str, ...]:
    """Settings of a lab in ``room``: users who may log in, and TLS for it."""
    pair, file = room / "lab" / "nodes" / "mx1" / "mx1.lab.test", room / "users"
    file.write_text(format_users({"alice": hashed(secrets.token_bytes(16), secrets.token_bytes(SALT))}))
    return (
        f"receive.default.tls_certificate={pair}.pem",
        f"receive.default.tls_key={pair}.key",
        f"receive.default.users_file={file}",
    )


def floods(bench: Bench) -> list[Row]:
    cell = _SHORT_CELL if bench.short else _CELL
    found: dict[str, list[list[float]]] = {beside: [] for beside in BESIDE}
    bench.steps.expect(bench.rounds * len(BESIDE))
    for number in range(1, bench.rounds + 1):
        for beside, kind in BESIDE.items():
            with (
                bench.steps.during(f"floods: beside {beside}, round {number}"),
                bench.room("floods") as room,
                ExitStack() as stack,
            ):
                end = stack.enter_context(sink(room, *bench.ports(1)))
                options = _logins(room)
                subject = stack.enter_context(lab(room / "lab", next_hop=end.address[1], options=options))
                measured(_SHORT_CELL, subject, end)
                if kind is not None:
                    node = subject.nodes[0]
                    at = node.peer if kind == "shake" else node.smtp
                    stack.enter_context(attackers(kind, at[1]))
                found[beside].append(measured(cell, subject, end))
    return [
        Row("floods", f"one client beside {beside}: dot to 250, {name}", "ms", ours=spread_of(rounds, share))
        for beside, rounds in found.items()
        for name, share in SHARES
    ]
