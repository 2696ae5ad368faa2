"""Faults in the data source of Spark: files that are left out, and rows that are not told as they are."""

from __future__ import annotations

from dataclasses import replace

from .planting import Fault, in_audit

_NEEDED = "no file that a query needs is left out"
_ONCE = "a stream has each file, and each once"
_TOLD = "what cannot be read is told"
_MEANT = "a value is what the row says"


def _in(file: str, *faults: tuple[str, str, str, str, str]) -> list[Fault]:
    found = in_audit(f"spark/{file}", *faults)
    return [replace(one, test=one.test.replace("test_audit_", "test_source_")) for one in found]


EVENTS = (
    *_in(
        "planning.py",
        (
            "rows are left out as soon as the last of them is too old",
            _NEEDED,
            "last < self.since",
            "first < self.since",
            "planning.py::test_rows_of_which_one_is_asked_for_are_wanted",
        ),
        (
            "a file that grew is not read again",
            _ONCE,
            "if _read(log.uri, start) != log.size]",
            "if _read(log.uri, start) is None]",
            "planning.py::test_a_stream_reads_each_file_once_and_one_that_grew_again",
        ),
        (
            "files that are away are forgotten",
            _ONCE,
            "for directory, names in (before or {}).items()}",
            "for directory, names in {}.items()}",
            "planning.py::test_a_directory_that_is_away_for_a_while_is_not_read_twice",
        ),
        (
            "a file that is gone before it was read is passed over",
            _ONCE,
            "if _read(uri, start) != _read(uri, end)]",
            "if _read(uri, start) != _read(uri, end) and uri in at_hand]",
            "planning.py::test_a_file_that_was_planned_and_is_gone_is_named",
        ),
    ),
    *_in(
        "events.py",
        (
            "the last row tells the time of those above",
            _NEEDED,
            'first, last = found["min"].as_py(), found["max"].as_py()',
            'first = last = found["max"].as_py()',
            "planning.py::test_a_row_of_the_time_that_is_asked_for_is_found_wherever_the_clock_was_set[False]",
        ),
        (
            "a row that cannot be read is left out",
            _TOLD,
            "        for row in rows.unreadable:",
            "        for row in ():",
            "events.py::test_a_row_that_is_none_is_told_with_its_text_and_the_others_are_read",
        ),
        (
            "a value that is none is null without a word",
            _TOLD,
            "            if made.null_count > cells.null_count:",
            "            if made.null_count > len(made):",
            "events.py::test_a_value_that_is_none_is_null_and_told_and_the_rest_of_the_row_is_read",
        ),
        (
            "the hash of a file is not compared for queries",
            _TOLD,
            "closing_faults(name_of(self.uri), self.reading.sha256(), self.rows)",
            "closing_faults(name_of(self.uri), layout.footer.sha256 if layout.footer else '', self.rows)",
            "events.py::test_what_is_wrong_with_a_file_is_a_row_behind_its_rows[an octet]",
        ),
    ),
    *_in(
        "values.py",
        (
            "of several entries with one name the last counts",
            _MEANT,
            "np.unique(place, return_index=True)",
            "np.unique(place[::-1], return_index=True)\n        first = len(place) - 1 - first",
            "events.py::test_whatever_the_cells_hold_they_are_read_as_one_row_by_itself",
        ),
        (
            "a semicolon in brackets ends a status",
            _MEANT,
            'if found and found[-1].startswith("[{") and not',
            'if found and found[-1].startswith("[[") and not',
            "events.py::test_statuses_that_exchange_does_not_quote_are_one_for_each_recipient",
        ),
        (
            "the apostrophe before a formula stays",
            _MEANT,
            "begin[row] += len(text) - len(restored(text))",
            "begin[row] += len(text) - len(text)",
            "events.py::test_whatever_the_cells_hold_they_are_read_as_one_row_by_itself",
        ),
    ),
    *_in(
        "source.py",
        (
            "a schema that was given before hides the columns that are asked for",
            "a reader has the columns that it was asked for",
            "        if named and named != told:",
            "        if named and told != told:",
            "format.py::test_a_schema_and_other_columns_at_once_are_refused",
        ),
    ),
    *_in(
        "places.py",
        (
            "secrets are shown with a place",
            "nobody reads a secret in a file's name or an error",
            'raise FileNotFoundError(f"nothing is like {plain_uri(place)}")',
            'raise FileNotFoundError(f"nothing is like {place}")',
            "places.py::test_a_bucket_that_is_not_there_is_named_without_its_secrets",
        ),
    ),
    *_in(
        "views.py",
        (
            "deliveries without a latency are counted among latencies",
            _MEANT,
            "        WHERE seconds IS NOT NULL\n",
            "",
            "docs.py::test_latencies_are_of_deliveries_that_have_one_and_the_p95_is_one_of_them",
        ),
        (
            "a p95 is between two latencies",
            _MEANT,
            "percentile_disc(0.95D) WITHIN GROUP (ORDER BY seconds)",
            "percentile(seconds, 0.95D)",
            "docs.py::test_latencies_are_of_deliveries_that_have_one_and_the_p95_is_one_of_them",
        ),
    ),
)
