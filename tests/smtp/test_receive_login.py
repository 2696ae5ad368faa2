"""AUTH (RFC 4954): who may log in where, what is said to those who may not, and what nobody gets to see."""

from __future__ import annotations

import asyncio
import logging
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import aiosmtplib
import pytest
from receiving import QUEUED, MemoryReceiver, RawClient, connected, eventually, listening

from shadowrelay import logs
from shadowrelay.core.reception.users import Verifier
from shadowrelay.smtp.receiving.contract import Client
from shadowrelay.wire.replies import Refused

Contexts = tuple[ssl.SSLContext, ssl.SSLContext]

WRONG = "535 5.7.8 Authentication credentials invalid"
RIGHT = "235 2.7.0 Authentication successful"


@dataclass
class Users:
    """Of one password each. ``before`` runs before the answer is known."""

    passwords: dict[str, str] = field(default_factory=lambda: {"alice": "Sesame"})
    before: Any = None
    asked: list[str] = field(default_factory=list)

    @property
    def offered(self) -> bool:
        return bool(self.passwords)

    scram = False

    def verifier(self, name: str) -> Verifier:
        raise NotImplementedError

    def proven(self, session: Client, name: str, *, right: bool) -> None:
        raise NotImplementedError

    async def check(self, session: Client, name: str, password: bytes) -> bool:
        self.asked.append(name)
        if self.before is not None:
            await self.before()
        return self.passwords.get(name, "").encode() == password != b""


def sasl(*parts: str) -> str:
    return b64encode("\0".join(parts).encode()).decode()


@asynccontextmanager
async def secured(
    contexts: Contexts, users: Users, receiver: MemoryReceiver | None = None, **changes: Any
) -> AsyncIterator[RawClient]:
    """A client that has begun TLS and introduced itself."""
    server, client_side = contexts
    async with (
        listening(receiver or MemoryReceiver(), tls=server, logins=users, **changes) as connector,
        connected(connector) as client,
    ):
        await client.line()
        assert (await client.say("STARTTLS")).startswith("220")
        await client.writer.start_tls(client_side, server_hostname="mx.example.net")
        hello = "LHLO" if changes.get("lmtp") else "EHLO"
        client.offered = await client.say(f"{hello} client.example")  # type: ignore[attr-defined]
        yield client


async def test_without_tls_auth_is_not_offered_and_no_password_is_looked_at(contexts: Contexts) -> None:
    users = Users()
    async with (
        listening(MemoryReceiver(), tls=contexts[0], logins=users) as connector,
        connected(connector) as client,
    ):
        await client.line()
        assert "AUTH" not in await client.say("EHLO client.example")
        said = await client.say(f"AUTH PLAIN {sasl('', 'alice', 'Sesame')}")
    assert said == "538 5.7.11 Encryption required for requested authentication mechanism"
    assert users.asked == []


async def test_without_users_auth_is_an_unknown_command(contexts: Contexts) -> None:
    async with secured(contexts, Users({})) as client:
        assert "AUTH" not in client.offered  # type: ignore[attr-defined]
        assert await client.say("AUTH PLAIN AGEAYg==") == "500 5.5.2 Command not recognised"
        assert "AUTH" not in await client.say("HELP")


async def test_where_no_tls_can_be_had_auth_is_an_unknown_command() -> None:
    async with listening(MemoryReceiver(), logins=Users()) as connector, connected(connector) as client:
        await client.line()
        assert "AUTH" not in await client.say("EHLO client.example")
        assert await client.say("AUTH PLAIN AGEAYg==") == "500 5.5.2 Command not recognised"


@pytest.mark.parametrize(
    "exchange",
    [
        [f"AUTH PLAIN {sasl('', 'alice', 'Sesame')}"],
        [f"auth plain {sasl('alice', 'alice', 'Sesame')}"],
        ["AUTH PLAIN", sasl("", "alice", "Sesame")],
        ["AUTH LOGIN", sasl("alice"), sasl("Sesame")],
        [f"AUTH login {sasl('alice')}", sasl("Sesame")],
    ],
)
async def test_who_logged_in_is_known_to_whoever_takes_the_message(
    contexts: Contexts, exchange: list[str]
) -> None:
    receiver = MemoryReceiver()
    async with secured(contexts, Users(), receiver) as client:
        assert client.offered.endswith("AUTH PLAIN LOGIN")  # type: ignore[attr-defined]
        replies = [await client.say(line) for line in exchange]
        assert [reply[:3] for reply in replies[:-1]] == ["334"] * (len(exchange) - 1)
        assert replies[-1] == RIGHT
        client.send(b"MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\nx\r\n.\r\n")
        assert [await client.line() for _ in range(4)][-1] == str(QUEUED)
    client = receiver.kept[0].client
    assert (client.login, client.protocol(smtputf8=False)) == ("alice", "ESMTPSA")
    assert client.protocol(smtputf8=True) == "UTF8SMTPSA"


