"""What a message needs of its hop, as a whole node sees to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loopback_dns import LoopbackDns
from scripted_hop import ScriptedHop, original
from sending import MESSAGE, sender, sent
from stations import Station, boundary, eventually
from test_queue import only, relay, route, settled

from shadowrelay.core.messages import Role, Status

LARGE = b"Subject: large\r\n\r\n" + (b"y" * 78 + b"\r\n") * 1000
DECLARED = " BODY=8BITMIME"


async def declared(to: Station, content: bytes) -> str:
    async with sender(to) as client:
        assert (await client.begin(parameters=DECLARED)).startswith("250 ")
        return await client.content(content)


@pytest.mark.parametrize("content", [MESSAGE, LARGE], ids=["in memory", "in a file"])
async def test_ascii_that_was_declared_8_bit_goes_to_a_hop_without_8bitmime(
    tmp_path: Path, content: bytes
) -> None:
    async with ScriptedHop(offers=("PIPELINING",)) as hop, relay(tmp_path, hop) as found:
        assert (await declared(found, content)).startswith("250 ")
        await eventually(lambda: settled(found))
        assert (await only(found)).recipients[0].status is Status.RELAYED
        assert original(hop.contents[0]).endswith(content)


async def test_8_bit_content_in_a_file_that_was_not_declared_is_not_sent_to_a_hop_without_8bitmime(
    tmp_path: Path,
) -> None:
    async with ScriptedHop(offers=("PIPELINING",)) as hop, relay(tmp_path, hop) as found:
        await sent(found, LARGE + b"\xff\r\n")
        await eventually(lambda: settled(found))
        recipient = next(one for copy in await found.copies() for one in copy.recipients if one.last_reply)
        assert recipient.last_reply.startswith("554 5.6.3 ")


async def test_a_member_that_took_the_message_over_knows_as_well_what_it_holds(tmp_path: Path) -> None:
    async with ScriptedHop(offers=("PIPELINING",)) as hop:
        changes: dict[str, Any] = {
            "routes": {"out": route(hop.port)},
            "shadow_resubmit_time_span": "1s",
            "holder_loss_heartbeats": 1,
            "reject_message_on_shadow_failure": True,
        }
        async with boundary(tmp_path, "mx1", "mx2", **changes) as (owner, holder):
            assert (await declared(owner, LARGE)).startswith("250 ")
            assert (await only(holder)).role is Role.SHADOW
            await owner.quiet()
            await owner.connectors[0].stop(0)
            holder.run_links()
            holder.run_reconcile()
            holder.run_queue()
            await eventually(lambda: hop.contents, within=30)
            assert original(hop.contents[0]).endswith(LARGE)


async def test_damage_of_a_file_is_not_taken_for_8_bit_content(tmp_path: Path) -> None:
    """A hop without 8BITMIME would have the message returned to its sender for good."""
    async with ScriptedHop(offers=()) as hop, relay(tmp_path, hop, run=False) as found:
        await sent(found, LARGE)
        (path,) = found.node.spool.glob("*")
        octets = bytearray(path.read_bytes())
        octets[50_000] |= 0x80
        path.write_bytes(octets)
        found.run_queue()

        async def noticed() -> bool:
            return (await only(found)).damaged

        await eventually(noticed, within=30)
        assert (await only(found)).recipients[0].status is Status.READY


async def test_a_domain_in_unicode_reaches_a_hop_without_smtputf8(tmp_path: Path) -> None:
    """Our own Received field is no reason why it could not."""
    async with ScriptedHop(offers=("DSN",)) as hop, relay(tmp_path, hop) as found:
        async with sender(found) as client:
            await client.say("EHLO client.example")
            await client.say("MAIL FROM:<s@bücher.example> SMTPUTF8", "RCPT TO:<info@bücher.example>")
            assert (await client.content(MESSAGE)).startswith("250 ")
        await eventually(lambda: settled(found))
        assert (await only(found)).recipients[0].status is Status.RELAYED
    assert hop.commands[1:3] == [
        "MAIL FROM:<s@xn--bcher-kva.example>",
        "RCPT TO:<info@xn--bcher-kva.example>",
    ]
    assert b"\r\n\tfor <info@xn--bcher-kva.example>;" in hop.contents[0]
    assert hop.contents[0].isascii()


class Limited(ScriptedHop):
    """Takes ten recipients of a transaction, and says of the others what it is told to say."""

    def __init__(self, refusal: bytes, **options: Any) -> None:
        super().__init__(**options)
        self.refusal = refusal
        self.taken = 0
        self.transactions: list[int] = []

    async def _answer(self, verb: str, writer: Any) -> bytes:
        if verb == "MAIL":
            self.taken = 0
        if verb == "DOT":
            self.transactions.append(self.taken)
        if verb == "RCPT":
            self.taken += self.taken < 10
            self.full = self.taken == 10 and len(self.transactions) * 10 + self.taken < self._asked()
            if self.full:
                self.script["RCPT"] = [self.refusal]
            else:
                self.script.pop("RCPT", None)
        return await super()._answer(verb, writer)

    def _asked(self) -> int:
        last = max(at for at, command in enumerate(self.commands) if command.startswith("MAIL"))
        return len(self.transactions) * 10 + len(self.commands) - last - 1


@pytest.mark.parametrize(
    "refusal",
    [
        b"552 Too many recipients\r\n",
        b"552 5.5.3 Too many recipients\r\n",
        b"452 Too many recipients\r\n",
        b"452 4.5.3 Too many recipients\r\n",
        b"550 5.5.3 Too many recipients\r\n",
    ],
)
async def test_recipients_past_the_hops_limit_go_in_the_next_transaction_at_once(
    tmp_path: Path, refusal: bytes
) -> None:
    addresses = [f"r{number}@example.net" for number in range(35)]
    async with Limited(refusal) as hop, relay(tmp_path, hop) as found:
        await sent(found, MESSAGE, *addresses)
        await eventually(lambda: settled(found), within=30)
        assert {one.status for one in (await only(found)).recipients} == {Status.RELAYED}
        assert hop.transactions == [10, 10, 10, 5]
        assert "FAIL" not in await found.events()


@pytest.mark.parametrize("record", ["10 127.0.0.1.", "10 127.0.0.9.", "10 0.0.0.0."])
async def test_an_mx_record_that_names_an_address_of_ours_fails_the_recipient_at_once(
    tmp_path: Path, record: str
) -> None:
    async with LoopbackDns({("loop.test", "MX"): [record, "20 other.test."]}) as server:
        routes = {"world": {"domains": ["*"], "mx": True, "port": 2526, "tls": "none"}}
        changes = {"routes": routes, "dns": server.setting, "receive": {"listen": "127.0.0.1:2526"}}
        async with relay(tmp_path, 0, **changes) as found:
            await sent(found, MESSAGE, "a@loop.test")

            async def failed() -> list[str]:
                rows = await found.tracked()
                return [row["recipient-status"] for row in rows if row["event-id"] == "FAIL"]

            await eventually(failed)
            assert "554 5.4.6 The mail for loop.test would come back to this server" in (await failed())[0]
