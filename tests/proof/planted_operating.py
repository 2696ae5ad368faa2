"""Faults in what an operator is told of a resubmit request, and may ask."""

from __future__ import annotations

from .planting import Fault

_API = "operator/test_resubmit.py::"
_SQL = "database/test_database_resubmission.py::"

OPERATING = (
    Fault(
        name="a preview counts what crossed the boundary",
        rule="what crossed the boundary is refused, and counted as that",
        file="database/resubmission.py",
        edits=(("    if told & _RELAYED:\n        return MadeCount(outside=recipients)\n", ""),),
        test=_API + "test_a_preview_says_what_is_refused_and_why",
    ),
    Fault(
        name="a message with two recipients counts twice",
        rule="each message counts once",
        file="database/resubmission.py",
        edits=(("    messages = recipients if told & _FIRST else 0\n", "    messages = recipients\n"),),
        test=_API + "test_a_preview_counts_what_each_node_delivered_and_nothing_twice",
    ),
    Fault(
        name="the counts of several holders are taken for exact",
        rule="of several holders each message counts once; where that is not known, the preview says at most",
        file="operator/preview.py",
        edits=(("        return len(self.holders) > 1\n", "        return False\n"),),
        test=_API + "test_a_preview_says_what_cannot_be_reached_and_when_its_holders_answer",
    ),
    Fault(
        name="a request is done before each node has told so",
        rule="a request is done when each node that has it has told so",
        file="operator/resubmit.py",
        edits=(("and asked <= told and not left", "and not left"),),
        test=_API + "test_a_request_is_done_when_each_node_that_has_it_has_told_so",
    ),
    Fault(
        name="a member that answers can be called gone",
        rule="only a member that cannot be reached can be called gone",
        file="operator/counting.py",
        edits=(("            if name in contacts.reachable:\n", "            if not name:\n"),),
        test=_API + "test_only_a_member_that_is_away_can_be_called_gone",
    ),
    Fault(
        name="of two requests with the same number the first is meant",
        rule="a number that two nodes gave names no request",
        file="operator/resubmit.py",
        edits=(("        if len(found) > 1:\n", "        if not found:\n"),),
        test=_API + "test_a_number_that_two_nodes_gave_names_no_request",
    ),
    Fault(
        name="a read brings the log into the file while another one reads it",
        rule="while the file is read, the log stays beside it",
        file="database/reading.py",
        edits=(('    connection.execute("PRAGMA wal_autocheckpoint=0")\n', ""),),
        test=_SQL + "test_a_reader_beside_the_node_sees_what_was_committed_before_and_holds_up_no_writer",
    ),
)
