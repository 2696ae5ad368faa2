"""docs/reference/settings.md says of every setting what the code says."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from shadowrelay.core.policy import Policy
from shadowrelay.settings import Described, SettingsInvalid, described, settings_from_tree
from shadowrelay.settings.when_changed import when

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "settings.md").read_text()
ROW = re.compile(r"^\| `([^`]+)` \| (.*?) \| (.*?) \| (.*) \|$", re.MULTILINE)
ROWS = {found[1]: found for found in ROW.finditer(PAGE) if re.fullmatch(r"[a-z0-9_.\[\]A-Z]+", found[1])}
DERIVED = {
    "host": "`name`",
    "members[].host": "`name`",
    "receive.NAME.connection_timeout": "`10m`, with the profile `edge` `5m`",
    "receive.NAME.connection_inactivity_timeout": "`5m`, with the profile `edge` `1m`",
    "routes.NAME.tls": "`opportunistic`, with `username` `required`",
    "sites.NAME.tls": "`opportunistic`, with `username` `required`",
    "tracking.directory": "`tracking` in `data_dir`",
}


@pytest.mark.parametrize("setting", list(described()), ids=lambda setting: setting.key)
def test_every_setting_has_a_row_with_its_default_and_range(setting: Described):
    row = ROWS.get(setting.key)
    assert row is not None, "not in docs/reference/settings.md"
    plain = setting.default if setting.default == "not set" else f"`{setting.default}`"
    assert row[2] == DERIVED.get(setting.key, plain if setting.default else "**required**")
    limits = re.search(r"from \S+ to \S+|at (least|most) \d+ characters|\S+, \S+ or \S+$", setting.allowed)
    assert (
        limits is None
        or limits[0] in row[3]
        or setting.allowed.startswith(("host:port", "a domain", "a list"))
    )


@pytest.mark.parametrize("setting", list(described()), ids=lambda setting: setting.key)
def test_every_setting_says_when_a_change_counts(setting: Described):
    says = when(setting.key)
    assert says is not None, "settings/when_changed.py does not say"
    row = ROWS[setting.key][0]
    assert row.rpartition("| ")[2] == f"{says.value} |"


def test_no_row_is_about_a_setting_that_does_not_exist():
    known = {setting.key for setting in described()}
    recommendations = {"queue_glitch_retry_interval"}
    assert set(ROWS) <= known | recommendations


def test_settings_that_are_ours_stand_apart_from_those_of_exchange():
    ours = PAGE.index("These have no counterpart in Exchange")
    end = PAGE.index("## `[receive.NAME]`")
    for tunable in fields(Policy):
        place = PAGE.index(f"| `{tunable.name}` |")
        assert (ours < place < end) == (tunable.metadata["source"] == "ours"), tunable.name


def test_the_example_that_the_page_leads_to_is_right_but_for_the_files_that_are_not_here():
    assert "(../../README.md#a-cluster-of-three-nodes)" in PAGE
    (example,) = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    with pytest.raises(SettingsInvalid) as refused:
        settings_from_tree(tomllib.loads(example))
    password = "cannot be read: No such file or directory"  # if the example logs in at a smart host
    assert {error.message for error in refused.value.errors} - {password} == {"there is no such file"}
