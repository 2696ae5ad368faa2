"""With filters on a node alone, whose 250s wait: what is sent again, and what waits for an operator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripted_hop import ScriptedHop
from sending import MESSAGE, sender, sent
from stations import Station, eventually, station

from tests.neighbours import milter
from tests.neighbours.milter import NEEDED, OwnFilter, filtering

pytestmark = NEEDED


async def alone(tmp_path: Path, own: OwnFilter, hop: int = 1) -> Station:
    receive = {"max_acknowledgement_delay": "20s", "filters": {"own": {"address": own.address}}}
    out = {"domains": ["*"], "host": "127.0.0.1", "port": hop, "tls": "none"}
    return await station(tmp_path, "mx1", [], receive=receive, routes={"out": out})


def in_turn(*answers: list[Any]) -> milter.Saying:
    following: Iterator[list[Any]] = iter(answers)
    return lambda _: next(following)


async def test_a_recipient_that_failed_and_that_the_filter_takes_out_this_time_is_not_tried_again(
    tmp_path: Path,
) -> None:
    said = milter.said
    answers = in_turn([said.Accept()], [said.RemoveRecipient("<c@example.net>"), said.Accept()])
    refused = {"RCPT TO:<c@example.net>": [b"550 5.1.1 unknown\r\n", b"250 2.1.5 ok\r\n"]}
    async with filtering(OwnFilter({"EndOfMessage": answers})) as own, ScriptedHop(**refused) as hop:
        found = await alone(tmp_path, own, hop.port)
        try:
            async with sender(found) as client:
                await client.begin("b@example.net", "c@example.net")
                client.send(b"BDAT %d LAST\r\n" % len(MESSAGE) + MESSAGE)
                await eventually(lambda: found.node.acknowledgements.waiting == 1)
            found.run_queue()
            await eventually(lambda: len(hop.contents) == 1)
            await eventually(lambda: not found.node.acknowledgements.speaking)
            assert (await sent(found, MESSAGE, "b@example.net", "c@example.net")).startswith("250 ")
            rows = await found.tracked()
            repeated = [row["recipient-address"] for row in rows if row["event-id"] == "DUPLICATERECEIVE"]
            received = [row["recipient-address"] for row in rows if row["event-id"] == "RECEIVE"]
            assert repeated == received == ["b@example.net;c@example.net"]
        finally:
            await found.stop()


async def test_a_quarantined_message_of_which_nobody_has_a_copy_is_acknowledged_at_once(
    tmp_path: Path,
) -> None:
    """Nobody delivers it within the time for which the 250 could wait."""
    answers = {"EndOfMessage": lambda _: [milter.said.Quarantine("odd"), milter.said.Accept()]}
    async with filtering(OwnFilter(answers)) as own:
        found = await alone(tmp_path, own)
        try:
            assert (await sent(found, MESSAGE)).startswith("250 ")
            counts = found.node.acknowledgements.counts
            assert {outcome: count for outcome, count in counts.items() if count} == {"retry": 1}
        finally:
            await found.stop()
