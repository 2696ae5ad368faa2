"""Faults in work that goes over very many messages in parts."""

from __future__ import annotations

from .planting import Fault

_MANY = "database/test_very_many.py::"

VERY_MANY = (
    Fault(
        name="what is not counted yet counts as nothing",
        rule="a lost holder is looked for wherever it may have a copy",
        file="database/tally.py",
        edits=(("return self.place is None and not self._counts", "return not self._counts"),),
        test=f"{_MANY}test_before_all_are_counted_a_lost_holder_is_looked_for_in_the_whole_queue",
    ),
    Fault(
        name="a sweep of old copies begins at the front again",
        rule="each copy that nobody ever settled expires",
        file="safety_net/expiry.py",
        edits=(("        held, self._place = held_since_before(", "        held, _ = held_since_before("),),
        test="safety_net/test_expiry.py::"
        "test_of_very_many_copies_each_sweep_looks_at_a_part_and_the_next_goes_on",
    ),
    Fault(
        name="a node asks nothing once its database is open",
        rule="what may have been sent or taken over is asked about",
        file="service/opening.py",
        edits=(("node.opening = node.inquiry.opening = False", "node.opening = False"),),
        test="service/test_opening.py::test_an_opening_ends_with_everything_marked_and_nothing_left_behind",
    ),
)
