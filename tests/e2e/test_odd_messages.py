"""Odd messages on a real lab: byte for byte what was sent, after a failover too, or refused before the
250.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from odd_messages import Odd, messages
from raw_client import RawClient, connected
from running_lab import RunningLab, wait_until

from shadowmailbox.maildir import messages as stored

pytestmark = [pytest.mark.lab, pytest.mark.slow]

TRACE = re.compile(rb"(?:(?:Return-Path|Delivered-To|Received):[^\r\n]*\r\n(?:[ \t][^\r\n]*\r\n)*)*")
CORPUS = list(messages())
QUICK = "receive.default.tarpit_interval=0s"
PIECES = {"DATA": 4093, "BDAT": 1021}  # octets: prime, so that they end at odd places


def offers(when: str) -> Iterator[tuple[Odd, str, tuple[str, str]]]:
    """Each message in each way that it can be sent, with recipients of its own."""
    for odd in CORPUS:
        for verb in odd.by:
            mailbox = f"{odd.name}.{verb.lower()}.{when}"
            yield odd, verb, (f"{mailbox}@inside.test", f"{mailbox}@outside.test")


def send(client: RawClient, odd: Odd, verb: str, recipients: tuple[str, str]) -> str:
    assert client.begin(*recipients, parameters=odd.parameters).startswith("250 ")
    # A small message goes octet by octet, so that every dot and line end is at the end of some piece.
    piece = 1 if len(odd.content) < 60 else max(PIECES[verb], len(odd.content) // 200)
    return client.data(odd.content, piece=piece) if verb == "DATA" else client.bdat(odd.content, piece=piece)


def send_all(lab: RunningLab, when: str) -> dict[str, bytes]:
    """Send the corpus to mx1; of each mailbox, what has to be in it."""
    owed: dict[str, bytes] = {}
    with connected(lab.cluster.node("mx1").smtp) as client:
        for odd, verb, recipients in offers(when):
            reply = send(client, odd, verb, recipients)
            assert reply.startswith(odd.refused or "250 2.6.0 "), f"{odd.name} by {verb}: {reply}"
            if not odd.refused:
                owed |= dict.fromkeys(recipients, odd.arrives)
    return owed


def arrived(lab: RunningLab) -> dict[str, list[bytes]]:
    """Of each mailbox, the messages below their trace fields."""
    found: dict[str, list[bytes]] = {}
    for recipient, file in stored(lab.cluster.layout.mailbox.dir):
        found.setdefault(recipient, []).append(file.read_bytes())
    return found


def differences(lab: RunningLab, owed: dict[str, bytes], *, trace: int) -> list[str]:
    """What is not as it was sent. ``trace``: how many Received fields were put in front."""
    found = arrived(lab)
    wrong = [f"{recipient} got what nobody was told 250 for" for recipient in found.keys() - owed.keys()]
    for recipient, content in owed.items():
        texts = found.get(recipient, [])
        front = texts[0][: len(texts[0]) - len(content)] if texts else b""
        if len(texts) != 1 or not texts[0].endswith(content):
            wrong.append(f"{recipient}: {len(texts)} messages, {[text[-80:] for text in texts]}")
        elif not TRACE.fullmatch(front) or front.count(b"Received: ") != trace:
            wrong.append(f"{recipient}: {front[-300:]!r} in front")
    return wrong


def test_the_corpus_is_the_same_each_time():
    assert list(messages()) == CORPUS
    assert len({odd.name for odd in CORPUS}) == len(CORPUS) > 45
    assert sum(bool(odd.refused) for odd in CORPUS) >= 8


def test_odd_messages_leave_byte_for_byte_or_are_refused_before_the_250(lab: RunningLab):
    lab.up(QUICK)
    owed = send_all(lab, "relayed")
    wait_until(lambda: lab.queued("mx1") == 0, "everything is delivered", 120)
    assert differences(lab, owed, trace=2) == []


def test_odd_messages_are_byte_for_byte_the_same_after_a_failover(lab: RunningLab):
    lab.up(QUICK, "shadow_resubmit_time_span=1h")
    lab.cluster.refuse()
    owed = send_all(lab, "taken-over")
    lab.cluster.kill("mx1")
    lab.cluster.wipe("mx1")
    lab.cluster.accept()
    lab.cluster.start("mx1")
    wait_until(lambda: len(arrived(lab)) == len(owed), "the holders promote and deliver", 120)
    wait_until(lambda: all(lab.queued(name) == 0 for name in ("mx1", "mx2", "mx3")), "queues are empty", 120)
    assert lab.events("mx1", "DELIVER") == []
    # The owner's trace field is part of the copy; who takes over is no further hop.
    assert differences(lab, owed, trace=2) == []
