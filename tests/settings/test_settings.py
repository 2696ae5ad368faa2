"""Settings: one file, the environment over it, and every error at once."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest

from shadowrelay.core.policy import Policy, ShadowMessagePreference
from shadowrelay.settings import (
    HostPort,
    Settings,
    SettingsInvalid,
    effective,
    load_settings,
)

MINIMAL = """
name = "MX1.example.net"

[receive.default]
listen = "127.0.0.1:0"
"""


@pytest.fixture
def written(tmp_path: Path):
    def write(text: str, name: str = "mx1.toml") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def errors_of(path: Path | None, environ: dict[str, str] | None = None) -> dict[str, str]:
    """Each error's text by key; the settings must be refused."""
    with pytest.raises(SettingsInvalid) as refused:
        load_settings(path, environ or {})
    return {error.key: str(error) for error in refused.value.errors}


def test_a_minimal_file_gives_every_default(written):
    settings = load_settings(written(MINIMAL), {})
    assert settings.name == "mx1.example.net"
    assert settings.host == "mx1.example.net"
    assert settings.policy() == Policy()
    assert settings.tracking.directory == settings.data_dir / "tracking"
    assert settings.relay_networks == []
    assert settings.accepted_domains == []
    assert settings.receive["default"].listen == HostPort("127.0.0.1", 0)


def test_every_tunable_of_the_policy_is_a_setting_under_its_own_name(written):
    settings = load_settings(written(MINIMAL), {"SHADOWRELAY_SAFETY_NET_HOLD_TIME": "1h30m"})
    assert settings.policy().safety_net_hold_time == timedelta(minutes=90)
    assert {field.name for field in fields(Policy)} <= {setting.key for setting in effective(settings)}


def test_the_environment_beats_the_file_and_the_file_beats_the_default(written):
    path = written('shadow_resubmit_time_span = "10m"\nqueue_max_idle_time = "1m"\n' + MINIMAL)
    settings = load_settings(path, {"SHADOWRELAY_SHADOW_RESUBMIT_TIME_SPAN": "20s", "HOME": "/root"})
    assert settings.policy().shadow_resubmit_time_span == timedelta(seconds=20)
    assert settings.policy().queue_max_idle_time == timedelta(minutes=1)
    assert str(settings.origin("shadow_resubmit_time_span")) == "SHADOWRELAY_SHADOW_RESUBMIT_TIME_SPAN"
    assert str(settings.origin("queue_max_idle_time")) == str(path)
    assert str(settings.origin("safety_net_hold_time")) == "default"


def test_two_underscores_step_into_a_table_of_the_file(written):
    path = written(MINIMAL + '[receive.From-Outside]\nlisten = "127.0.0.1:2525"\n')
    environ = {
        "SHADOWRELAY_RECEIVE__FROM_OUTSIDE__MAX_MESSAGE_SIZE": "1MiB",
        "SHADOWRELAY_LOG__LEVEL": "debug",
    }
    settings = load_settings(path, environ)
    assert settings.receive["From-Outside"].max_message_size == 2**20
    assert settings.receive["From-Outside"].listen.port == 2525
    assert settings.log.level == "debug"


def test_an_empty_variable_leaves_a_group_of_named_tables_as_the_file_has_it(written):
    path = written(MINIMAL + '[receive.default.filters.own]\naddress = "inet:127.0.0.1:1"\n')
    variable = "SHADOWRELAY_RECEIVE__DEFAULT__FILTERS"
    assert set(load_settings(path, {variable: ""}).receive["default"].filters) == {"own"}
    assert load_settings(written(MINIMAL), {variable: ""}).receive["default"].filters == {}


