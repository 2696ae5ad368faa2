"""The delivery queue: attempts and their outcomes, next hops that fail, and the reports that follow."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from scripted_hop import CLOSE, HANG, ScriptedHop, original
from sending import MESSAGE, sender, sent
from stations import Station, at_last, boundary, eventually, station

from shadowlab.ports import free_ports
from shadowrelay.core.decisions import Decision, SaveCopy
from shadowrelay.core.delivery.settling import Report
from shadowrelay.core.events.reports import ReportKind, report_id
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.messages import Confirmation, Copy, HolderState, Stage, Status
from shadowrelay.core.ownership.transfer import ask_about, saved
from shadowrelay.core.steps import WriteReports
from shadowrelay.core.tracking_row import timestamp
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queue import ActiveFork, claim
from shadowrelay.delivery import queue
from shadowrelay.members.pool import seconds
from shadowrelay.smtp.sending.session import DeliverySession

LARGE = b"Subject: large\r\n\r\n" + b"x" * 70 + (b"y" * 78 + b"\r\n") * 1000


def route(port: int, *domains: str, **changes: Any) -> dict[str, Any]:
    return {"domains": list(domains or ("*",)), "host": "127.0.0.1", "port": port, "tls": "none"} | changes


def submission(password: Path, hop: ScriptedHop) -> dict[str, Any]:
    """Routes that log in."""
    login = {"username": "relay", "password_file": str(password), "login_without_tls": True}
    return {"out": route(hop.port, **login)}


@asynccontextmanager
async def relay(
    tmp_path: Path, hop: ScriptedHop | int, *, run: bool = True, **changes: Any
) -> AsyncIterator[Station]:
    """A node alone, whose mail leaves for that hop."""
    port = hop if isinstance(hop, int) else hop.port
    found = await station(tmp_path, "mx1", [], **{"routes": {"out": route(port)}} | changes)
    if run:
        found.run_queue()
    try:
        yield found
    finally:
        await found.stop()


async def settled(found: Station) -> bool:
    return all(copy.stage is Stage.SAFETY_NET for copy in await found.copies())


async def only(found: Station) -> Copy:
    return (await found.copies())[0]


def tried(count: int, found: Station) -> Any:
    """Whether the first recipient of the first message was tried that often, and rests."""

    async def condition() -> bool:
        return (await only(found)).recipients[0].attempts >= count

    return condition


def later(found: Station, by: timedelta) -> None:
    """Let the queue believe that so much time has passed."""
    found.clock.ahead = by
    found.node.queue.wake.set()


async def test_a_message_leaves_octet_for_octet(tmp_path: Path) -> None:
    content = b"Subject: dots\r\n\r\n.\r\n..\r\n\xff\x00 8 bit\r\n"
    async with ScriptedHop() as hop, relay(tmp_path, hop) as found:
        await sent(found, content)
        await eventually(lambda: settled(found))
        stored = await found.octets((await only(found)).id)
        assert stored.endswith(content)
        assert original(hop.contents[0]) == stored
        assert await found.events() == ["HAREDIRECTFAIL", "RECEIVE", "SENDEXTERNAL"]
        assert (await only(found)).recipients[0].status is Status.RELAYED


async def test_what_a_mailbox_server_answers_for_one_recipient_does_not_wait_for_the_others(
    tmp_path: Path,
) -> None:
    routes = {"out": route(free_ports(1)[0], protocol="lmtp", inside=True)}
    async with ScriptedHop(DOT=[b"250 2.1.5 one\r\n452 4.2.2 full\r\n", b"250 2.0.0 ok\r\n"]) as hop:
        routes["out"]["port"] = hop.port
        async with relay(tmp_path, hop, routes=routes) as found:
            await sent(found, MESSAGE, "b@example.net", "c@example.net", "d@example.net")

            async def statuses() -> list[tuple[Status, str]]:
                return [(one.status, one.last_reply) for one in (await only(found)).recipients]

            expected = [
                (Status.DELIVERED, "250 2.1.5 one"),
                (Status.READY, "452 4.2.2 full"),
                (Status.READY, ""),
            ]
            await eventually(lambda: asyncio.ensure_future(is_equal(statuses, expected)))
            rows = await found.tracked()
            delivered = [row["recipient-address"] for row in rows if row["event-id"] == "DELIVER"]
            assert delivered == ["b@example.net"]
            later(found, timedelta(minutes=2))
            await asyncio.sleep(0.1)
            assert hop.connections == 1, "the fork is still being sent"


async def is_equal(what: Callable[[], Awaitable[Any]], expected: object) -> bool:
    return await what() == expected


async def test_a_transient_refusal_is_tried_again_after_the_glitch_interval(tmp_path: Path) -> None:
    answers = [b"451 4.7.1 greylisted\r\n", b"250 2.0.0 now\r\n"]
    async with ScriptedHop(DOT=answers) as hop, relay(tmp_path, hop) as found:
        begun = datetime.now(UTC)
        await sent(found, MESSAGE)
        await eventually(tried(1, found))
        (recipient,) = (await only(found)).recipients
        assert recipient.last_reply == "451 4.7.1 greylisted"
        assert recipient.next_attempt
        assert timedelta(seconds=0.9) < recipient.next_attempt - begun < timedelta(seconds=3)
        await eventually(lambda: settled(found))
        assert (await found.events())[-2:] == ["DEFER", "SENDEXTERNAL"]


async def test_only_what_was_put_off_is_sent_again(tmp_path: Path) -> None:
    script = [b"250 2.1.5 ok\r\n", b"450 4.2.1 later\r\n", b"250 2.1.5 ok\r\n"]
    async with ScriptedHop(RCPT=script) as hop, relay(tmp_path, hop) as found:
        await sent(found, MESSAGE, "one@example.net", "two@example.net")
        await eventually(lambda: settled(found))
    assert [command for command in hop.commands if command.startswith("RCPT")] == [
        "RCPT TO:<one@example.net>",
        "RCPT TO:<two@example.net>",
        "RCPT TO:<two@example.net>",
    ]


# Sessions that a next hop ends, or does not begin


class Crowded(ScriptedHop):
    """Takes so many connections at a time, and turns away the others; as Postfix's anvil does."""

    def __init__(self, most: int, **script: Any) -> None:
        super().__init__(**script)
        self.most = most
        self.turned_away = 0

    async def _answer(self, verb: str, writer: asyncio.StreamWriter) -> bytes:
        now = sum(not writer.transport.is_closing() for writer in self._writers)
        if verb == "GREETING" and now > self.most:
            self.turned_away += 1
            writer.write(b"421 4.7.0 hop.example Error: too many connections\r\n")
            await writer.drain()
            raise ConnectionAbortedError
        return await super()._answer(verb, writer)


