"""Faults in the front of a node of several workers."""

from __future__ import annotations

from .planting import Fault

_TESTS = "admin/test_admin_front.py::"

FRONT = (
    Fault(
        name="the front passes on what a client says of its own session",
        rule="who asks, the front finds out, and nobody tells it",
        file="admin/passing.py",
        edits=(('{b"content-length", HEADER}', '{b"content-length"}'),),
        test=f"{_TESTS}test_a_client_cannot_say_that_the_front_vouches_for_it",
    ),
    Fault(
        name="a worker that is silent at a health check is asked first all the same",
        rule="a worker that was silent is asked last",
        file="admin/passing.py",
        edits=(
            (
                "            if isinstance(error, TimeoutError):\n                self._ask_last",
                "            if False:\n                self._ask_last",
            ),
        ),
        test=f"{_TESTS}test_a_worker_that_was_silent_is_asked_last",
    ),
    Fault(
        name="a change that a worker may have done is asked of the next one",
        rule="a change is done once, or its outcome is told as unknown",
        file="admin/passing.py",
        edits=(("if gone.heard and call.changes:", "if False:"),),
        test=f"{_TESTS}test_what_a_worker_may_have_done_is_asked_of_no_other",
    ),
    Fault(
        name="a drain is done though a worker does not answer",
        rule="what is asked of a node is done when all its workers say so",
        file="admin/front_sums.py",
        edits=(("    return all(one.done for one in said)\n", "    return True\n"),),
        test=f"{_TESTS}test_a_drain_is_not_done_while_a_worker_does_not_answer",
    ),
    Fault(
        name="counters of a node forget what an ended process counted",
        rule="a counter of the node never falls while the supervisor runs",
        file="admin/front_metrics.py",
        edits=(("        total = dict(self._ended)\n", "        total: dict[_Key, float] = {}\n"),),
        test=f"{_TESTS}test_counters_of_the_node_never_fall_though_a_worker_ends",
    ),
    Fault(
        name="the front lists workers for whoever asks",
        rule="every route but the health checks needs a token",
        file="admin/front.py",
        edits=(("            self._identify(request)\n            check_host", "            check_host"),),
        test=f"{_TESTS}test_a_wrong_token_is_refused_at_every_route_of_the_front",
    ),
)
