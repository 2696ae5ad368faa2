"""AUTH towards next hops: one mechanism, once, under TLS, and the password nowhere else."""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import os
import ssl
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP as Server
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword, Session
from scripted_hop import HANG, QUICK, ScriptedHop, envelope, recipients

from shadowrelay.core.delivery.settling import Ending
from shadowrelay.core.values import replace
from shadowrelay.smtp.sending.session import (
    ConnectionFailed,
    DeliveryResult,
    DeliverySession,
    Login,
)

NAME, PASSWORD = "relay@example.net", "Pa55-wört, with all sorts"
SAID = b"Subject: x\r\n\r\nText\r\n"
OFFERS = ("PIPELINING", "STARTTLS", "AUTH PLAIN LOGIN CRAM-MD5 XOAUTH2")
REFUSED = b"535 5.7.8 Error: authentication failed\r\n"
CHALLENGE = b"<1896.697170952@hop.example>"


def b64(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


PLAIN = "AUTH PLAIN " + b64(f"\0{NAME}\0{PASSWORD}")
DIGEST = b64(f"{NAME} {hmac.new(PASSWORD.encode(), CHALLENGE, 'md5').hexdigest()}")
XOAUTH2 = "AUTH XOAUTH2 " + b64(f"user={NAME}\1auth=Bearer {PASSWORD}\1\1")
WAYS: dict[str, dict[str, bytes]] = {
    "plain": {PLAIN: b"235 2.7.0 ok\r\n"},
    "login": {f"AUTH LOGIN {b64(NAME)}": b"334 UGFzc3dvcmQ6\r\n", b64(PASSWORD): b"235 2.7.0 ok\r\n"},
    "cram-md5": {
        "AUTH CRAM-MD5": f"334 {b64(CHALLENGE)}\r\n".encode(),
        DIGEST: b"235 2.7.0 ok\r\n",
    },
    "xoauth2": {XOAUTH2: b"235 2.7.0 ok\r\n"},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text(PASSWORD + "\n")
    return path


def holds(file: Path, password: str) -> None:
    file.write_text(password)


def login(file: Path, **changes: Any) -> Login:
    return Login(**{"username": NAME, "password_file": file} | changes)


async def send(hop: ScriptedHop, login: Login, certificate: Path | None, **changes: Any) -> DeliveryResult:
    """One message in one session, under verified TLS if there is a certificate."""
    tls = {"tls": "required", "ca_file": str(certificate), "host": "localhost"} if certificate else {}
    session = DeliverySession(hop.server(**tls, login=login, **changes))
    await session.connect()
    try:
        return await session.deliver(envelope(), recipients("a@example.net"), SAID)
    finally:
        await session.close()


def said(hop: ScriptedHop) -> list[str]:
    """What was said between the last EHLO and MAIL, or the end."""
    last = max(number for number, verb in enumerate(hop.verbs()) if verb == "EHLO")
    return [
        line for line in hop.commands[last + 1 :] if not line.startswith(("MAIL", "RCPT", "DATA", "QUIT"))
    ]


@pytest.mark.parametrize("mechanism", WAYS)
async def test_the_mechanism_that_was_chosen_is_spoken_under_tls(
    mechanism: str, tls: ssl.SSLContext, certificate: Path, file: Path
) -> None:
    async with ScriptedHop(offers=OFFERS, tls=tls, **WAYS[mechanism]) as hop:
        result = await send(hop, login(file, mechanism=mechanism), certificate)
    assert result.results[0].ending is Ending.ACCEPTED
    assert said(hop) == list(WAYS[mechanism])
    assert hop.verbs()[:3] == ["EHLO", "STARTTLS", "EHLO"]


@pytest.mark.parametrize("mechanism", WAYS)
async def test_a_refused_login_is_not_tried_by_another_mechanism(
    mechanism: str, tls: ssl.SSLContext, certificate: Path, file: Path
) -> None:
    # The library's login() would go on to each of those that are offered.
    way = {"AUTH": REFUSED, **WAYS[mechanism], list(WAYS[mechanism])[-1]: REFUSED}
    async with ScriptedHop(offers=OFFERS, tls=tls, **way) as hop:
        with pytest.raises(ConnectionFailed) as failure:
            await send(hop, login(file, mechanism=mechanism), certificate)
    assert (failure.value.step, failure.value.reply) == ("auth", REFUSED.decode().rstrip())
    assert (hop.verbs().count("AUTH"), hop.connections) == (1, 1)
    assert "MAIL" not in hop.verbs()


async def test_a_token_that_is_refused_is_answered_as_the_mechanism_asks(
    tls: ssl.SSLContext, certificate: Path, file: Path
) -> None:
    way = {XOAUTH2: b"334 eyJzdGF0dXMiOiI0MDAifQ==\r\n", "": REFUSED}
    async with ScriptedHop(offers=OFFERS, tls=tls, **way) as hop:
        with pytest.raises(ConnectionFailed, match="refused") as failure:
            await send(hop, login(file, mechanism="xoauth2"), certificate)
    assert failure.value.reply.startswith("535 5.7.8")
    assert said(hop) == [XOAUTH2, ""]


async def test_a_mechanism_that_is_not_offered_is_not_tried_and_those_offered_are_named(
    tls: ssl.SSLContext, certificate: Path, tmp_path: Path
) -> None:
    async with ScriptedHop(offers=("STARTTLS", "AUTH LOGIN \x1b[31m XOAUTH2"), tls=tls) as hop:
        with pytest.raises(ConnectionFailed) as failure:
            await send(hop, login(tmp_path / "not even opened"), certificate)
    assert str(failure.value) == "auth: PLAIN is not offered, but LOGIN, XOAUTH2"
    assert said(hop) == []


async def test_what_is_offered_in_clear_text_alone_is_not_used(
    tls: ssl.SSLContext, certificate: Path, file: Path
) -> None:
    clear = b"250-hop.example\r\n250-STARTTLS\r\n250 AUTH PLAIN\r\n"
    async with ScriptedHop(tls=tls, EHLO=[clear, b"250 hop.example\r\n"]) as hop:
        with pytest.raises(ConnectionFailed, match="PLAIN is not offered, but nothing"):
            await send(hop, login(file), certificate)
    assert said(hop) == []


async def test_without_tls_nothing_is_said_unless_that_is_allowed(file: Path) -> None:
    async with ScriptedHop(offers=("AUTH PLAIN",), **WAYS["plain"]) as hop:
        with pytest.raises(ConnectionFailed, match="STARTTLS is not offered"):
            await send(hop, login(file), file)
        assert hop.verbs() == ["EHLO"]
        for tls in ("none", "opportunistic"):
            with pytest.raises(ValueError, match="verified TLS"):
                hop.server(login=login(file), tls=tls)
            await send(hop, login(file, without_tls=True), None, tls=tls)
            assert said(hop) == [PLAIN]


async def test_an_offer_in_the_old_spelling_counts(file: Path) -> None:
    async with ScriptedHop(offers=("AUTH=LOGIN PLAIN",), **WAYS["plain"]) as hop:
        await send(hop, login(file, without_tls=True), None)
    assert said(hop) == [PLAIN]


async def test_lmtp_servers_are_logged_in_to_as_well(file: Path) -> None:
    async with ScriptedHop(offers=("AUTH PLAIN",), **WAYS["plain"]) as hop:
        await send(hop, login(file, without_tls=True), None, protocol="lmtp")
    assert hop.verbs()[:3] == ["LHLO", "AUTH", "MAIL"]


async def test_the_password_file_is_read_for_each_connection(file: Path) -> None:
    async with ScriptedHop(offers=("AUTH PLAIN",), AUTH=REFUSED, **WAYS["plain"]) as hop:
        who = login(file, without_tls=True)
        holds(file, "an older one")
        with pytest.raises(ConnectionFailed, match="auth"):
            await send(hop, who, None)
        holds(file, PASSWORD)
        assert (await send(hop, who, None)).results[0].ending is Ending.ACCEPTED


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"one\ntwo\n", "has more than one line, or control characters"),
        (b"\0" * 9000, "has more than 8192 octets"),
    ],
)
async def test_without_a_password_nothing_is_said_and_the_reason_is_told(
    content: bytes | None, why: str, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    async with ScriptedHop(offers=("AUTH PLAIN",)) as hop:
        with pytest.raises(ConnectionFailed) as failure:
            await send(hop, login(file, without_tls=True), None)
    assert str(failure.value) == f"auth: password_file {why}"
    assert hop.verbs() == ["EHLO"]


async def test_a_password_file_that_is_a_pipe_is_refused_and_nobody_waits_for_its_writer(
    tmp_path: Path,
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    async with ScriptedHop(offers=("AUTH PLAIN",)) as hop:
        with pytest.raises(ConnectionFailed, match="password_file is not a regular file"):
            await asyncio.wait_for(send(hop, login(pipe, without_tls=True), None), 5)


@pytest.mark.parametrize("mechanism", ["plain", "login", "xoauth2"])
async def test_a_server_that_repeats_the_password_does_not_bring_it_into_logs_and_errors(
    mechanism: str, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    last = list(WAYS[mechanism])[-1]
    echo = f"535-5.7.8 no: {last}\r\n535 5.7.8 nor {PASSWORD}\r\n".encode()
    async with ScriptedHop(offers=OFFERS, **{**WAYS[mechanism], last: echo}) as hop:
        with pytest.raises(ConnectionFailed) as failure:
            await send(hop, login(file, mechanism=mechanism, without_tls=True), None)
    assert failure.value.reply.startswith("535 5.7.8 no:")
    assert failure.value.reply.count("********") == 2
    told = "".join(traceback.format_exception(failure.value)) + repr(failure.value.__dict__) + caplog.text
    secrets = {PASSWORD, PASSWORD.encode("ascii", "replace").decode(), last.split()[-1], b64(PASSWORD)}
    assert not [secret for secret in secrets if secret in told]


@pytest.mark.parametrize("mechanism", ["plain", "login", "xoauth2"])
async def test_a_part_of_the_password_that_a_server_repeats_is_kept_no_more_than_the_whole(
    mechanism: str, file: Path
) -> None:
    last = list(WAYS[mechanism])[-1]
    for part in (last[: len(last) * 2 // 3], last.rstrip("=")):
        echo = f"500 5.5.2 what is {part}...?\r\n".encode()
        async with ScriptedHop(offers=OFFERS, **{**WAYS[mechanism], last: echo}) as hop:
            with pytest.raises(ConnectionFailed) as failure:
                await send(hop, login(file, mechanism=mechanism, without_tls=True), None)
        assert failure.value.reply.startswith("500 5.5.2 what is ")
        assert failure.value.reply.endswith("********...?")


async def test_a_server_that_falls_silent_in_a_login_is_waited_for_no_longer_than_its_deadline(
    file: Path,
) -> None:
    async with ScriptedHop(offers=("AUTH PLAIN",), AUTH=HANG) as hop:
        with pytest.raises(ConnectionFailed, match="auth: no reply in time"):
            await send(hop, login(file, without_tls=True), None, timeouts=replace(QUICK, auth=0.1))


async def test_a_cram_challenge_that_is_none_ends_the_login(file: Path) -> None:
    async with ScriptedHop(offers=OFFERS, AUTH=b"334 &&&\xff\r\n") as hop:
        with pytest.raises(ConnectionFailed, match="auth"):
            await send(hop, login(file, mechanism="cram-md5", without_tls=True), None)
    assert said(hop) == ["AUTH CRAM-MD5"]


@pytest.mark.parametrize("code", [530, 534, 535, 538])
@pytest.mark.parametrize("verb", ["MAIL", "RCPT"])
async def test_mail_that_a_server_takes_only_after_a_login_waits_for_it(verb: str, code: int) -> None:
    reply = f"{code} 5.7.0 Authentication required\r\n".encode()
    async with ScriptedHop(**{verb: reply}) as hop:
        session = DeliverySession(hop.server())
        await session.connect()
        result = await session.deliver(envelope(), recipients("a@example.net"), SAID)
        await session.close()
    assert result.results[0].ending is Ending.DEFERRED
    assert result.results[0].reply == reply.decode().rstrip()


class Keeping:
    def __init__(self) -> None:
        self.taken: list[bytes] = []

    async def handle_DATA(self, server: Server, session: Session, given: Envelope) -> str:
        self.taken.append(given.original_content or b"")
        return "250 2.0.0 OK"


def known(server: Server, session: Session, envelope: Envelope, mechanism: str, data: object) -> AuthResult:
    return AuthResult(success=data == LoginPassword(NAME.encode(), PASSWORD.encode()), handled=False)


@asynccontextmanager
async def submission_port(tls: ssl.SSLContext) -> AsyncIterator[tuple[int, list[bytes]]]:
    """aiosmtpd's own server, which wants STARTTLS, and then a name and a password: its port, what it took."""
    keeping = Keeping()
    options: dict[str, Any] = {"require_starttls": True, "auth_required": True, "authenticator": known}
    listening = await asyncio.get_running_loop().create_server(
        lambda: Server(keeping, tls_context=tls, **options), "127.0.0.1", 0
    )
    try:
        yield listening.sockets[0].getsockname()[1], keeping.taken
    finally:
        listening.close()


@pytest.mark.parametrize("mechanism", ["plain", "login"])
async def test_an_independent_server_takes_mail_with_the_right_password_and_none_with_a_wrong_one(
    mechanism: str, tls: ssl.SSLContext, certificate: Path, file: Path
) -> None:
    async with submission_port(tls) as (port, taken):
        hop = ScriptedHop()
        hop.port = port
        who = {"tls": "required", "ca_file": str(certificate), "login": login(file, mechanism=mechanism)}
        session = DeliverySession(hop.server(host="localhost", **who))
        holds(file, "wrong\n")
        with pytest.raises(ConnectionFailed) as failure:
            await session.connect()
        assert failure.value.reply.startswith("535 5.7.8")
        holds(file, PASSWORD)
        await session.connect()
        assert taken == []
        result = await session.deliver(envelope(), recipients("a@example.net"), SAID)
        await session.close()
    assert result.results[0].ending is Ending.ACCEPTED
    assert taken == [SAID]
