"""REQUIRETLS (RFC 8689): on every node that comes to own it the message leaves with it, or not at all."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from scripted_hop import ScriptedHop
from sending import MESSAGE, sender, sent
from stations import Station, ask_back, boundary, eventually

from shadowrelay.authority import authority_pair, init, issue
from shadowrelay.core.messages import Copy, Role, Stage, Status, TlsWish
from shadowrelay.members import reconcile, record_replication
from shadowrelay.operator.retire import retire
from shadowrelay.tracking.format import custom_entries
from shadowrelay.wire import xshadow

WAIVING = b"TLS-Required: No\r\n" + MESSAGE
OFFERS = ("PIPELINING", "8BITMIME", "DSN", "ENHANCEDSTATUSCODES", "STARTTLS")
FIT = (*OFFERS, "REQUIRETLS")
SELDOM: dict[str, Any] = {"queue_glitch_retry_interval": "1h"}
STRICT: dict[str, Any] = {"reject_message_on_shadow_failure": True, "shadow_attempt_timeout": "10s"}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "INTERVAL", 0.03)
    monkeypatch.setattr(record_replication, "REFRESH", 0.1)


@pytest.fixture
def here(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "own")


class Certificates:
    """An authority that routes and clients trust, and the certificate of all servers of these tests."""

    def __init__(self, directory: Path) -> None:
        init(directory, name="test", now=datetime.now(UTC))
        self.pair = issue(directory, "hop.example", now=datetime.now(UTC), sans=["localhost"])
        self.ca = str(authority_pair(directory).certificate)
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(self.pair.certificate, self.pair.key)
        self.client = ssl.create_default_context(cafile=self.ca)
        self.client.check_hostname = False

    @property
    def receive(self) -> dict[str, Any]:
        files = {"tls_certificate": str(self.pair.certificate), "tls_key": str(self.pair.key)}
        return {"requiretls": True, **files}

    def hop(self, *offers: str, **script: Any) -> ScriptedHop:
        return ScriptedHop(offers=offers or FIT, tls=self.server, **script)

    def to(self, *hops: ScriptedHop, **route: Any) -> dict[str, Any]:
        hosts = [
            {"address": f"localhost:{hop.port}", "preference": preference}
            for preference, hop in enumerate(hops)
        ]
        way = {"domains": ["*"], "hosts": hosts, "ca": self.ca, **route}
        return {"routes": {"out": way}, "receive": self.receive}

    async def required(
        self,
        to: Station,
        octets: bytes = MESSAGE,
        *recipients: str,
        more: str = "",
        sender_: str = "a@example.org",
    ) -> str:
        """Send a message with REQUIRETLS; the reply to its content."""
        async with sender(to) as client:
            await client.say("EHLO client.example", "STARTTLS")
            await client.writer.start_tls(self.client)
            mail = f"MAIL FROM:<{sender_}> REQUIRETLS{more}"
            said = [f"RCPT TO:<{one}>" for one in recipients or ("b@example.net",)]
            assert (await client.say("EHLO client.example", mail, *said)).startswith("250 ")
            return await client.content(octets)


def mails(*hops: ScriptedHop) -> list[str]:
    return [command for hop in hops for command in hop.commands if command.startswith("MAIL ")]


def asked_for_it(*hops: ScriptedHop) -> list[bool]:
    """Of each message that was offered: with REQUIRETLS?"""
    return [command.endswith(" REQUIRETLS") for command in mails(*hops)]


async def settled(*stations: Station) -> bool:
    copies = [copy for one in stations for copy in await one.copies()]
    return bool(copies) and all(copy.stage is Stage.SAFETY_NET for copy in copies)


async def only(one: Station, role: Role = Role.PRIMARY) -> Copy:
    (copy,) = [copy for copy in await one.copies() if copy.role is role]
    return copy


async def report_on(one: Station) -> Copy:
    (report,) = [copy for copy in await one.copies() if not copy.envelope.sender]
    return report


async def test_it_is_offered_and_taken_under_tls_alone(tmp_path: Path, here: Certificates) -> None:
    async with boundary(tmp_path, "mx1", receive=here.receive) as (one,), sender(one) as client:
        assert "REQUIRETLS" not in await client.say("EHLO client.example")
        mail = "MAIL FROM:<a@example.org> requiretls"
        assert (await client.say(mail)).startswith("530 5.7.10 ")
        await client.say("STARTTLS")
        await client.writer.start_tls(here.client)
        assert "REQUIRETLS" in await client.say("EHLO client.example")
        assert (await client.say(f"{mail}=yes")).startswith("501 5.5.4 ")
        assert (await client.say(mail)).startswith("250 ")


async def test_a_connector_that_does_not_offer_it_does_not_take_it(
    tmp_path: Path, here: Certificates
) -> None:
    async with (
        boundary(tmp_path, "mx1", receive=here.receive | {"requiretls": False}) as (one,),
        sender(one) as client,
    ):
        await client.say("EHLO client.example", "STARTTLS")
        await client.writer.start_tls(here.client)
        assert "REQUIRETLS" not in await client.say("EHLO client.example")
        assert (await client.say("MAIL FROM:<a@example.org> REQUIRETLS")).startswith("555 5.5.4 ")


async def test_both_copies_know_what_the_sender_wants_of_tls(tmp_path: Path, here: Certificates) -> None:
    async with boundary(tmp_path, "mx1", "mx2", receive=here.receive, **STRICT) as stations:
        owner, _ = stations
        assert (await here.required(owner, WAIVING)).startswith("250 ")
        assert (await sent(owner, WAIVING)).startswith("250 ")
        assert (await sent(owner, b"TLS-Required: No\r\n" + WAIVING)).startswith("250 ")
        assert (await sent(owner, b"TLS-Required: yes\r\n" + MESSAGE)).startswith("250 ")
        for one in stations:
            wishes = [copy.envelope.tls for copy in await one.copies()]
            assert wishes == [TlsWish.REQUIRED, TlsWish.WAIVED, None, None], one.name


async def test_the_tracking_log_says_what_the_sender_wants_of_tls(tmp_path: Path, here: Certificates) -> None:
    async with boundary(tmp_path, "mx1", receive=here.receive) as (one,):
        await here.required(one)
        await sent(one, WAIVING)
        await sent(one, MESSAGE)
        rows = [row["custom-data"] for row in await one.tracked() if row["event-id"] == "RECEIVE"]
        assert [custom_entries(row).get("Tls") for row in rows] == ["required", "waived", None]


async def test_a_member_that_does_not_know_it_gets_no_copy(
    tmp_path: Path, here: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xshadow, "VERSIONS", (1, 2, 3, 4, 5))
    async with boundary(tmp_path, "mx1", "mx2", receive=here.receive, **STRICT) as (owner, holder):
        assert (await here.required(owner)).startswith("451 4.4.0 ")
        assert await owner.copies() == await holder.copies() == []
        assert (await sent(owner, MESSAGE)).startswith("250 ")


async def test_it_leaves_with_it_from_the_holder_that_promotes_it(tmp_path: Path, here: Certificates) -> None:
    async with here.hop() as hop, boundary(tmp_path, "mx1", "mx2", **here.to(hop), **STRICT) as stations:
        owner, holder = stations
        assert (await here.required(owner)).startswith("250 ")
        await owner.quiet()
        for connector in owner.connectors:
            await connector.stop(0)
        holder.run_links()
        holder.run_reconcile()
        holder.run_queue()
        await holder.read(lambda ledger: retire(ledger, owner.name, holder.node.clock()))
        holder.node.membership.retired(owner.name)
        await eventually(lambda: mails(hop))
        assert asked_for_it(hop) == [True]
        assert (await only(holder)).envelope.tls is TlsWish.REQUIRED


async def test_it_leaves_with_it_from_the_member_it_is_handed_over_to(
    tmp_path: Path, here: Certificates
) -> None:
    async with here.hop() as hop, boundary(tmp_path, "mx1", "mx2", **here.to(hop), **STRICT) as stations:
        owner, holder = stations
        for one in stations:
            one.run_links()
        holder.run_reconcile()
        assert (await here.required(owner)).startswith("250 ")
        drain = owner.drain()
        assert (await drain.run(asyncio.get_running_loop().time() + 30, bool)).done
        holder.run_queue()
        await eventually(lambda: mails(hop))
        assert asked_for_it(hop) == [True]


def as_list(tmp_path: Path, ways: Mapping[str, Any]) -> dict[str, Any]:
    file = tmp_path / "recipients.toml"
    file.write_text('[lists."team@example.net"]\nmembers = ["c@example.net", "d@example.net"]\n')
    return {**ways, "recipients_file": str(file)}


async def test_what_is_made_of_it_leaves_with_it_too(tmp_path: Path, here: Certificates) -> None:
    """The message to the members of a list, the journal copy, and what Safety Net gives back."""
    began = datetime.now(UTC)
    async with here.hop() as hop, here.hop() as archive:
        ways = here.to(hop, inside=True)
        ways["routes"]["archive"] = {
            **here.to(archive)["routes"]["out"],
            "domains": ["archive.example"],
            "inside": True,
        }
        ways = as_list(tmp_path, {**ways, "journal": "journal@archive.example"})
        async with boundary(tmp_path, "mx1", "mx2", **ways, **STRICT) as stations:
            owner, _ = stations
            for one in stations:
                one.run_links()
            owner.run_queue()
            owner.run_repair()
            assert (await here.required(owner, MESSAGE, "team@example.net")).startswith("250 ")
            await eventually(lambda: len(mails(hop)) == len(mails(archive)) == 1)
            await eventually(lambda: settled(owner))
            await ask_back(owner, began)
            owner.run_reconcile()
            owner.resubmit()
            owner.node.replication.wake.set()
            await eventually(lambda: len(mails(hop)) == 2)
            assert asked_for_it(hop, archive) == [True] * len(mails(hop, archive))


async def test_a_host_that_does_not_offer_it_is_passed_by(tmp_path: Path, here: Certificates) -> None:
    async with (
        here.hop(*OFFERS) as unfit,
        here.hop() as fit,
        boundary(tmp_path, "mx1", **here.to(unfit, fit)) as (one,),
    ):
        one.run_queue()
        await here.required(one)
        await eventually(lambda: settled(one))
        assert (await only(one)).recipients[0].status is Status.RELAYED
        assert (mails(unfit), asked_for_it(fit)) == ([], [True])
        assert unfit.verbs()[-1] == "QUIT"
        await sent(one, MESSAGE)  # other mail takes the first host, at once
        await eventually(lambda: len(unfit.contents) == 1)


@pytest.mark.parametrize("tls", ["opportunistic", "required"])
async def test_without_a_host_that_offers_it_the_sender_is_told(
    tmp_path: Path, here: Certificates, tls: str
) -> None:
    async with here.hop(*OFFERS) as unfit, boundary(tmp_path, "mx1", **here.to(unfit, tls=tls)) as (one,):
        one.run_queue()
        await here.required(one, more=" RET=FULL")
        await eventually(lambda: len(unfit.contents) == 1)  # the report, which may leave without it
        (failed,) = [copy for copy in await one.copies() if copy.envelope.sender]
        (recipient,) = failed.recipients
        assert recipient.status is Status.FAILED
        assert recipient.last_reply.startswith("550 5.7.30 REQUIRETLS needed")
        report = await report_on(one)
        assert report.envelope.tls is TlsWish.REQUIRED
        octets = await one.octets(report.id)
        assert b"\r\nStatus: 5.7.30\r\n" in octets
        assert b"text/rfc822-headers" in octets
        assert b"Subject: hello" in octets
        assert b"body\r\n" not in octets
        assert asked_for_it(unfit) == [False]


async def test_a_report_asks_for_it_where_that_can_be_had(tmp_path: Path, here: Certificates) -> None:
    async with (
        here.hop(*FIT[1:], RCPT=[b"550 5.1.1 nobody\r\n", b"250 2.1.5 ok\r\n"]) as hop,
        boundary(tmp_path, "mx1", **here.to(hop)) as (one,),
    ):
        one.run_queue()
        await here.required(one)
        await eventually(lambda: len(hop.contents) == 1)
        assert mails(hop)[1].startswith("MAIL FROM:<>")
        assert asked_for_it(hop) == [True, True]


async def test_a_host_that_cannot_be_asked_now_is_waited_for(tmp_path: Path, here: Certificates) -> None:
    async with (
        here.hop(*OFFERS) as unfit,
        here.hop(GREETING=b"554 5.3.2 closed\r\n") as closed,
        boundary(tmp_path, "mx1", **here.to(unfit, closed)) as (one,),
    ):
        one.run_queue()
        await here.required(one)

        async def tried() -> bool:
            return bool((await only(one)).recipients[0].attempts)

        await eventually(tried)
        (recipient,) = (await only(one)).recipients
        assert recipient.status is Status.READY
        assert recipient.last_reply.startswith("450 4.7.30 REQUIRETLS needed")
        assert mails(unfit, closed) == []


@pytest.mark.parametrize("why", ["no TLS", "unknown authority", "tls = none"])
async def test_it_never_leaves_to_a_host_that_is_not_verified(
    tmp_path: Path, here: Certificates, why: str
) -> None:
    """Other mail does, at once: the host stands as well for it as before."""
    offers = ("PIPELINING", "DSN", "REQUIRETLS") if why == "no TLS" else FIT
    route: dict[str, Any] = {"tls = none": {"tls": "none"}}.get(why, {})
    async with here.hop(*offers) as hop:
        ways = here.to(hop, **route)
        if why == "unknown authority":
            del ways["routes"]["out"]["ca"]
        async with boundary(tmp_path, "mx1", **ways) as (one,):
            one.run_queue()
            await here.required(one, more=" ENVID=1")
            await eventually(lambda: len(hop.contents) == 1)
            assert mails(hop)[0].startswith("MAIL FROM:<>")
            assert asked_for_it(hop) == [False]
            (failed,) = [copy for copy in await one.copies() if copy.envelope.sender]
            assert failed.recipients[0].last_reply.startswith("550 5.7.10 Encryption needed")
            await sent(one, MESSAGE)
            await eventually(lambda: len(hop.contents) == 2)


async def test_what_a_stranger_sends_with_the_null_sender_does_not_leave_without_it(
    tmp_path: Path, here: Certificates
) -> None:
    """It may be a report of another server, and anything else."""
    async with here.hop(*OFFERS) as unfit, boundary(tmp_path, "mx1", **here.to(unfit)) as (one,):
        one.run_queue()
        await here.required(one, sender_="")
        await eventually(lambda: settled(one))
        assert (await only(one)).recipients[0].last_reply.startswith("550 5.7.30 REQUIRETLS needed")
        assert mails(unfit) == []


async def test_a_journal_copy_does_not_leave_without_it(tmp_path: Path, here: Certificates) -> None:
    """It has the null sender, as reports have; but the whole message is in it."""
    async with here.hop() as hop, here.hop(*OFFERS) as archive:
        ways = here.to(hop)
        ways["routes"]["archive"] = {**here.to(archive)["routes"]["out"], "domains": ["archive.example"]}
        async with boundary(tmp_path, "mx1", **ways, journal="journal@archive.example") as (one,):
            one.run_queue()
            await here.required(one)
            await eventually(lambda: settled(one))
            (journal,) = [copy for copy in await one.copies() if copy.content_of]
            assert (journal.envelope.sender, journal.recipients[0].status) == ("", Status.FAILED)
            assert (mails(archive), asked_for_it(hop)) == ([], [True])


async def test_a_mailbox_inside_the_boundary_is_where_it_has_arrived(
    tmp_path: Path, here: Certificates
) -> None:
    async with ScriptedHop() as store:
        way = {"domains": ["*"], "host": "127.0.0.1", "port": store.port, "tls": "none"}
        lmtp = {**way, "protocol": "lmtp", "inside": True}
        async with boundary(tmp_path, "mx1", routes={"out": lmtp}, receive=here.receive) as (one,):
            one.run_queue()
            await here.required(one)
            await eventually(lambda: settled(one))
            assert (await only(one)).recipients[0].status is Status.DELIVERED
            assert asked_for_it(store) == [False]


@pytest.mark.parametrize("says", [b"454 4.7.0 not now\r\n", b"220 go\r\nthis is no handshake\r\n"])
async def test_a_host_whose_tls_is_broken_gets_other_mail_as_before(
    tmp_path: Path, here: Certificates, says: bytes
) -> None:
    """A message that wants TLS waits. It lets neither the host rest nor its next hop: others do without."""
    hop_of = ScriptedHop(offers=FIT, STARTTLS=says)
    async with hop_of as hop, boundary(tmp_path, "mx1", **SELDOM, **here.to(hop)) as (one,):
        one.run_queue()
        await here.required(one)

        async def tried() -> bool:
            return bool((await only(one)).recipients[0].attempts)

        await eventually(tried)
        await sent(one, MESSAGE)
        await eventually(lambda: len(hop.contents) == 1)
        assert asked_for_it(hop) == [False]
