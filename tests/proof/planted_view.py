"""Faults in the one view of all nodes."""

from __future__ import annotations

from .planting import Fault

_VIEW = "operator/test_view.py::"
_SEARCH = "database/test_database_search.py::"
_CLUSTER = "admin/test_admin_cluster.py::"

VIEWING = (
    Fault(
        name="a member that the heartbeats do not reach is waited for like any other",
        rule="a member that cannot be reached holds the view up for half a second at most",
        file="operator/view.py",
        edits=(("until = min(until, self.seconds() + LITTLE_PATIENCE)", "until += 0.0"),),
        test=_VIEW + "test_a_member_that_heartbeats_do_not_reach_is_given_little_time",
    ),
    Fault(
        name="each part of a look is looked at anew",
        rule="all parts of an answer are of one moment",
        file="operator/view.py",
        edits=(("kept[1] if kept and part else await", "await"),),
        test=_VIEW + "test_a_long_answer_comes_in_parts_of_the_moment_when_the_first_was_asked_for",
    ),
    Fault(
        name="a member that falls silent in between counts as complete",
        rule="an answer of which a part is missing says so",
        file="operator/view.py",
        edits=(('return {**whole, "incomplete": why} if whole else why', "return whole or why"),),
        test=_VIEW + "test_what_came_of_a_member_that_falls_silent_in_between_is_shown_as_incomplete",
    ),
    Fault(
        name="nobody is asked for copies of what others found",
        rule="each message is shown with all its copies, also where the search of a node does not match it",
        file="operator/finding.py",
        edits=(("return [id_ for id_ in self.ids if node not in self.copies[id_]]", "return []"),),
        test=_CLUSTER + "test_a_node_that_does_not_find_a_message_still_tells_what_it_has_of_it",
    ),
    Fault(
        name="a full page counts as the last one",
        rule="pages of a search follow one another without a gap or a repetition",
        file="database/search.py",
        edits=(("found[-1] if len(found) == most else None", "None"),),
        test=_SEARCH + "test_pages_follow_one_another_without_a_gap_or_a_repetition",
    ),
    Fault(
        name="the signs of SQL's LIKE keep their meaning",
        rule="words of a subject mean themselves",
        file="database/search.py",
        edits=(('return re.sub(r"([\\\\%_])", r"\\\\\\1", text)', "return text"),),
        test=_SEARCH + "test_words_of_the_subject_are_found_in_any_order_and_signs_of_sql_mean_themselves",
    ),
)
