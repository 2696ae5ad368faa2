"""A million messages in Safety Net: a preview takes seconds and little memory, and holds up no writer."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from opened import NOW, OTHER, OTHER_DATABASE, OWN, database, message, save

from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.requests import Place, Selector
from shadowrelay.database import resubmission
from shadowrelay.database.opening import FILE
from shadowrelay.database.records import micros
from shadowrelay.database.resubmission import MadeCount, OwnerKnown

pytestmark = pytest.mark.slow

MANY = 1_000_000
SINCE = NOW - timedelta(days=2)
SPACING = timedelta(days=2) / MANY
WINDOW = Selector(since=SINCE, until=NOW)
OWNERS = (OwnerKnown(OWN), OwnerKnown(OTHER, OTHER_DATABASE))

FILL = """
WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :many)
INSERT INTO message (id, epoch, rank, role, stage, owner, owner_database, offered_in, sender, size, body,
       smtputf8, message_id, subject, ranks_given, confirmation, received_at, settled_at, exposed,
       content_digest,
       envelope_digest, digests_late, row_sum, asked_sum)
SELECT printf('%08x-%04x-7000-8000-%012x', (:begin + i * :spacing) / 65536000,
              (:begin + i * :spacing) / 1000 % 65536, i),
       1, i % 2, iif(i % 2, 'shadow', 'primary'), 'safety_net', iif(i % 2, :other, :own), :database,
       '0123456789abcdef', 'sender' || i % 1000 || '@outside.test', 5000, '8BITMIME', 0,
       '<' || i || '@outside.test>', 'a subject of the usual length', 1, 'none', :begin + i * :spacing,
       :begin + i * :spacing, 0, 'xxh3-128:0123456789abcdef0123456789abcdef',
       'xxh3-128:0123456789abcdef0123456789abcdef', 0, 1 << 60, 1 << 60 FROM n"""

RECIPIENTS = """
INSERT INTO recipient (message_id, number, address, next_hop, notify, status, attempts, last_reply,
       delay_notified, settled_at, row_sum)
SELECT id, 1, 'user' || rank || '@inside.test', 'mailbox' || received_at % 7, '', 'delivered', 1,
       '250 2.1.5 Recipient OK, queued as 12345', 0, settled_at, 1 << 60 FROM message"""


def fill(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("PRAGMA synchronous=OFF")
        given = {"many": MANY, "own": OWN, "other": OTHER, "database": OTHER_DATABASE}
        times = {"begin": micros(SINCE), "spacing": SPACING // timedelta(microseconds=1)}
        connection.execute(FILL, given | times)
        connection.execute(RECIPIENTS)


def used() -> int:
    """The most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


async def test_a_preview_of_a_million_messages_takes_seconds_and_holds_up_no_writer(tmp_path: Path) -> None:
    async with database(tmp_path):
        pass
    fill(tmp_path / FILE)
    async with database(tmp_path) as found:
        before, waits, took = used(), [0.0], {}

        async def write() -> None:
            while True:
                began = time.perf_counter()
                await found.transact(save(message()))
                waits.append(time.perf_counter() - began)

        await found.read(lambda readers: resubmission.earliest(readers[0]))
        writer = asyncio.create_task(write())
        for name, selector in {
            "all": WINDOW,
            "a route": Selector(since=SINCE, until=NOW, next_hops=(NextHop("mailbox1"),)),
            "a sender": Selector(since=SINCE, until=NOW, sender="sender7@outside.test"),
            "a domain": Selector(since=SINCE, until=NOW, recipient="*@inside.test"),
        }.items():
            began = time.perf_counter()
            counted = await found.read(
                lambda readers, selector=selector: resubmission.count(readers, selector, OWNERS)  # type: ignore[misc]
            )
            took[name] = time.perf_counter() - began
        writer.cancel()
        whole = await found.read(lambda readers: resubmission.count(readers, WINDOW, OWNERS))
        half = MadeCount(messages=MANY // 2, recipients=MANY // 2, octets=5000 * MANY // 2)
        assert [whole[owner.name].rest for owner in OWNERS] == [half, half]
        assert counted[OWN].rest.messages == MANY // 2
        last = await found.read(
            lambda readers: resubmission.page(readers[0], WINDOW, Place(NOW - timedelta(seconds=1)))
        )
        assert len(last) in range(1, 101)
        print({name: round(seconds, 2) for name, seconds in took.items()}, len(waits), round(max(waits), 3))
        print(f"{used() - before} MiB more")
        assert max(took.values()) < 10, took  # two seconds on a machine that has nothing else to do
        assert max(waits) < 2, "a writer was kept waiting"
        assert len(waits) > 100
        assert used() - before < 64