async def test_lmtp_has_its_own_name_for_it(contexts: Contexts) -> None:
    receiver = MemoryReceiver()
    async with secured(contexts, Users(), receiver, lmtp=True) as client:
        await client.say(f"AUTH PLAIN {sasl('', 'alice', 'Sesame')}")
        client.send(b"MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\nx\r\n.\r\n")
        assert [await client.line() for _ in range(4)][-1] == str(QUEUED)
    assert receiver.kept[0].client.protocol(smtputf8=False) == "LMTPSA"


async def test_under_implicit_tls_one_logs_in_too(contexts: Contexts) -> None:
    server, client_side = contexts
    async with (
        listening(MemoryReceiver(), tls=server, implicit_tls=True, logins=Users()) as connector,
        connected(connector, tls=client_side) as client,
    ):
        await client.line()
        assert "AUTH PLAIN LOGIN" in await client.say("EHLO client.example")
        assert await client.say(f"AUTH PLAIN {sasl('', 'alice', 'Sesame')}") == RIGHT


async def test_a_wrong_password_and_an_unknown_name_are_told_the_same(contexts: Contexts) -> None:
    async with secured(contexts, Users()) as client:
        for who in ("alice", "mallory", ""):
            assert await client.say(f"AUTH PLAIN {sasl('', who, 'wrong')}") == WRONG
        assert [await client.say(line) for line in ("AUTH LOGIN", sasl("bob"), sasl("x"))][-1] == WRONG


async def test_a_failed_login_is_slow_in_coming_and_too_many_end_the_session(contexts: Contexts) -> None:
    slow = timedelta(seconds=0.2)
    async with secured(contexts, Users(), tarpit_interval=slow, max_protocol_errors=2) as client:
        began = asyncio.get_running_loop().time()
        assert await client.say(f"AUTH PLAIN {sasl('', 'alice', 'wrong')}") == WRONG
        assert asyncio.get_running_loop().time() - began >= 0.2
        assert await client.say(f"AUTH PLAIN {sasl('', 'alice', 'wrong')}") == WRONG
        said = await client.say(f"AUTH PLAIN {sasl('', 'alice', 'Sesame')}"[:-3])
        assert said == "421 4.7.0 Too many errors, closing connection"
        assert await client.closed()


@pytest.mark.parametrize(
    ("exchange", "answer"),
    [
        (["AUTH"], "501 5.5.4 Not enough value"),
        (["AUTH CRAM-MD5"], "504 5.5.4 Unrecognized authentication type"),
        (["AUTH PLAIN a b"], "501 5.5.4 Too many values"),
        (["AUTH PLAIN *****"], "501 5.5.2 Can't decode base64"),
        ([f"AUTH PLAIN {sasl('alice', 'Sesame')}"], "501 5.5.2 Can't split auth value"),
        (["AUTH PLAIN", "*"], "501 5.7.0 Auth aborted"),
        (["AUTH LOGIN", "*"], "501 5.7.0 Auth aborted"),
        (["AUTH LOGIN", sasl("alice"), "*"], "501 5.7.0 Auth aborted"),
        (["AUTH LOGIN", "A" * 13_000], "500 5.5.6 Authentication exchange line is too long"),
        (["AUTH LOGIN", "YQ==\rYQ=="], "500 5.5.2 Line must end in CRLF"),
    ],
)
async def test_an_exchange_that_goes_wrong_ends_with_one_reply(
    contexts: Contexts, exchange: list[str], answer: str
) -> None:
    users = Users()
    async with secured(contexts, users) as client:
        assert [await client.say(line) for line in exchange][-1] == answer
        assert await client.say("NOOP") == "250 2.0.0 OK"
        assert await client.say(f"AUTH PLAIN {sasl('', 'alice', 'Sesame')}") == RIGHT
    assert users.asked == ["alice"]


async def test_one_logs_in_once_and_not_within_a_transaction(contexts: Contexts) -> None:
    plain = f"AUTH PLAIN {sasl('', 'alice', 'Sesame')}"
    async with secured(contexts, Users()) as client:
        await client.say("MAIL FROM:<a@b>")
        assert await client.say(plain) == "503 5.5.1 A transaction is under way"
        await client.say("RSET")
        assert await client.say(plain) == RIGHT
        assert await client.say(plain) == "503 5.5.1 Already authenticated"


async def test_after_helo_one_does_not_log_in(contexts: Contexts) -> None:
    async with secured(contexts, Users()) as client:
        await client.say("HELO client.example")
        said = await client.say(f"AUTH PLAIN {sasl('', 'alice', 'Sesame')}")
        assert said.startswith("500 5.5.2 ")