def test_the_environment_alone_can_configure_a_node():
    environ = {
        "SHADOWRELAY_NAME": "mx1.example.net",
        "SHADOWRELAY_RECEIVE": '{"default": {"listen": "127.0.0.1:25", "submission": true}}',
        "SHADOWRELAY_RECEIVE__DEFAULT__LISTEN": "[::1]:25",
        "SHADOWRELAY_ACCEPTED_DOMAINS": "inside.test, *.inside.test",
        "SHADOWRELAY_RELAY_NETWORKS": '["10.0.0.0/8"]',
        "SHADOWRELAY_PEER": "",
        "SHADOWRELAY_CONFIG": "/etc/elsewhere.toml",
    }
    settings = load_settings(None, environ)
    assert settings.receive["default"].listen == HostPort("::1", 25)
    assert settings.receive["default"].submission
    assert settings.accepted_domains == ["inside.test", "*.inside.test"]
    assert [str(network) for network in settings.relay_networks] == ["10.0.0.0/8"]
    assert settings.peer is None


def test_constructing_settings_does_not_look_at_the_process_environment(monkeypatch):
    monkeypatch.setenv("SHADOWRELAY_SITE", "elsewhere")
    assert Settings(name="mx1", receive={}).site == "default"


def test_any_value_can_stand_in_a_file_that_a_variable_names(written):
    secret = written("correct horse battery\n", "token")
    settings = load_settings(written(MINIMAL), {"SHADOWRELAY_ADMIN__TOKEN_FILE": str(secret)})
    assert settings.admin.token is not None
    assert settings.admin.token.get_secret_value() == "correct horse battery"
    assert str(settings.origin("admin.token")) == "SHADOWRELAY_ADMIN__TOKEN_FILE"


def test_a_value_given_twice_is_refused(written):
    environ = {"SHADOWRELAY_SITE": "a", "SHADOWRELAY_SITE_FILE": str(written("b", "site"))}
    assert "set by SHADOWRELAY_SITE as well" in errors_of(written(MINIMAL), environ)["SHADOWRELAY_SITE_FILE"]


def test_relative_paths_are_taken_from_the_directory_of_the_file(written, tmp_path):
    settings = load_settings(written('data_dir = "data"\n' + MINIMAL), {})
    assert settings.data_dir == tmp_path / "data"
    assert settings.tracking.directory == tmp_path / "data" / "tracking"


