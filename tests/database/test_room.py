from __future__ import annotations

import asyncio
from pathlib import Path

from shadowrelay.core.pressure import Inflow, Stance
from shadowrelay.database.room import Room
from shadowrelay.readings import SIZE, ReadingsBoard
from tests.simulation.virtual_loop import VirtualLoop

MINIMUM = 1000


def a_room(free: int, minimum: int = MINIMUM) -> Room:
    room = Room(Path(), minimum)
    room.board.measured(free, 1.0)
    return room


def look(room: Room, free: int, at: float) -> None:
    """As the stage does that looks at the resources."""
    room.about_to_measure(at)
    room.board.measured(free, at)
    room.measured()


def admitted(room: Room, *frees: int) -> list[bool]:
    found = []
    for free in frees:
        room.board.measured(free, 1.0)
        found.append(room.admits())
    return found


def test_a_door_that_was_closed_opens_when_a_quarter_more_is_free() -> None:
    assert admitted(a_room(0), 1000, 999, 1000, 1249, 1250, 1000, 999) == [
        *(True, False, False, False),
        *(True, True, False),
    ]


def test_a_message_that_is_too_large_closes_the_door_to_no_other() -> None:
    room = a_room(1100)
    assert [room.admits(size) for size in (100, 101, 0)] == [True, False, True]


def test_without_a_minimum_nothing_is_refused() -> None:
    assert admitted(a_room(0, 0), 0, 1) == [True, True]


def test_before_the_disk_has_said_what_is_free_nothing_is_admitted() -> None:
    room = Room(Path(), 0)
    assert not room.admits()
    room.board.measured(5000, 1.0)
    assert room.admits()
    room.board.measured(None, 0.0)
    assert not room.admits()
    assert "does not say what is free" in room.shortage
    assert room.warning == ""


def test_a_disk_that_did_not_say_what_is_free_for_a_while_needs_no_more_room_than_before() -> None:
    room = Room(Path(), MINIMUM)
    found = []
    for free in (None, 1100, None, 1100):
        room.board.measured(free, 1.0 if free else 0.0)
        found.append(room.admits())
    assert found == [False, True, False, True]


def test_a_worker_that_was_silent_tells_nothing_older_than_what_is_known() -> None:
    room = a_room(5000)
    look(room, 3000, 3.0)
    room.board.measured(5000, 2.0)
    assert room.free == 3000


def test_what_was_written_counts_until_a_look_that_began_behind_it_and_no_longer() -> None:
    room = a_room(5000)
    room.wrote(3500)
    assert room.free == 1500
    assert [room.admits(size) for size in (500, 501)] == [True, False]
    room.about_to_measure(2.0)
    room.wrote(500)  # while the disk is asked
    room.board.measured(1500, 2.0)
    room.measured()
    assert room.free == 1000
    look(room, 1000, 3.0)
    assert room.free == 1000


def test_what_another_worker_wrote_counts_too() -> None:
    memory = memoryview(bytearray(SIZE))
    boards = [ReadingsBoard(memory, number) for number in (1, 2)]
    first, second = (Room(Path(), MINIMUM, board) for board in boards)
    boards[0].measured(5000, 1.0)
    first.wrote(3000)
    assert [second.admits(size) for size in (1000, 1001)] == [True, False]
    boards[0].forget()
    assert second.admits(3000), "a worker that is dead writes nothing"


def test_an_answer_to_an_earlier_question_forgets_nothing_that_came_behind_it() -> None:
    room = a_room(5000)
    room.wrote(1000)
    room.about_to_measure(2.0)
    room.board.measured(5000, 1.5)
    room.measured()
    assert room.free == 4000


def test_copies_are_counted_as_refused_by_pressure_where_pressure_refuses_them() -> None:
    room = a_room(999)
    assert (room.admits_copy(), room.refused[Inflow.COPIES]) == (False, 0)
    room.board.measured(2000, 1.0)
    room.take(Stance(refuses=Inflow.TRUSTED))
    assert (room.admits_copy(), room.refused[Inflow.COPIES]) == (True, 0)
    room.take(Stance(refuses=Inflow.COPIES))
    assert (room.admits_copy(), room.refused[Inflow.COPIES]) == (False, 1)


def test_mail_that_waits_goes_on_when_pressure_is_over_or_refuses_it_and_not_before() -> None:
    loop, room = VirtualLoop(), a_room(5000)
    told = []

    async def waits(inflow: Inflow) -> None:
        told.append((inflow, await room.hold_back(inflow), loop.time()))

    async def story() -> None:
        room.take(Stance(delay=50.0))
        waiting = [asyncio.create_task(waits(inflow)) for inflow in (Inflow.OUTSIDE, Inflow.TRUSTED)]
        await asyncio.sleep(10.0)
        room.take(Stance(delay=55.0))
        await asyncio.sleep(10.0)
        room.take(Stance(refuses=Inflow.OUTSIDE, delay=55.0))
        await asyncio.sleep(10.0)
        room.take(Stance())
        await asyncio.gather(*waiting)
        room.take(Stance(delay=15.0))
        await waits(Inflow.TRUSTED)

    loop.run_until_complete(story())
    loop.close()
    outside, trusted = Inflow.OUTSIDE, Inflow.TRUSTED
    assert told == [(outside, True, 20.0), (trusted, False, 30.0), (trusted, False, 45.0)]
    assert (room.delayed, room.refused[outside], room.refused[trusted]) == (3, 1, 0)
