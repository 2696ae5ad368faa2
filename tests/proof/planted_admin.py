"""Faults in who may ask the admin API, and in its event stream."""

from __future__ import annotations

from .planting import Fault

_ACCESS = "admin/test_admin_access.py::"
_EVENTS = "admin/test_admin_events.py::"
_FILE, _ANSWERING = "admin/access.py", "admin/answering.py"

ADMIN = (
    Fault(
        name="a token that may only look changes something",
        rule="a change takes the scope operate",
        file=_ANSWERING,
        edits=(("            session_of(request).require(Scope.OPERATE)\n", ""),),
        test=_ACCESS + "test_every_route_wants_a_token_that_may_do_it",
    ),
    Fault(
        name="any form of a session acts",
        rule="a form carries the token of its session against forgery",
        file=_ANSWERING,
        edits=(('            check_csrf((await form_of(request)).get("csrf", ""), session.csrf)\n', ""),),
        test=_ACCESS + "test_a_form_acts_with_the_csrf_of_its_session_from_a_page_of_this_node_alone",
    ),
    Fault(
        name="any JSON of a session acts",
        rule="a change by a session carries its token against forgery",
        file=_ANSWERING,
        edits=(("            if session.cookie:\n", "            if not session.operator:\n"),),
        test=_ACCESS + "test_a_session_changes_something_only_with_its_own_token_against_forgery",
    ),
    Fault(
        name="a form of another site acts",
        rule="only a page of this node sends a form",
        file=_ANSWERING,
        edits=(
            (
                "            check_origin(request.headers, self.name, anybody=self.access.open)\n",
                "",
            ),
        ),
        test=_ACCESS + "test_a_form_acts_with_the_csrf_of_its_session_from_a_page_of_this_node_alone",
    ),
    Fault(
        name="a rebound page reads the token against forgery",
        rule="without a token, pages are for requests by this node's name or address",
        file=_ANSWERING,
        edits=(
            (
                "            check_host(request.headers, self.name, anybody=self.access.open)\n"
                "            self._identify(request).require(Scope.READ)\n",
                "            self._identify(request).require(Scope.READ)\n",
            ),
        ),
        test=_ACCESS + "test_without_a_token_a_form_still_needs_the_csrf_that_a_rebound_page_cannot_read",
    ),
    Fault(
        name="who has a named token calls himself as he likes",
        rule="the name of a token that is one person's is who did it",
        file=_FILE,
        edits=(
            (
                "        return name if name and self.shared else self.operator\n",
                "        return name or self.operator\n",
            ),
        ),
        test=_ACCESS + "test_a_shared_token_lets_its_holder_say_who_he_is_and_a_named_one_does_not",
    ),
    Fault(
        name="a session outlives its token",
        rule="a session ends with the token that began it",
        file=_FILE,
        edits=(
            (
                "        if idle or token is None or token.scope is not kept.session.scope:\n",
                "        if idle:\n",
            ),
        ),
        test=_ACCESS + "test_a_session_ends_when_nobody_uses_it_and_with_its_token",
    ),
    Fault(
        name="a token whose file is gone goes on to count",
        rule="a token that cannot be read admits nobody",
        file=_FILE,
        edits=(("            self._digest = self._stamp = None\n", "            self._stamp = None\n"),),
        test=_ACCESS
        + "test_a_token_in_a_file_is_read_again_when_it_changes_and_admits_nobody_when_it_is_gone",
    ),
    Fault(
        name="an event is told before its row is durable",
        rule="a row is told once it is in a file and synced",
        file="tracking/writer.py",
        edits=(
            ("        self._tell(upto)\n", ""),
            (
                "        await self._off_loop(self._sync)\n",
                "        self._tell(upto)\n        await self._off_loop(self._sync)\n",
            ),
        ),
        test="tracking/test_tracking_writer.py::test_subscribers_hear_of_a_row_once_it_is_on_disk",
    ),
    Fault(
        name="who asks again misses the first event",
        rule="a stream goes on with the row after the one that was had",
        file="tracking/events.py",
        edits=(
            (
                "            start = place + 1 - self._rows[0].sequence\n",
                "            start = place + 2 - self._rows[0].sequence\n",
            ),
        ),
        test=_EVENTS + "test_who_was_away_goes_on_after_the_last_event_he_had_over_files_and_memory",
    ),
    Fault(
        name="who asks again misses the first event of a file",
        rule="a stream goes on with the row after the one that was had, also out of files",
        file="tracking/tail.py",
        edits=(
            (
                "        if not digits.isdigit() or int(digits) <= place:",
                "        if not digits.isdigit() or int(digits) <= place + 1:",
            ),
        ),
        test=_EVENTS + "test_who_asks_for_all_that_files_have_hears_each_row_once",
    ),
    Fault(
        name="rows that no file has are missed without a word",
        rule="a gap is told",
        file="tracking/events.py",
        edits=(
            (
                "                gap = rows[0].sequence != self._place + 1\n",
                "                gap = False\n",
            ),
        ),
        test=_EVENTS + "test_a_row_that_no_file_has_any_more_is_a_gap_that_is_told",
    ),
)
