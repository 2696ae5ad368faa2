"""What we rely on in aiosmtpd, private names among it, and its traps (docs/dependencies.md)."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import re
import ssl
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from ipaddress import ip_network
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP
from receiving import MemoryReceiver, connected, conversation, eventually, listening
from test_receive_login import Users, sasl, secured

from shadowrelay.smtp.receiving.conversation import in_our_words
from shadowrelay.smtp.receiving.session import ReceiveSession

Contexts = tuple[ssl.SSLContext, ssl.SSLContext]
PAGE = Path(__file__).parents[2] / "docs" / "dependencies.md"
ROW = re.compile(r"^- `(\w+)`, (as it is|through ours|never)\b", re.MULTILINE)
MESSAGE = b"MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\nx\r\n.\r\n"

PRIVATE = {
    "_auth_interact", "_auth_methods", "_cb_client_connected", "_client_connected_cb",
    "_create_envelope", "_create_session", "_getaddr", "_getparams", "_handle_client", "_handler_coroutine",
    "_over_ssl", "_proxy_timeout", "_reader", "_reset_timeout", "_set_post_data_state",
    "_set_rset_state", "_smtp_methods", "_strip_command_keyword", "_strong_reader", "_syntax_available",
    "_timeout_cb", "_tls_protocol", "_transport", "_writer",
}  # fmt: skip
"""Of the library, or of asyncio's StreamReaderProtocol below it."""


def library() -> dict[str, CodeType]:
    """Every callable of the library's session."""
    found = {}
    for name, member in vars(SMTP).items():
        function = member.fget if isinstance(member, property) else member
        if inspect.isfunction(function):
            found[name] = function.__code__
    return found


def table() -> dict[str, str]:
    return dict(ROW.findall(PAGE.read_text("utf-8")))


