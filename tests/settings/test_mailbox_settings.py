"""The settings of the mailbox service: where each comes from, and what is refused."""

from __future__ import annotations

import re
import tomllib
from datetime import timedelta
from pathlib import Path

import pytest

from shadowmailbox.settings import MAILBOX_ROOT, OPTIONS, LmtpAddress, load_mailbox_settings, parse_lmtp
from shadowrelay.settings import Described, SettingsInvalid, described
from shadowrelay.settings.values import HostPort

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "mailbox.md").read_text("utf-8")
ROWS = {
    found[1]: found for found in re.finditer(r"^\| `([a-z_.]+)` \| (.*?) \| (.*?) \| (.*) \|$", PAGE, re.M)
}
DERIVED = {
    "hostname": "this host's",
    "table": "`/var/lib/shadowrelay-mailbox/delivered-to.sqlite`; with `directory` in it",
    "track_duplicates": "`1h`",
}
LEAST = 'deliver = "lmtp://127.0.0.1:24"\ninside = "127.0.0.1:2600"\n'


def written(tmp_path: Path, text: str = LEAST) -> Path:
    file = tmp_path / "mailbox.toml"
    file.write_text(text)
    return file


def errors(path: Path | None, **options: str) -> list[str]:
    with pytest.raises(SettingsInvalid) as refused:
        load_mailbox_settings(path, {}, options)
    return [str(error) for error in refused.value.errors]


def test_an_option_overrides_the_environment_and_that_the_file(tmp_path: Path):
    file = written(tmp_path, f'{LEAST}sweep_interval = "1s"\ntrack_duplicates = "2h"\nhostname = "a.test"\n')
    environ = {"SHADOWRELAY_MAILBOX_SWEEP_INTERVAL": "2s", "SHADOWRELAY_MAILBOX_TRACK_DUPLICATES": "3h"}
    found = load_mailbox_settings(file, environ, {"sweep_interval": "3s"})
    assert (found.sweep_interval, found.track_duplicates) == (timedelta(seconds=3), timedelta(hours=3))
    assert (found.hostname, found.max_store_sessions) == ("a.test", 20)


def test_a_table_of_the_file_takes_one_value_from_elsewhere(tmp_path: Path):
    token = "0123456789abcdef"
    file = written(tmp_path, f'{LEAST}[admin]\nlisten = "127.0.0.1:1"\n')
    found = load_mailbox_settings(
        file, {"SHADOWRELAY_MAILBOX_ADMIN__TOKEN": token}, {"admin.listen": "[::1]:2"}
    )
    assert str(found.admin.listen) == "[::1]:2"
    assert found.admin.token is not None
    assert found.admin.token.get_secret_value() == token


def test_paths_in_the_file_start_at_its_directory_and_those_of_options_here(tmp_path: Path):
    file = written(tmp_path, LEAST + 'table = "t"\n')
    assert load_mailbox_settings(file, {}).table == tmp_path / "t"
    assert load_mailbox_settings(file, {}, {"table": "t"}).table == Path("t")


def test_maildirs_keep_their_table_beside_them(tmp_path: Path):
    found = load_mailbox_settings(None, {}, {"directory": str(tmp_path), "inside": "127.0.0.1:0"})
    assert found.table == tmp_path / ".delivered-to.sqlite"


def test_an_option_names_another_store_than_the_file(tmp_path: Path):
    found = load_mailbox_settings(written(tmp_path), {}, {"directory": str(tmp_path)})
    assert (found.deliver, found.directory) == (None, tmp_path)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("lmtp://mail.test:24", HostPort("mail.test", 24)),
        ("lmtp://[2001:db8::1]:24", HostPort("2001:db8::1", 24)),
        ("lmtp:///run/dovecot/lmtp", Path("/run/dovecot/lmtp")),
    ],
)
def test_a_store_is_named_by_a_url(text: str, at: HostPort | Path):
    assert parse_lmtp(text) == LmtpAddress(at)
    assert str(parse_lmtp(text)) == text


@pytest.mark.parametrize(
    "text", ["smtp://x:24", "x:24", "lmtp://x", "lmtp://x:0", "lmtp://::1:24", "lmtp://x:24/y", "lmtp://", ""]
)
def test_what_is_no_url_of_a_store_is_refused(text: str):
    with pytest.raises(ValueError, match=r"\w"):
        parse_lmtp(text)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            'track_duplicates = "50d"',
            'track_duplicates = "50d" ({file}): duplicates are tracked for at most 49 days',
        ),
        ('store_timeout = "10m"', 'store_timeout = "10m" ({file}): out of range; allowed: a duration'),
        ("sweeep_interval = 1", 'sweeep_interval ({file}): unknown setting – did you mean "sweep_interval"?'),
        ("colour = 1", "unknown setting; allowed: the keys in docs/reference/mailbox.md"),
        ('directory = "d"', "directory ({file}): beside deliver: mail has one store"),
        ('outside = "127.0.0.1:1"', "outside ({file}): with deliver"),
        ('admin.listen = "127.0.0.1:2600"', "127.0.0.1:2600 is listened on twice"),
        ('admin.token = "short"', "admin.token = ******** ({file}): "),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, line: str, told: str):
    file = written(tmp_path, f"{LEAST}{line}\n")
    found = errors(file)
    assert any(told.format(file=file) in error for error in found), found


def test_all_errors_are_told_at_once_those_of_variables_too(tmp_path: Path):
    with pytest.raises(SettingsInvalid) as refused:
        load_mailbox_settings(None, {"SHADOWRELAY_MAILBOX_HOSTNMAE": "x"}, {"deliver": "x", "inside": "y"})
    assert len(refused.value.errors) == 3
    assert errors(None, inside="127.0.0.1:0")[0].startswith("deliver: has to be set")


def test_variables_of_a_node_are_none_of_its_business():
    environ = {"SHADOWRELAY_NAME": "mx1.example.net", "SHADOWRELAY_CONFIG": "x"}
    assert load_mailbox_settings(None, environ, {"deliver": "lmtp://a:1", "inside": "127.0.0.1:0"})


@pytest.mark.parametrize("setting", list(described(MAILBOX_ROOT)), ids=lambda setting: setting.key)
def test_every_setting_has_a_row_with_its_default_and_range(setting: Described):
    row = ROWS.get(setting.key)
    assert row is not None, "not in docs/reference/mailbox.md"
    plain = setting.default if setting.default in {"", "not set"} else f"`{setting.default}`"
    assert row[2] == DERIVED.get(setting.key, plain or "**required**")
    limits = re.search(r"from \S+ to \S+|at least \d+ characters", setting.allowed)
    assert limits is None or limits[0] in row[3]


def test_no_row_is_about_a_setting_that_does_not_exist():
    assert set(ROWS) == {setting.key for setting in described(MAILBOX_ROOT)}


def test_each_option_is_a_setting():
    assert set(OPTIONS) <= {setting.key for setting in described(MAILBOX_ROOT)}


def test_the_settings_in_deploy_are_right():
    text = (ROOT / "deploy" / "systemd" / "mailbox.toml").read_text("utf-8")
    found = load_mailbox_settings(ROOT / "deploy" / "systemd" / "mailbox.toml", {})
    assert set(tomllib.loads(text)) <= set(type(found).model_fields)
    assert found.admin.listen is not None
