"""The pages of the console over HTTP: what they show, what they refuse, and that hostile mail stays text."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest
from admin.admin_node import (
    MX2,
    NOW,
    FakeNode,
    Got,
    a_node,
    ask,
    attempted,
    fill,
    meet,
    message_id,
    received,
    serving,
    tls_result,
)
from starlette.requests import Request

from shadowrelay.admin.access import Access, FixedToken, cookie_name
from shadowrelay.admin.node import HopStatus
from shadowrelay.console import words
from shadowrelay.console.app import Console
from shadowrelay.console.site import zone_of
from shadowrelay.core.delivery import operated
from shadowrelay.core.delivery.settling import Ending
from shadowrelay.core.identifiers import RequestId
from shadowrelay.core.operating import By, Scope
from shadowrelay.database.views import MessageState
from shadowrelay.delivery.recent import RecentAttempt
from shadowrelay.operator.announcing import AnnouncementRefused, MemberShown
from shadowrelay.operator.resubmit_estimate import CannotDo

SECRET, LOOKING = "a secret of the operator", "a secret that may only look"
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
PAGES = ("/", "/queues", "/queues/outside", "/tls", "/messages", "/jobs", "/safety-net", "/node")
MEMBER = MemberShown(name=MX2, address="mx2:2526", site=HOSTILE, host="rack2", source="settings")


class ConsoleNode(FakeNode):
    """A node whose jobs do what the test says."""

    made: list[Any]
    wrong: tuple[str, ...] = ()
    refuses = ""

    @property
    def services(self) -> Any:
        found = super().services
        found.jobs = SimpleNamespace(preview=self._preview, add=self._add, all=self._jobs, show=self._job)
        found.suspensions = SimpleNamespace(all=self._suspensions, suspend=self._suspend)
        found.reloading = SimpleNamespace(own=self._own, everywhere=self._everywhere)
        found.announcing = SimpleNamespace(members=lambda: [MEMBER], take=self._take)
        return found

    async def _preview(self, wanted: Any, operator: str) -> dict[str, Any]:
        line = {"id": message_id(1), "subject": HOSTILE, "sender": HOSTILE, "received_at": None, "node": MX2}
        nodes = [{"node": self.name, "answers": True}, {"node": MX2, "answers": False}]
        return {"messages": 12, "whole": False, "nodes": nodes, "sample": [line]}

    async def _add(self, verb: Any, wanted: Any, operator: str, reason: str, **more: Any) -> dict[str, Any]:
        if self.refuses:
            raise CannotDo(self.refuses)
        self.made.append({"verb": verb, "filter": wanted, "operator": operator, "reason": reason, **more})
        return {"id": message_id(7)}

    async def _suspend(self, queue: str, operator: str, reason: str, until: Any) -> None:
        self.made.append({"queue": queue, "operator": operator, "reason": reason, "until": until})

    async def _own(self, *, dry_run: bool) -> dict[str, Any]:
        changes = [{"key": "queue_limit", "was": "1", "now": HOSTILE}]
        self.made += [] if dry_run else ["reload"]
        taken = not dry_run and not self.wrong
        told = {"taken": taken, "now": changes, "restart": [], "wrong": self.wrong, "warnings": []}
        return {"name": self.name, **told}

    async def _everywhere(self, operator: str, *, dry_run: bool) -> dict[str, Any]:
        own = {"node": self.name, "answers": True, "why": "", **await self._own(dry_run=dry_run)}
        alike = {**own, **dict.fromkeys(("node", "name"), f"w2.{self.name}")}
        other = {**own, "node": f"w3.{self.name}", "warnings": ["a file of its own"]}
        return {"nodes": [own, alike, other, {"node": MX2, "answers": False, "why": "it is silent"}]}

    async def _take(self, signed: str) -> None:
        if signed != "signed":
            raise AnnouncementRefused(f"it is not signed by the authority: {signed}")
        self.made.append("mx4")

    async def _jobs(self) -> list[dict[str, Any]]:
        return [await self._job(message_id(7), "")]

    async def _job(self, id_: str, operator: str) -> dict[str, Any]:
        counts = {"did": 3, "late": 0, "waiting": 0, "pending": 2}
        told = {"verb": "remove", "filter": {"subject": HOSTILE}, "operator": "o", "reason": HOSTILE}
        job = {"id": id_, "phase": "pending", "made_by": self.name, "made_at": None, "until": None}
        return {
            **job,
            **told,
            **counts,
            "nodes": [{"node": MX2, "has": True, "done": True, "why": "", **counts}],
        }

    async def _suspensions(self, operator: str) -> list[dict[str, Any]]:
        return []


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[ConsoleNode]:
    async with a_node(tmp_path) as found:
        made = ConsoleNode(found.database, found.room)
        made.made = []
        made.tls_results.note(tls_result(HOSTILE, "certificate-expired", testing=True))
        await fill(made, meet(MX2), received(1, MX2, subject=HOSTILE), received(2, None, "b@inside.test"))
        yield made


@asynccontextmanager
async def console(node: FakeNode, *tokens: FixedToken, audit: Path | None = None) -> AsyncIterator[int]:
    access = Access(tokens)
    pages = Console(node=node, access=access, clock=lambda: NOW, audit=audit)
    async with serving(node, access=access, console=pages) as port:
        yield port


async def post(port: int, path: str, fields: dict[str, str], **headers: str) -> Got:
    body = urlencode(fields).encode()
    return await ask(port, path, "POST", body, content_type="application/x-www-form-urlencoded", **headers)


async def logged_in(port: int, node: FakeNode, secret: str) -> str:
    got = await post(port, "/login", {"token": secret, "operator": "ann"})
    assert got.status == 303
    return got.raw_headers["set-cookie"].partition(";")[0]


def attributes(page: str) -> set[str]:
    found: set[str] = set()

    class Names(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.update(name for name, _ in attrs)

    Names().feed(page)
    return found


def csrf_of(page: Got) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', page.text)
    assert found
    return unescape(found[1])


@pytest.mark.parametrize("path", [*PAGES, f"/messages/{message_id(1)}", f"/jobs/{message_id(7)}"])
async def test_a_page_keeps_to_itself_and_shows_what_is_hostile_as_text(node: ConsoleNode, path: str):
    async with console(node) as port:
        page = await ask(port, path)
    assert page.status == 200, page.text
    policy = page.raw_headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "frame-ancestors 'none'" in policy
    assert page.headers["cache-control"] == "no-store"
    assert "<script>alert" not in page.text
    assert "<img src=x" not in page.text
    assert not {name for name in attributes(page.text) if name == "style" or name.startswith("on")}
    assert re.findall(r"<script[^>]*>", page.text) == [
        re.search(r'<script type="module" src="/static/[0-9a-f]{12}/console.js">', page.text)[0]  # type: ignore[index]
    ]


async def test_the_first_screen_says_that_a_message_has_one_copy_and_why(node: ConsoleNode):
    async with console(node) as port:
        page = await ask(port, "/")
    text = " ".join(page.text.split())
    assert "<h1>1 message has only one copy.</h1>" in text
    assert "mx1 has 1 message with one copy: a copy is being made." in text
    assert "mx2 keeps 1 copy of the mail of mx1." in text


async def test_a_queue_and_a_message_show_all_that_is_known(node: ConsoleNode):
    async with console(node) as port:
        queues = await ask(port, "/queues?sort=-oldest")
        none = await ask(port, "/queues?named=nowhere")
        message = await ask(port, f"/messages/{message_id(2)}")
        found = await ask(port, "/messages?q=b@inside.test")
    assert queues.text.index("/queues/inside") < queues.text.index("/queues/outside")
    assert "No queue matches" in none.text
    assert "b@inside.test" in message.text
    assert "It owns the message, and no other member has a copy." in message.text
    assert f"/messages/{message_id(2)}" in found.text
    assert f"/messages/{message_id(1)}" not in found.text


async def test_a_message_that_nobody_knows_is_a_page_that_says_so(node: ConsoleNode):
    async with console(node) as port:
        page = await ask(port, f"/messages/{message_id(77)}")
        wrong = await ask(port, "/messages?state=lost")
    assert (page.status, wrong.status) == (404, 400)
    assert "No member that answers knows a message that is called" in page.text
    assert "<h1>Not found</h1>" in page.text


async def test_who_has_no_session_is_asked_to_log_in_and_comes_back_to_the_page(node: ConsoleNode):
    async with console(node, FixedToken(SECRET)) as port:
        page = await ask(port, "/queues?sort=oldest")
        assert page.status == 401
        assert 'name="next" value="/queues?sort=oldest"' in page.text
        wrong = await post(port, "/login", {"token": "a wrong one, long enough"})
        assert (wrong.status, "This token is not one" in wrong.text) == (401, True)
        right = await post(port, "/login", {"token": SECRET, "next": "/queues?sort=oldest"})
        assert (right.status, right.raw_headers["location"]) == (303, "/queues?sort=oldest")
        assert "samesite=strict" in right.headers["set-cookie"]
        assert "httponly" in right.headers["set-cookie"]
        cookie = right.raw_headers["set-cookie"].partition(";")[0]
        assert cookie.startswith(cookie_name(node.name))
        assert (await ask(port, "/queues", cookie=cookie)).status == 200


async def test_a_token_that_may_look_sees_no_form_that_changes_and_may_send_none(node: ConsoleNode):
    reader = FixedToken(LOOKING, "ben", Scope.READ, shared=False)
    async with console(node, FixedToken(SECRET), reader) as port:
        cookie = await logged_in(port, node, LOOKING)
        for path in (*PAGES, f"/messages/{message_id(1)}", f"/jobs/{message_id(7)}"):
            page = await ask(port, path, cookie=cookie)
            assert page.status == 200
            forms = re.findall(r"<form[^>]*>", page.text)
            assert all('action="/logout"' in one for one in forms if 'method="post"' in one), path
            assert "data-inline" not in page.text, path
        asked = await ask(port, "/act?verb=remove&queue=outside", cookie=cookie)
        csrf = csrf_of(await ask(port, "/", cookie=cookie))
        given = {"verb": "remove", "queue": "outside", "reason": "r", "csrf": csrf}
        sent = await post(port, "/act", given, cookie=cookie)
    assert (asked.status, sent.status, node.made) == (403, 403, [])


async def test_an_act_shows_count_and_sample_then_asks_for_a_reason_and_becomes_a_job(node: ConsoleNode):
    async with console(node, FixedToken(SECRET)) as port:
        cookie = await logged_in(port, node, SECRET)
        asked = await ask(port, "/act?verb=remove&queue=outside&of=queue&back=/queues/outside", cookie=cookie)
        assert "Remove 12 messages?" in asked.text
        assert "mx2</strong> does not answer" in asked.text
        assert "These are 1 of 12" in asked.text
        assert asked.text.count('method="post"') == asked.text.count('name="csrf"')
        given = {"verb": "remove", "queue": "outside", "back": "/queues/outside", "csrf": csrf_of(asked)}
        without = await post(port, "/act", given, cookie=cookie)
        assert (without.status, "Give a reason" in without.text) == (400, True)
        given |= {"reason": "spam of today", "with_report": "yes"}
        forged = await post(port, "/act", {**given, "csrf": "x" * 43}, cookie=cookie)
        assert (forged.status, node.made) == (403, [])
        done = await post(port, "/act", given, cookie=cookie)
        assert (done.status, done.raw_headers["location"]) == (303, f"/jobs/{message_id(7)}")
    (made,) = node.made
    assert (made["verb"], made["operator"], made["reason"]) == ("remove", "ann", "spam of today")
    assert (made["filter"].queue, made["with_report"]) == ("outside", True)


async def test_a_refused_act_says_why_beside_its_button_and_keeps_what_was_typed(node: ConsoleNode):
    node.refuses = "too many jobs are on record"
    async with console(node) as port:
        asked = await ask(port, f"/act?verb=bounce&id={message_id(1)}&id={message_id(2)}")
        ids = f"{message_id(1)},{message_id(2)}"
        given = {"verb": "bounce", "ids": ids, "reason": HOSTILE, "csrf": csrf_of(asked)}
        page = await post(port, "/act", given)
    assert page.status == 409
    assert re.search(
        r'<button class="danger">.*?role="alert"[^>]*>Too many jobs are on record\.', page.text, re.S
    )
    assert unescape(re.search(r'name="reason" value="([^"]*)"', page.text)[1]) == HOSTILE  # type: ignore[index]
    assert f'name="ids" value="{ids}"' in page.text


async def test_the_queue_as_a_whole_is_suspended_until_then(node: ConsoleNode):
    async with console(node) as port:
        asked = await ask(port, "/act?verb=suspend&queue=outside&of=queue&back=/queues/outside")
        assert "Suspend the queue outside?" in asked.text
        given = {"verb": "suspend", "queue": "outside", "of": "queue", "back": "/queues/outside"}
        given |= {"csrf": csrf_of(asked), "reason": "they move house"}
        wrong = await post(port, "/act", {**given, "until": "soon"})
        assert (wrong.status, "until is a duration such as" in wrong.text) == (400, True)
        done = await post(port, "/act", {**given, "until": "2h"})
    assert (done.status, done.raw_headers["location"]) == (303, "/queues/outside")
    assert node.made[0]["queue"] == "outside"
    assert (node.made[0]["until"] - NOW).total_seconds() == 7200


async def test_another_sites_name_for_this_node_and_another_sites_form_are_refused(node: ConsoleNode):
    async with console(node) as port:
        rebound = await ask(port, "/", host="attacker.example:80")
        csrf = csrf_of(await ask(port, "/act?verb=retry&queue=outside"))
        given = {"verb": "retry", "queue": "outside", "reason": "r", "csrf": csrf}
        foreign = await post(port, "/act", given, origin="http://attacker.example")
    assert (rebound.status, foreign.status, node.made) == (403, 403, [])


async def test_what_is_asked_for_with_the_header_of_the_script_has_no_frame(node: ConsoleNode):
    async with console(node) as port:
        whole, parts = await ask(port, "/queues"), await ask(port, "/queues", x_fragments="1")
        script = re.search(r'src="(/static/[^"]+console\.js)"', whole.text)
        assert script
        file = await ask(port, script[1])
    assert 'id="queues"' in parts.text
    assert "<nav aria-label" not in parts.text
    assert "immutable" in file.headers["cache-control"]
    assert file.headers["content-type"].startswith("text/javascript")
    assert len(file.text.splitlines()) <= 240


async def test_a_node_is_drained_and_takes_mail_again_from_its_page(node: ConsoleNode):
    async with console(node) as port:
        page = await ask(port, "/node")
        assert 'action="/node/drain"' in page.text
        asked = await ask(port, "/node/drain")
        assert "Drain mx1?" in asked.text
        forged = await post(port, "/node/drain", {"csrf": "x" * 43})
        assert (forged.status, node.active) == (403, False)
        done = await post(port, "/node/drain", {"csrf": csrf_of(asked)})
        assert (done.status, done.raw_headers["location"], node.active) == (303, "/node", True)
        drained = await ask(port, "/node")
        assert 'action="/node/undrain"' in drained.text
        assert "Handed over to mx2" in drained.text
        again = await ask(port, "/node/undrain")
        await post(port, "/node/undrain", {"csrf": csrf_of(again)})
    assert not node.active


async def test_a_reload_shows_first_what_it_changes_and_then_why_it_is_refused(node: ConsoleNode):
    async with console(node) as port:
        asked = await ask(port, "/node/reload?of=all")
        assert "Changes now" in asked.text
        assert "queue_limit" in asked.text
        assert "It does not answer: it is silent" in asked.text
        assert re.findall("<h3>([^<]*)</h3>", asked.text) == ["mx1", "w3.mx1", "mx2"]
        assert node.made == []
        own = await ask(port, "/node/reload")
        node.wrong = ("queue_limit is a number",)
        refused = await post(port, "/node/reload", {"csrf": csrf_of(own)})
        assert (refused.status, "Not taken by mx1" in refused.text) == (409, True)
        assert "queue_limit is a number" in refused.text
        node.wrong = ()
        done = await post(port, "/node/reload", {"csrf": csrf_of(own)})
    assert (done.status, done.raw_headers["location"]) == (303, "/node")


async def test_an_announcement_that_is_refused_says_why_and_stays_in_its_field(node: ConsoleNode):
    async with console(node) as port:
        csrf = csrf_of(await ask(port, "/node/announce"))
        nothing = await post(port, "/node/announce", {"csrf": csrf, "signed": " "})
        assert (nothing.status, "Paste the announcement" in nothing.text) == (400, True)
        forged = await post(port, "/node/announce", {"csrf": csrf, "signed": HOSTILE})
        assert (forged.status, "It is not taken" in forged.text) == (409, True)
        kept = re.search(r"<textarea[^>]*>([^<]*)</textarea>", forged.text)
        assert kept
        assert unescape(kept[1]) == HOSTILE
        done = await post(port, "/node/announce", {"csrf": csrf, "signed": "signed"})
    assert (done.status, node.made) == (303, ["mx4"])


async def test_a_suspended_message_is_marked_in_lists_and_on_its_page(node: ConsoleNode):
    by = By("ann", "look at it first", RequestId(message_id(7)))
    await fill(node, lambda ledger: ledger.apply(operated.suspend(ledger, message_id(2), None, by, NOW)))
    mark = '<span class="state suspended">suspended</span>'
    async with console(node) as port:
        queued = await ask(port, "/messages")
        found = await ask(port, "/messages?q=b@inside.test")
        other = await ask(port, "/messages?q=id:" + message_id(1))
        page = await ask(port, f"/messages/{message_id(2)}")
    assert [one.text.count(mark) for one in (queued, found, other)] == [1, 1, 0]
    assert page.text.count(mark) == 2
    assert "until it is resumed" in page.text


@pytest.mark.parametrize(
    ("told", "shown", "bad"),
    [
        ({"verdict": "proven", "sentence": "Nothing is lost <b>."}, "Nothing is lost &lt;b&gt;.", False),
        ({"verdict": "lost", "sentence": "2 messages are lost."}, "2 messages are lost.", True),
        ("no verdict", "the file is no verdict", True),
        (None, "none given", False),
    ],
)
async def test_the_first_screen_shows_the_last_audit(
    node: ConsoleNode, tmp_path: Path, told: object, shown: str, bad: bool
):
    file = tmp_path / "verdict.json"
    if told:
        file.write_text(json.dumps(told))
    async with console(node, audit=file) as port:
        page = await ask(port, "/")
    figure = re.search(r'<div class="(\w*)"><dt>Last audit</dt><dd class="words">([^<]*)', page.text)
    assert figure
    assert (figure[2], figure[1] == "bad") == (shown, bad)


@pytest.mark.parametrize("state", [*MessageState])
async def test_a_state_without_mail_says_where_mail_is(node: ConsoleNode, state: MessageState):
    async with console(node) as port:
        page = await ask(port, f"/messages?state={state.value}&sort=received")
    assert page.status == 200, page.text
    if 'class="empty"' in page.text:
        assert 'Of other mail there is: <a href="/messages?state=queued">Queued 2</a>' in page.text
    else:
        assert state in (MessageState.QUEUED, MessageState.EXPOSED, MessageState.AT_RISK)


async def test_the_page_of_a_queue_has_its_rate_its_last_reply_and_attempts_that_are_alike_once(
    node: ConsoleNode,
):
    node.hops["outside"] = HopStatus(
        sessions=1, places=40, limit="a limit", rate=12, last_reply="451 4.7.1 later", last_reply_at=NOW
    )
    node.attempted = [
        RecentAttempt(
            at=NOW,
            message=message_id(1),
            host="mx.test:25",
            outcome="deferred",
            reply=f"451 4.7.1 later {number}",
            seconds=0.1,
        )
        for number in range(5)
    ]
    async with console(node) as port:
        listed, one = await ask(port, "/queues"), await ask(port, "/queues/outside")
    assert '<td data-name="Taken in the last minute" class="number">12</td>' in listed.text
    assert "Last reply 0 s ago: 451 4.7.1 later" in listed.text
    assert one.text.count("<b>deferred</b>") == 1
    assert '<small class="times">5 times</small>' in one.text


@pytest.mark.parametrize(
    ("cookie", "shown"),
    [
        ("", "10:58:00 UTC"),
        ("shadowrelay-zone=UTC", "10:58:00 UTC"),
        ("shadowrelay-zone=Europe/Berlin", "11:58:00 CET"),
        ("shadowrelay-zone=../../etc/passwd", "10:58:00 UTC"),
        ("shadowrelay-zone=Nowhere/Land", "10:58:00 UTC"),
    ],
)
def test_times_are_in_the_zone_of_who_reads(cookie: str, shown: str):
    assert words.clock("2026-11-21T10:58:00.000Z", NOW, zone_of(request_with(cookie))) == shown


def request_with(cookie: str) -> Request:
    headers = [(b"cookie", cookie.encode())] if cookie else []
    return Request({"type": "http", "method": "GET", "path": "/", "headers": headers})


async def test_a_field_of_a_form_comes_back_as_it_was(node: ConsoleNode):
    """What is made readable in it would mean other mail than the list that it stands above."""
    odd = "foo\u00a0bar\u200b"
    async with console(node) as port:
        page = await ask(port, "/messages?" + urlencode({"subject": odd}))
    assert f'value="{odd}"' in page.text


async def test_safety_net_is_turned_by_the_heading_of_its_age_and_a_search_says_its_order(node: ConsoleNode):
    for number in (11, 12):
        await fill(node, received(number, MX2), attempted(number, Ending.ACCEPTED, "250 ok"))
    async with console(node) as port:
        orders = []
        for sort in ("", "&sort=-received"):
            page = (await ask(port, f"/messages?state=safety_net{sort}")).text
            orders.append(re.findall(r'id="m-([^"]+)"', page))
            assert "by subject" not in page
            assert "newest first" in page
        (heading,) = re.findall(r'aria-sort="descending"><a href="([^"]+)">Age', page)
        assert sorted(unescape(heading).partition("?")[2].split("&")) == ["sort=received", "state=safety_net"]
        found = (await ask(port, "/messages?q=bob@example.net")).text
    assert orders == [[message_id(11), message_id(12)], [message_id(12), message_id(11)]]
    assert "on this page, the newest first" in found
