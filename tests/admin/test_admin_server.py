"""Serving the API inside a node: its socket, its signals, its end."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path

import pytest
from admin_node import a_node, ask, serving
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from shadowrelay.admin.server import bind, serve
from shadowrelay.errors import NodeFailed


async def test_signals_stay_with_the_node(tmp_path: Path):
    async with a_node(tmp_path) as node, serving(node) as port:
        before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
        assert (await ask(port, "/healthz/live")).status == 200
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


async def test_a_port_in_use_is_told_in_a_sentence():
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(NodeFailed, match=rf"cannot listen on 127\.0\.0\.1 port {port}: Address already"):
            bind("127.0.0.1", port)


def test_a_foreign_address_is_told_in_a_sentence():
    with pytest.raises(NodeFailed, match=r"^admin\.listen: "):
        bind("192.0.2.1", 0)
    with pytest.raises(NodeFailed, match=r"^admin\.listen: "):
        bind("no-such-host.invalid", 0)


async def test_a_request_under_way_is_finished_after_the_stop():
    sock, stop, entered, go = bind("127.0.0.1", 0), asyncio.Event(), asyncio.Event(), asyncio.Event()
    port = sock.getsockname()[1]

    async def slow(scope, receive, send) -> None:
        entered.set()
        await go.wait()
        response: Response = PlainTextResponse(Request(scope).url.path)
        await response(scope, receive, send)

    server = asyncio.create_task(serve(slow, sock, stop))
    asked = asyncio.create_task(ask(port, "/slow"))
    await asyncio.wait_for(entered.wait(), 5)
    stop.set()
    go.set()
    assert (await asked).text == "/slow"
    await asyncio.wait_for(server, 5)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 1)


async def test_a_cancelled_server_leaves_no_listener(tmp_path: Path):
    sock, stop = bind("127.0.0.1", 0), asyncio.Event()
    port = sock.getsockname()[1]

    async def app(scope, receive, send) -> None:
        await PlainTextResponse("")(scope, receive, send)

    server = asyncio.create_task(serve(app, sock, stop))
    assert (await ask(port, "/")).status == 200
    server.cancel()
    await asyncio.gather(server, return_exceptions=True)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 1)


async def test_a_stop_before_the_start_ends_at_once():
    stop = asyncio.Event()
    stop.set()
    await asyncio.wait_for(serve(PlainTextResponse(""), bind("127.0.0.1", 0), stop), 5)


async def test_the_node_is_live_whoever_drips_requests_at_it(tmp_path: Path):
    async with a_node(tmp_path) as node, serving(node) as port:
        dripping = [await asyncio.open_connection("127.0.0.1", port) for _ in range(210)]
        for _, writer in dripping:
            writer.write(b"GET /healthz/live HTTP/1.1\r\nx-drip: ")
        for _ in range(3):
            for _, writer in dripping:
                writer.write(b"x")
            assert (await ask(port, "/healthz/live")).status == 200
            assert (await ask(port, "/api/v1/status")).status == 200
        for _, writer in dripping:
            writer.close()


async def test_the_node_is_live_while_as_many_requests_as_there_may_be_wait():
    sock, stop, go, entered = bind("127.0.0.1", 0), asyncio.Event(), asyncio.Event(), asyncio.Semaphore(0)
    port = sock.getsockname()[1]

    async def app(scope, receive, send) -> None:
        if scope["path"] == "/slow":
            entered.release()
            await go.wait()
        await PlainTextResponse(scope["path"])(scope, receive, send)

    server = asyncio.create_task(serve(app, sock, stop))
    slow = [asyncio.create_task(ask(port, "/slow")) for _ in range(200)]
    for _ in slow:
        await asyncio.wait_for(entered.acquire(), 10)
    assert (await ask(port, "/slow")).status == 503
    assert (await ask(port, "/healthz/live")).status == 200
    go.set()
    assert {answer.status for answer in await asyncio.gather(*slow)} == {200}
    stop.set()
    await asyncio.wait_for(server, 5)