async def left(found: Station, count: int) -> bool:
    """Whether so many messages are not settled, all of which were tried."""
    waiting = [copy for copy in await found.copies() if copy.stage is not Stage.SAFETY_NET]
    return len(waiting) == count and all(copy.recipients[0].attempts for copy in waiting)


async def test_a_hop_that_takes_few_messages_in_a_session_gets_the_next_in_a_new_one(tmp_path: Path) -> None:
    ok, enough = b"250 2.1.5 ok\r\n", b"421 4.5.3 too many messages in this session\r\n"
    async with (
        ScriptedHop(RCPT=[ok, ok, enough] * 3 + [ok]) as hop,
        relay(tmp_path, hop, run=False, max_per_domain_outbound_connections=1) as found,
    ):
        for _ in range(7):
            await sent(found, MESSAGE)
        found.run_queue()
        await eventually(lambda: settled(found))
        assert "DEFER" not in await found.events()
        assert (len(hop.contents), hop.connections) == (7, 4)


async def test_a_message_that_ends_every_session_is_put_off_by_itself(tmp_path: Path) -> None:
    """It must not let the mail of others rest."""
    ok, no = b"250 2.1.5 ok\r\n", b"421 4.7.1 not that one\r\n"
    async with (
        ScriptedHop(RCPT=[ok, no, no, ok]) as hop,
        relay(
            tmp_path,
            hop,
            run=False,
            max_per_domain_outbound_connections=1,
            queue_glitch_retry_interval="12h",
        ) as found,
    ):
        for _ in range(5):
            await sent(found, MESSAGE)
        found.run_queue()
        await eventually(lambda: left(found, 1))
        assert (len(hop.contents), hop.connections) == (4, 3)
        assert (await found.events()).count("DEFER") == 1


async def test_a_hop_that_takes_fewer_sessions_than_we_open_is_not_let_rest(tmp_path: Path) -> None:
    async with Crowded(2) as hop, relay(tmp_path, hop, run=False) as found:
        for _ in range(60):
            await sent(found, MESSAGE)
        found.run_queue()
        await eventually(lambda: settled(found))
        assert 0 < hop.turned_away <= 180  # some for each message, and no storm
        assert "DEFER" not in await found.events()
        assert len(hop.contents) == 60


async def test_a_hop_that_turns_everybody_away_rests(tmp_path: Path) -> None:
    async with (
        Crowded(0) as hop,
        relay(tmp_path, hop, run=False, queue_glitch_retry_interval="12h") as found,
    ):
        for _ in range(60):
            await sent(found, MESSAGE)
        found.run_queue()
        outbound = found.node.queue.hops[NextHop("out")]
        await eventually(lambda: outbound.retry_at is not None and not outbound.workers)
        assert outbound.failures == 1
        assert outbound.last_error == "greeting: 421 4.7.0 hop.example Error: too many connections"
        assert hop.connections <= 45
        hop.most = 40
        later(found, timedelta(hours=13))
        await eventually(lambda: settled(found))


async def test_a_refused_login_lets_mail_wait_with_the_reason_until_the_password_is_right(
    tmp_path: Path,
) -> None:
    refused = b"535 5.7.8 no such name or password\r\n"
    script = {"AUTH": refused, "AUTH PLAIN AHJlbGF5AHJpZ2h0": b"235 2.7.0 welcome\r\n"}
    password = tmp_path / "password"
    await asyncio.to_thread(password.write_text, "wrong")
    async with (
        ScriptedHop(offers=("AUTH PLAIN",), **script) as hop,
        relay(tmp_path, hop, routes=submission(password, hop)) as found,
    ):
        await sent(found, MESSAGE)
        outbound = found.node.queue.hops[NextHop("out")]
        await eventually(lambda: outbound.failures >= 2)
        assert outbound.last_error == "auth: 535 5.7.8 no such name or password"
        (recipient,) = (await only(found)).recipients
        assert recipient.last_reply == f"451 4.7.8 {outbound.last_error}"
        assert {"FAIL", "DSN"}.isdisjoint(await found.events())
        await asyncio.to_thread(password.write_text, "right")
        await eventually(lambda: settled(found))
        assert (hop.verbs().count("MAIL"), len(hop.contents)) == (1, 1)
        assert "FAIL" not in await found.events()


async def test_the_report_of_what_expired_for_want_of_a_password_names_no_file_of_ours(
    tmp_path: Path,
) -> None:
    password = tmp_path / "secret-place"
    await asyncio.to_thread(password.write_text, "right")
    async with (
        ScriptedHop(offers=("AUTH PLAIN",), AUTH=b"235 2.7.0 ok\r\n") as hop,
        relay(tmp_path, hop, routes=submission(password, hop)) as found,
    ):
        await asyncio.to_thread(password.unlink)
        await sent(found, MESSAGE)
        await eventually(lambda: found.node.queue.hops[NextHop("out")].failures >= 1)
        await asyncio.to_thread(password.write_text, "right")
        later(found, timedelta(days=3))
        await eventually(lambda: settled(found))
    _, _, _, recipient, _ = parts(hop.contents[-1])
    told = " ".join(recipient["Diagnostic-Code"].split())
    assert told.endswith(
        "last error: 451 4.7.0 auth: password_file cannot be read: No such file or directory"
    )
    assert b"secret-place" not in hop.contents[-1]


