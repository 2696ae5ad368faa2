"""The ten questions of the night shift's page: what a command and a page of the console answer, on a lab.

The lab has what each question is about: a broken next hop, a certificate that ends, settings and versions
that differ, much mail that matches, a member that is away. Any node is asked, also one without a copy.
"""

from __future__ import annotations

import re
import shutil
import smtplib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running_lab import INSIDE, OUTSIDE, RunningLab, typed, wait_until

import shadowrelay
from shadowlab.layout import MAILBOX

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = Path("/usr/bin/chromium")
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "night-shift.md"
SPAM = 1_000
"""Instead of the ten thousand of the page, so that the test takes a minute."""

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="no Chromium"),
]


def questions() -> dict[str, tuple[str, str]]:
    """Of each question of the page: the command, and the page of the console."""
    _, _, section = PAGE.read_text("utf-8").partition("\n## Ten questions\n")
    rows = re.findall(r"^\| (.+?\?) \| `shadowrelay (.+?)` \| \*(\w+)\*", section, re.MULTILINE)
    return {question: (command, page) for question, command, page in rows}


def newer(directory: Path) -> Path:
    """A copy of the program that says that it is of another version."""
    source = Path(shadowrelay.__file__).parents[1]
    shutil.copytree(source, directory, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    place = directory / "shadowrelay" / "__init__.py"
    place.write_text(
        re.sub(r'__version__ = ".+"', '__version__ = "0.9.9"', place.read_text("utf-8")), "utf-8"
    )
    return directory


def send(lab: RunningLab, count: int, sender: str, subject: str = "offer", to: str = INSIDE) -> None:
    with smtplib.SMTP(*lab.cluster.node("mx1").smtp) as server:
        for number in range(count):
            text = f"Subject: {subject}\r\nMessage-ID: <{number}.{subject[:5]}.{sender}>\r\n\r\nbuy\r\n"
            server.sendmail(sender, [to], text)


class Asker:
    """An operator with the page, who asks one node by command and another by a browser."""

    def __init__(self, lab: RunningLab, by_command: str, page: Any) -> None:
        self.lab, self.by_command, self.page = lab, by_command, page
        self.asked: list[str] = []

    def ask(self, beginning: str, said: str, shown: str, *, status: int = 0, open_: str = "") -> None:
        """The command says what matches ``said``, the page what matches ``shown``. ``open_``: an address
        below that page.
        """
        (question,) = [one for one in questions() if one.startswith(beginning)]
        self.asked.append(question)
        command, page = questions()[question]
        words = [word.strip("'") for word in command.split()]
        done = typed(self.lab, self.by_command, *words, columns=250)
        assert done.returncode == status, done.stdout + done.stderr
        assert re.search(said, done.stdout), (question, done.stdout)
        self.page.goto("/")
        self.page.get_by_role("navigation", name="Pages", exact=True).get_by_role(
            "link", name=page, exact=True
        ).click()
        if open_:
            self.page.goto(open_)
        playwright.expect(self.page.locator("main")).to_contain_text(re.compile(shown), timeout=30_000)


def test_the_page_answers_ten_questions():
    assert len(questions()) == 10


def test_an_operator_has_the_ten_questions_answered(lab: RunningLab, tmp_path: Path):
    slow = ("transient_failure_retry_interval", "queue_glitch_retry_interval")
    lab.up(
        *(f"{one}=5m" for one in (*slow, "outbound_connection_failure_retry_interval")),
        "shadow_resubmit_time_span=1h",
        "holder_loss_heartbeats=100",
        *lab.with_tls(),
        environs={"mx3": {"PYTHONPATH": str(newer(tmp_path / "newer"))}},
    )
    nodes = [lab.cluster.node(name) for name in ("mx1", "mx2", "mx3")]
    certificates = ("--dir", str(lab.cluster.layout.authority), "--out", str(nodes[0].config.parent))
    issue = ("ca", "issue", nodes[0].name, "--days", "5", "--force", *certificates)
    subprocess.run([sys.executable, "-m", "shadowrelay", *issue], check=True, capture_output=True)
    text = nodes[1].config.read_text("utf-8")
    nodes[1].config.write_text(text.replace('"outside.test",', '"outside.test",\n    "new.test",'))
    assert typed(lab, "mx1", "reload").returncode == 0
    assert typed(lab, "mx2", "reload").returncode == 0
    lab.cluster.kill(MAILBOX)
    send(lab, 1, "carol@outside.test", "=?utf-8?Q?Viele_Gr=C3=BC=C3=9Fe?=")
    send(lab, SPAM, "win@spam.test", to=OUTSIDE)
    wait_until(lambda: sum(lab.held(node.short) for node in nodes) == SPAM + 1, "all have copies", 60)
    suspended = typed(lab, "mx3", "queue", "suspend", "outside", "--reason", "spam", "--operator", "carol")
    assert suspended.returncode == 0, suspended.stdout + suspended.stderr

    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_context(base_url=nodes[2].admin).new_page()
        page.set_default_timeout(20_000)
        asker = Asker(lab, "mx2", page)
        flows = r"Mail for 1 next hop waits: 1 message"
        asker.ask("Is every message safe", flows, r"Every message is safe\.[\s\S]*Mail for 1 next hop waits")
        asker.ask("Which next hop fails", r"inside[\s\S]*refused", r"inside[\s\S]*refused")
        ends = r"certificate[\s\S]*(5|4) d"
        asker.ask("Does a certificate end", ends, ends)
        differ = r"settings of [\s\S]* differ"
        asker.ask("Do settings differ", differ, differ)
        asker.ask("Which member is of another version", r"0\.9\.9", r"0\.9\.9")
        asker.ask("Who did that", r"carol[\s\S]*spam", r"carol[\s\S]*spam", open_="/queues/outside")
        hello = r"Viele Grüße"
        asker.ask("Where is the message", hello, hello, open_="/messages?q=Gr%C3%BC%C3%9Fe")
        match = r"1\D?000 messages"
        asker.ask("How much mail matches", match, match, open_="/messages?sender=*%40spam.test")
        lab.cluster.kill("mx1")
        wait_until(lambda: lab.misses("mx2", "mx1") and lab.misses("mx3", "mx1"), "mx1 is missed", 60)
        asker.ask(
            "Which messages have one copy",
            r"01[0-9a-f]{6}",
            r"01[0-9a-f]{6}|Viele|offer",
            open_="/messages?state=at_risk",
        )
        alone = "[1-9][0-9,]* messages? here alone: do not remove its disk"
        asker.by_command = next(name for name in ("mx2", "mx3") if lab.held(name))
        asker.ask("May the disk", alone, r"Do not wipe its disk|Each message on its disk|Nothing that waits")
        assert sorted(asker.asked) == sorted(questions())
        browser.close()
    lab.cluster.start("mx1")
    lab.cluster.start(MAILBOX)
