"""Announcements of members are kept durably; an old one, and one of a retired member, never overrule."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from opened import NOW, OTHER, database

from shadowrelay.database import announced
from shadowrelay.operator.retire import retire
from shadowrelay.wire.announcements import Announcement

ONE = Announcement(serial=7, name=OTHER, address="127.0.0.1:2526", site="default", host="rack2")


async def test_what_was_announced_is_there_after_a_restart_and_only_a_later_one_takes_its_place(
    tmp_path: Path,
) -> None:
    async with database(tmp_path) as first:
        assert await first.transact(lambda ledger: announced.keep(ledger, ONE, "signed 7"))
        assert not await first.transact(lambda ledger: announced.keep(ledger, ONE, "signed 7"))
    async with database(tmp_path) as again:
        assert await again.transact(announced.kept) == ["signed 7"]
        with pytest.raises(announced.NotKept, match="a later announcement"):
            await again.transact(lambda ledger: announced.keep(ledger, replace(ONE, serial=6), "signed 6"))
        assert await again.transact(lambda ledger: announced.keep(ledger, replace(ONE, serial=8), "signed 8"))
        assert await again.transact(announced.kept) == ["signed 8"]


async def test_a_member_that_was_retired_is_not_announced_again(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        await found.transact(lambda ledger: retire(ledger, OTHER, NOW + timedelta(seconds=1)))
        with pytest.raises(announced.NotKept, match="was retired"):
            await found.transact(lambda ledger: announced.keep(ledger, ONE, "signed 7"))
        assert await found.transact(announced.kept) == []