async def test_a_wrong_password_is_refused_once_and_not_in_each_session_that_there_is_mail_for(
    tmp_path: Path,
) -> None:
    async with ScriptedHop(offers=("AUTH PLAIN",), AUTH=b"535 5.7.8 no\r\n") as hop:
        password = tmp_path / "password"
        await asyncio.to_thread(password.write_text, "wrong")
        async with relay(tmp_path, hop, run=False, routes=submission(password, hop)) as found:
            for _ in range(8):
                await sent(found, MESSAGE)
            found.run_queue()
            outbound = found.node.queue.hops[NextHop("out")]
            for attempt in (1, 2):
                await eventually(lambda: outbound.failures == attempt)  # noqa: B023
                assert hop.verbs().count("AUTH") == attempt


async def test_once_a_login_went_through_others_follow_before_its_message_is_sent(tmp_path: Path) -> None:
    sent_on = asyncio.Event()
    async with ScriptedHop(offers=("AUTH PLAIN",), AUTH=b"235 2.7.0 ok\r\n", pause=sent_on.wait) as hop:
        password = tmp_path / "password"
        await asyncio.to_thread(password.write_text, "right")
        async with relay(tmp_path, hop, run=False, routes=submission(password, hop)) as found:
            for _ in range(8):
                await sent(found, MESSAGE)
            found.run_queue()
            await eventually(lambda: hop.verbs().count("DATA") == 8)
            assert hop.verbs()[:3] == ["EHLO", "AUTH", "MAIL"]
            sent_on.set()
            await eventually(lambda: settled(found))


# Reports


def parts(content: bytes) -> tuple[Message, str, Message, Message, bytes]:
    """A report: itself, its text, per message and per recipient fields, and what it returns."""
    report = message_from_bytes(original(content))
    assert report.get_content_type() == "multipart/report"
    assert report.get_param("report-type") == "delivery-status"
    text, status, returned = report.get_payload()  # type: ignore[misc]
    message, recipient = status.get_payload()  # type: ignore[union-attr]
    return report, text.get_payload(), message, recipient, returned.as_bytes()  # type: ignore[union-attr, return-value]


async def test_a_permanent_refusal_is_reported_to_the_sender(tmp_path: Path) -> None:
    no = [b"550 5.1.1 nobody here\r\n", b"250 2.1.5 ok\r\n"]
    async with ScriptedHop(RCPT=no) as hop, relay(tmp_path, hop) as found:
        await sent(found, MESSAGE)
        await eventually(lambda: settled(found))
        about, dsn = await found.copies()
        tracked = {row["event-id"]: row for row in await found.tracked()}
    report, _, message, recipient, returned = parts(hop.contents[-1])
    assert any(command.startswith("MAIL FROM:<>") for command in hop.commands)
    assert "RCPT TO:<a@example.org>" in hop.commands
    assert report["To"] == "<a@example.org>"
    assert report["Auto-Submitted"].startswith("auto-replied")
    assert message["Reporting-MTA"] == f"dns; {found.name}"
    assert (recipient["Action"], recipient["Status"]) == ("failed", "5.1.1")
    assert recipient["Remote-MTA"] == "dns; [127.0.0.1]"
    assert recipient["Final-Recipient"] == "rfc822; b@example.net"
    assert "550 5.1.1 nobody here" in recipient["Diagnostic-Code"]
    assert b"Message-ID: <1@example.org>" in returned
    assert (about.recipients[0].status, dsn.envelope.sender) == (Status.FAILED, "")
    assert tracked["FAIL"]["reference"] == dsn.id
    assert tracked["DSN"]["reference"] == about.id


@pytest.mark.parametrize(
    ("sender_path", "notify"),
    [("<>", ""), ("<a@example.org>", " NOTIFY=NEVER"), ("<a@example.org>", " NOTIFY=SUCCESS")],
)
async def test_who_cannot_or_will_not_be_told_is_not(tmp_path: Path, sender_path: str, notify: str) -> None:
    async with (
        ScriptedHop(RCPT=b"550 5.1.1 nobody here\r\n") as hop,
        relay(tmp_path, hop) as found,
        sender(found) as client,
    ):
        await client.say("EHLO c", f"MAIL FROM:{sender_path}", f"RCPT TO:<b@example.net>{notify}")
        await client.content(MESSAGE)
        await eventually(lambda: settled(found))
        assert len(await found.copies()) == 1
        assert (await found.events())[-1] == "FAIL"
        assert (await only(found)).recipients[0].status is Status.FAILED


async def test_success_is_reported_where_the_next_hop_cannot(tmp_path: Path) -> None:
    async with (
        ScriptedHop() as hop,
        relay(tmp_path, hop) as found,
        sender(found) as client,
    ):
        await client.say("EHLO c", "MAIL FROM:<a@example.org> ENVID=id-1")
        await client.say("RCPT TO:<b@example.net> NOTIFY=SUCCESS ORCPT=rfc822;B@example.net")
        await client.content(MESSAGE)
        await eventually(lambda: len(hop.contents) == 2)
        await eventually(lambda: settled(found))
    _, _, message, recipient, _ = parts(hop.contents[1])
    assert message["Original-Envelope-Id"] == "id-1"
    assert (recipient["Action"], recipient["Original-Recipient"]) == ("relayed", "rfc822; B@example.net")


async def test_success_is_left_to_a_next_hop_that_reports_it(tmp_path: Path) -> None:
    async with (
        ScriptedHop(offers=("PIPELINING", "DSN")) as hop,
        relay(tmp_path, hop) as found,
        sender(found) as client,
    ):
        await client.say("EHLO c", "MAIL FROM:<a@example.org>", "RCPT TO:<b@example.net> NOTIFY=SUCCESS")
        await client.content(MESSAGE)
        await eventually(lambda: settled(found))
        assert len(await found.copies()) == 1
        assert "RCPT TO:<b@example.net> NOTIFY=SUCCESS" in hop.commands


