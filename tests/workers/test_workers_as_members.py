"""Each worker of a node is a member by itself; to strangers, and in certificates, the node alone is there."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from loopback_dns import LoopbackDns
from machines_of_workers import cluster
from receiving import RawClient
from scripted_hop import ScriptedHop
from sending import MESSAGE, sender, sent
from stations import Station, database_id, eventually, full, incarnation

from shadowrelay.authority import authority_pair, issue
from shadowrelay.core.messages import Role
from shadowrelay.core.workers import node_of, worker_name
from shadowrelay.service.adapters import resolver
from shadowrelay.smtp.members.client import MemberAddress, MemberConnection, MemberFailed


def hello(name: str) -> str:
    return f"XSHADOW {name} {database_id(9)} {incarnation(9)}:0 {incarnation(9)}@0"


def context(directory: Path, name: str) -> ssl.SSLContext:
    """That of a client which shows the certificate of a node."""
    found = ssl.create_default_context(cafile=str(authority_pair(directory).certificate))
    found.load_cert_chain(directory / f"{full(name)}.pem", directory / f"{full(name)}.key")
    return found


async def test_each_worker_places_its_copies_on_workers_of_other_machines_and_never_on_a_sibling(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, {"mx1": 2, "mx2": 2}, tls=True) as made:
        for (name, number), worker in made.workers.items():
            for _ in range(4):
                assert (await sent(worker, MESSAGE, "b@example.net")).startswith("250 ")
            other = "mx2" if name == "mx1" else "mx1"
            own = [copy for copy in await worker.copies() if copy.role is Role.PRIMARY]
            assert len(own) == 4, (name, number)
            holders = {holder.name for copy in own for holder in copy.holders}
            assert holders == {worker_name(full(other), number)}  # the one with its own number
        for worker in made.workers.values():
            held = [copy for copy in await worker.copies() if copy.role is not Role.PRIMARY]
            assert held
            assert all(node_of(copy.owner) != node_of(worker.name) for copy in held)


async def test_strangers_and_next_hops_see_the_name_of_the_node(tmp_path: Path) -> None:
    refused = b"550 5.1.1 nobody here\r\n"
    script = {"RCPT TO:<nobody@example.net>": refused}
    async with ScriptedHop(**script) as hop:
        route = {"domains": ["*"], "host": "127.0.0.1", "port": hop.port, "tls": "none"}
        async with cluster(tmp_path, {"mx1": 2, "mx2": 1}, routes={"out": route}) as made:
            second = made.workers["mx1", 2]
            assert second.name == f"w2.{full('mx1')}"
            second.run_queue()
            async with sender(second) as client:
                assert full("mx1") in await greeting_of(second)
                answer = await client.say("EHLO client.example")
                assert answer.startswith(f"250-{full('mx1')}|")
            assert (await sent(second, MESSAGE, "nobody@example.net", "postmaster")).startswith("250 ")
            await eventually(lambda: len(hop.contents) == 2)
            everything = b"".join(hop.contents) + "\n".join(hop.commands).encode()
            assert f"EHLO {full('mx1')}" in hop.commands
            assert f"RCPT TO:<postmaster@{full('mx1')}>" in "\n".join(hop.commands)
            assert f"by {full('mx1')} ".encode() in everything
            assert f"Reporting-MTA: dns; {full('mx1')}\r\n".encode() in everything
            assert b"w2." not in everything


async def greeting_of(worker: Station) -> str:
    client = RawClient(*await asyncio.open_connection("127.0.0.1", worker.port))
    try:
        return await client.line()
    finally:
        client.writer.transport.abort()


async def test_mail_for_a_host_that_is_the_node_does_not_go_out_from_its_second_worker(
    tmp_path: Path,
) -> None:
    zone = {
        ("example.net", "MX"): [f"10 {full('mx1')}.", "20 mx9.example.org."],
        (full("mx1"), "A"): "192.0.2.1",
        ("mx9.example.org", "A"): "192.0.2.9",
        ("example.com", "MX"): ["10 mx9.example.org.", f"20 {full('mx1')}."],
    }
    async with LoopbackDns(zone) as dns, cluster(tmp_path, {"mx1": 2, "mx2": 1}, dns=dns.setting) as made:
        found = resolver(made.workers["mx1", 2].node.settings)
        hosts = await found.hosts_of("example.com")
        found.close()
        assert [host.name for host in hosts] == ["mx9.example.org"]


async def test_the_certificate_of_a_node_vouches_for_its_workers_alone(tmp_path: Path) -> None:
    async with cluster(tmp_path, {"mx1": 2, "mx2": 2}, tls=True) as made:
        tls = made.tls
        assert tls
        issue(tls, full("mx3"), sans=[f"w2.{full('mx1')}"], now=datetime.now(UTC))
        for worker in (made.workers["mx2", 1], made.workers["mx2", 2]):
            for name in (full("mx1"), f"w2.{full('mx1')}"):
                assert (await said(worker, context(tls, "mx1"), hello(name))).startswith("250 "), name
            # a sibling, and a worker that the node does not have
            for name in (f"w2.{full('mx2')}", f"w3.{full('mx1')}"):
                assert (await said(worker, context(tls, "mx1"), hello(name))).startswith("550 5.7.1"), name
            # a certificate that names the worker is not that of its node
            answer = await said(worker, context(tls, "mx3"), hello(f"w2.{full('mx1')}"))
            assert answer.startswith("550 5.7.1")


async def said(worker: Station, tls: ssl.SSLContext, line: str) -> str:
    """What a worker answers to a client with that certificate; it knows the worker by its node's."""
    client = RawClient(
        *await asyncio.open_connection(
            "127.0.0.1", worker.peer_port, ssl=tls, server_hostname=node_of(worker.name)
        )
    )
    try:
        assert (await client.line()).startswith("220 ")
        await client.say("EHLO client.example")
        return await client.say(line)
    finally:
        await client.close()


async def test_a_member_is_called_only_where_the_certificate_is_that_of_its_node(tmp_path: Path) -> None:
    async with cluster(tmp_path, {"mx1": 2, "mx2": 2}, tls=True) as made:
        caller, second = made.workers["mx1", 2], made.workers["mx2", 2]
        context_of = caller.node.members.addresses[second.name].tls
        right = MemberAddress(second.name, "127.0.0.1", second.peer_port, context_of)
        session = await MemberConnection.dial(right, caller.name, 2.0)
        await session.close()
        wrong = MemberAddress(second.name, "127.0.0.1", made.workers["mx1", 1].peer_port, context_of)
        with pytest.raises(MemberFailed, match=r"mx2\.example\.org"):
            await MemberConnection.dial(wrong, caller.name, 2.0)


async def test_a_worker_that_answers_in_place_of_another_is_not_believed(tmp_path: Path) -> None:
    """The certificate is the same: the name in XSHADOW tells them apart."""
    async with cluster(tmp_path, {"mx1": 1, "mx2": 2}, tls=True) as made:
        caller, first, second = (made.workers[which] for which in (("mx1", 1), ("mx2", 1), ("mx2", 2)))
        context_of = caller.node.members.addresses[second.name].tls
        at_first = MemberAddress(second.name, "127.0.0.1", first.peer_port, context_of)
        caller.node.members.take({first.name: at_first, second.name: at_first})
        with pytest.raises(MemberFailed, match=f"answers as {first.name}"):
            await caller.node.members.acquire(second.name)
