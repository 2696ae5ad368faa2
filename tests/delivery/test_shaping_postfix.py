"""Debian's Postfix takes few connections at a time, and few messages in its unit of time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from stations import eventually
from test_queue import settled
from test_several_hosts import host, relay, way
from test_shaping import queued

from shadowlab.ports import free_ports
from shadowrelay import shared_counts
from tests.e2e.neighbourhood import PATIENCE, room
from tests.neighbours import postfix
from tests.neighbours.postfix import Postfix

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(postfix.missing() is not None, reason=str(postfix.missing())),
]

MESSAGES, UNIT = 40, 3  # seconds
TOO_MUCH = {
    "rate": "[patterns.rate]\ncode = 450\nenhanced = '4.7.1'\ntext = ['too much mail']\npause = '3s'\n",
    "connections": "[patterns.crowd]\ncode = 421\ntext = ['too many connections']\npause = '1s'\n",
}


@contextmanager
def strict() -> Iterator[tuple[Postfix, int]]:
    """It drops whatever it takes: 10 messages in 3 seconds, in 3 connections. And its port."""
    (port,) = free_ports(1)
    settings = {
        "default_transport": "discard:",
        "smtpd_client_event_limit_exceptions": "",
        "smtpd_client_connection_count_limit": 3,
        "smtpd_client_message_rate_limit": 10,
        "anvil_rate_time_unit": f"{UNIT}s",
    }
    with room() as directory, postfix.running(directory / "postfix", port, settings) as neighbour:
        yield neighbour, port


def refusals(neighbour: Postfix) -> int:
    """What it put off, as it says itself."""
    said = neighbour.said()
    return said.count("limit exceeded")


async def delivered(tmp_path: Path, port: int, **shaping: Any) -> list[str]:
    """Send all messages; the replies that deferred some."""
    async with relay(tmp_path, {"out": way(host(port))}, run=False, **shaping) as found:
        await queued(found, MESSAGES)
        found.run_queue()
        await eventually(lambda: settled(found), within=PATIENCE)
        rows = await found.tracked()
    sent = [row["recipient-address"] for row in rows if row["event-id"] == "SENDEXTERNAL"]
    assert len(set(sent)) == len(sent) == MESSAGES
    return [row["source-context"] for row in rows if row["event-id"] == "DEFER"]


async def test_without_shaping_postfix_puts_much_off(tmp_path: Path) -> None:
    with strict() as (neighbour, port):
        deferred = await delivered(tmp_path, port)
        assert refusals(neighbour) >= MESSAGES
        assert deferred


async def test_with_its_limits_postfix_refuses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_counts, "MINUTE", UNIT + 0.5)
    limits = {"match": ["*"], "connections": 3, "messages_per_minute": 10}
    with strict() as (neighbour, port):
        assert await delivered(tmp_path, port, shaping={"postfix": limits}) == []
        assert refusals(neighbour) == 0


async def test_by_its_answers_alone_postfix_refuses_few(tmp_path: Path) -> None:
    file = tmp_path / "patterns.toml"
    file.write_text("".join(TOO_MUCH.values()), "utf-8")
    shaping = {"shaping": {"postfix": {"match": ["*"], "connections": 20}}, "shaping_patterns": str(file)}
    with strict() as (neighbour, port):
        deferred = await delivered(tmp_path, port, **shaping)
        assert len(deferred) == refusals(neighbour) <= MESSAGES // 3, "a pause costs a connection or two"