async def test_a_message_too_old_is_given_up_and_reported(tmp_path: Path) -> None:
    async with (
        ScriptedHop(DOT=[b"451 4.2.1 not today\r\n", b"250 2.0.0 ok\r\n"]) as hop,
        relay(tmp_path, hop) as found,
    ):
        await sent(found, MESSAGE)
        await eventually(tried(1, found))
        later(found, timedelta(days=3))

        async def expired() -> bool:
            return any(row["event-id"] == "FAIL" for row in await found.tracked())

        await eventually(expired)
        await eventually(lambda: settled(found))
        tracked = {row["event-id"]: row for row in await found.tracked()}
        assert tracked["FAIL"]["source-context"] == (
            "451 4.2.1 Message expired in the queue; last error: 451 4.2.1 not today"
        )
    _, _, _, recipient, _ = parts(hop.contents[-1])
    assert (recipient["Action"], recipient["Status"]) == ("failed", "4.2.1")
    assert "Remote-MTA" not in recipient, "that the time is over is our word"


async def test_each_recipient_that_is_given_up_hears_of_its_own_problem(tmp_path: Path) -> None:
    answers = {
        "RCPT TO:<b@example.net>": b"450 4.2.1 mailbox disabled\r\n",
        "RCPT TO:<c@example.net>": b"452 4.2.2 mailbox full\r\n",
    }
    async with ScriptedHop(**answers) as hop, relay(tmp_path, hop) as found:
        await sent(found, MESSAGE, "b@example.net", "c@example.net")
        await eventually(tried(1, found))
        later(found, timedelta(days=3))
        await eventually(lambda: sum(b"report-type" in content for content in hop.contents) == 2)
    fields = [parts(content)[3] for content in hop.contents if b"report-type" in content]
    told = {str(one["Final-Recipient"]): (one["Status"], one["Action"]) for one in fields}
    assert told == {
        "rfc822; b@example.net": ("4.2.1", "failed"),
        "rfc822; c@example.net": ("4.2.2", "failed"),
    }


@pytest.mark.parametrize(
    ("script", "status", "error"),
    [
        ({"GREETING": b"521 5.7.1 blocked\r\n"}, "4.7.1", "greeting: 521 5.7.1 blocked"),
        ({"GREETING": b"554 no service\r\n"}, "4.0.0", "greeting: 554 no service"),
        ({"EHLO": CLOSE}, "4.4.2", "ehlo: closed by the next hop"),
    ],
    ids=["blocked", "without a status", "closed"],
)
async def test_mail_of_a_hop_that_turns_us_away_has_the_status_of_that(
    tmp_path: Path, script: dict[str, Any], status: str, error: str
) -> None:
    async with ScriptedHop(**script) as hop, relay(tmp_path, hop) as found:
        await sent(found, MESSAGE)
        await eventually(tried(1, found))
        assert (await only(found)).recipients[0].last_reply == f"451 {status} {error}"


async def test_a_message_that_was_never_tried_is_given_up_for_its_age_alone(tmp_path: Path) -> None:
    async with ScriptedHop() as hop, relay(tmp_path, hop, run=False) as found:
        await sent(found, MESSAGE)
        later(found, timedelta(days=3))
        found.run_queue()

        async def failed() -> str:
            return "".join(
                row["source-context"] for row in await found.tracked() if row["event-id"] == "FAIL"
            )

        await eventually(failed)
        assert await failed() == "451 4.4.7 Message expired in the queue"


async def test_a_delay_is_reported_once(tmp_path: Path) -> None:
    not_yet = {"RCPT TO:<b@example.net>": b"450 4.2.1 not yet\r\n"}
    async with ScriptedHop(**not_yet) as hop, relay(tmp_path, hop) as found:
        await sent(found, MESSAGE)
        await eventually(tried(1, found))
        assert "DSN" not in await found.events()
        later(found, timedelta(hours=5))
        await eventually(tried(3, found))
        assert (await found.events()).count("DSN") == 1
        await eventually(lambda: any(b"multipart/report" in content for content in hop.contents))
    (report,) = [content for content in hop.contents if b"multipart/report" in content]
    _, _, _, recipient, _ = parts(report)
    assert recipient["Action"] == "delayed"
    assert recipient["Will-Retry-Until"]


async def test_holders_hear_of_a_failure_only_once_its_report_is_safe(tmp_path: Path) -> None:
    """If this node is lost before, a holder makes the same report again."""
    async with (
        ScriptedHop(RCPT=[b"550 5.1.1 nobody\r\n", HANG]) as hop,
        boundary(tmp_path, "mx1", "mx2", routes={"out": route(hop.port)}) as (owner, holder),
    ):
        await sent(owner, MESSAGE)
        owner.run_queue()

        async def failed() -> bool:
            return "FAIL" in await owner.events()

        async def told() -> list[Any]:
            events = await owner.read(
                lambda ledger: ledger.events_for(holder.database.lineage.database_id, 9)
            )
            return [(event.verdict.kind.value, event.verdict.argument) for event in events]

        await eventually(failed)
        assert await told() == []
        owner.run_repair()  # gives the report its second copy
        await eventually(told)
        assert await told() == [("delivered", "failed")]
        assert len(await holder.copies()) == 2
        for task in owner.tasks:
            task.cancel()


async def test_the_id_of_a_report_says_what_it_is_about(tmp_path: Path) -> None:
    """So that another node that comes to the same end makes the same report, and not a second one."""
    async with ScriptedHop(RCPT=[b"550 5.1.1 nobody here\r\n", HANG]) as hop, relay(tmp_path, hop) as found:
        await sent(found, MESSAGE)

        async def reported() -> bool:
            return "DSN" in await found.events()

        await eventually(reported)
        about, dsn = await found.copies()
        assert dsn.id == report_id(about.id, 1, ReportKind.FAILED)


# Next hops


async def test_a_message_under_way_is_not_sent_a_second_time(tmp_path: Path) -> None:
    may = asyncio.Event()
    async with ScriptedHop(pause=may.wait) as hop, relay(tmp_path, hop) as found, at_last(may):
        await sent(found, MESSAGE)
        await eventually(lambda: "DATA" in hop.verbs())
        await found.node.queue._dispatch()
        assert len(found.node.queue._workers) == 1
        may.set()
        await eventually(lambda: settled(found))
        await eventually(lambda: not found.node.queue._workers)
        assert len(hop.contents) == 1


