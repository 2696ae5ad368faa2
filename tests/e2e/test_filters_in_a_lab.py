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
from running_lab import INSIDE, RunningLab, text, typed, wait_until

from shadowlab import mail
from tests.neighbours import milter
from tests.neighbours.milter import NEEDED, OwnFilter, filtering

sys.path.append(str(Path(__file__).parents[1] / "audit"))
from plainly import judged

from shadowaudit.core.verdict import INCOMPLETE, PROVEN

pytestmark = [pytest.mark.lab, pytest.mark.slow, NEEDED]


@contextmanager
def beside() -> Iterator[str]:
    """A filter in a thread: it drops mail to the user drop, and quarantines mail from the user odd."""
    loop, began, address = asyncio.new_event_loop(), threading.Event(), []
    odd: list[bool] = []

    def sender(event: milter.said.EnvelopeFrom) -> None:
        odd.append(event.sender.startswith(b"<odd@"))

    def recipient(event: milter.said.EnvelopeRecipient) -> list[object] | None:
        return [milter.said.Discard()] if event.recipient.startswith(b"<drop@") else None

    def end(_: object) -> list[object]:
        asked = [milter.said.Quarantine("odd sender")] if odd[-1] else []
        return [*asked, milter.said.AddHeader("X-Filtered", b"yes"), milter.said.Accept()]

    async def serve() -> None:
        own = OwnFilter({"EnvelopeFrom": sender, "EnvelopeRecipient": recipient, "EndOfMessage": end})
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


def taken(lab: RunningLab, node: str, sender: str, recipient: str) -> str:
    """Send a message, which has to be acknowledged; its token."""
    token = mail.token("filtered")
    with smtplib.SMTP(*lab.cluster.node(node).smtp, local_hostname=mail.CLIENT) as client:
        assert client.sendmail(sender, [recipient], text(token)) == {}
    return token


def test_what_is_quarantined_waits_over_a_lost_disk_and_the_audit_explains_what_was_dropped(
    lab: RunningLab,
) -> None:
    with beside() as address:
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