def test_the_tracking_log_stands_in_a_data_directory_below_the_home_directory(written, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = load_settings(written('data_dir = "~/data"\n' + MINIMAL + '[tracking]\nmax_age = "1d"\n'), {})
    assert settings.data_dir == tmp_path / "data"
    assert settings.tracking.directory == tmp_path / "data" / "tracking"


def test_our_own_entry_is_left_out_of_the_members(written):
    settings = load_settings(
        written(
            MINIMAL
            + """
            [peer]
            listen = "127.0.0.1:2526"
            externally_secured = ["127.0.0.0/8"]
            [[members]]
            name = "mx1.example.net"
            address = "mx1.example.net:2526"
            [[members]]
            name = "MX2.example.net"
            address = "[2001:db8::2]:2526"
            """
        ),
        {},
    )
    assert [member.name for member in settings.members] == ["mx2.example.net"]
    assert settings.members[0].host == "mx2.example.net"
    assert str(settings.members[0].address) == "[2001:db8::2]:2526"


def test_every_error_is_reported_at_once_with_key_value_source_and_what_is_allowed(written):
    path = written(
        """
        safety_net_hold_time = "2 days"
        max_retries_for_local_site_shadow = 256
        shadow_message_preference_setting = "PreferRemote"
        [receive.default]
        listen = "127.0.0.1"
        [receive.other]
        listen = "127.0.0.1:25"
        connection_timeout = "1m"
        """
    )
    environ = {
        "SHADOWRELAY_QUEUE_GLITCH_RETRY_INTERVAL": "13h",
        "SHADOWRELAY_MEMBERS": "[{",
        "SHADOWRELAY_SHADOW_HEARTBEAT_FREQENCY": "1m",
        "SHADOWRELAY_SITE_FILE": "/nowhere/site",
    }
    errors = errors_of(path, environ)
    assert errors["name"] == (f"name ({path}): has to be set; allowed: a host name, such as mx1.example.net")
    assert '"2 days"' in errors["safety_net_hold_time"]
    assert "from 1s to 90d" in errors["safety_net_hold_time"]
    assert "= 256" in errors["max_retries_for_local_site_shadow"]
    assert "from 0 to 255" in errors["max_retries_for_local_site_shadow"]
    assert "prefer_remote, local_only or remote_only" in errors["shadow_message_preference_setting"]
    assert "host:port" in errors["receive.default.listen"]
    assert "(SHADOWRELAY_QUEUE_GLITCH_RETRY_INTERVAL)" in errors["queue_glitch_retry_interval"]
    assert '= "13h"' in errors["queue_glitch_retry_interval"]
    assert "from 1s to 12h" in errors["queue_glitch_retry_interval"]
    assert "not JSON" in errors["SHADOWRELAY_MEMBERS"]
    assert '"SHADOWRELAY_SHADOW_HEARTBEAT_FREQUENCY"' in errors["SHADOWRELAY_SHADOW_HEARTBEAT_FREQENCY"]
    assert "/nowhere/site cannot be read" in errors["SHADOWRELAY_SITE_FILE"]
    assert "less than 1m" in errors["receive.other.connection_inactivity_timeout"]
    assert len(errors) == 10


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("safety_net_holdtime", "safety_net_hold_time"),
        ("SafetyNetHoldTime", "safety_net_hold_time"),
        ("accepted-domains", "accepted_domains"),
        ("log.levle", "level"),
        ("receive.default.max_mesage_size", "max_message_size"),
    ],
)
def test_a_misspelt_key_of_the_file_is_refused_with_the_one_that_was_meant(written, key, meant):
    text = f'{key} = "x"\nname = "mx1"\n'
    if not key.startswith("receive"):
        text += '[receive.default]\nlisten = "127.0.0.1:0"\n'
    assert f'did you mean "{meant}"?' in errors_of(written(text))[key]


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("SHADOWRELAY_ADMIN_LISTEN", "SHADOWRELAY_ADMIN__LISTEN"),
        ("SHADOWRELAY_SAFTY_NET_HOLD_TIME", "SHADOWRELAY_SAFETY_NET_HOLD_TIME"),
        ("SHADOWRELAY_RECEIVE__DEFAULT__LISTN", "SHADOWRELAY_RECEIVE__DEFAULT__LISTEN"),
        ("SHADOWRELAY_DATADIR", "SHADOWRELAY_DATA_DIR"),
    ],
)
def test_a_misspelt_variable_is_refused_with_the_one_that_was_meant(written, variable, meant):
    assert f'"{meant}"?' in errors_of(written(MINIMAL), {variable: "1"})[variable]


def test_an_error_never_shows_a_secret_not_even_under_a_misspelt_key(written):
    text = MINIMAL + '[admin]\ntoken = "hunter2"\ntokn = "hunter2"\n'
    environ = {"SHADOWRELAY_ADMIN__TOKE": "hunter2", "SHADOWRELAY_ADMIN": '{"token": "hunter2"'}
    errors = errors_of(written(text), environ)
    assert {"admin.token", "admin.tokn", "SHADOWRELAY_ADMIN__TOKE", "SHADOWRELAY_ADMIN"} == set(errors)
    assert "hunter2" not in "".join(errors.values())


def test_an_error_writes_nothing_to_a_terminal_but_text(written):
    told = "".join(errors_of(written(r'"\u001B[2J" = 1' + '\n"a\\nb" = 1\n' + MINIMAL)).values())
    assert told.isprintable()
    assert r"\x1b[2J" in told


