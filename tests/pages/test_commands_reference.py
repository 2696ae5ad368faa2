"""docs/reference: every command with every option, every verb, every route of the API."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from starlette.routing import Route

from shadowlab.cli import main as lab
from shadowrelay.admin.access import Access
from shadowrelay.admin.api import build_app
from shadowrelay.admin.node import RunningNode
from shadowrelay.admin.openapi import operations
from shadowrelay.cli import COMMANDS
from shadowrelay.core.identifiers import ServerName
from shadowrelay.smtp.members.session import MemberSession
from shadowrelay.smtp.receiving.session import ReceiveSession
from shadowrelay.workers.front import Supervising, build_front
from tests.pages.command_reference import PAGE, page

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def test_the_page_of_commands_says_what_the_commands_say():
    remedy = "run .venv/bin/python -m tests.pages.command_reference"
    assert PAGE.read_text("utf-8") == page(), remedy


def test_every_command_has_a_section():
    text = page()
    assert all(f"\n## shadowrelay {name}\n" in text for name in COMMANDS)
    assert all(f"\n### shadowlab {name}\n" in text for name in lab.commands)


def test_the_page_of_the_api_describes_exactly_its_routes():
    routes = build_app(cast(RunningNode, None)).routes
    front, _ = build_front(
        ServerName("mx1"), Access(), cast(Supervising, SimpleNamespace(workers=list)), asyncio.Event()
    )
    served = {
        f"{method} {route.path}"
        for route in routes
        if isinstance(route, Route)
        for method in route.methods or ()
        if method != "HEAD"
    } | {f"{method} {path}" for method, path in operations(front.routes)}
    described = re.findall(
        r"^## `((?:GET|POST|DELETE) [^`]+)`$", (REFERENCE / "api.md").read_text("utf-8"), re.MULTILINE
    )
    assert sorted(described) == sorted(served)


def test_every_verb_that_is_answered_is_described():
    for session, page_of in ((ReceiveSession, "smtp.md"), (MemberSession, "protocol.md")):
        described = (REFERENCE / page_of).read_text("utf-8") + (REFERENCE / "smtp.md").read_text("utf-8")
        verbs = {name.removeprefix("smtp_") for name in dir(session) if name.startswith("smtp_")}
        assert "EHLO" in verbs
        assert [verb for verb in sorted(verbs) if not re.search(rf"\b{verb}\b", described)] == []
