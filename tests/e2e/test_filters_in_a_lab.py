"""A filter in front of real nodes: what it quarantines and drops, over a lost disk, as the audit sees it."""

from __future__ import annotations

import asyncio
import smtplib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from neighbourhood import arrived
from running_lab import INSIDE, RunningLab, text, typed, wait_until

from shadowlab import mail
from tests.neighbours import milter
from tests.neighbours.milter import NEEDED, OwnFilter, filtering

sys.path.append(str(Path(__file__).parents[1] / "audit"))
from plainly import judged

from shadowaudit.core.verdict import INCOMPLETE, PROVEN

pytestmark = [pytest.mark.lab, pytest.mark.slow, NEEDED]


def dropping() -> dict[str, milter.Saying]:
    """It drops mail to the user drop, and quarantines mail from the user odd."""
    odd: list[bool] = []

    def sender(event: milter.said.EnvelopeFrom) -> None:
        odd.append(event.sender.startswith(b"<odd@"))

    def recipient(event: milter.said.EnvelopeRecipient) -> list[object] | None:
        return [milter.said.Discard()] if event.recipient.startswith(b"<drop@") else None

    def end(_: object) -> list[object]:
        asked = [milter.said.Quarantine("odd sender")] if odd[-1] else []
        return [*asked, milter.said.AddHeader("X-Filtered", b"yes"), milter.said.Accept()]

    return {"EnvelopeFrom": sender, "EnvelopeRecipient": recipient, "EndOfMessage": end}


@contextmanager
def beside(**answers: milter.Saying) -> Iterator[str]:
    """A filter in a thread, with these answers."""
    loop, began, address = asyncio.new_event_loop(), threading.Event(), []

    async def serve() -> None:
        own = OwnFilter(answers)
        async with filtering(own):
            address.append(own.address)
            began.set()
            await asyncio.Event().wait()

    serving = loop.create_task(serve())

    def run() -> None:
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(serving)

    thread = threading.Thread(target=run)
    thread.start()
    assert began.wait(30)
    try:
        yield address[0]
    finally:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join(30)


def taken(lab: RunningLab, node: str, sender: str, recipient: str, token: str = "") -> str:
    """Send a message, which has to be acknowledged; its token."""
    token = token or mail.token("filtered")
    with smtplib.SMTP(*lab.cluster.node(node).smtp, local_hostname=mail.CLIENT, timeout=60) as client:
        assert client.sendmail(sender, [recipient], text(token)) == {}
    return token


def test_what_is_quarantined_waits_over_a_lost_disk_and_the_audit_explains_what_was_dropped(
    lab: RunningLab,
) -> None:
    with beside(**dropping()) as address:
        options = ("shadow_resubmit_time_span=1h", "shadow_heartbeat_frequency=1s")
        lab.up(f"receive.default.filters.own.address={address}", *options, nodes=3)
        lab.send(3)
        taken(lab, "mx1", "sender@outside.test", "drop@inside.test")
        wait_until(lambda: len(lab.events("mx1", "DROP")) == 1, "the log tells of it")
        (row,) = lab.events("mx1", "DROP")
        assert (row["source"], row["recipient-address"]) == ("AGENT", "drop@inside.test")
        lab.sent_otherwise(taken(lab, "mx1", "odd@outside.test", INSIDE), INSIDE)
        wait_until(lambda: lab.queued("mx1") == 1, "all but one is delivered")
        before = lab.count()
        assert before.delivered == 3

        lab.cluster.kill("mx1")
        lost = lab.cluster.wipe("mx1")
        lab.cluster.start("mx1")
        others = ("mx2", "mx3")
        wait_until(lambda: sum(lab.queued(one) for one in others) == 1, "a holder has promoted it")
        lab.send(3, to="mx2")
        lab.send(3, to="mx3")
        wait_until(lambda: lab.count().delivered == 9, "queues run")
        assert lab.count().lost == 1  # it waits

        done = typed(
            lab, "mx3", "message", "resume", "--state", "suspended", "--reason", "it is fine", "--yes"
        )
        assert done.returncode == 0, done.stderr
        lab.verify()
    lab.cluster.down()
    logs = lab.directory / "tracking"
    found, findings = judged(logs, lost=lost)
    assert found.status == PROVEN, (found.as_dict(), findings)
    assert judged(logs)[0].status == INCOMPLETE


# mx3 is the one member in another site than mx1, which asks it first for a copy.
ACCEPTING = [
    *(("mx3", point) for point in ("before-shadow-commit", "after-shadow-commit", "after-shadow-reply")),
    *(("mx1", point) for point in ("before-local-commit", "after-local-commit", "before-250")),
    *(("mx1", point) for point in ("before-record-commit", "after-record-commit")),
]
DIGESTED = ("HARECEIVE", "RECEIVE", "RESUBMIT", "DELIVER")


@pytest.mark.parametrize(("name", "point"), ACCEPTING)
def test_a_node_killed_while_it_accepts_a_changed_message_asks_the_filter_once_for_each_time_it_was_sent(
    lab: RunningLab, name: str, point: str
) -> None:
    """All that arrives is what the filter made of it: once, and once more if the client had to send it again.

    The filter gives another Message-ID each time, so that the mailbox server drops neither.
    """
    made: list[str] = []

    def end(_: object) -> list[object]:
        made.append(mail.token("changed"))
        return [
            milter.said.ChangeHeader(1, "Message-ID", mail.message_id(made[-1]).encode()),
            milter.said.ReplaceBody(made[-1].encode() + b"\r\n"),
            milter.said.Accept(),
        ]

    def heard() -> bool:
        """Send the same octets to mx1: does the client get its 250?"""
        try:
            taken(lab, "mx1", "sender@outside.test", INSIDE, "same")
        except (smtplib.SMTPException, OSError):
            return False
        lab.sent_otherwise(made[-1], INSIDE)
        return True

    with beside(EndOfMessage=end) as address:
        lab.up(
            f"receive.default.filters.own.address={address}",
            "shadow_heartbeat_frequency=1s",
            nodes=3,
            environs={name: {"SHADOWRELAY_FAILPOINT": point}},
        )
        at_once = heard()
        wait_until(lambda: not lab.cluster.process(name).alive, f"{name} died of it")
        assert at_once or name == "mx1", "an owner finds another holder"
        assert lab.cluster.start(name)
        assert at_once or heard()
        lab.settle()
        lab.cluster.down()

    assert len(made) == 2 - at_once, "nothing else asks the filter"
    found = lab.count()
    assert (found.delivered, found.duplicates) == (1, 0), found
    assert found.unexpected < len(made), found
    (contents,) = arrived(lab.cluster.layout.mailbox.dir).values()
    bodies = {content.replace(b"\r\n", b"\n").partition(b"\n\n")[2].decode().strip() for content in contents}
    assert bodies <= set(made)
    digests: dict[str, set[str]] = {}
    for row in (row for one in ("mx1", "mx2", "mx3") for event in DIGESTED for row in lab.events(one, event)):
        told = [part for part in row["custom-data"].split(";") if part.startswith("S:Content=")]
        digests.setdefault(row["network-message-id"], set()).update(told)
    assert len(bodies) <= len(digests) <= len(made)
    assert all(len(each) == 1 for each in digests.values()), digests
    verdict, findings = judged(lab.directory / "tracking")
    assert verdict.status == PROVEN, (verdict.as_dict(), findings)
