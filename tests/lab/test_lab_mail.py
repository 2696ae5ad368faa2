from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from shadowlab import layout, mail
from shadowlab.demo import Story
from shadowlab.errors import LabError
from shadowlab.layout import Layout
from shadowlab.mail import Letter
from shadowmailbox.maildir import MailboxCopy as Stored
from shadowmailbox.maildir import store

ANNA, OTTO = "anna@inside.test", "otto@outside.test"


@pytest.fixture
def lab(tmp_path: Path) -> Layout:
    made = layout.plan(tmp_path, nodes=2, ports=range(20_000, 20_008))
    made.mailbox.dir.mkdir()
    return made


def deliver(lab: Layout, letter: Letter, *recipients: str) -> None:
    content = io.BytesIO(mail.written(letter).as_bytes())
    store(lab.mailbox.dir, [Stored(one, b"Delivered-To: x\r\n") for one in recipients], content, host="h")


def track(lab: Layout, name: str, *rows: str) -> None:
    directory = lab.node("1").tracking_dir
    directory.mkdir(parents=True, exist_ok=True)
    lines = ["#Software: shadowrelay", "#Fields: event-id,message-subject,recipient-count", *rows]
    (directory / name).write_bytes("\r\n".join(lines).encode() + b"\r\ntorn,li")


def test_what_arrived_is_counted_by_message_and_recipient(lab: Layout):
    first, second, third = (Letter(token, "s@outside.test", (ANNA, OTTO)) for token in "abc")
    deliver(lab, first, ANNA, OTTO)
    deliver(lab, first, OTTO)
    deliver(lab, second, ANNA)
    deliver(lab, third, ANNA)
    found = mail.count(lab, [first, second])
    assert (found.acknowledged, found.delivered, found.lost) == (4, 3, 1)
    assert (found.duplicates, found.unexpected) == (1, 1)
    assert str(found) == (
        "acknowledged 4, delivered 3, lost 1, duplicates 1 "
        "(sent twice, one dropped by the mailbox: 0; in the mailbox twice: 1)"
    )


def test_a_second_copy_that_the_mailbox_server_dropped_is_a_duplicate(lab: Layout):
    track(lab, "MSGTRK-mx1.lab.test-i-1.LOG", "RECEIVE,plain,1", 'DUPLICATEDELIVER,"a, quoted",2')
    track(lab, ".MSGTRK-mx1.lab.test-i-9.LOG.open", "DUPLICATEDELIVER,x,1")
    found = mail.count(lab, [])
    assert (found.duplicates, found.dropped) == (3, 3)
    assert str(found).endswith(
        "duplicates 3 (sent twice, one dropped by the mailbox: 3; in the mailbox twice: 0)"
    )


def test_a_second_copy_that_no_node_can_tell_of_any_more_is_a_duplicate(lab: Layout):
    lab.log("mailbox").parent.mkdir()
    lab.log("mailbox").write_text(
        '{"event": "duplicate_dropped", "message_id": "<1@x>", "recipient": "anna@inside.test", '
        '"client": "mx1.lab.test", "timestamp": "2026-01-01T00:00:01.5Z"}\nnot JSON\n{"event": "other"}\n'
    )
    assert mail.count(lab, []).duplicates == 1


def test_nobody_there_is_no_acknowledgement():
    letter = Letter("t", "s@outside.test", (ANNA,))
    assert not mail.send(("127.0.0.1", 1), letter)
    if swaks := mail.find_swaks():
        assert not mail.send(("127.0.0.1", 1), letter, swaks=swaks)


def test_a_story_is_plain_when_nobody_watches_and_tells_each_change_once():
    page = io.StringIO()
    story = Story(Console(file=page, highlight=False))
    seen = iter([0, 0, 1, 2])
    story.step("Count [to] two")
    assert story.watch(lambda: next(seen), lambda it: it == 2, lambda it: f"at {it}", within=5) == 2
    story.verdict("lost 0", held=True)
    assert page.getvalue() == "1. Count [to] two (0 s)\n   at 0\n   at 1\n   at 2\nlost 0\n"


def test_a_story_that_does_not_end_well_says_what_was_seen_last():
    with pytest.raises(LabError, match="last seen: at 1"):
        Story(Console(file=io.StringIO())).watch(lambda: 1, lambda _: False, lambda it: f"at {it}", within=0)


def test_a_log_file_that_is_closed_while_the_log_is_read_is_read_once(lab: Layout):
    hidden, visible = ".MSGTRK-mx1.lab.test-{}.LOG.open", "MSGTRK-mx1.lab.test-{}.LOG"
    for name, events in (("i-1", "A,,"), ("i-2", "B,,"), ("j-1", "C,,")):
        track(lab, hidden.format(name), events)
    track(lab, visible.format("h-1"), "O,,")
    directory = lab.node("1").tracking_dir
    rows = mail.tracked(directory)
    found = [next(rows)["event-id"]]
    for name in ("i-1", "i-2", "j-1"):
        (directory / hidden.format(name)).rename(directory / visible.format(name))
    assert sorted([*found, *(row["event-id"] for row in rows)]) == ["A", "B", "C", "O"]
