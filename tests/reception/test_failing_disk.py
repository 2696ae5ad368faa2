"""A content that cannot be flushed: unlike a full disk, it is never trusted again."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from sending import sender, sent
from stations import boundary, offer, pieces

from shadowrelay.core.reception.redundancy import Leg

LARGE = b"Subject: large\r\n\r\n" + (b"x" * 78 + b"\r\n") * 2000


def failing(*_: Any) -> None:
    raise OSError(errno.EIO, "Input/output error")


def without_descriptors(*_: Any) -> None:
    raise OSError(errno.EMFILE, "Too many open files")


async def test_a_content_that_cannot_be_flushed_ends_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        monkeypatch.setattr("shadowrelay.database.content.os.fsync", failing)
        assert not (await sent(owner, LARGE)).startswith("250")
        assert owner.database.failed.is_set()
        assert await holder.copies() == []
        assert not owner.node.live()


async def test_a_copy_that_cannot_be_flushed_ends_the_holder_and_is_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        monkeypatch.setattr("shadowrelay.database.content.os.fsync", failing)
        attempt = await owner.node.members.offer(offer(holder.name, content=LARGE), pieces(LARGE))
        assert attempt.leg is not Leg.ACKNOWLEDGED
        assert holder.database.failed.is_set()
        assert not owner.database.failed.is_set()


async def test_a_flush_that_failed_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel takes the pages for clean afterwards: a second fsync would say that all is well."""
    real, failed = os.fsync, []

    def once(handle: int) -> None:
        if not failed:
            failed.append(handle)
            raise OSError(errno.EIO, "Input/output error")
        real(handle)

    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        monkeypatch.setattr("shadowrelay.database.content.os.fsync", once)
        assert not (await sent(owner, LARGE)).startswith("250")
        assert failed
        assert owner.database.failed.is_set()
        assert await holder.copies() == []


async def test_while_the_tracking_log_waits_for_a_descriptor_mail_and_copies_are_put_off(
    tmp_path: Path,
) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        for one in (owner, holder):
            one.node.room.wait_for_descriptors(True)
        async with sender(owner) as client:
            await client.say("EHLO client.example")
            assert await client.say("MAIL FROM:<a@example.org>") == "452 4.3.1 Insufficient system resources"
        attempt = await owner.node.members.offer(offer(holder.name, content=LARGE), pieces(LARGE))
        assert (attempt.leg, attempt.reply[:3]) == (Leg.REFUSED, "452")
        assert "file descriptor" in owner.node.room.shortage
        for one in (owner, holder):
            one.node.room.wait_for_descriptors(False)
        assert (await sent(owner, LARGE)).startswith("250 ")


async def test_without_a_descriptor_for_the_content_a_message_is_put_off_and_the_node_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strangers can make a node run out of descriptors: that says nothing about its disk."""
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        with monkeypatch.context() as flood:
            flood.setattr("shadowrelay.database.content.os.open", without_descriptors)
            assert await sent(owner, LARGE) == "452 4.3.1 Insufficient system resources"
            attempt = await owner.node.members.offer(offer(holder.name, content=LARGE), pieces(LARGE))
        assert (attempt.leg, attempt.reply[:3]) == (Leg.REFUSED, "452")
        assert not owner.database.failed.is_set()
        assert not holder.database.failed.is_set()
        assert (await sent(owner, LARGE)).startswith("250 ")
