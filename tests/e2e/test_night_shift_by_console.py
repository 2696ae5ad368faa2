"""The night shift (docs/how-to/night-shift.md) in the console: each task in a real browser, on a lab."""

from __future__ import annotations

import re
import smtplib
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from console_steps import Walker, console_tasks
from running_lab import INSIDE, OUTSIDE, RunningLab, wait_until

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = Path("/usr/bin/chromium")
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "night-shift.md"
SPAM = 200
expect = playwright.expect

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="no Chromium"),
]


def test_each_task_has_at_most_two_steps_in_the_console():
    found = console_tasks(PAGE)
    assert sorted(found) == list(range(1, 11))
    assert all(1 <= len(one.steps) <= 2 for one in found.values())


def certificate(server: tuple[str, int]) -> bytes:
    """What a node shows to senders."""
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    with smtplib.SMTP(*server) as client:
        client.starttls(context=anybody)
        found = client.sock.getpeercert(binary_form=True)
    assert found
    return found


def shadowrelay(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "shadowrelay", *arguments], check=True, capture_output=True)


@pytest.mark.parametrize(("at", "workers"), [("mx1", 1), ("mx2", 2)])
def test_an_operator_does_the_ten_tasks_in_the_console(
    lab: RunningLab, tmp_path: Path, at: str, workers: int
):
    """At the owner of the mail, and at a node without a copy, with several workers each."""
    slow = ("transient_failure_retry_interval", "queue_glitch_retry_interval")
    intervals = (f"{one}=5m" for one in slow)
    slow_hop = "outbound_connection_failure_retry_interval=5m"
    lab.up(*intervals, slow_hop, *lab.with_tls(), workers=workers)
    nodes = [lab.cluster.node(name) for name in ("mx1", "mx2", "mx3")]
    lab.cluster.refuse()
    lab.send(2)
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(base_url=lab.cluster.node(at).admin)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.goto("/")
        walk = Walker(page, console_tasks(PAGE))

        def queued() -> int:
            return sum(lab.queued(node.short) for node in nodes)

        def done(opened: object) -> None:
            walk.send(opened)
            page.wait_for_url(re.compile("/jobs/"))

        walk.begin(1)
        walk.step(1, text=INSIDE)
        expect(page.locator("#messages tbody tr")).to_have_count(2)
        subject = page.locator("#messages th a").first.inner_text()
        walk.step(2, 0, link=subject)
        expect(page.locator("#timeline")).to_be_visible()
        walk.step(2, 1)
        expect(page.locator("#queue")).to_contain_text("Last reply")
        queue = page.url

        lab.cluster.accept()
        done(walk.step(3, Reason="the mailbox server is back"))
        wait_until(lambda: queued() == 0, "what waited is delivered")

        lab.cluster.refuse()
        page.goto(queue)
        walk.send(walk.step(4, 0, Reason="the mailbox server drops mail"))
        expect(page.locator("#queue")).to_contain_text("Suspended by")
        lab.send(1)
        lab.cluster.accept()
        walk.send(walk.step(4, 1, Reason="it is repaired"))
        wait_until(lambda: queued() == 0, "what was held is delivered")

        lab.cluster.refuse()
        lab.send(SPAM, to="mx2", recipients=(OUTSIDE,))
        lab.acknowledged = [one for one in lab.acknowledged if OUTSIDE not in one.recipients]
        walk.begin(5)
        walk.step(5, 0, To="*@outside.test")
        expect(page.locator("#messages")).to_contain_text(f"{SPAM} messages match")
        done(walk.step(5, 1, Reason="spam"))
        wait_until(lambda: queued() == 0, "the spam is gone")
        lab.cluster.accept()

        walk.begin(6)
        walk.send(walk.step(6, 0))
        expect(page.locator("#service")).to_contain_text("draining")
        assert not lab.offer(to=at, recipients=(INSIDE,))
        walk.send(walk.step(6, 1))
        expect(page.locator("#service")).to_contain_text("It takes mail")

        walk.begin(7)
        walk.step(7, 0, To_the_route_or_server="inside")
        walk.send(walk.step(7, 1, Reason="mailbox restored"))
        expect(page.locator("#safety-net")).to_contain_text("mailbox restored")
        wait_until(lambda: sum(len(lab.events(one.short, "RESUBMIT")) for one in nodes) == 3, "mail is back")

        authority, certificates = str(lab.cluster.layout.authority), str(nodes[0].config.parent)
        shadowrelay("ca", "issue", nodes[0].name, "--dir", authority, "--out", certificates, "--force")
        walk.begin(8)
        opened = walk.step(8)
        expect(opened).to_contain_text("no setting changes")
        walk.send(opened)
        expect(page.locator("#act")).to_have_count(0)  # the page is there again: the reload is done
        file = nodes[0].config.parent / f"{nodes[0].name}.pem"
        assert certificate(nodes[0].smtp) == ssl.PEM_cert_to_DER_cert(file.read_text().partition("\n\n")[0])

        text = nodes[0].config.read_text("utf-8")
        nodes[0].config.write_text(text.replace('"outside.test",', '"outside.test",\n    "new.test",'))
        walk.begin(9)
        opened = walk.step(9)
        expect(opened).to_contain_text("new.test")
        walk.send(opened)
        expect(page.locator("#act")).to_have_count(0)
        assert any(one["now"] for one in lab.said("mx1", "reloaded"))

        out, peer = tmp_path / "new", f"{nodes[0].peer[0]}:{nodes[0].peer[1]}"
        like = ("--like", str(nodes[0].config), "--like-address", peer)
        shadowrelay(
            *("member", "add", "mx4.lab.test", "--address", "127.0.0.1:2599", "--dir", authority),
            *(*like, "--out", str(out)),
        )
        walk.begin(10)
        opened = walk.step(10)
        opened.get_by_label("The announcement").fill("{}")
        walk.send(opened)
        expect(opened.get_by_role("alert")).to_contain_text("It is not taken")
        opened.get_by_label("The announcement").fill((out / "mx4.lab.test.announcement.json").read_text())
        walk.send(opened)
        expect(page.locator("#members")).to_contain_text("mx4.lab.test")
        browser.close()
    lab.settle()
