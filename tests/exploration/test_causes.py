"""Why a recipient got a message again, judged by ages that end."""

from __future__ import annotations

from .situation import FORGOTTEN, OLD, TIMINGS, Known, Situation, Taken, Wrong, cause


def test_octets_sent_before_a_freeze_explain_a_second_delivery_however_late_they_arrive() -> None:
    first, again = (Taken("m1", 1, name, reply_lost=False) for name in ("mx2", "mx1"))
    at = Situation(
        nodes=(0, 0),
        taken=(first, again),
        known=(Known("m1", 1, "mx2", OLD),),
        wrong=(Wrong("freeze", "mx1", None, start=OLD, end=OLD, long=True),),
    )
    assert cause(at, TIMINGS, 2, first, again, OLD) == "freeze with a delivery in flight"
    assert cause(at, TIMINGS, 2, first, again, 1).startswith("!")  # it began when all was well again


def test_a_crash_that_was_over_before_a_delivery_began_did_not_interrupt_it() -> None:
    first, again = (Taken("m1", 1, name, reply_lost=False) for name in ("mx2", "mx1"))
    crash = Wrong("crash", "mx1", None, start=FORGOTTEN, end=FORGOTTEN)
    at = Situation(nodes=(0, 0), taken=(first, again), wrong=(crash,))
    assert cause(at, TIMINGS, 2, first, again, OLD) != "crash between delivery and settling"
    assert cause(at._replace(wrong=(crash._replace(start=OLD, end=OLD),)), TIMINGS, 2, first, again, OLD) == (
        "crash between delivery and settling"
    )


def test_a_partition_that_came_upon_a_delivery_explains_that_another_node_took_over() -> None:
    first, again = (Taken("m1", 1, name, reply_lost=False) for name in ("mx2", "mx1"))
    cut = Wrong("partition", "mx1", "mx2", start=5)
    at = Situation(nodes=(0, 0), taken=(first, again), wrong=(cut,))
    assert cause(at, TIMINGS, 2, first, again, OLD) == "partition, boundary of two"
    assert cause(at._replace(wrong=()), TIMINGS, 2, first, again, OLD).startswith("!")
    knew = at._replace(wrong=(cut._replace(end=5),), known=(Known("m1", 1, "mx2", 5),))
    assert cause(knew, TIMINGS, 2, first, again, 0).startswith("!mx2 knew")
