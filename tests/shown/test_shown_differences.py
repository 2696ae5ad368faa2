"""In what nodes differ that should be alike, as status and Overview tell it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from nodes_told import answers, silent

from shadowrelay.console.safety import judge
from shadowrelay.shown.differences import differences

NOW = datetime(2026, 11, 29, tzinfo=UTC)
ALIKE = {"accepted_domains": "1", "policy": "2"}
OTHER = {"accepted_domains": "3", "policy": "2"}


def told(*found: tuple[str, dict[str, Any]]) -> list[str]:
    return differences([answers(f"{name}.test", **more) for name, more in found])


def test_a_member_of_another_version_is_named_with_it():
    found = told(*((name, {"version": "0.2.0"}) for name in ("mx1", "mx2")), ("mx3", {"version": "0.1.0"}))
    assert found == ["members have different versions of shadowrelay: mx1 and mx2 run 0.2.0; mx3 runs 0.1.0"]


def test_a_domain_that_one_member_alone_accepts_is_a_difference_of_that_section():
    found = told(("mx1", {"settings": OTHER}), ("mx2", {"settings": ALIKE}), ("mx3", {"settings": ALIKE}))
    assert found == [
        "the settings of accepted_domains at mx1 differ from those of mx2 and mx3: compare shadowrelay "
        "config show there"
    ]


@pytest.mark.parametrize(
    "nodes",
    [
        [answers("mx1.test", settings=ALIKE), answers("mx2.test", settings=ALIKE)],
        [answers("mx1.test", settings=ALIKE), answers("mx2.test", settings=OTHER, site="far")],
        [answers("mx1.test", settings=ALIKE), silent("mx2.test")],
    ],
)
def test_members_alike_of_another_site_or_silent_are_no_difference(nodes: list[dict[str, Any]]):
    assert differences(nodes) == []


def test_what_an_older_member_does_not_tell_is_no_difference():
    older = answers("mx2.test")
    del older["status"]["settings"]
    assert differences([answers("mx1.test", settings=ALIKE), older]) == []


def test_the_first_screen_tells_it_and_mail_is_as_safe_as_before():
    found = judge(
        [answers("mx1.test", settings=ALIKE), answers("mx2.test", settings=OTHER, version="2")], NOW
    )
    assert [one.text.partition(" ")[0] for one in found.reasons if "differ" in one.text] == ["Members", "The"]
