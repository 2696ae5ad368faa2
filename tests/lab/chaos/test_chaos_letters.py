"""Mail is recognised octet for octet, and what clients do to it is not mistaken for what the relay does."""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path

from shadowlab.chaos.history import History
from shadowlab.chaos.letters import Parcel, compose, intact
from shadowlab.chaos.running import Collector, dropped
from shadowlab.chaos.verdict import weigh
from shadowmailbox.maildir import MailboxCopy as Stored
from shadowmailbox.maildir import store


class Content:
    """Octets as the mailbox server keeps them."""

    def __init__(self, octets: bytes) -> None:
        self._octets, self._at = octets, 0

    def seek(self, offset: int, /) -> int:
        self._at = offset
        return offset

    def read(self, size: int = -1, /) -> bytes:
        end = len(self._octets) if size < 0 else self._at + size
        found = self._octets[self._at : end]
        self._at += len(found)
        return found


def parcel(seed: int = 1) -> Parcel:
    return compose(f"t{seed}", random.Random(seed))


def deliver(root: Path, octets: bytes, to: str) -> None:
    root.mkdir(exist_ok=True)
    store(root, [Stored(to, b"Delivered-To: x\r\n")], Content(octets), host="h")


def collected(root: Path, history: History) -> list[tuple[str, str]]:
    Collector(root, history, threading.Event()).collect()
    return [(one.message_id, one.recipient) for one in history.arrivals]


def test_messages_are_of_all_sizes_and_for_one_or_several_different_recipients():
    parcels = [parcel(seed) for seed in range(300)]
    sizes = [len(one.content) for one in parcels]
    assert min(sizes) < 8_192
    assert max(sizes) > 1_048_576
    assert any(65_536 < size < 1_048_576 for size in sizes)
    assert {len(one.letter.recipients) for one in parcels} == {1, 2, 3, 4}
    assert all(len(set(one.letter.recipients)) == len(one.letter.recipients) for one in parcels)


def test_every_line_ends_with_crlf_and_fits_into_smtp():
    content = parcel().content
    assert content.count(b"\n") == content.count(b"\r") == content.count(b"\r\n")
    assert max(map(len, content.split(b"\r\n"))) < 998
    assert any(line.startswith(b".") for line in content.split(b"\r\n"))


def test_trace_fields_in_front_change_nothing_and_one_octet_does():
    one = parcel()
    assert intact(b"Received: from x\r\n\tby y\r\n" + one.content) == (one.letter.message_id, True)
    assert intact(one.content[:-3] + b"x\r\n") == (one.letter.message_id, False)
    assert intact(one.content[:-20]) == (one.letter.message_id, False)
    assert intact(one.content.replace(b"Subject: Chaos", b"Subject: chaos"))[1] is False
    assert intact(b"Received: from x\r\n")[1] is False


def test_what_arrives_is_noted_once_and_its_file_removed(tmp_path: Path):
    root, history, one = tmp_path / "mailbox", History(tmp_path / "h.jsonl"), parcel()
    deliver(root, one.content, "anna@inside.test")
    expected = [(one.letter.message_id, "anna@inside.test")]
    assert collected(root, history) == expected
    assert collected(root, history) == expected
    assert [file for file in root.rglob("*") if file.is_file()] == []


def test_what_was_changed_on_its_way_is_lost_and_was_delivered_damaged(tmp_path: Path):
    root, history, one = tmp_path / "mailbox", History(tmp_path / "h.jsonl"), parcel()
    deliver(root, one.content.replace(b".end", b"end."), "anna@inside.test")
    (found,) = collected(root, history)
    owed = (one.letter.message_id, "anna@inside.test")
    sent = Counter([owed])
    verdict = weigh(sent, sent, history.arrived(), history.arrived(damaged=True), {owed[0]: [owed[1]]})
    assert found == owed
    assert (verdict.lost, verdict.damaged) == (sent, sent)
    assert not verdict.unexpected
    assert not verdict.held
    assert len(list(tmp_path.glob("changed-*"))) == 1


def test_second_copies_that_the_mailbox_server_dropped_are_read_from_its_log(tmp_path: Path):
    log = tmp_path / "mailbox.log"
    log.write_text(
        '{"event": "ready", "timestamp": "2026-01-01T00:00:00Z"}\n'
        '{"event": "duplicate_dropped", "message_id": "<1@x>", "recipient": "anna@inside.test", '
        '"client": "mx1.lab.test", "timestamp": "2026-01-01T00:00:01.5Z"}\n'
    )
    (one,) = dropped(log)
    assert (one.message_id, one.recipient, one.dropped) == ("<1@x>", "anna@inside.test", True)
    assert list(dropped(tmp_path / "none.log")) == []
