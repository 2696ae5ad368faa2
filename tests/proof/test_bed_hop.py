"""The next hop of the disk proofs: it counts a message only as it was sent."""

from __future__ import annotations

import smtplib

from shadowlab.chaos.letters import sealed
from shadowlab.mail import Letter

from .bed.hop import next_hop
from .bed.post import Post
from .bed.verdict import Told, judge


def test_what_the_clients_send_is_counted():
    post = Post()
    with next_hop() as hop:
        sent = dict(post.send(("127.0.0.1", hop.port), size) for size in (2_000, 100_000))
        assert hop.arrived() == dict.fromkeys(sent, 1)
    assert set(sent.values()) == {Told.ACCEPTED}


def test_a_message_without_its_end_is_another_one():
    letter = Letter("proof-1", "sender@outside.test", ("otto@outside.test",))
    content = sealed(letter, "torn", b"one line\r\nanother\r\n").content
    with next_hop() as hop:
        with smtplib.SMTP("127.0.0.1", hop.port) as client:
            client.sendmail(letter.sender, letter.recipients, content.removesuffix(b"another\r\n"))
        found = judge({"proof-1": Told.ACCEPTED}, hop.arrived())
    assert (found.lost, found.unexpected) == (("proof-1",), ("proof-1 (changed on its way)",))
