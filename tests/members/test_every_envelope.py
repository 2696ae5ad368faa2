"""Whatever envelope a connector for senders takes can be copied, handed over, promoted and delivered."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scripted_hop import ScriptedHop
from sending import MESSAGE, sender
from stations import Station, boundary, eventually

from shadowrelay.core.messages import Copy, Role, Status
from shadowrelay.core.values import replace
from shadowrelay.wire.xtext import encode_xtext

# What a client may say: more than is taken, so that it is the connector that decides.

_UTF8 = st.characters(min_codepoint=0xA0, exclude_categories=("Cc", "Cs", "Zl", "Zp"))
_ATOMS = st.text(st.one_of(st.sampled_from("aZ09!#$%&'*+/=?^_`{|}~-"), _UTF8), min_size=1, max_size=12)
_QUOTED = st.lists(
    st.one_of(st.sampled_from(" @%!.,:;<>()[]a"), _UTF8, st.sampled_from(["\\\\", '\\"', "\\a", "\\ "])),
    max_size=12,
).map(lambda parts: f'"{"".join(parts)}"')
_LOCAL_PARTS = st.one_of(
    st.lists(_ATOMS, min_size=1, max_size=3).map(".".join),
    _QUOTED,
    st.sampled_from(["user%host", "host!user", '"user@host"', "x" * 64, "ü" * 32]),
)
_LABELS = st.text(st.one_of(st.sampled_from("aZ09_"), _UTF8), min_size=1, max_size=8)
_DOMAINS = st.one_of(
    st.lists(_LABELS, min_size=1, max_size=4).map(".".join),
    st.sampled_from(["example.org", "[192.0.2.1]", "[IPv6:2001:db8::1]", ".".join(["d" * 63] * 2)]),
)
_ADDRESSES = st.builds("{}@{}".format, _LOCAL_PARTS, _DOMAINS)
_XTEXT = st.text(min_size=1, max_size=30).map(encode_xtext)
_MAIL_PARAMETERS = st.lists(
    st.one_of(
        st.sampled_from(["BODY=8BITMIME", "RET=FULL", "RET=HDRS", "SIZE=3", "AUTH=<>"]),
        _XTEXT.map("ENVID={}".format),
    ),
    unique_by=lambda parameter: parameter[:3],
    max_size=3,
)
_RCPT_PARAMETERS = st.lists(
    st.one_of(
        st.sampled_from(["NOTIFY=NEVER", "NOTIFY=SUCCESS,FAILURE,DELAY", "NOTIFY=FAILURE"]),
        _XTEXT.map("ORCPT=rfc822;{}".format),
        st.just(f"ORCPT=utf-8;{'ü' * 200}"),
    ),
    unique_by=lambda parameter: parameter[:3],
    max_size=2,
)
_REVERSE = st.one_of(
    st.just(""), st.builds("{}{}".format, st.sampled_from(["", "@a.example,@b.example:"]), _ADDRESSES)
)
_FORWARD = st.one_of(st.just("Postmaster"), _ADDRESSES)
_MAILS = st.builds(
    lambda path, utf8, more: " ".join([f"MAIL FROM:<{path}>{utf8}", *more]),
    _REVERSE,
    st.sampled_from([" SMTPUTF8", " SMTPUTF8", ""]),
    _MAIL_PARAMETERS,
)
_RCPTS = st.builds(lambda path, more: " ".join([f"RCPT TO:<{path}>", *more]), _FORWARD, _RCPT_PARAMETERS)

_LONG = f"{'l' * 64}@{'.'.join(['d' * 63] * 2)}.{'d' * 61}"
LONGEST = (
    f"MAIL FROM:<{_LONG}> SIZE=99999 BODY=8BITMIME SMTPUTF8 RET=FULL ENVID={'e' * 100} AUTH={'a' * 500}",
    [f"RCPT TO:<{_LONG}> NOTIFY=SUCCESS,FAILURE,DELAY ORCPT=rfc822;{'o' * 493}"],
)
"""As long as a parser takes each part; AUTH stays with the connector, the rest travels."""

ROUTED = ('MAIL FROM:<"user@host%other"@example.org> RET=HDRS ENVID=x', ["RCPT TO:<a@example.net>"])
REFUSED = "RCPT TO:<refused@example.net>"  # by the next hop: the sender gets a report, whatever its address


def envelope(copy: Copy) -> object:
    """What a holder has to know of a message to deliver it."""
    recipients = [(r.number, r.address, r.next_hop, r.notify, r.orcpt) for r in copy.recipients]
    return replace(copy.envelope, message_id="", subject=""), recipients


async def envelopes(station: Station, role: Role) -> dict[str, object]:
    return {copy.id: envelope(copy) for copy in await station.copies() if copy.role is role}


async def accepted(to: Station, mail: str, rcpts: list[str]) -> list[str]:
    """Send a message, and to one recipient more that the next hop refuses. The commands that were taken."""
    async with sender(to) as client:
        await client.say("EHLO client.example")
        if not (await client.say(mail)).startswith("250 "):
            return []
        given = [rcpt for rcpt in (*rcpts, REFUSED) if (await client.say(rcpt)).startswith("250 ")]
        reply = await client.content(MESSAGE)
        assert reply.startswith("250 "), (reply, mail, rcpts)
    return [mail, *given]


@pytest.mark.slow
def test_what_a_sender_is_taken_from_or_for_can_be_copied_handed_over_promoted_and_delivered(
    tmp_path: Path,
) -> None:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        hop = ScriptedHop(
            offers=("PIPELINING", "8BITMIME", "SMTPUTF8", "DSN", "ENHANCEDSTATUSCODES"),
            RCPT=b"451 4.2.1 not yet\r\n",
            **{REFUSED: b"550 5.1.1 nobody of that name\r\n"},
        )

        async def begin() -> list[Station]:
            await stack.enter_async_context(hop)
            route = {"domains": ["*"], "host": "127.0.0.1", "port": hop.port, "tls": "none"}
            strict = {"reject_message_on_shadow_failure": True, "routes": {"out": route}}
            return await stack.enter_async_context(
                boundary(tmp_path, "mx1", "mx2", receive={"max_protocol_errors": 1000}, **strict)
            )

        owner, holder = runner.run(begin())
        taken: list[list[str]] = []

        @settings(max_examples=60, deadline=None)
        @given(mail=_MAILS, rcpts=st.lists(_RCPTS, min_size=1, max_size=3))
        @example(*LONGEST)
        @example(*ROUTED)
        def copied(mail: str, rcpts: list[str]) -> None:
            taken.append(runner.run(accepted(owner, mail, rcpts)))

        try:
            copied()
            runner.run(_goes_on(owner, holder, hop, [commands for commands in taken if commands]))
        finally:
            runner.run(stack.aclose())


async def _goes_on(owner: Station, holder: Station, hop: ScriptedHop, taken: list[list[str]]) -> None:
    assert len(taken) > 20
    assert {LONGEST[0], ROUTED[0]} <= {commands[0] for commands in taken}
    reports = sum(not commands[0].startswith("MAIL FROM:<>") for commands in taken)
    owner.run_queue()
    owner.run_repair()

    async def copied() -> bool:
        ours = await owner.copies()
        if len(ours) < len(taken) + reports or any(copy.exposed for copy in ours):
            return False
        return await envelopes(owner, Role.PRIMARY) == await envelopes(holder, Role.SHADOW)

    await eventually(copied, within=30)
    await owner.quiet()
    hop.script["RCPT"] = [b"250 2.1.5 recipient ok\r\n"]
    for each in (owner, holder):
        each.run_links()
    holder.run_reconcile()
    drain = owner.drain()
    assert (await drain.run(asyncio.get_running_loop().time() + 60, bool)).done
    holder.run_queue()

    async def delivered() -> bool:
        copies = [*await owner.copies(), *await holder.copies()]
        return not any(copy.queued for copy in copies)

    await eventually(delivered, within=30)
    for copy in [*await owner.copies(), *await holder.copies()]:
        for recipient in copy.recipients:
            refused = recipient.address == "refused@example.net"
            assert recipient.status is (Status.FAILED if refused else Status.RELAYED), recipient
