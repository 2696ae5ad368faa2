"""Each event loop that a node may run with, and certificates."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from receiving import Loops

from shadowrelay.lab.authority import authority_pair, init, issue


@pytest.fixture(params=["asyncio", "uvloop"])
def loops(request: pytest.FixtureRequest) -> Loops:
    if request.param == "asyncio":
        return asyncio.new_event_loop
    found: Loops = pytest.importorskip("uvloop").new_event_loop
    return found


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For the server, which asks for a certificate, and for a client that has one."""
    folder: Path = tmp_path_factory.mktemp("ca")
    now = datetime.now(UTC)
    init(folder, name="test", now=now)
    authority = str(authority_pair(folder).certificate)
    made = []
    for purpose, name in (
        (ssl.Purpose.CLIENT_AUTH, "mx.example.net"),
        (ssl.Purpose.SERVER_AUTH, "mx2.example.net"),
    ):
        pair = issue(folder, name, now=now)
        context = ssl.create_default_context(purpose, cafile=authority)
        context.load_cert_chain(pair.certificate, pair.key)
        made.append(context)
    made[0].verify_mode = ssl.CERT_OPTIONAL
    return made[0], made[1]
