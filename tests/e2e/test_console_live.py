"""The console of a real cluster in a real browser: seen live, acted in, without scripts, and by axe-core."""

from __future__ import annotations

import re
import smtplib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from running_lab import INSIDE, OUTSIDE, RunningLab, wait_until

from shadowlab.layout import MAILBOX

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = Path("/usr/bin/chromium")

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="no Chromium"),
]
expect = playwright.expect
expect.set_options(timeout=20_000)
MANY = 10_000
LOOKED_AT = (
    "/",
    "/queues",
    "/queues/outside",
    "/messages",
    "/messages?state=shadow&sort=-attempts",
    "/messages?q=spam",
    "/node",
)
PATIENCE = 20_000  # milliseconds; only a failing test waits that long
SLOW_RETRY = (
    "transient_failure_retry_interval=5m",
    "queue_glitch_retry_interval=5m",
    "outbound_connection_failure_retry_interval=5m",
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def browsing(chromium: Any, lab: RunningLab, **options: Any) -> Iterator[Any]:
    """A page of mx1's console. No error may show in the browser's console: the policy for content holds."""
    context = chromium.new_context(base_url=lab.cluster.node("mx1").admin, **options)
    page, wrong = context.new_page(), []
    page.set_default_timeout(PATIENCE)
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    yield page
    context.close()
    assert [one for one in wrong if "409" not in one and "400" not in one] == []


def act(page: Any, verbs: str, verb: str, reason: str) -> None:
    """Press the button, give the reason where the question appears, and confirm."""
    page.locator(f"#{verbs}").get_by_role("button", name=verb).click()
    question = page.locator("#act")
    question.get_by_label("Reason").fill(reason)
    question.get_by_role("button", name=re.compile(verb)).click()


def test_mail_a_dead_node_and_the_promotion_are_seen_live(lab: RunningLab, chromium: Any):
    lab.up(*SLOW_RETRY, nodes=3)
    lab.cluster.refuse()
    with browsing(chromium, lab) as page:
        page.goto("/")
        heading = page.locator("#verdict h1")
        expect(heading).to_have_text("Every message is safe.")
        lab.send(8, to="mx2")
        expect(page.locator("#figures")).to_contain_text(re.compile(r"Queued\s*8"), timeout=PATIENCE)
        lab.send(5, to="mx1")
        expect(page.locator("#rates .accepted p").first).to_contain_text("5 in all", timeout=PATIENCE)
        lab.cluster.kill("mx2")
        expect(page.locator("#verdict")).to_contain_text("mx2 does not answer", timeout=PATIENCE)
        expect(page.locator(".members.is-wide .member.away")).to_contain_text("mx2", timeout=PATIENCE)
        wait_until(lambda: lab.queued("mx1") + lab.queued("mx3") == 13, "what it owned is promoted")
        expect(page.locator("#lately")).to_contain_text("promoted", timeout=PATIENCE)
        expect(page.locator("#figures")).to_contain_text(re.compile(r"Queued\s*13"), timeout=PATIENCE)
        lab.cluster.start("mx2")
        expect(page.locator(".members.is-wide .member.away")).to_have_count(0, timeout=PATIENCE)
        expect(heading).to_have_text("Every message is safe.", timeout=PATIENCE)
    lab.cluster.accept()


def test_a_queue_is_suspended_resumed_and_retried_and_mail_is_removed_by_filter(
    lab: RunningLab, chromium: Any
):
    lab.up(*SLOW_RETRY, nodes=3)
    lab.cluster.kill(MAILBOX)
    for name in ("mx1", "mx2"):
        lab.send(150, to=name, recipients=("spam@outside.test",))
    lab.acknowledged.clear()  # nobody is owed them: they are removed
    lab.send(4, to="mx1", recipients=(OUTSIDE,))
    with browsing(chromium, lab) as page:
        page.goto("/queues")
        page.get_by_role("link", name="outside", exact=True).click()
        page.locator("#queue-verbs").get_by_role("button", name="Suspend").click()
        question = page.locator("#act")
        expect(question).to_contain_text("Suspend the queue outside?")
        question.get_by_label("Reason").fill("they move house")
        question.get_by_label("Until").fill("soon")
        question.get_by_role("button", name="Suspend").click()
        expect(question.get_by_role("alert")).to_contain_text("until is a duration")
        expect(question.get_by_label("Reason")).to_have_value("they move house")
        question.get_by_label("Until").fill("2h")
        question.get_by_role("button", name="Suspend").click()
        expect(page.locator("#queue")).to_contain_text("they move house")
        page.goto("/messages?recipient=spam@outside.test")
        expect(page.locator("#messages")).to_contain_text("300 messages match")
        act(page, "filter-verbs", "Remove", "spam of today")
        page.wait_for_url(re.compile("/jobs/"))
        expect(page.locator("#job")).to_contain_text("300 messages", timeout=3 * PATIENCE)
        expect(page.locator("#job .state").first).to_have_text("done", timeout=3 * PATIENCE)
        assert lab.queued("mx1") + lab.queued("mx2") + lab.queued("mx3") == 4
        lab.cluster.start(MAILBOX)
        page.goto("/queues/outside")
        act(page, "queue-verbs", "Resume", "they have moved")
        expect(page.locator("#queue")).not_to_contain_text("they move house", timeout=PATIENCE)
        if lab.queued("mx1"):  # tried before the queue was suspended: for certain in the next test
            act(page, "queue-verbs", "Retry", "they answer again")
            page.wait_for_url(re.compile("/jobs/"))
        wait_until(lambda: lab.queued("mx1") == 0, "what was left is delivered")
    lab.verify()


def test_mail_that_waits_for_its_next_attempt_is_tried_at_once(lab: RunningLab, chromium: Any):
    lab.up(*SLOW_RETRY, nodes=2)
    lab.cluster.refuse()
    lab.send(3, recipients=(OUTSIDE,))
    wait_until(lambda: len(lab.events("mx1", "DEFER")) == 3, "each was tried once")
    lab.cluster.accept()
    assert lab.queued("mx1") == 3
    with browsing(chromium, lab) as page:
        page.goto("/queues/outside")
        act(page, "queue-verbs", "Retry", "they answer again")
        page.wait_for_url(re.compile("/jobs/"))
        expect(page.locator("#job")).to_contain_text("3 messages")
    lab.settle()
    wait_until(
        lambda: len([row for row in lab.events("mx1", "RETRY") if row["network-message-id"]]) == 3,
        "each is in the log",
    )


FOCUSED = """() => {
    const one = document.activeElement, name = one.innerText || one.id;
    return [name.split("\\n")[0].trim(), getComputedStyle(one).outlineStyle];
}"""


def test_a_queue_is_suspended_with_the_keyboard_alone(lab: RunningLab, chromium: Any):
    lab.up(*SLOW_RETRY, nodes=2)
    lab.cluster.refuse()
    lab.send(1, recipients=(OUTSIDE,))
    with browsing(chromium, lab) as page:
        page.goto("/queues/outside")
        walked = []
        while "Suspend" not in walked and len(walked) < 30:
            page.keyboard.press("Tab")
            name, outline = page.evaluate(FOCUSED)
            assert outline != "none", name
            walked.append(name)
        nav = ["Overview", "Queues", "Messages", "Jobs", "Safety Net", "Node"]
        assert walked == ["To the content", "mx1", *nav, "find", "Queues", "Retry", "Suspend"]
        page.keyboard.press("Enter")
        reason = page.locator("#act").get_by_label("Reason")
        expect(reason).to_be_focused()
        page.keyboard.type("they move house")
        page.keyboard.press("Tab")
        page.keyboard.type("soon")
        page.keyboard.press("Enter")
        expect(page.locator("#act").get_by_role("alert")).to_contain_text("until is a duration")
        expect(reason).to_be_focused()
        expect(reason).to_have_value("they move house")
        for _ in range(3):
            page.keyboard.press("Tab")
        assert page.evaluate(FOCUSED)[0] == "Cancel"
        page.keyboard.press("Enter")
        expect(page.locator("#act")).to_have_count(0)
        expect(page.locator("#queue-verbs").get_by_role("button", name="Retry")).to_be_focused()
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(reason).to_be_focused()
        page.keyboard.type("they move house")
        page.keyboard.press("Enter")
        expect(page.locator("#queue")).to_contain_text("they move house")
        page.keyboard.press("g")
        page.keyboard.press("n")
        page.wait_for_url(re.compile("/node$"))
    lab.cluster.accept()


def test_ten_thousand_messages_are_listed_found_and_removed_by_filter(lab: RunningLab, chromium: Any):
    lab.up(*SLOW_RETRY, nodes=3)
    lab.cluster.refuse()
    with ThreadPoolExecutor(8) as clients:
        list(clients.map(lambda name: flood(lab, name, MANY // 8), 4 * ("mx1", "mx2")))
    lab.send(3, recipients=(OUTSIDE,))
    with browsing(chromium, lab) as page:
        page.goto("/messages?sort=-subject")
        messages = page.locator("#messages")
        expect(messages).to_contain_text("10\u202f003 messages", timeout=3 * PATIENCE)
        first = ids_of(page)
        page.get_by_role("link", name="Next page").click()
        expect(page.get_by_role("link", name="Previous page")).to_be_visible()
        assert not set(first) & set(ids_of(page))
        page.get_by_role("link", name="Previous page").click()
        expect(page.locator(f"#m-{first[0]}")).to_be_visible()
        assert ids_of(page) == first
        page.get_by_label("Choose all on this page").check()
        expect(page.locator("td.choose input:checked")).to_have_count(50)
        page.locator("#find").press_sequentially("grüße 77")
        page.wait_for_url(re.compile("q=gr"))
        expect(messages.locator("tbody th a").first).to_contain_text(
            re.compile(r"Grüße \d*77"), timeout=3 * PATIENCE
        )
        expect(page.locator("#find")).to_be_focused()
        for size in (360, 1280):
            page.set_viewport_size({"width": size, "height": 900})
            for path in LOOKED_AT:
                page.goto(path)
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (path, size)
        page.goto("/messages?sender=*@spam.test")
        expect(messages).to_contain_text("10\u202f000 messages match", timeout=3 * PATIENCE)
        act(page, "filter-verbs", "Remove", "spam of today")
        page.wait_for_url(re.compile("/jobs/"))
        expect(page.locator("#job .state").first).to_have_text("done", timeout=9 * PATIENCE)
        expect(page.locator("#job")).to_contain_text("10\u202f000 messages")
    assert sum(lab.queued(name) for name in ("mx1", "mx2", "mx3")) == 3
    lab.cluster.accept()


def ids_of(page: Any) -> list[str]:
    """The messages on a page of a list."""
    return [one.get_attribute("id").removeprefix("m-") for one in page.locator("#messages tbody th a").all()]


def flood(lab: RunningLab, name: str, count: int) -> None:
    host, port = lab.cluster.node(name).smtp
    with smtplib.SMTP(host, port) as server:
        for number in range(count):
            subject = f"=?utf-8?Q?Gr=C3=BC=C3=9Fe_{number}?="
            server.sendmail("win@spam.test", [OUTSIDE], f"Subject: {subject}\r\n\r\nbuy\r\n")


def test_a_member_is_drained_and_takes_mail_again_from_the_console_of_another(lab: RunningLab, chromium: Any):
    lab.up(nodes=2)
    with browsing(chromium, lab) as page:
        page.goto("/node")
        page.get_by_role("navigation", name="Nodes").get_by_role("link", name="mx2").click()
        expect(page.locator("h1")).to_have_text("mx2")
        expect(page.locator("#runs")).to_contain_text("Free on its disk")
        for button, confirm, draining in (
            ("Drain", "Drain mx2", True),
            ("Take mail again", "Take mail again", False),
        ):
            page.locator("#drain-verbs").get_by_role("button", name=button).click()
            page.locator("#act").get_by_role("button", name=confirm).click()
            said = "It is empty" if draining else "It takes mail."
            expect(page.locator("#service")).to_contain_text(said, timeout=3 * PATIENCE)
            assert lab.status("mx2").drained is draining


def test_a_resubmit_request_brings_mail_back(lab: RunningLab, chromium: Any):
    lab.up("resubmit_overlap=10m", nodes=2)
    lab.send(3, recipients=(INSIDE,))
    lab.settle()
    with browsing(chromium, lab) as page:
        page.goto("/safety-net")
        page.get_by_label("To the route or server").fill("inside")
        page.get_by_role("button", name="See what would come back").click()
        question = page.locator("#act")
        expect(question).to_contain_text("Send 3 messages again?")
        question.get_by_label("Reason").fill("its disk is lost")
        question.get_by_role("button", name="Send 3 messages again").click()
        expect(page.locator("#safety-net")).to_contain_text("its disk is lost")
        wait_until(lambda: len(lab.events("mx1", "RESUBMIT")) == 3, "it is sent again")
        expect(page.locator("#safety-net td[data-name='Sent again']")).to_have_text("3", timeout=PATIENCE)


def test_without_scripts_everything_works_by_forms_and_links(lab: RunningLab, chromium: Any):
    lab.up(*SLOW_RETRY, nodes=2)
    lab.cluster.refuse()
    lab.send(2, recipients=(OUTSIDE,))
    with browsing(chromium, lab, java_script_enabled=False) as page:
        page.goto("/")
        expect(page.locator("#verdict h1")).to_have_text("Every message is safe.")
        page.get_by_label("Find a message").fill(OUTSIDE)
        page.get_by_label("Find a message").press("Enter")
        expect(page.locator("#messages tbody tr")).to_have_count(2)
        page.locator("#messages th a").first.click()
        expect(page.locator("#timeline")).to_be_visible()
        page.locator("#message-verbs").get_by_role("button", name="Suspend").click()
        page.get_by_label("Until").fill("soon")
        page.get_by_label("Reason").fill("look at it first")
        page.get_by_role("button", name="Suspend 1 message").click()
        expect(page.get_by_role("alert")).to_contain_text("until is a duration")
        expect(page.get_by_label("Reason")).to_have_value("look at it first")
        page.get_by_label("Until").fill("")
        page.get_by_role("button", name="Suspend 1 message").click()
        expect(page.locator("h1")).to_contain_text("Suspend message")
    lab.cluster.accept()


READ_BY_AXE = (
    *("/", "/queues", "/queues/outside", "/messages", "/messages?q=outside.test&filtered=1"),
    *("/messages?state=at_risk", "/messages?state=in_doubt", "/messages?state=safety_net"),
    *("/messages?sort=-reason", "/messages?recipient=*@outside.test", "/messages/nothing", "/jobs"),
    *("/safety-net", "/node", "/nodes/mx2.lab.test", "/nodes/mx3.lab.test"),
    *("/node/reload?of=all", "/node/announce", "/node/drain"),
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_on_any_page(lab: RunningLab, chromium: Any, scheme: str):
    lab.up(*SLOW_RETRY, nodes=3, workers=2)
    lab.cluster.refuse()
    lab.send(9, to="mx3", recipients=(OUTSIDE, INSIDE))
    lab.send(3, recipients=(OUTSIDE, INSIDE))
    lab.cluster.kill("mx3")
    lab.cluster.wipe("mx3")
    found = lab.ids("mx1")[0]
    with browsing(chromium, lab) as page:
        page.goto("/")
        expect(page.locator("#verdict h1")).to_contain_text(
            "one copy that can be reached", timeout=3 * PATIENCE
        )
        page.goto("/queues/outside")
        act(page, "queue-verbs", "Suspend", "they move house")
        expect(page.locator("#queue")).to_contain_text("they move house")
        page.goto(f"/messages/{found}")
        act(page, "message-verbs", "Suspend", "for axe")
        page.wait_for_url(re.compile("/jobs/"))
        job = page.url
    paths = (*READ_BY_AXE, job, f"/messages/{found}", f"/act?verb=remove&id={found}")
    assert serious(chromium, lab, scheme, paths) == []
    lab.cluster.accept()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_at_a_node_without_mail_and_before_the_login(
    lab: RunningLab, chromium: Any, scheme: str
):
    lab.up(nodes=1)
    assert serious(chromium, lab, scheme, READ_BY_AXE) == []
    lab.cluster.down()
    lab.up("admin.token=a-token-of-the-lab-for-axe", nodes=1)
    assert serious(chromium, lab, scheme, ("/", "/login?next=/queues")) == []


def serious(chromium: Any, lab: RunningLab, scheme: str, paths: Iterable[str]) -> list[Any]:
    """What axe finds on these pages of mx1, on a desk and on a phone. No page is wider than its window."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = []
    for size in ({"width": 1280, "height": 900}, {"width": 360, "height": 780}):
        context = chromium.new_context(
            base_url=lab.cluster.node("mx1").admin, viewport=size, color_scheme=scheme
        )
        page = context.new_page()
        for path in paths:
            page.goto(path)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (path, size)
            for one in axe.run(page).response["violations"]:
                if one["impact"] in ("serious", "critical"):
                    nodes = [(node["html"][:150], node["failureSummary"][:200]) for node in one["nodes"][:3]]
                    found.append((path, size["width"], one["id"], nodes))
        context.close()
    return found