def test_a_syntax_error_is_reported_with_its_line_beside_the_errors_of_the_environment(written):
    with pytest.raises(SettingsInvalid) as refused:
        load_settings(written('name = "mx1"\nsite = \n'), {"SHADOWRELAY_SIT": "x"})
    syntax, variable = refused.value.errors
    assert "line 2" in str(syntax)
    assert "mx1.toml" in str(syntax)
    assert variable.key == "SHADOWRELAY_SIT"


def test_a_missing_file_is_reported_by_its_name(tmp_path):
    with pytest.raises(SettingsInvalid, match=r"nowhere\.toml: there is no such file"):
        load_settings(tmp_path / "nowhere.toml", {})


@pytest.mark.parametrize(
    "environ",
    [
        {"SHADOWRELAY_PEER": "", "SHADOWRELAY_PEER__LISTEN": "127.0.0.1:1"},
        {"SHADOWRELAY_ADMIN": '"x"', "SHADOWRELAY_ADMIN__LISTEN": "127.0.0.1:1"},
        {"SHADOWRELAY_RECEIVE": "[1]"},
        {"SHADOWRELAY_MEMBERS": '{"a": 1}'},
        {"SHADOWRELAY_": "x"},
        {"SHADOWRELAY__CLI_PARSE_ARGS": "true"},
        {"SHADOWRELAY_RECEIVE____LISTEN": "x"},
        {"SHADOWRELAY_MEMBERS": "[" * 100_000},
        {"SHADOWRELAY_PEER": '{"a":' * 300 + "1" + "}" * 300},
        {"SHADOWRELAY_PEER": "9" * 5000},
    ],
)
def test_odd_variables_are_settings_errors_and_nothing_else(written, environ):
    assert errors_of(written(MINIMAL), environ)


@pytest.mark.parametrize(
    "line",
    [
        "_cli_parse_args = true",
        "_env_file = '/etc/passwd'",
        "members = 3",
        "receive = []",
        "admin = 1",
        "data_dir = '~nobody-of-that-name/data'",
    ],
)
def test_odd_files_are_settings_errors_and_nothing_else(written, line):
    assert line.split()[0] in errors_of(written(f'{line}\nname = "mx1"\n'))


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "9" * 5000,
        "a = " + "[" * 100_000,
        "a = " + "[" * 400 + "]" * 400,
        ".".join("a" * 5000) + " = 1",
        ".".join("a" * 100_000) + " = 1",
        "[" + " . ".join(['"a"'] * 100_000) + "]",
    ],
    ids=[
        "a number too long",
        "lists without end",
        "lists in lists",
        "tables in tables",
        "a key without end",
        "a table without end",
    ],
)
def test_a_file_that_exhausts_the_parser_is_an_error_of_that_file(written, text):
    assert "not TOML: " in errors_of(written(text))[""]


def test_a_long_name_in_a_value_is_no_deep_key(written):
    name = ".".join("0123456789abcdef" * 7)
    assert "nested" not in str(errors_of(written(f'name = "{name}"\nrelay_networks = ["{name}"]')))


def test_a_file_without_end_is_not_read_to_its_end():
    assert "larger than" in errors_of(Path("/dev/zero"))[""]


def test_shadow_message_preference_local_only_is_set_in_one_step(written):
    settings = load_settings(written('shadow_message_preference_setting = "local_only"\n' + MINIMAL), {})
    assert settings.policy().shadow_message_preference_setting is ShadowMessagePreference.LOCAL_ONLY
    assert settings.policy().max_retries_for_remote_site_shadow == 4


def test_an_unknown_table_names_the_file_that_it_is_in(tmp_path: Path):
    file = tmp_path / "node.toml"
    file.write_text('name = "mx1.example.net"\n[recieve.default]\nlisten = "127.0.0.1:2525"\n')
    with pytest.raises(SettingsInvalid) as refused:
        load_settings(file, {})
    assert f"recieve ({file}): unknown setting" in "\n".join(map(str, refused.value.errors))
