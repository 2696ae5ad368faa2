"""Faults in the console: what a page shows, to whom, and what a form may do."""

from __future__ import annotations

from .planting import Edit, Fault

_PAGES = "console/test_console_pages.py::"
_SITE, _FRAME, _ACTING = "console/site.py", "console/pages.py", "console/acting.py"

CONSOLE = (
    Fault(
        name="a subject is taken for markup",
        rule="every value in a page is escaped",
        file=_SITE,
        edits=(("            autoescape=True,\n", "            autoescape=False,\n"),),
        test=_PAGES + "test_a_page_keeps_to_itself_and_shows_what_is_hostile_as_text",
    ),
    Fault(
        name="a page may load what it likes",
        rule="every page carries the policy for content",
        file=_SITE,
        edits=(('    "content-security-policy": _POLICY,\n', ""),),
        test=_PAGES + "test_a_page_keeps_to_itself_and_shows_what_is_hostile_as_text",
    ),
    Fault(
        name="a form of the console is not checked against forgery",
        rule="each act of the console is a form with the token of its session",
        file=_FRAME,
        edits=(("self._answers.forms(handler, self.refuse)", "self._answers.pages(handler, self.refuse)"),),
        test=_PAGES + "test_an_act_shows_count_and_sample_then_asks_for_a_reason_and_becomes_a_job",
    ),
    Fault(
        name="who may only look sees the buttons that act",
        rule="a session that may not operate sees no form that changes",
        file=_FRAME,
        edits=(
            (
                "bool(session.csrf) and session.scope.allows(Scope.OPERATE)",
                "bool(session.csrf)",
            ),
        ),
        test=_PAGES + "test_a_token_that_may_look_sees_no_form_that_changes_and_may_send_none",
    ),
    Fault(
        name="who may only look is asked whether to remove",
        rule="the question of an act takes the scope operate",
        beside=(
            Edit(
                f"src/shadowrelay/{_ACTING}",
                "    session_of(request).require(Scope.OPERATE)\n",
                "",
                within="JobPages._ask",
            ),
        ),
        test=_PAGES + "test_a_token_that_may_look_sees_no_form_that_changes_and_may_send_none",
    ),
    Fault(
        name="a refused act forgets what was typed",
        rule="a form that is refused comes back as it was",
        file=_ACTING,
        edits=(('("reason", "until", "with_report")', '("until", "with_report")'),),
        test=_PAGES + "test_a_refused_act_says_why_beside_its_button_and_keeps_what_was_typed",
    ),
    Fault(
        name="an act needs no reason",
        rule="what changes mail needs a reason",
        file=_ACTING,
        edits=(("            if not reason:\n", "            if reason is None:\n"),),
        test=_PAGES + "test_an_act_shows_count_and_sample_then_asks_for_a_reason_and_becomes_a_job",
    ),
    Fault(
        name="the question of a reload reloads",
        rule="a page that asks changes nothing",
        beside=(
            Edit(
                "src/shadowrelay/console/node_pages.py",
                "dry_run=True",
                "dry_run=False",
                within="NodePages._reloading",
            ),
        ),
        test=_PAGES + "test_a_reload_shows_first_what_it_changes_and_then_why_it_is_refused",
    ),
    Fault(
        name="a suspended message looks like any other",
        rule="lists show which messages an operator suspended",
        file="admin/render_messages.py",
        edits=(("maybe(copy.suspended_until)", "None"),),
        test=_PAGES + "test_a_suspended_message_is_marked_in_lists_and_on_its_page",
    ),
    Fault(
        name="a node hides that one of its workers is silent",
        rule="a node of whose workers one is silent says so",
        file="operator/grouping.py",
        edits=(
            (
                '    failing = [one for one in workers if one["why"]]\n',
                '    failing = [one for one in workers if not any(w["answers"] for w in workers)]\n',
            ),
        ),
        test="operator/test_grouping.py::test_a_node_of_whose_workers_one_is_silent_says_so",
    ),
    Fault(
        name="a node takes no mail when one of its workers takes none",
        rule="a node takes mail while one of its workers does",
        file="operator/grouping.py",
        edits=(
            (
                '    ready = any(one["ready"] for one in found)\n',
                '    ready = all(one["ready"] for one in found)\n',
            ),
        ),
        test="operator/test_grouping.py::test_counts_of_workers_are_summed_and_the_worst_is_told",
    ),
)
