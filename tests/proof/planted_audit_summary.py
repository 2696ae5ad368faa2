"""Faults in what the summary tells of the tables, and in how pages show what strangers wrote."""

from __future__ import annotations

from .planting import in_audit

_NUMBERS = "the summary's numbers are those of the tables"
_SHOWN = "what strangers wrote is only shown"
SUMMARY = (
    *in_audit(
        "summary/steps.py",
        (
            "a percentile is the step before it",
            _NUMBERS,
            "    rank = max(1, -(-percent * total // 100))",
            "    rank = max(1, percent * total // 100)",
            "summary.py::test_a_percentile_is_the_step_of_the_value_with_its_rank",
        ),
        (
            "the end of a step is its beginning",
            _NUMBERS,
            "10 ** ((step + 1) / STEPS_OF_TEN) - 1)",
            "10 ** (step / STEPS_OF_TEN) - 1)",
            "summary.py::test_the_edges_of_a_step_of_time_hold_the_times_that_are_counted_there",
        ),
    ),
    *in_audit(
        "summary/sums.py",
        (
            "what is null joins another group",
            _NUMBERS,
            "    return _numbers(whole.indices, values), values + 1",
            "    return _numbers(whole.indices, 0), values + 1",
            "summary.py::test_the_numbers_are_those_of_the_rows",
        ),
    ),
    *in_audit(
        "summary/computing.py",
        (
            "all domains together are those that are shown",
            _NUMBERS,
            '        addresses=_sum(found, "addresses"),',
            '        addresses=_sum(_most(found, "messages", ["domain"], top), "addresses"),',
            "summary.py::test_the_numbers_are_those_of_the_rows",
        ),
        (
            "a verdict is of all messages for ever",
            _NUMBERS,
            "more = 0 if judged is None else max(0, messages - judged)",
            "more = 0",
            "summary.py::test_a_verdict_tells_when_it_was_made_and_that_there_are_more_messages_by_now",
        ),
        (
            "a day without mail is left out",
            _NUMBERS,
            "        days={day: days.get(day, Flow()) for day in every},",
            "        days={day: days[day] for day in every if day in days},",
            "summary.py::test_json_has_the_same_numbers",
        ),
    ),
    *in_audit(
        "summary/gold.py",
        (
            "the day at which it ends counts",
            _NUMBERS,
            '(not until or (one.day or "") < until)',
            '(not until or (one.day or "") <= until)',
            "summary.py::test_days_are_chosen_in_all_tables",
        ),
        (
            "rows that could not be read are not counted",
            _NUMBERS,
            "chosen or name in _WHOLE",
            'chosen or name == "findings"',
            "summary.py::test_the_text_is_in_the_order_of_pflogsumm",
        ),
        (
            "a damaged file has no rows",
            _NUMBERS,
            '        raise TablesError(f"{file.path} of the tables cannot be read: {problem}") from None',
            "        del problem\n        return empty(shape)",
            "summary.py::test_damaged_tables_are_named_with_status_2",
        ),
    ),
    *in_audit(
        "summary/text.py",
        (
            "no mail is told where no row could be read",
            _NUMBERS,
            "        if summary.unread.rows:\n",
            "        if False:\n",
            "summary.py::test_where_no_row_could_be_read_it_is_said_instead_of_no_mail_alone",
        ),
    ),
    *in_audit(
        "summary/units.py",
        (
            "a terminal obeys a reply",
            _SHOWN,
            'one if one.isprintable() else "\\N{REPLACEMENT CHARACTER}"',
            "one",
            "summary.py::test_no_terminal_obeys_what_strangers_wrote",
        ),
    ),
    *in_audit(
        "report/rendering.py",
        (
            "a page takes what strangers wrote for its own",
            _SHOWN,
            "        autoescape=True,",
            "        autoescape=False,",
            "summary.py::test_the_page_escapes_what_strangers_wrote_and_needs_nothing_else",
        ),
    ),
    *in_audit(
        "report/timeline.py",
        (
            "the steps of a problem are in any order",
            _SHOWN,
            "    return sorted(found, key=lambda step: step.at)",
            "    return list(found)",
            "report.py::test_steps_are_in_the_order_of_their_times",
        ),
    ),
)
