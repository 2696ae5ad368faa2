from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from shadowrelay.core.pressure import Inflow, Stance
from shadowrelay.database.room import Room


class Disk:
    """What ``os.statvfs`` tells."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = 0
        monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=self.free, f_frsize=1))


def admitted(disk: Disk, room: Room, *frees: int) -> list[bool]:
    found = []
    for disk.free in frees:
        found.append(room.admits())
    return found


def test_a_door_that_was_closed_opens_when_a_quarter_more_is_free(monkeypatch: pytest.MonkeyPatch):
    disk, room = Disk(monkeypatch), Room(Path(), 1000)
    assert admitted(disk, room, 1000, 999, 1000, 1249, 1250, 1000, 999) == [
        *(True, False, False, False),
        *(True, True, False),
    ]


def test_a_message_that_is_too_large_closes_the_door_to_no_other(monkeypatch: pytest.MonkeyPatch):
    disk, room = Disk(monkeypatch), Room(Path(), 1000)
    disk.free = 1100
    assert [room.admits(size) for size in (100, 101, 0)] == [True, False, True]


def test_without_a_minimum_nothing_is_refused(monkeypatch: pytest.MonkeyPatch):
    disk, room = Disk(monkeypatch), Room(Path(), 0)
    assert admitted(disk, room, 0, 1) == [True, True]


def test_copies_are_counted_as_refused_by_pressure_where_pressure_refuses_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, room = Disk(monkeypatch), Room(Path(), 1000)
    disk.free = 999
    assert (room.admits_copy(), room.refused[Inflow.COPIES]) == (False, 0)
    disk.free = 2000
    room.take(Stance(refuses=Inflow.TRUSTED))
    assert (room.admits_copy(), room.refused[Inflow.COPIES]) == (True, 0)
    room.take(Stance(refuses=Inflow.COPIES))
    assert (room.admits_copy(), room.refused[Inflow.COPIES]) == (False, 1)
