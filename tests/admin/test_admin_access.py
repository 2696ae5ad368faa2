"""Who may ask the admin API: tokens with a scope, sessions of a browser, and pages of other sites."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from admin_node import MX2, OURS, FakeNode, Got, a_node, ask, message_id, serving
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from structlog.testing import capture_logs

from shadowrelay.admin import access
from shadowrelay.admin.access import IDLE, Access, FixedToken, TokenFile
from shadowrelay.admin.answering import Answers, refusal
from shadowrelay.admin.api import build_app
from shadowrelay.admin.body import form_of, session_of
from shadowrelay.admin.guard import RequestRefused
from shadowrelay.admin.sessions import local_path
from shadowrelay.console.app import console
from shadowrelay.core.operating import Scope

LOOKS, ACTS, SHARED = "looks-only-0123456789", "acts-too-01234567890", "everybodys-0123456789"
UNGUARDED = {"/healthz/live", "/healthz/ready", "/login", "/logout"}
JSON = {"content_type": "application/json"}


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[FakeNode]:
    async with a_node(tmp_path) as made:
        yield made


def tokens(**more: Any) -> Access:
    looks = FixedToken(LOOKS, "prometheus", Scope.READ, shared=False)
    acts = FixedToken(ACTS, "alice", Scope.OPERATE, shared=False)
    return Access((looks, acts, FixedToken(SHARED)), **more)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def target(route: Route) -> str:
    path = route.path.replace("{id}", message_id(1)).replace("{name}", MX2)
    return path.replace("{hop:path}", "inside").replace("{hop}", "inside")


def guarded(node: FakeNode) -> list[tuple[str, str]]:
    """Method and target of every route that wants a token."""
    return [
        (method, target(route))
        for route in build_app(node).routes
        if isinstance(route, Route) and route.path not in UNGUARDED and route.path.startswith(("/api", "/m"))
        for method in sorted((route.methods or set()) - {"HEAD"})
    ]


async def test_every_route_wants_a_token_that_may_do_it(node: FakeNode) -> None:
    async with serving(node, access=tokens()) as port:
        for method, path in guarded(node):
            for wrong in ({}, bearer("no"), bearer(""), {"authorization": f"Basic {ACTS}"}):
                got = await ask(port, path, method, **JSON, **wrong)
                assert (got.status, got.headers["www-authenticate"]) == (401, "bearer"), path
            if method == "GET":
                continue
            got = await ask(port, path, method, **JSON, **bearer(LOOKS))
            assert (got.status, got.json["error"]) == (
                403,
                "prometheus may read, not operate: use a token whose scope is operate (setting admin.tokens)",
            ), path


async def test_every_route_answers_the_token_that_may_do_it(node: FakeNode) -> None:
    asked = guarded(node)
    async with serving(node, access=tokens()) as port:
        for method, path in asked:
            if path.endswith("/events"):
                continue  # an answer without end
            for token in (LOOKS, ACTS) if method == "GET" else (ACTS,):
                got = await ask(port, path, method, **JSON, **bearer(token))
                assert got.status not in (401, 403, 405, 415), (method, path)
    assert len(asked) > 20
    assert {"/metrics", "/api/v1/status"} <= {path for _, path in asked}


async def test_the_health_checks_want_no_token(node: FakeNode) -> None:
    async with serving(node, access=tokens()) as port:
        assert (await ask(port, "/healthz/live")).status == 200
        assert (await ask(port, "/healthz/ready")).status == 200


async def test_a_change_is_a_line_in_the_log_done_or_refused_with_who_what_and_why(node: FakeNode) -> None:
    body = b'{"selector": {}, "operator": "mallory", "reason": "lost mail"}'
    with capture_logs() as logged:
        async with serving(node, access=tokens()) as port:
            await ask(port, "/api/v1/drain/begin", "POST", **JSON, **bearer(ACTS))
            await ask(port, "/api/v1/drain/end", "POST", **JSON, **bearer(LOOKS))
            await ask(port, "/api/v1/resubmit", "POST", body, **JSON, **bearer(ACTS))
            await ask(port, "/api/v1/resubmit", "POST", body, **JSON, **bearer(SHARED))
    lines = [line for line in logged if line["event"] == "operator_asked"]
    assert [(line["operator"], line["scope"], line["path"], line["status"]) for line in lines] == [
        ("alice", "operate", "/api/v1/drain/begin", 200),
        ("prometheus", "read", "/api/v1/drain/end", 403),
        ("alice", "operate", "/api/v1/resubmit", 400),
        ("mallory", "operate", "/api/v1/resubmit", 400),
    ]
    assert [line["reason"] for line in lines] == ["", "", "lost mail", "lost mail"]
    assert lines[0]["result"] == "done"
    assert lines[2]["what"] == '{"selector": {}}'
    assert not any(secret in str(logged) for secret in (LOOKS, ACTS, SHARED))


async def login(port: int, token: str, **more: str) -> Got:
    form = urlencode({"token": token, **more}).encode()
    return await ask(port, "/login", "POST", form, content_type="application/x-www-form-urlencoded")


def cookie_of(got: Got) -> str:
    return got.raw_headers["set-cookie"].partition(";")[0]


async def test_a_token_begins_a_session_whose_cookie_no_script_and_no_other_site_can_use(
    node: FakeNode,
) -> None:
    async with serving(node, access=tokens()) as port:
        got = await login(port, ACTS, next="/queues?sort=age")
        assert (got.status, got.raw_headers["location"]) == (303, "/queues?sort=age")
        attributes = {part.strip().lower() for part in got.raw_headers["set-cookie"].split(";")[1:]}
        assert attributes == {"httponly", "samesite=strict", "path=/"}
        cookie = cookie_of(got)
        assert cookie.startswith(f"shadowrelay-{OURS}=")
        assert len(cookie.partition("=")[2]) >= 43  # 256 bits
        assert (await ask(port, "/api/v1/status", cookie=cookie)).status == 200
        assert (await ask(port, "/api/v1/status", cookie=cookie[:-1])).status == 401
        assert (await login(port, "wrong" * 5)).status == 401
        by_proxy = await ask(
            port,
            "/login",
            "POST",
            urlencode({"token": LOOKS}).encode(),
            content_type="application/x-www-form-urlencoded",
            x_forwarded_proto="https",
        )
        assert "secure" in by_proxy.headers["set-cookie"]


async def test_a_session_changes_something_only_with_its_own_token_against_forgery(node: FakeNode) -> None:
    async with serving(node, access=tokens()) as port:
        body = f'{{"token": "{ACTS}"}}'.encode()
        one = await ask(port, "/login", "POST", body, **JSON)
        other = await ask(port, "/login", "POST", body, **JSON)
        cookie, path = cookie_of(one), "/api/v1/drain/begin"
        for csrf in ({}, {"x_csrf_token": ""}, {"x_csrf_token": other.json["csrf"]}):
            assert (await ask(port, path, "POST", **JSON, cookie=cookie, **csrf)).status == 403
        assert not node.active
        right = {"x_csrf_token": one.json["csrf"]}
        assert (await ask(port, path, "POST", **JSON, cookie=cookie, **right)).status == 200
        assert node.active


async def test_a_session_ends_by_logout_which_no_other_site_can_cause(node: FakeNode) -> None:
    async with serving(node, access=tokens()) as port:
        begun = await ask(port, "/login", "POST", f'{{"token": "{ACTS}"}}'.encode(), **JSON)
        cookie = cookie_of(begun)
        assert (await ask(port, "/logout", "POST", **JSON, cookie=cookie)).status == 403
        assert (await ask(port, "/api/v1/status", cookie=cookie)).status == 200
        out = await ask(port, "/logout", "POST", **JSON, cookie=cookie, x_csrf_token=begun.json["csrf"])
        assert (out.status, out.json) == (200, {"logged_out": True})
        assert (await ask(port, "/api/v1/status", cookie=cookie)).status == 401
        assert (await ask(port, "/logout", "POST", **JSON, cookie=cookie)).status == 200


async def test_a_session_ends_when_nobody_uses_it_and_with_its_token() -> None:
    now = [0.0]
    made = tokens(clock=lambda: now[0])
    session_id, session = made.login(ACTS)
    now[0] += IDLE.total_seconds() - 1
    assert made.who("", session_id) == session
    now[0] += IDLE.total_seconds() - 1
    assert made.who("", session_id).operator == "alice"
    now[0] += IDLE.total_seconds()
    with pytest.raises(RequestRefused):
        made.who("", session_id)
    session_id, _ = made.login(ACTS)
    made.replace((FixedToken(ACTS, "alice", Scope.READ, shared=False),))
    with pytest.raises(RequestRefused):
        made.who("", session_id)  # what it may do has changed
    session_id, _ = made.login(ACTS)
    made.replace((FixedToken(LOOKS, "bob", Scope.READ, shared=False),))
    with pytest.raises(RequestRefused):
        made.who("", session_id)


def test_there_are_no_more_sessions_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "MOST_SESSIONS", 3)
    made = tokens()
    ids = [made.login(LOOKS)[0] for _ in range(3)]
    made.who("", ids[0])  # in use
    ids.append(made.login(LOOKS)[0])
    with pytest.raises(RequestRefused):
        made.who("", ids[1])
    assert all(made.who("", one).operator == "prometheus" for one in (ids[0], *ids[2:]))


def test_a_shared_token_lets_its_holder_say_who_he_is_and_a_named_one_does_not() -> None:
    made = tokens()
    assert made.who(f"Bearer {SHARED}", "").operator_named("bob") == "bob"
    assert made.who(f"bearer  {SHARED}", "").operator_named(None) == "admin token"
    assert made.who(f"Bearer {ACTS}", "").operator_named("bob") == "alice"
    assert made.login(SHARED, "bob")[1].operator == "bob"
    assert made.login(ACTS, "bob")[1].operator == "alice"
    assert made.login(SHARED, "bob")[1].operator_named("carol") == "bob"
    assert Access().who("", "").operator_named(None) == "anonymous"


def test_of_two_tokens_with_one_secret_the_one_that_may_do_less_counts() -> None:
    acts = FixedToken(ACTS, "alice", Scope.OPERATE, shared=False)
    looks = FixedToken(ACTS, "bob", Scope.READ, shared=False)
    for both in ((acts, looks), (looks, acts)):
        assert Access(both).who(f"Bearer {ACTS}", "").operator == "bob"


def test_a_token_in_a_file_is_read_again_when_it_changes_and_admits_nobody_when_it_is_gone(
    tmp_path: Path,
) -> None:
    now, file = [0.0], tmp_path / "token"
    file.write_text(f"{ACTS}\n")
    made = Access((TokenFile("alice", Scope.OPERATE, file, lambda: now[0]),))
    assert made.who(f"Bearer {ACTS}", "").operator == "alice"
    file.write_text(f"{LOOKS}\n")
    os.utime(file, (1, 1))
    now[0] += 1
    assert made.who(f"Bearer {LOOKS}", "").operator == "alice"
    with pytest.raises(RequestRefused):
        made.who(f"Bearer {ACTS}", "")
    with capture_logs() as logged:
        for wrong in (lambda: file.write_text("short\n"), file.unlink, file.mkdir):
            wrong()
            for _ in range(2):
                now[0] += 1
                for secret in (LOOKS, "short", ""):
                    with pytest.raises(RequestRefused):
                        made.who(f"Bearer {secret}", "")
    assert [line["event"] for line in logged] == ["token_not_read"] * 3
    assert not made.open


def test_a_login_goes_on_at_this_node_alone() -> None:
    assert local_path("/queues?a=b#c") == "/queues?a=b#c"
    for elsewhere in (
        "//evil.test",
        "/\\evil.test",
        "https://evil.test",
        "evil",
        "",
        "/a\r\nb",
        "/\t/evil.test",
    ):
        assert local_path(elsewhere) == "/"


class Console:
    """A page and a form, as the console has them."""

    def __init__(self, node: FakeNode, made: Access) -> None:
        answers = Answers(node, made)
        self.done: list[tuple[str, str]] = []
        self.routes = [
            Route("/page", answers.pages(self.page, self.refused)),
            Route("/act", answers.forms(self.act, self.refused), methods=["POST"]),
        ]

    async def page(self, request: Request) -> Response:
        return PlainTextResponse(session_of(request).csrf)

    async def act(self, request: Request) -> Response:
        self.done.append((session_of(request).operator, (await form_of(request))["what"]))
        return PlainTextResponse("")

    def refused(self, request: Request, refused: RequestRefused) -> Response:
        return refusal(refused.status, f"at {request.url.path}: {refused.sentence}")


async def act(port: int, csrf: str, **headers: str) -> int:
    form = urlencode({"what": "it", "csrf": csrf}).encode()
    more = {"content_type": "application/x-www-form-urlencoded", **headers}
    return (await ask(port, "/act", "POST", form, **more)).status


async def test_a_form_acts_with_the_csrf_of_its_session_from_a_page_of_this_node_alone(
    node: FakeNode,
) -> None:
    made = tokens()
    console = Console(node, made)
    async with serving(node, access=made, routes=console.routes) as port:
        cookie, reader = cookie_of(await login(port, ACTS)), cookie_of(await login(port, LOOKS))
        csrf = (await ask(port, "/page", cookie=cookie)).text
        readers = (await ask(port, "/page", cookie=reader)).text
        here = {"origin": f"http://127.0.0.1:{port}"}
        assert (await ask(port, "/page")).status == 401
        for wrong in ("", "x", readers):
            assert await act(port, wrong, cookie=cookie, **here) == 403
        assert await act(port, csrf, **here) == 401  # no session
        assert await act(port, "", **here, **bearer(ACTS)) == 403  # a form is a browser's
        for foreign in ("https://evil.test", "null", f"http://127.0.0.1:{port + 1}"):
            assert await act(port, csrf, cookie=cookie, origin=foreign) == 403
        for site in ("cross-site", "same-site"):
            assert await act(port, csrf, cookie=cookie, sec_fetch_site=site) == 403
        assert await act(port, readers, cookie=reader, **here) == 403  # may look only
        assert await act(port, csrf, cookie=cookie, content_type="text/plain") == 415
        assert console.done == []
        assert await act(port, csrf, cookie=cookie, **here) == 200
    assert console.done == [("alice", "it")]


async def test_without_a_token_a_form_still_needs_the_csrf_that_a_rebound_page_cannot_read(
    node: FakeNode,
) -> None:
    made = Access()
    console = Console(node, made)
    async with serving(node, access=made, routes=console.routes) as port:
        csrf = (await ask(port, "/page")).text
        rebound = {"host": f"evil.test:{port}", "origin": f"http://evil.test:{port}"}
        assert (await ask(port, "/page", host=f"evil.test:{port}")).status == 403
        assert await act(port, csrf, **rebound) == 403
        assert await act(port, "") == 403
        assert (
            await ask(port, "/api/v1/drain/begin", "POST", **JSON, host=f"evil.test:{port}")
        ).status == 403
        assert not node.active
        assert await act(port, csrf) == 200
    assert console.done == [("anonymous", "it")]


async def test_a_login_from_a_page_of_another_site_begins_no_session(node: FakeNode) -> None:
    async with serving(node, access=tokens()) as port:
        form = urlencode({"token": ACTS}).encode()
        for foreign in ({"origin": "https://evil.test"}, {"sec_fetch_site": "cross-site"}):
            got = await ask(
                port, "/login", "POST", form, content_type="application/x-www-form-urlencoded", **foreign
            )
            assert (got.status, "set-cookie" in got.headers) == (403, False)


async def test_every_page_of_the_console_wants_a_session_and_every_form_its_csrf(node: FakeNode) -> None:
    made = tokens()
    # What a browser needs to log in: style and script have nothing of this node.
    pages = [
        route
        for route in console(node, made).routes()
        if isinstance(route, Route) and route.path not in UNGUARDED and "." not in route.path
    ]
    async with serving(node, access=made, routes=pages) as port:
        cookie, reader = cookie_of(await login(port, ACTS)), cookie_of(await login(port, LOOKS))
        session = made.who("", reader.partition("=")[2])
        forms = {"content_type": "application/x-www-form-urlencoded"}
        for route in pages:
            path = target(route)
            if "POST" in (route.methods or ()):
                for given, sent in (("", {}), ("x", {"cookie": cookie}), (session.csrf, {"cookie": reader})):
                    body = urlencode({"csrf": given}).encode()
                    got = await ask(port, path, "POST", body, **forms, **sent)
                    assert got.status in (401, 403), (path, given, got.status)
                continue
            for wrong in ({}, {"cookie": cookie[:-1]}):
                got = await ask(port, path, **wrong)
                led = got.status == 303 and got.raw_headers["location"].startswith("/login")
                assert led or got.status == 401, (path, got.status)
    assert len(pages) > 5