@contextmanager
def called(codes: dict[str, CodeType]) -> Iterator[set[str]]:
    """Which of them run meanwhile."""
    names = {code: name for name, code in codes.items()}
    seen: set[str] = set()

    def look(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code in names:
            seen.add(names[frame.f_code])

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield seen
    finally:
        sys.setprofile(before)


def test_the_version_is_the_one_whose_private_names_we_know() -> None:
    assert version("aiosmtpd") == "1.4.6"
    project = tomllib.loads((PAGE.parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    assert "aiosmtpd==1.4.6" in project["dependencies"]


class Nowhere(asyncio.Transport):
    def is_closing(self) -> bool:
        return True


async def test_every_private_name_is_there() -> None:
    """An attribute that the library does not have any more would be set, and mean nothing."""
    plain = SMTP(object(), loop=asyncio.get_running_loop(), proxy_protocol_timeout=5)
    plain.connection_made(Nowhere({"peername": ("192.0.2.1", 4711)}))
    try:
        assert {name for name in PRIVATE if not hasattr(plain, name)} == set()
    finally:
        plain._handler_coroutine.cancel()
        plain._timeout_handle.cancel()


def test_every_private_name_that_our_sessions_use_is_tested() -> None:
    known = {name for name in dir(SMTP) if name.startswith("_") and not name.startswith("__")}
    known |= {name for name in PRIVATE if not hasattr(SMTP, name)} | {"_timeout_handle", "_handle_hooks"}
    source = Path(inspect.getfile(ReceiveSession)).parent
    files = [*source.glob("*.py"), source.parent / "members" / "session.py"]
    used = {name for file in files for name in re.findall(r"\b_[a-z]\w+", file.read_text("utf-8"))}
    assert used & known <= PRIVATE


def test_the_page_tells_of_every_callable() -> None:
    assert table().keys() == library().keys()


def test_what_the_page_calls_unchanged_is_not_overridden_and_the_rest_is() -> None:
    classes = [kind for kind in ReceiveSession.__mro__ if kind.__module__.startswith("shadowrelay.")]
    last = {
        name: kind for kind in classes for name in vars(kind)
    }  # before the library's in the order of calls
    overridden = {name for name in library() if name in last}
    super_called = {name for name in overridden if f"super().{name}(" in inspect.getsource(last[name])}
    kinds = {
        name: "as it is" if name not in overridden else "through ours" if name in super_called else "never"
        for name in library()
    }
    assert table() == kinds


async def test_all_of_it_that_the_page_says_runs_does_run(contexts: Contexts) -> None:
    with called(library()) as seen:
        async with secured(contexts, Users()) as client:
            for line in (
                "HELP", "HELP MAIL", "NOOP", "VRFY a", "EXPN a", f"AUTH PLAIN {sasl('', 'alice', 'wrong')}",
                "AUTH LOGIN", sasl("alice"), sasl("Sesame"), "RSET",
            ):  # fmt: skip
                await client.say(line)
            client.send(MESSAGE)
            for _ in range(4):
                await client.line()
            await client.say("HELO client.example", "QUIT")
        proxies = (ip_network("127.0.0.0/8"),)
        async with (
            listening(MemoryReceiver(), proxy_networks=proxies) as connector,
            connected(connector) as client,
        ):
            client.send(b"PROXY UNKNOWN\r\nQUIT\r\n")
            await client.closed()
        gc.collect()
    assert seen == {name for name, kind in table().items() if kind != "never"}


async def test_help_has_a_line_on_each_verb_that_it_names(contexts: Contexts) -> None:
    async with secured(contexts, Users(), max_protocol_errors=50) as client:
        verbs = (await client.say("HELP")).removeprefix("214 2.0.0 ").split()
        assert {"AUTH", "BDAT", "MAIL"} <= set(verbs)
        for verb in verbs:
            assert (await client.say(f"HELP {verb}")).startswith(f"214 2.0.0 Syntax: {verb}")
        for verb in ("EXPN", "LHLO", "PROXY", "FROBNICATE"):
            assert (await client.say(f"HELP {verb}")).startswith("501 5.5.4 Supported commands: AUTH BDAT ")


def test_every_reply_of_the_library_has_an_enhanced_code_or_is_one_that_has_none() -> None:
    """All that it pushes as text, whether we let it come to that or not."""
    source = inspect.getsource(SMTP)
    replies = re.findall(r"""["']([2-5]\d\d [A-Za-z0-9][^"'{%]*)["']""", source)
    assert len(replies) > 30
    for text in replies:
        reply = in_our_words(text.strip())
        assert reply.code in {int(text[:3]), 214}
        assert reply.enhanced or reply.code in {220, 354}, text


async def test_sessions_leave_nothing_to_the_garbage_collector() -> None:
    """What is caught in a cycle stays, with its buffers, until somebody collects it."""

    async def one(connector: Any) -> None:
        async with connected(connector) as client:
            await client.line()
            client.send(b"EHLO c\r\n" + MESSAGE + b"QUIT\r\n")
            await client.reader.read()
        await eventually(lambda: connector.sessions == 0)
        await asyncio.sleep(0.05)

    async with listening(MemoryReceiver()) as connector:
        await one(connector)
        gc.collect()
        gc.disable()
        try:
            gc.set_debug(gc.DEBUG_SAVEALL)
            await one(connector)
            gc.collect()
            left = {type(found).__name__ for found in gc.garbage}
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert not left & {"ReceiveSession", "Duplex", "MailTransaction", "Greeted", "CommandReader", "Client"}


# Traps


class Reset(MemoryReceiver):
    """A connection of its own is reset when it is asked for something."""

    async def mail(self, session: Any, mail: Any) -> Any:
        if mail.sender == "mail@b":
            raise ConnectionResetError("the database has gone")

    async def rcpt(self, session: Any, mail: Any, rcpt: Any, accepted: Any) -> Any:
        raise ConnectionResetError("the shadow server has gone")

    async def reset(self, session: Any) -> None:
        raise ConnectionResetError("both have gone")


LOCAL = "451 4.3.0 Local error in processing, try again later"


async def test_a_reset_of_our_own_connections_is_answered() -> None:
    async with conversation(Reset()) as client:
        assert await client.say("EHLO c", "MAIL FROM:<mail@b>") == LOCAL
        assert await client.say("MAIL FROM:<a@b>") == "250 2.1.0 Sender OK"
        assert await client.say("RCPT TO:<c@d>") == LOCAL
        assert await client.say("RSET") == "250 2.0.0 OK"
        assert await client.say("NOOP") == "250 2.0.0 OK"


async def test_a_reset_in_a_verb_of_ours_is_told_before_the_session_ends() -> None:
    class Odd(ReceiveSession):
        async def smtp_XODD(self, argument: str | None) -> None:
            raise ConnectionResetError("somebody has gone")

    async with listening(MemoryReceiver(), session=Odd) as connector, connected(connector) as client:
        await client.line()
        assert await client.say("XODD") == LOCAL
        assert await client.closed()


async def test_a_refused_greeting_keeps_the_transaction() -> None:
    """RFC 5321 section 4.1.4: the library has dropped it by then."""
    receiver = MemoryReceiver()
    async with conversation(receiver) as client:
        await client.begin()
        for greeting in ("EHLO", "EHLO bad(name)", "HELO", "HELO bad(name)"):
            assert (await client.say(greeting)).startswith("501 ")
        client.send(b"DATA\r\nx\r\n.\r\n")
        assert [(await client.line())[:3] for _ in range(2)] == ["354", "250"]
    assert (len(receiver.kept), receiver.resets) == (1, 0)


async def test_ehlo_does_not_lengthen_what_a_command_may_be_neither_here_nor_elsewhere() -> None:
    """The table of limits is the class's in the library: other sessions, and other connectors, share it."""
    async with (
        listening(MemoryReceiver()) as connector,
        listening(MemoryReceiver(), max_command_line=4096) as roomy,
        connected(connector) as one,
        connected(roomy) as other,
        connected(connector) as third,
    ):
        for client in (one, other, third):
            await client.line()
        for _ in range(40):
            await one.say("EHLO client.example")
        for client in (other, third):
            await client.say("EHLO client.example")
        for client, base in ((one, 512), (other, 4096), (third, 512)):
            longest = base + 26 + 17 + 10 + 124 + 500 + 11
            fits = "MAIL FROM:<a@b> ENVID=".ljust(longest - 2, "x")
            assert (await client.say(fits)).startswith("501 5.5.4 ENVID")
            assert (await client.say(fits + "x")).startswith("500 5.5.2 Command line too long")
        session = next(iter(connector._register._sessions))
        assert isinstance(session, ReceiveSession)
        assert session.command_size_limits["MAIL"] == session.command_size_limit == longest


async def test_commands_have_no_limit_that_never_ends() -> None:
    """The library's call limit counts for the whole session, and its fifth unknown verb closes it."""
    async with conversation(MemoryReceiver(), max_protocol_errors=50, max_junk_commands=None) as client:
        for _ in range(30):
            assert await client.say("NOOP") == "250 2.0.0 OK"
        for _ in range(10):
            assert (await client.say("FROBNICATE")).startswith("500 5.5.2")
        assert await client.say("NOOP") == "250 2.0.0 OK"


@pytest.mark.parametrize(
    ("end", "answer"),
    [
        (b"\n", "500 5.5.2 Command line must end in CRLF"),
        (b"\r\r\n", "500 5.5.2 Command line must end in CRLF"),
        (b"\rx\r\n", "500 5.5.2 Command line must end in CRLF"),
        (b"\x00\r\n", "501 5.5.2 Control character in command"),
    ],
)
async def test_only_crlf_ends_a_command(end: bytes, answer: str) -> None:
    receiver = MemoryReceiver()
    async with conversation(receiver) as client:
        client.send(b"HELO c\r\nMAIL FROM:<a@b>" + end)
        assert (await client.line()).startswith("250 ")
        assert await client.line() == answer
    assert receiver.calls == []


async def test_a_login_is_no_warning(contexts: Contexts, caplog: pytest.LogCaptureFixture) -> None:
    """The library warns at each of them of what it has deprecated itself."""
    with caplog.at_level(logging.INFO, "mail.log"):
        async with secured(contexts, Users()) as client:
            assert (await client.say(f"AUTH PLAIN {sasl('', 'alice', 'Sesame')}"))[:3] == "235"
    told = [record for record in caplog.records if record.name == "mail.log"]
    assert told
    assert not [record.getMessage() for record in told if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("ending", ["RSET", "EHLO client.example", "HELO client.example"])
async def test_a_transaction_is_forgotten_before_the_library_drops_it(ending: str) -> None:
    """Whoever takes the message is told, and what came of it is thrown away."""
    receiver = MemoryReceiver()
    async with conversation(receiver) as client:
        await client.begin()
        client.send(b"BDAT 3\r\nabc")
        assert (await client.line()).startswith("250 ")
        assert (await client.say(ending)).startswith("250")
        assert (receiver.resets, receiver.aborted) == (1, 1)


@pytest.mark.parametrize("verb", ["MA\u0131L FROM:<a@b>", "\u017fTARTTLS", "mail\u00a0FROM:<a@b>"])
async def test_a_verb_is_ascii(verb: str) -> None:
    """``str.upper`` makes an I of a dotless one."""
    async with conversation(MemoryReceiver()) as client:
        assert await client.say("EHLO c", verb) == "500 5.5.2 Command not recognised"


async def test_the_library_never_closes_by_a_timer_of_its_own() -> None:
    async with listening(MemoryReceiver()) as connector, connected(connector) as client:
        await client.line()
        session = next(iter(connector._register._sessions))
        assert isinstance(session, ReceiveSession)
        assert session._timeout_handle is None
        assert session._timeout_cb is None


async def test_whoever_says_quit_is_forgotten() -> None:
    """QUIT cancels the library's own task: ours must go on to close and to be forgotten."""
    receiver = MemoryReceiver()
    async with listening(receiver) as connector, connected(connector) as client:
        await client.line()
        await client.begin()
        assert await client.say("QUIT") == "221 2.0.0 Bye"
        assert await client.closed()
        await eventually(lambda: connector.sessions == 0)
    assert receiver.resets == 1


async def test_nothing_of_the_library_closes_a_connection_that_it_does_not_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A StreamWriter closes it when it is collected: from Python 3.13 on at once."""
    made: list[str] = []
    init = asyncio.StreamWriter.__init__

    def counted(self: asyncio.StreamWriter, transport: asyncio.WriteTransport, *others: Any) -> None:
        if transport.get_extra_info("sockname")[1] == port:
            made.append("of the server")
        init(self, transport, *others)

    async with listening(MemoryReceiver()) as connector:
        port = connector.address[1]  # type: ignore[attr-defined]
        monkeypatch.setattr(asyncio.StreamWriter, "__init__", counted)
        async with connected(connector) as client:
            gc.collect()
            assert (await client.line()).startswith("220 ")
    assert made == []