async def test_a_node_that_was_frozen_asks_before_it_sends(tmp_path: Path) -> None:
    """Its holders may have taken its mail over: it learns of the time that passed from its clock."""
    async with (
        ScriptedHop() as hop,
        boundary(tmp_path, "mx1", "mx2", routes={"out": route(hop.port)}) as (owner, holder),
    ):
        await sent(owner, MESSAGE)
        span = owner.node.policy.shadow_resubmit_time_span.total_seconds()
        owner.node.boundary.answered(holder.name, seconds() - span - 1)
        owner.run_queue()

        async def asks() -> bool:
            return (await owner.copies())[0].confirmation is Confirmation.ASK

        await eventually(asks)
        assert hop.connections == 0
        for task in owner.tasks:
            task.cancel()


async def test_a_next_hop_that_is_reached_late_gets_nothing_that_others_may_own_by_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NodeView up its name took longer than the time span, in which no member was heard of."""
    began, may, connect = asyncio.Event(), asyncio.Event(), DeliverySession.connect

    async def late(session: DeliverySession) -> None:
        began.set()
        await may.wait()
        await connect(session)

    monkeypatch.setattr(DeliverySession, "connect", late)
    async with (
        ScriptedHop() as hop,
        boundary(tmp_path, "mx1", "mx2", routes={"out": route(hop.port)}) as (owner, holder),
    ):
        await sent(owner, MESSAGE)
        owner.run_queue()
        await eventually(began.is_set)
        span = owner.node.policy.shadow_resubmit_time_span.total_seconds()
        owner.node.boundary.answered(holder.name, seconds() - span - 1)
        may.set()
        await eventually(lambda: not owner.node.queue._workers)
        assert (await owner.copies())[0].confirmation is Confirmation.ASK
        assert (hop.connections, hop.verbs().count("MAIL"), hop.contents) == (1, 0, [])
        assert "DEFER" not in await owner.events()
        for task in owner.tasks:
            task.cancel()


@pytest.mark.parametrize("offers", [("PIPELINING",), ()])
async def test_a_next_hop_that_answers_late_gets_no_content_that_others_may_own_by_now(
    tmp_path: Path, offers: tuple[str, ...]
) -> None:
    """The session was open when the node was cut off: what it had said arrives when the network is back."""
    may = asyncio.Event()

    class Late(ScriptedHop):
        async def _answer(self, verb: str, writer: asyncio.StreamWriter) -> bytes:
            if verb == "RCPT":
                await may.wait()
            return await super()._answer(verb, writer)

    async with (
        Late(offers=offers) as hop,
        boundary(tmp_path, "mx1", "mx2", routes={"out": route(hop.port)}) as (owner, holder),
    ):
        await sent(owner, MESSAGE)
        owner.run_queue()
        await eventually(lambda: "RCPT" in hop.verbs())
        span = owner.node.policy.shadow_resubmit_time_span.total_seconds()
        owner.node.boundary.answered(holder.name, seconds() - span - 1)
        may.set()
        await eventually(lambda: not owner.node.queue._workers)
        assert (await owner.copies())[0].confirmation is Confirmation.ASK
        assert hop.contents == []
        assert "DEFER" not in await owner.events()
        for task in owner.tasks:
            task.cancel()


class Waiting(ScriptedHop):
    """Answers the RCPT after that was done."""

    def __init__(self, done: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self.done = done

    async def _answer(self, verb: str, writer: asyncio.StreamWriter) -> bytes:
        if verb == "RCPT" and not self.contents:
            await self.done()
        return await super()._answer(verb, writer)


async def test_a_silence_that_ended_during_an_attempt_is_looked_into_before_the_content_leaves(
    tmp_path: Path,
) -> None:
    """Its holder answers again, and nobody has asked it yet what it did with its copies meanwhile."""

    async def back() -> None:
        now, span = seconds(), owner.node.policy.shadow_resubmit_time_span.total_seconds()
        owner.node.boundary.answered(holder.name, now - span - 1)
        owner.node.boundary.answered(holder.name, now)

    async with (
        Waiting(back) as hop,
        boundary(tmp_path, "mx1", "mx2", routes={"out": route(hop.port)}) as (owner, holder),
    ):
        await sent(owner, MESSAGE)
        owner.run_queue()
        await eventually(lambda: "RCPT" in hop.verbs())
        await eventually(lambda: not owner.node.queue._workers)
        assert (await owner.copies())[0].confirmation is Confirmation.ASK
        assert hop.contents == []
        for task in owner.tasks:
            task.cancel()


async def test_every_attempt_looks_whose_message_it_is_before_the_content(tmp_path: Path) -> None:
    """However quick the next hop is."""

    async def asked_about() -> None:
        (copy,) = await owner.copies()
        await owner.read(lambda ledger: ledger.apply(ask_about(copy, owner.clock())))

    async with (
        Waiting(asked_about) as hop,
        boundary(tmp_path, "mx1", "mx2", routes={"out": route(hop.port)}) as (owner, _),
    ):
        await sent(owner, MESSAGE)
        owner.run_queue()
        await eventually(lambda: "RCPT" in hop.verbs())
        await eventually(lambda: not owner.node.queue._workers)
        assert hop.contents == []
        assert "DEFER" not in await owner.events()
        for task in owner.tasks:
            task.cancel()


async def test_mail_that_a_member_at_hand_holds_does_not_wait_for_one_that_is_out_of_reach(
    tmp_path: Path,
) -> None:
    async with (
        ScriptedHop() as hop,
        boundary(tmp_path, "mx1", "mx2", "mx3", routes={"out": route(hop.port)}) as (owner, mx2, mx3),
    ):
        await sent(owner, MESSAGE)
        (copy,) = await owner.copies()
        (holder,) = copy.holders
        lost = mx2 if holder.name == mx3.name else mx3

        def also(ledger: SqlLedger) -> None:
            gone = replace(holder, name=lost.name, database_id=lost.database.lineage.database_id)
            gone = replace(gone, state=HolderState.LOST)
            ledger.apply(saved(copy, copy.with_holder(gone)))

        await owner.read(also)
        now, span = seconds(), owner.node.policy.shadow_resubmit_time_span.total_seconds()
        owner.node.boundary.answered(holder.name, now)
        owner.node.boundary.answered(lost.name, now - span - 1)
        owner.run_queue()
        await eventually(lambda: settled(owner))
        assert len(hop.contents) == 1
        assert "InDoubt=true" in (await owner.tracked())[-1]["custom-data"]
        for task in owner.tasks:
            task.cancel()


async def test_sessions_are_used_again(tmp_path: Path) -> None:
    async with ScriptedHop() as hop, relay(tmp_path, hop, max_per_domain_outbound_connections=1) as found:
        for _ in range(3):
            await sent(found, MESSAGE)
            await eventually(lambda: settled(found))
        assert (hop.connections, len(hop.contents)) == (1, 3)


async def test_an_idle_session_that_the_hop_closed_is_replaced_at_once(tmp_path: Path) -> None:
    async with ScriptedHop() as hop, relay(tmp_path, hop) as found:
        await sent(found, MESSAGE)
        await eventually(lambda: settled(found))
        for writer in hop._writers:
            writer.transport.abort()
        await sent(found, MESSAGE)
        await eventually(lambda: settled(found))
        assert (hop.connections, len(hop.contents)) == (2, 2)
        assert "DEFER" not in await found.events()


async def test_a_hop_has_its_number_of_sessions(tmp_path: Path) -> None:
    may = asyncio.Event()
    async with (
        ScriptedHop(pause=may.wait) as hop,
        relay(tmp_path, hop, run=False, max_per_domain_outbound_connections=2) as found,
    ):
        for _ in range(6):
            await sent(found, MESSAGE)
        found.run_queue()
        await eventually(lambda: hop.verbs().count("DATA") == 2)
        assert found.node.queue.hops[NextHop("out")].workers == hop.connections == 2
        may.set()
        await eventually(lambda: settled(found))
        assert hop.connections == 2


async def test_all_hops_together_have_their_number_of_sessions(tmp_path: Path) -> None:
    may = asyncio.Event()
    async with ScriptedHop(pause=may.wait) as one, ScriptedHop(pause=may.wait) as two:
        routes = {"one": route(one.port, "one.test"), "two": route(two.port, "two.test")}
        async with relay(tmp_path, one, run=False, routes=routes, max_outbound_connections=3) as found:
            for _ in range(4):
                await sent(found, MESSAGE, "a@one.test", "b@two.test")
            found.run_queue()
            await eventually(lambda: one.verbs().count("DATA") + two.verbs().count("DATA") == 3)
            may.set()
            await eventually(lambda: settled(found))
            assert len(one.contents) == len(two.contents) == 4


@pytest.mark.slow
async def test_a_hop_that_does_not_answer_quit_delays_no_other(tmp_path: Path) -> None:
    async with ScriptedHop(QUIT=HANG) as one, ScriptedHop() as two:
        routes = {"one": route(one.port, "one.test"), "two": route(two.port, "two.test")}
        async with relay(tmp_path, one, run=False, routes=routes) as found:
            for _ in range(10):
                await sent(found, MESSAGE, "a@one.test")
            found.run_queue()
            await eventually(lambda: settled(found))
            queue = found.node.queue
            idle = queue.hops[NextHop("one")].idle
            await eventually(lambda: len(idle) == one.connections)
            assert len(idle) > 3
            queue.hops[NextHop("one")].idle = [(session, since - 3600) for session, since in idle]
            queue.wake.set()
            await eventually(lambda: one.verbs().count("QUIT") > 3)
            await sent(found, MESSAGE, "b@two.test")
            await eventually(lambda: settled(found))


async def test_sessions_that_fail_together_are_one_failure(tmp_path: Path) -> None:
    down = asyncio.Event()
    waiting: list[asyncio.StreamWriter] = []

    async def dies(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        waiting.append(writer)
        await down.wait()
        writer.transport.abort()

    server = await asyncio.start_server(dies, "127.0.0.1", 0)
    async with relay(tmp_path, server.sockets[0].getsockname()[1], run=False) as found:
        for _ in range(5):
            await sent(found, MESSAGE)
        found.run_queue()
        await eventually(lambda: len(waiting) == 5)
        outbound = found.node.queue.hops[NextHop("out")]
        down.set()
        await eventually(lambda: outbound.failures and not outbound.workers)
        assert outbound.failures == 1
    server.close()


async def test_a_hop_that_is_down_is_probed_by_one_session(tmp_path: Path) -> None:
    """In the documented retry order; one session probes, and all the mail follows when it is back."""
    port = free_ports(1)[0]
    async with relay(tmp_path, port, run=False, queue_glitch_retry_interval="2s") as found:
        for _ in range(20):
            await sent(found, MESSAGE)
        found.run_queue()
        outbound = found.node.queue.hops[NextHop("out")]
        await eventually(lambda: outbound.failures and not outbound.workers)
        assert outbound.failures == 1
        assert outbound.last_error.startswith("connect: ")
        assert outbound.retry_at
        assert outbound.retry_at - datetime.now(UTC) <= timedelta(seconds=2)
        later(found, timedelta(seconds=3))
        await eventually(lambda: outbound.failures == 2 and not outbound.workers)
        tried_twice = [copy for copy in await found.copies() if copy.recipients[0].attempts == 2]
        assert len(tried_twice) <= 1  # the probe alone
        async with listening_on(port) as hop:
            later(found, timedelta(minutes=1))
            await eventually(lambda: settled(found))
            assert outbound.failures == 0
            assert len(hop.contents) == 20


async def test_a_session_that_hangs_does_not_keep_the_mail_of_a_hop_that_is_back(tmp_path: Path) -> None:
    greetings = [b"220 hop.example ESMTP\r\n", CLOSE, b"220 hop.example ESMTP\r\n"]
    async with (
        ScriptedHop(GREETING=greetings, DOT=[HANG, b"250 2.0.0 queued\r\n"]) as hop,
        relay(tmp_path, hop) as found,
    ):
        await sent(found, MESSAGE)
        await eventually(lambda: len(hop.contents) == 1)
        await sent(found, MESSAGE)
        outbound = found.node.queue.hops[NextHop("out")]
        await eventually(lambda: outbound.failures == 1)
        await sent(found, MESSAGE)
        later(found, timedelta(seconds=3))
        await eventually(lambda: len(hop.contents) == 3)
        assert outbound.failures == 0
        assert hop.connections >= 3


async def test_mail_that_waits_for_a_hop_that_rests_is_reported_late_and_given_up_in_time(
    tmp_path: Path,
) -> None:
    rests = {"queue_glitch_retry_interval": "12h", "max_per_domain_outbound_connections": 1}
    async with relay(tmp_path, free_ports(1)[0], run=False, **rests) as found:
        for _ in range(5):
            await sent(found, MESSAGE)
        found.run_queue()
        outbound = found.node.queue.hops[NextHop("out")]
        await eventually(lambda: outbound.failures and not outbound.workers)
        later(found, timedelta(hours=5))

        async def notified() -> int:
            return sum(copy.recipients[0].delay_notified for copy in await found.copies())

        await eventually(lambda: asyncio.ensure_future(all_of(notified, 4)))
        assert outbound.failures == 1  # nobody tried the hop for that
        outbound.retry_at = datetime.now(UTC) + timedelta(days=4)
        later(found, timedelta(days=3))

        async def failed() -> int:
            return sum(row["event-id"] == "FAIL" for row in await found.tracked())

        await eventually(lambda: asyncio.ensure_future(all_of(failed, 5)))
        assert outbound.failures == 1


async def all_of(count: Callable[[], Awaitable[int]], wanted: int) -> bool:
    return await count() >= wanted


@asynccontextmanager
async def listening_on(port: int) -> AsyncIterator[ScriptedHop]:
    hop = ScriptedHop()
    async with hop:
        hop._server.close()
        hop._server = await asyncio.start_server(hop._accept, "127.0.0.1", port)
        yield hop


@pytest.mark.parametrize(
    ("script", "awaits", "told"),
    [
        ({"GREETING": HANG}, "greeting", "has waited for the greeting of the next hop since "),
        ({"EHLO": HANG}, "ehlo", "has waited for its reply to EHLO since "),
        ({"MAIL": HANG}, "mail", "has waited for its reply to MAIL since "),
        ({"DATA": HANG}, "data", "has waited for its reply to DATA since "),
        ({"DOT": HANG}, "final dot", "has waited for the reply to the content since "),
    ],
    ids=["greeting", "ehlo", "mail", "data", "dot"],
)
async def test_what_is_awaited_of_a_next_hop_is_known_and_since_when(
    tmp_path: Path, script: dict[str, Any], awaits: str, told: str
) -> None:
    name = NextHop("out")
    async with ScriptedHop(**script) as hop, relay(tmp_path, hop) as found:
        before = datetime.now(UTC)
        assert found.node.hop(name).awaits == ""
        await sent(found, MESSAGE)
        await eventually(lambda: found.node.hop(name).awaits == awaits)
        status = found.node.hop(name)
        assert status.awaits_since is not None
        assert before <= status.awaits_since <= datetime.now(UTC)
        assert status.awaited(status.awaits_since + timedelta(seconds=1)) == "", "that is no long time"
        minute = status.awaits_since + timedelta(minutes=1)
        assert status.awaited(minute) == told + timestamp(status.awaits_since)
        crowded = replace(status, places=status.sessions)
        assert crowded.keeps(minute).endswith(f"; one {told}{timestamp(status.awaits_since)}")


async def test_after_a_delivery_nothing_is_awaited(tmp_path: Path) -> None:
    async with ScriptedHop() as hop, relay(tmp_path, hop) as found:
        await sent(found, MESSAGE)
        await eventually(lambda: settled(found))
        assert found.node.hop(NextHop("out")).awaits == ""


@pytest.mark.parametrize("verb", ["GREETING", "EHLO"])
async def test_a_message_expires_though_its_next_hop_keeps_us_waiting(tmp_path: Path, verb: str) -> None:
    async with ScriptedHop(**{verb: HANG}) as hop, relay(tmp_path, hop, run=False) as found:
        await sent(found, MESSAGE)
        found.clock.ahead = found.node.policy.message_expiration_timeout - timedelta(seconds=1)
        found.run_queue()

        async def failed() -> bool:
            return "FAIL" in await found.events()

        await eventually(lambda: hop.connections)
        assert not await failed()
        await eventually(failed)
        assert not found.node.queue.hops[NextHop("out")].failures, "it did nothing wrong"


async def test_mail_expires_though_all_sessions_of_its_next_hop_are_in_use(tmp_path: Path) -> None:
    async with (
        ScriptedHop(DOT=HANG) as hop,
        relay(tmp_path, hop, max_per_domain_outbound_connections=1) as found,
    ):
        await sent(found, MESSAGE)
        await eventually(lambda: hop.contents)
        await sent(found, MESSAGE, "c@example.net")
        later(found, timedelta(days=3))

        async def failed() -> list[str]:
            rows = await found.tracked()
            return [row["recipient-address"] for row in rows if row["event-id"] == "FAIL"]

        await eventually(failed)
        assert await failed() == ["c@example.net"], "the other one may have been taken"
        assert hop.connections == 1


async def test_the_pauses_follow_the_documented_order(tmp_path: Path) -> None:
    order = {
        "queue_glitch_retry_count": 1,
        "queue_glitch_retry_interval": "1m",
        "transient_failure_retry_count": 2,
        "transient_failure_retry_interval": "5m",
        "outbound_connection_failure_retry_interval": "10m",
    }
    async with relay(tmp_path, free_ports(1)[0], **order) as found:
        await sent(found, MESSAGE)
        outbound, passed, pauses = found.node.queue.hops[NextHop("out")], timedelta(), []
        for failures in range(1, 6):
            await eventually(lambda failures=failures: outbound.failures == failures and not outbound.workers)
            assert outbound.retry_at
            pause = outbound.retry_at - found.clock()
            pauses.append(round(pause / timedelta(minutes=1)))
            passed += pause + timedelta(seconds=1)
            later(found, passed)
    assert pauses == [1, 5, 5, 10, 10]


async def test_a_session_lost_after_the_dot_leaves_the_message_in_doubt(tmp_path: Path) -> None:
    async with ScriptedHop(DOT=[CLOSE, b"250 2.0.0 ok\r\n"]) as hop, relay(tmp_path, hop) as found:
        await sent(found, MESSAGE)
        await eventually(lambda: settled(found))
        assert len(hop.contents) == 2  # the duplicate that nobody can avoid
        rows = await found.tracked()
        assert [row["event-id"] for row in rows[2:]] == ["DEFER", "SENDEXTERNAL"]
        assert "S:InDoubt=true" in rows[2]["custom-data"]


async def test_inside_the_boundary_a_message_is_sent_and_in_a_mailbox_delivered(tmp_path: Path) -> None:
    async with ScriptedHop() as hop:
        routes = {"out": route(hop.port, inside=True)}
        async with relay(tmp_path, hop, routes=routes) as found:
            await sent(found, MESSAGE)
            await eventually(lambda: settled(found))
            assert (await found.events())[-1] == "SEND"
            assert (await only(found)).recipients[0].status is Status.DELIVERED


# Mail whose next hop only another member knows


async def rehop(found: Station, hop: str) -> None:
    """As if the message had been taken over from a member whose routes have other names."""
    copy = await only(found)
    changed = replace(copy, recipients=tuple(replace(r, next_hop=NextHop(hop)) for r in copy.recipients))
    await found.read(lambda ledger: ledger.apply(Decision(None, (SaveCopy(copy, changed),))))


async def test_an_unknown_next_hop_is_routed_by_domain_each_recipient_for_itself(tmp_path: Path) -> None:
    async with ScriptedHop() as one, ScriptedHop() as two:
        routes = {"one": route(one.port, "one.test"), "two": route(two.port, "two.test")}
        async with relay(tmp_path, one, run=False, routes=routes) as found:
            for _ in range(2):
                await sent(found, MESSAGE, "a@one.test", "b@two.test", "c@one.test")
            for copy in await found.copies():
                changed = replace(
                    copy, recipients=tuple(replace(r, next_hop=NextHop("theirs")) for r in copy.recipients)
                )
                work = Decision(None, (SaveCopy(copy, changed),))
                await found.read(lambda ledger, work=work: ledger.apply(work))
            found.run_queue()
            await eventually(lambda: settled(found))
        assert {command for command in one.commands if command.startswith("RCPT")} == {
            "RCPT TO:<a@one.test>",
            "RCPT TO:<c@one.test>",
        }
        assert {command for command in two.commands if command.startswith("RCPT")} == {"RCPT TO:<b@two.test>"}
        assert len(one.contents) == len(two.contents) == 2


async def test_an_unknown_next_hop_without_a_route_waits(tmp_path: Path) -> None:
    routes = {"out": route(9, "example.net")}
    async with relay(tmp_path, 9, run=False, routes=routes) as found:
        await sent(found, MESSAGE)
        copy = await only(found)
        lost = replace(copy.recipients[0], next_hop=NextHop("theirs"), address="b@elsewhere.test")
        work = Decision(None, (SaveCopy(copy, copy.with_recipients([lost])),))
        await found.read(lambda ledger: ledger.apply(work))
        found.run_queue()
        await eventually(tried(1, found))
        assert (await only(found)).recipients[0].last_reply == "451 4.4.4 No route to that domain"


# Mistakes of our own


async def test_a_content_that_is_out_of_reach_for_now_is_put_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No descriptor is left: that passes, and says nothing of the content."""

    def without(*_: Any) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    async with ScriptedHop() as hop, relay(tmp_path, hop, run=False) as found:
        await sent(found, LARGE)
        monkeypatch.setattr("shadowrelay.database.content.os.open", without)
        found.run_queue()
        await eventually(tried(1, found))
        monkeypatch.undo()
        first = await only(found)
        assert first.recipients[0].last_reply.startswith("451 4.3.0 Local error")
        assert first.damage is None
        later(found, timedelta(minutes=1))
        await eventually(lambda: len(hop.contents) == 1)


