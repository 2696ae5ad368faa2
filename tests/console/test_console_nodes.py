"""One console shows the page of every node; each acts for an operator who may operate here and there."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import structlog
from admin.admin_node import (
    MX2,
    MX3,
    NOW,
    OURS,
    FakeNode,
    Got,
    a_node,
    ask,
    fill,
    meet,
    message_id,
    peer,
    received,
    serving,
)

from shadowrelay.admin.access import Access, FixedToken
from shadowrelay.console.app import Console
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.operating import Act, Scope
from shadowrelay.core.pressure import Pressure, PressureLevel, Resource
from shadowrelay.core.steps import Operate
from shadowrelay.operator.announcing import MemberShown
from shadowrelay.smtp.receiving.rates import HeldBack

OPERATES, LOOKS = "a secret of the operator", "a secret that may only look"
SECOND = ServerName("w2.mx2.example.net")


@asynccontextmanager
async def two(tmp_path: Path) -> AsyncIterator[tuple[FakeNode, FakeNode, FakeNode, int]]:
    """This node, and a member of two workers, of which the second has mail; mx3 is silent."""
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    async with (
        a_node(tmp_path / "a") as own,
        a_node(tmp_path / "b") as first,
        a_node(tmp_path / "c") as second,
    ):
        first.name, second.name = MX2, SECOND
        own.statuses = [peer(MX2), peer(SECOND), peer(MX3)]
        own.elsewhere = {MX2: first, SECOND: second}
        known = MemberShown(name=MX3, address="mx3:2526", site="there", host="rack3", source="announcement")
        first.announced = [known]
        await fill(second, meet(MX3), received(1, MX3), received(2, None))
        access = Access((FixedToken(OPERATES), FixedToken(LOOKS, "eye", Scope.READ)))
        pages = Console(node=own, access=access, clock=lambda: NOW)
        async with serving(own, access=access, console=pages) as port:
            yield own, first, second, port


async def page(port: int, path: str, secret: str = OPERATES) -> Got:
    return await ask(port, path, accept="text/html", authorization=f"Bearer {secret}")


def text_of(got: Got) -> str:
    found = re.search(r"<main.*</main>", got.text, re.DOTALL)
    assert found, got.text
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", found[0])).split())


async def test_the_page_of_a_node_tells_whom_it_holds_back(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, first, second, port):
        first.held = [HeldBack("mx", "messages", "user <alice>", 3, NOW)]
        second.held = [HeldBack("mx", "messages", "user <alice>", 4, NOW)]
        assert "Whom it holds back" not in text_of(await page(port, "/node"))
        assert "user <alice> messages mx 7" in text_of(await page(port, f"/nodes/{MX2}"))


async def test_the_page_of_a_node_shows_its_resources_with_level_value_and_limits(tmp_path: Path) -> None:
    async with two(tmp_path) as (own, first, second, port):
        limits = (72.0, 75.0, 73.0, 71.0)
        first.pressed = [Pressure(Resource.MEMORY, PressureLevel.LOW, 20.0, limits)]
        second.pressed = [Pressure(Resource.MEMORY, PressureLevel.HIGH, 75.54, limits)]
        assert "memory high 75.5 % 72/75/73/71" in text_of(await page(port, f"/nodes/{MX2}"))
        own.pressed = []
        assert "What is scarce" not in text_of(await page(port, "/node"))


async def posted(port: int, path: str, cookie: str, **fields: str) -> Got:
    body = urlencode(fields).encode()
    more = {"content_type": "application/x-www-form-urlencoded", **({"cookie": cookie} if cookie else {})}
    return await ask(port, path, "POST", body, **more)


async def logged_in(port: int, secret: str) -> tuple[str, str]:
    """The cookie of a session, and what its forms have to send with it."""
    got = await posted(port, "/login", "", token=secret, operator="ann", next="/nodes/mx2.example.net/drain")
    assert got.status == 303, got.text
    cookie = got.raw_headers["set-cookie"].partition(";")[0]
    csrf = re.search(r'name="csrf" value="([^"]+)"', (await ask(port, "/node", cookie=cookie)).text)
    assert csrf
    return cookie, unescape(csrf[1])


async def test_the_page_of_a_member_shows_what_all_its_workers_have(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, _, second, port):
        got = await page(port, "/nodes/mx2.example.net")
        own = await page(port, "/node")
        found = text_of(got)
        for text in (
            "Queued 2 Here alone 1",
            "Version",
            "Since",
            "Free on its disk",
            "peer.certificate ends",
            MX3,
            str(SECOND),
        ):
            assert text in found, (text, found)
        assert "Scrub of what it keeps" in found
        assert 'href="/nodes/mx2.example.net"' in own.text
        assert "Queued 0 Here alone 0" in text_of(own)
        second.elsewhere = {}


async def test_a_member_that_is_silent_has_a_page_that_says_so_and_a_stranger_has_none(
    tmp_path: Path,
) -> None:
    async with two(tmp_path) as (_, _, _, port):
        silent = await page(port, f"/nodes/{MX3}")
        assert "mx3 does not answer" in text_of(silent)
        for name in (
            "mx4.example.net",
            "127.0.0.1:25",
            str(SECOND),
            "..%2F..",
            "mx2.example.net.evil.test",
            OURS,
        ):
            for act in ("", "/drain", "/reload"):
                assert (await page(port, f"/nodes/{name}{act}")).status == 404, name
        assert (await ask(port, f"/nodes/{MX2}", accept="text/html")).status == 401


async def test_a_member_is_drained_through_this_console_with_all_its_workers_and_the_operators_name(
    tmp_path: Path,
) -> None:
    async with two(tmp_path) as (_, first, second, port):
        cookie, csrf = await logged_in(port, OPERATES)
        asked = await ask(port, f"/nodes/{MX2}/drain", cookie=cookie)
        assert "Drain mx2?" in asked.text
        assert (first.active, second.active) == (False, False)
        with structlog.testing.capture_logs() as logs:
            got = await posted(port, f"/nodes/{MX2}/drain", cookie, csrf=csrf)
        assert (got.status, got.headers["location"]) == (303, f"/nodes/{MX2}")
        assert (first.active, second.active) == (True, True)
        assert [(one["action"], one["operator"]) for one in logs if one["event"] == "act_done"] == [
            ("drain", "ann"),
            ("drain", "ann"),
        ]
        assert "By ann, 10:00:00 UTC." in text_of(await page(port, f"/nodes/{MX2}"))
        again = await posted(port, f"/nodes/{MX2}/undrain", cookie, csrf=csrf)
        assert (again.status, first.active, second.active) == (303, False, False)
        assert "It takes mail. A drain was ended. By ann, 10:00:00 UTC." in text_of(
            await page(port, f"/nodes/{MX2}")
        )


@pytest.mark.parametrize("secret", [LOOKS, ""])
@pytest.mark.parametrize("act", ["drain", "undrain", "reload"])
async def test_who_may_only_look_or_is_a_stranger_has_no_member_act(
    secret: str, act: str, tmp_path: Path
) -> None:
    async with two(tmp_path) as (_, first, second, port):
        cookie, csrf = await logged_in(port, secret) if secret else ("", "guessed")
        got = await posted(port, f"/nodes/{MX2}/{act}", cookie, csrf=csrf)
        assert got.status in (401, 403)
        if secret:
            assert (
                "/drain" not in (await ask(port, f"/nodes/{MX2}", cookie=cookie)).text.partition("<main")[2]
            )
        forged = await posted(
            port, f"/nodes/{MX2}/{act}", (await logged_in(port, OPERATES))[0], csrf="guessed"
        )
        assert forged.status == 403
        assert (first.active, second.active) == (False, False)


async def test_a_member_that_takes_no_orders_refuses_and_the_page_says_so(tmp_path: Path) -> None:
    async with two(tmp_path) as (own, first, second, port):
        second.peer_operate = Scope.READ
        cookie, csrf = await logged_in(port, OPERATES)
        got = await posted(port, f"/nodes/{MX2}/drain", cookie, csrf=csrf)
        assert got.status == 409
        assert (
            "w2.mx2.example.net: it refuses: drain takes the scope operate; peer_operate here gives read"
            in text_of(got)
        )
        assert (first.active, second.active) == (True, False)
        act = Act(
            job=message_id(7), action="drain", scope=Scope.READ, operator="eve", reason="", arguments={}
        )  # type: ignore[arg-type]
        said: Any = await own._elsewhere(Operate(MX2, act), 1.0)
        assert "the token gives read" in said.refused


async def test_after_a_login_the_page_that_was_wanted_is_shown(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, _, _, port):
        wanted = "/messages?state=exposed&sort=-size"
        asked = await ask(port, wanted, accept="text/html")
        assert asked.status == 401
        hidden = re.search(r'name="next" value="([^"]+)"', asked.text)
        assert hidden
        got = await posted(port, "/login", "", token=OPERATES, operator="ann", next=unescape(hidden[1]))
        assert (got.status, got.headers["location"]) == (303, wanted)
        elsewhere = await posted(port, "/login", "", token=OPERATES, operator="ann", next="//evil.test/")
        assert elsewhere.headers["location"] == "/"


async def test_who_may_only_look_has_no_form_that_has_a_member_act(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, _, _, port):
        for act in ("drain", "undrain", "reload"):
            assert (await page(port, f"/nodes/{MX2}/{act}", LOOKS)).status == 403
