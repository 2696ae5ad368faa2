"""STARTTLS towards next hops: opportunistic falls back, required never does."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from scripted_hop import ScriptedHop, envelope, recipients

from shadowrelay.core.delivery.settling import Ending
from shadowrelay.smtp.sending.session import ConnectionFailed, DeliveryResult, DeliverySession

OFFERS = ("PIPELINING", "STARTTLS")


async def send(hop: ScriptedHop, **server: object) -> DeliveryResult:
    session = DeliverySession(hop.server(**server))
    await session.connect()
    try:
        return await session.deliver(envelope(), recipients("a@example.net"), b"Subject: x\r\n\r\nText\r\n")
    finally:
        await session.close()


async def test_opportunistic_tls_encrypts_without_asking_who_answers(tls: ssl.SSLContext) -> None:
    async with ScriptedHop(offers=OFFERS, tls=tls) as hop:
        result = await send(hop, tls="opportunistic")
    assert result.encrypted.startswith("TLSv1.")
    assert result.results[0].ending is Ending.ACCEPTED
    assert hop.verbs()[:4] == ["EHLO", "STARTTLS", "EHLO", "MAIL"]


async def test_opportunistic_tls_sends_in_clear_text_where_none_is_offered() -> None:
    async with ScriptedHop() as hop:
        result = await send(hop, tls="opportunistic")
    assert (result.encrypted, result.results[0].ending) == ("", Ending.ACCEPTED)
    assert hop.connections == 1


@pytest.mark.parametrize("answer", [b"454 4.7.0 not now\r\n", b"220 go\r\nthis is no handshake\r\n"])
async def test_opportunistic_tls_falls_back_to_clear_text_on_a_new_connection(answer: bytes) -> None:
    async with ScriptedHop(offers=OFFERS, STARTTLS=answer) as hop:
        result = await send(hop, tls="opportunistic")
    assert (result.encrypted, result.results[0].ending) == ("", Ending.ACCEPTED)
    assert hop.connections == 2


async def test_required_tls_verifies_the_certificate_and_the_name(
    tls: ssl.SSLContext, certificate: Path
) -> None:
    async with ScriptedHop(offers=OFFERS, tls=tls) as hop:
        result = await send(hop, tls="required", ca_file=str(certificate), host="localhost")
        assert result.encrypted
        result = await send(hop, tls="required", ca_file=str(certificate), check_hostname=False)
        assert result.encrypted


@pytest.mark.parametrize("trusted", [True, False])
async def test_required_tls_never_falls_back(tls: ssl.SSLContext, certificate: Path, trusted: bool) -> None:
    # Trusted, but for another name (127.0.0.1 is not in it); or from an authority that nobody knows.
    authority = {"ca_file": str(certificate)} if trusted else {}
    async with ScriptedHop(offers=OFFERS, tls=tls) as hop:
        with pytest.raises(ConnectionFailed) as failure:
            await send(hop, tls="required", **authority)
    assert failure.value.step == "tls"
    assert hop.connections == 1
    assert "MAIL" not in hop.verbs()


@pytest.mark.parametrize(
    "script",
    [
        {"offers": ("PIPELINING",)},
        {"offers": OFFERS, "STARTTLS": b"454 4.7.0 not now\r\n"},
        {"EHLO": b"502 5.5.1 no\r\n"},
    ],
)
async def test_required_tls_says_nothing_in_clear_text_where_it_is_not_to_be_had(
    script: dict[str, object],
) -> None:
    async with ScriptedHop(**script) as hop:
        with pytest.raises(ConnectionFailed):
            await send(hop, tls="required")
    assert set(hop.verbs()) <= {"EHLO", "STARTTLS"}
    assert hop.connections == 1


async def test_what_is_injected_behind_the_answer_to_starttls_is_not_believed(
    tls: ssl.SSLContext, certificate: Path
) -> None:
    injected = b"220 go ahead\r\n250-evil.example\r\n250 8BITMIME\r\n"
    # Without the extra lines the handshake would succeed; with them in the same segment they are dropped.
    async with ScriptedHop(offers=OFFERS, tls=tls, STARTTLS=injected) as hop:
        session = DeliverySession(hop.server(tls="required", ca_file=str(certificate), check_hostname=False))
        await session.connect()
        result = await session.deliver(envelope(), recipients("a@example.net"), b"\xff\r\n")
        await session.close()
    assert result.results[0].reply.startswith("554 5.6.3")  # 8BITMIME was never offered under TLS


async def test_what_was_offered_in_clear_text_is_forgotten_under_tls(tls: ssl.SSLContext) -> None:
    clear = b"250-hop.example\r\n250-STARTTLS\r\n250 DSN\r\n"
    async with ScriptedHop(tls=tls, EHLO=[clear, b"250 hop.example\r\n"]) as hop:
        result = await send(hop, tls="opportunistic")
    assert result.encrypted
    assert not result.dsn_offered