async def test_a_mistake_in_one_delivery_does_not_keep_the_message_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedHop() as hop, relay(tmp_path, hop, run=False) as found:
        write, calls = found.node.queue._reporter.write, []

        async def breaks(step: WriteReports, content: Any) -> tuple[Report, ...]:
            calls.append(step)
            if len(calls) == 1:
                raise RuntimeError("a bug")
            return await write(step, content)

        class Breaking:
            write = staticmethod(breaks)

        monkeypatch.setattr(found.node.queue, "_reporter", Breaking())
        await sent(found, MESSAGE)
        found.run_queue()
        await eventually(lambda: settled(found))
        assert (await found.events())[-2:] == ["DEFER", "SENDEXTERNAL"]
        assert len(hop.contents) == 2


async def test_a_stop_in_the_middle_of_a_look_waits_for_what_that_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops: list[asyncio.Future[None]] = []
    may = asyncio.Event()
    async with ScriptedHop(pause=may.wait) as hop, relay(tmp_path, hop, run=False) as found:

        def claim_and_stop(*asked: Any) -> list[ActiveFork]:
            stops.append(asyncio.ensure_future(found.node.queue.stop()))
            return claim(*asked)

        monkeypatch.setattr(queue, "claim", claim_and_stop)
        await sent(found, MESSAGE)
        found.run_queue()
        await eventually(lambda: hop.verbs().count("DATA") == 1)
        assert not stops[0].done()
        may.set()
        await stops[0]
        assert await settled(found)


async def test_a_stop_lets_a_delivery_finish_and_begins_no_other(tmp_path: Path) -> None:
    may = asyncio.Event()
    async with (
        ScriptedHop(pause=may.wait) as hop,
        relay(tmp_path, hop, run=False, max_per_domain_outbound_connections=1) as found,
    ):
        for _ in range(3):
            await sent(found, MESSAGE)
        found.run_queue()
        await eventually(lambda: hop.verbs().count("DATA") == 1)
        stopping = asyncio.ensure_future(found.node.queue.stop())
        await asyncio.sleep(0)
        assert not stopping.done()
        may.set()
        await stopping
        stages = [copy.stage for copy in await found.copies()]
        assert sorted(stages) == [Stage.QUEUED, Stage.QUEUED, Stage.SAFETY_NET]
        assert hop.verbs()[-1] == "QUIT"
