"""SCRAM-SHA-256 (RFC 7677): Debian's msmtp logs in, and what is said to those who cannot prove anything."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from receiving import MemoryReceiver, RawClient, connected, listening
from scramp import ScramClient

from shadowrelay.core.reception.users import Cost, KeptPassword, format_users, hashed, verifier
from shadowrelay.reception.logins import UserLogins

Contexts = tuple[ssl.SSLContext, ssl.SSLContext]

WRONG = "535 5.7.8 Authentication credentials invalid"
RIGHT = "235 2.7.0 Authentication successful"
FEW = 4096  # iterations

MSMTP = shutil.which("msmtp")


def kept(path: Path, *others: tuple[str, KeptPassword]) -> UserLogins:
    salt = os.urandom(16)
    users = {"alice": verifier(b"Sesame", salt, FEW), "bob@example.org": verifier("pä ß".encode(), salt, FEW)}
    path.write_text(format_users({**users, **dict(others)}))
    return UserLogins(path, "submission")


@asynccontextmanager
async def secured(contexts: Contexts, logins: UserLogins, **changes: Any) -> AsyncIterator[RawClient]:
    server, client_side = contexts
    receiver = changes.pop("receiver", None) or MemoryReceiver()
    async with (
        listening(receiver, tls=server, implicit_tls=True, logins=logins, **changes) as connector,
        connected(connector, tls=client_side) as client,
    ):
        await client.line()
        client.offered = await client.say("EHLO client.example")  # type: ignore[attr-defined]
        yield client


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


async def proves(client: RawClient, name: str, password: str, *, at_once: bool = True) -> str:
    """One exchange by scramp's client, with the server's proof looked at; the last reply."""
    scram = ScramClient(["SCRAM-SHA-256"], name, password)
    first = encoded(scram.get_client_first())
    if at_once:
        said = await client.say(f"AUTH SCRAM-SHA-256 {first}")
    else:
        assert await client.say("auth scram-sha-256") == "334 "
        said = await client.say(first)
    assert said.startswith("334 "), said
    scram.set_server_first(b64decode(said[4:]).decode())
    said = await client.say(encoded(scram.get_client_final()))
    if not said.startswith("334 "):
        return said
    scram.set_server_final(b64decode(said[4:]).decode())
    return await client.say("")


@pytest.mark.skipif(MSMTP is None, reason="there is no msmtp (apt-get install msmtp)")
@pytest.mark.parametrize("implicit", [False, True], ids=["starttls", "implicit"])
async def test_msmtp_proves_who_it_is_and_never_says_the_password(
    certificate: Path, tmp_path: Path, implicit: bool
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    receiver, logins = MemoryReceiver(), kept(tmp_path / "users")
    async with listening(receiver, tls=context, implicit_tls=implicit, logins=logins) as connector:
        port = connector.address[1]  # type: ignore[attr-defined]

        async def sends(mechanism: str, password: str) -> tuple[int, str]:
            assert MSMTP is not None
            command = [
                MSMTP, "--host=127.0.0.1", f"--port={port}", "--tls=on", f"--tls-trust-file={certificate}",
                f"--tls-starttls={'off' if implicit else 'on'}", "--tls-host-override=localhost",
                f"--auth={mechanism}", "--user=alice", f"--passwordeval=echo {password}",
                "--from=a@example.org", "--debug", "b@example.net",
            ]  # fmt: skip
            pipe = asyncio.subprocess.PIPE
            run = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
            async with asyncio.timeout(60):
                said, errors = await run.communicate(b"Subject: hello\n\nbody\n")
            return run.returncode or 0, (said + errors).decode(errors="replace")

        status, said = await sends("on", "Sesame")  # the best that is offered
        assert (status, "AUTH SCRAM-SHA-256" in said) == (0, True), said
        status, said = await sends("plain", "Sesame")
        assert status == 0, said
        status, said = await sends("scram-sha-256", "wrong")
        assert (status != 0, WRONG in said) == (True, True), said
    assert [one.client.login for one in receiver.kept] == ["alice", "alice"]
    assert logins.counts == {"succeeded": 2, "failed": 1, "put_off": 0}


@pytest.mark.parametrize("at_once", [True, False])
async def test_who_proves_the_password_is_known_to_whoever_takes_the_message(
    contexts: Contexts, tmp_path: Path, at_once: bool
) -> None:
    receiver = MemoryReceiver()
    async with secured(contexts, kept(tmp_path / "users"), receiver=receiver) as client:
        assert client.offered.endswith("AUTH SCRAM-SHA-256 PLAIN LOGIN")  # type: ignore[attr-defined]
        assert await proves(client, "bob@example.org", "pä ß", at_once=at_once) == RIGHT
        assert (await client.say("AUTH SCRAM-SHA-256")).startswith("503")  # one logs in once
        await client.begin()
        assert (await client.content(b"x\r\n")).startswith("250")
    assert receiver.kept[0].client.login == "bob@example.org"


async def test_a_wrong_password_and_an_unknown_name_look_the_same_at_every_node_with_that_file(
    contexts: Contexts, tmp_path: Path
) -> None:
    logins = [kept(tmp_path / "users"), UserLogins(tmp_path / "users", "submission")]
    challenges = set()
    for each in logins:
        async with secured(contexts, each) as client:
            with structlog.testing.capture_logs() as told:
                assert await proves(client, "alice", "wrong") == WRONG
                assert await proves(client, "mallory", "Sesame") == WRONG
            assert [row.get("user") for row in told if row["event"] == "login_failed"] == ["alice", None]
            said = await client.say(f"AUTH SCRAM-SHA-256 {encoded('n,,n=mallory,r=abc')}")
            _, salt, iterations = b64decode(said[4:]).decode().split(",")
            assert (len(b64decode(salt[2:])), iterations) == (16, f"i={FEW}")
            challenges.add(salt)
            await client.say("*")
        assert each.counts == {"succeeded": 0, "failed": 2, "put_off": 0}
    assert len(challenges) == 1


@pytest.mark.parametrize(
    ("said", "reply"),
    [
        ("*", "501 5.7.0 Auth aborted"),
        ("no base64", "501 5.5.2 Can't decode base64"),
        ("", WRONG),
        ("////", WRONG),
        (encoded("n,,n=alice,r="), WRONG),
        (encoded("p=tls-exporter,,n=alice,r=abc"), WRONG),
        (encoded("n,,n=al=ice,r=abc"), WRONG),
    ],
)
async def test_what_is_no_exchange_is_refused_and_the_session_goes_on(
    contexts: Contexts, tmp_path: Path, said: str, reply: str
) -> None:
    async with secured(contexts, kept(tmp_path / "users"), max_protocol_errors=20) as client:
        assert await client.say("AUTH SCRAM-SHA-256") == "334 "
        assert await client.say(said) == reply
        challenge = await client.say(f"AUTH SCRAM-SHA-256 {encoded('n,,n=alice,r=abc')}")
        assert challenge.startswith("334 ")
        assert await client.say(said) == reply  # in place of the proof
        assert await proves(client, "alice", "Sesame") == RIGHT


async def test_a_proof_cannot_be_used_again(contexts: Contexts, tmp_path: Path) -> None:
    async with secured(contexts, kept(tmp_path / "users")) as client:
        scram = ScramClient(["SCRAM-SHA-256"], "alice", "Sesame")
        first = encoded(scram.get_client_first())
        scram.set_server_first(b64decode((await client.say(f"AUTH SCRAM-SHA-256 {first}"))[4:]).decode())
        proof = encoded(scram.get_client_final())
        assert (await client.say(proof)).startswith("334 ")
        assert (await client.say("*")).startswith("501")
        assert (await client.say(f"AUTH SCRAM-SHA-256 {first}")).startswith("334 ")
        assert await client.say(proof) == WRONG


async def test_where_one_user_has_a_hash_alone_it_is_not_offered(contexts: Contexts, tmp_path: Path) -> None:
    """Clients take the best that is offered, and try no other when that fails."""
    logins = kept(tmp_path / "users", ("carol", hashed(b"0pen", os.urandom(16), Cost(ln=4, p=1))))
    async with secured(contexts, logins) as client:
        assert client.offered.endswith("AUTH PLAIN LOGIN")  # type: ignore[attr-defined]
        said = await client.say(f"AUTH SCRAM-SHA-256 {encoded('n,,n=alice,r=abc')}")
        assert said == "504 5.5.4 Unrecognized authentication type"
        assert await client.say(f"AUTH PLAIN {encoded(chr(0) + 'carol' + chr(0) + '0pen')}") == RIGHT
