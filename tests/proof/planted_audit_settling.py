"""Faults in what is kept, settled and judged again, and how the command ends."""

from __future__ import annotations

from .planting import in_audit

_SETTLED = "what is settled stays right"
SETTLING = (
    *in_audit(
        "logs/state.py",
        (
            "a file that was changed since is not read again",
            _SETTLED,
            "        if facts is None or (facts.size, facts.modified) != (file.size, file.modified):",
            "        if facts is None:",
            (
                "settling.py::test_an_exchange_log_that_grows_is_merged_as_often_as_it_is_read_and_no"
                "thing_else_is"
            ),
        ),
    ),
    *in_audit(
        "logs/settled.py",
        (
            "a piece that was changed is used",
            _SETTLED,
            "                if _signs(self.path(one.name, ending)) != expected:",
            "                if _signs(self.path(one.name, ending)) is None:",
            "settling.py::test_what_cannot_be_used_is_made_again_and_said_so",
        ),
    ),
)