async def test_a_check_that_cannot_be_made_puts_the_client_off(contexts: Contexts) -> None:
    async def crowded() -> None:
        raise Refused(454, "4.7.0", "Too many logins at once, try again later")

    async with secured(contexts, Users(before=crowded)) as client:
        said = await client.say(f"AUTH PLAIN {sasl('', 'alice', 'Sesame')}")
    assert said == "454 4.7.0 Too many logins at once, try again later"


@pytest.mark.parametrize("error", [RuntimeError("alice:Sesame"), ConnectionResetError("Sesame")])
async def test_an_error_of_our_own_is_transient_and_tells_nothing(
    contexts: Contexts, error: Exception
) -> None:
    async def broken() -> None:
        raise error

    async with secured(contexts, Users(before=broken)) as client:
        said = await client.say(f"AUTH PLAIN {sasl('', 'alice', 'Sesame')}")
    assert said == "451 4.3.0 Local error in processing, try again later"


async def test_aiosmtplib_logs_in_and_is_refused(contexts: Contexts) -> None:
    server = contexts[0]
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    receiver = MemoryReceiver()
    async with listening(receiver, tls=server, logins=Users()) as connector:
        host, port = connector.address  # type: ignore[attr-defined]
        client = aiosmtplib.SMTP(hostname=host, port=port, tls_context=trusting, timeout=10)
        async with client:
            await client.ehlo()
            with pytest.raises(aiosmtplib.SMTPAuthenticationError, match="credentials invalid"):
                await client.auth_plain("alice", "wrong")
            await client.login("alice", "Sesame")
            await client.sendmail("a@b", ["c@d"], b"Subject: x\r\n\r\nx\r\n")
    assert receiver.kept[0].client.login == "alice"


async def test_no_password_is_in_any_log(
    contexts: Contexts, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Right or wrong, in pieces or at once, and when our own code breaks over it."""
    secrets = ["Sesame", "0pen"]
    spoken = [sasl("", "alice", one) for one in secrets] + [sasl(one) for one in secrets]

    async def breaks() -> None:
        raise RuntimeError("broken")

    logs.configure(level="debug", format="console")
    try:
        users = Users()
        async with secured(contexts, users, max_protocol_errors=50) as client:
            for secret in reversed(secrets):
                await client.say(f"AUTH PLAIN {sasl('', 'alice', secret)} ")
                for line in ("AUTH LOGIN", sasl("alice"), sasl(secret)):
                    await client.say(line)
                await client.say("AUTH LOGIN", sasl("alice"), sasl(secret) + "é")
        users.before = breaks
        async with secured(contexts, users) as client:
            assert (await client.say(f"AUTH PLAIN {spoken[0]}"))[:3] == "451"
    finally:
        logs.configure()
    logged = capfd.readouterr().err + caplog.text
    assert "session_error" in logged
    assert not [secret for secret in secrets + spoken if secret in logged]
    assert logging.getLogger("mail.log").level >= logging.ERROR


async def test_whoever_has_gone_is_not_checked_any_more(contexts: Contexts) -> None:
    given_up = asyncio.Event()

    async def long() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            given_up.set()

    users = Users(before=long)
    async with secured(contexts, users) as client:
        client.send(f"AUTH PLAIN {sasl('', 'alice', 'Sesame')}\r\n".encode())
        await eventually(lambda: bool(users.asked))
        client.writer.transport.abort()
        async with asyncio.timeout(30):
            await given_up.wait()


async def test_a_stop_does_not_wait_for_checks(contexts: Contexts) -> None:
    server, client_side = contexts
    users = Users(before=lambda: asyncio.sleep(60))
    async with (
        listening(MemoryReceiver(), tls=server, implicit_tls=True, logins=users) as connector,
        connected(connector, tls=client_side) as client,
    ):
        await client.line()
        await client.say("EHLO client.example")
        client.send(f"AUTH PLAIN {sasl('', 'alice', 'Sesame')}\r\n".encode())
        await eventually(lambda: bool(users.asked))
        async with asyncio.timeout(30):
            await connector.stop(0.1)
        assert await client.line() == "421 4.3.2 Service is shutting down"


@pytest.mark.parametrize("said", [["AUTH PLAIN"], ["AUTH LOGIN", sasl("alice")]])
async def test_a_stop_does_not_wait_for_the_next_line_of_an_exchange(
    contexts: Contexts, said: list[str]
) -> None:
    server, client_side = contexts
    async with (
        listening(MemoryReceiver(), tls=server, implicit_tls=True, logins=Users()) as connector,
        connected(connector, tls=client_side) as client,
    ):
        await client.line()
        await client.say("EHLO client.example")
        for line in said:
            assert (await client.say(line)).startswith("334")
        async with asyncio.timeout(30):
            await connector.stop(60)
        assert await client.line() == "421 4.3.2 Service is shutting down"
