"""The command line's `config` group, and what all commands share."""

from __future__ import annotations

import errno
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import shadowrelay.cli
from shadowrelay.cli import COMMANDS, main

GOOD = """
name = "mx1.example.net"
[receive.default]
listen = "127.0.0.1:2525"
[admin]
token = "a secret of some length"
"""


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "mx1.toml"
    path.write_text(GOOD)
    return path


def run(*arguments: object, **environ: str) -> Result:
    return CliRunner(env=environ).invoke(main, [str(argument) for argument in arguments])


def test_check_says_ok_and_warns_on_standard_error(good):
    result = run("config", "check", good)
    assert result.exit_code == 0
    assert result.stdout == "OK\n"
    assert result.stderr.startswith("warning: no member can hold a shadow")


def test_check_prints_one_line_per_error_and_exits_with_2(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text(GOOD.replace("2525", "x") + "site = 3\n")
    result = run("config", "check", path, SHADOWRELAY_SITEE="x")
    assert result.exit_code == 2
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("SHADOWRELAY_SITEE (environment): unknown setting")


def test_the_file_may_be_named_by_a_variable(good):
    assert run("config", "check", SHADOWRELAY_CONFIG=str(good)).stdout == "OK\n"


def test_a_missing_file_is_a_settings_error(tmp_path):
    result = run("config", "show", tmp_path / "nowhere.toml")
    assert result.exit_code == 2
    assert "there is no such file" in result.stderr


def test_show_tells_each_value_and_where_it_came_from(good):
    result = run("config", "show", good, SHADOWRELAY_LOG__LEVEL="debug")
    rows = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines()[1:]}
    assert rows["log.level"] == ["debug", "SHADOWRELAY_LOG__LEVEL"]
    assert rows["safety_net_hold_time"] == ["2d", "default"]
    assert rows["receive.default.listen"][0] == "127.0.0.1:2525"
    assert rows["admin.token"][0] == "********"
    assert "secret of some" not in result.output


def test_show_as_json_can_be_read_by_a_program(good):
    shown = json.loads(run("config", "show", good, "--json").stdout)
    assert shown["name"] == {"value": "mx1.example.net", "source": "file", "detail": str(good)}
    assert shown["loop_hop_limit"] == {"value": 100, "source": "default", "detail": None}
    assert shown["admin.token"]["value"] == "********"
    assert shown["relay_networks"]["value"] == []


def test_every_command_is_importable_and_has_a_line_of_help():
    modules = {module.name.replace("_", "-") for module in pkgutil.iter_modules(shadowrelay.cli.__path__)}
    context = main.make_context("shadowrelay", ["--version"], resilient_parsing=True)
    assert set(COMMANDS) <= modules
    for name in COMMANDS:
        assert main.get_command(context, name) is not None
        assert f"\n  {name} " in run("--help").stdout


def test_wrong_usage_exits_with_2():
    for arguments in (["confg"], ["config", "check"], ["--nonsense"]):
        assert run(*arguments).exit_code == 2


def test_version_tells_the_installed_version():
    assert run("--version").stdout.startswith("shadowrelay, version ")


def test_help_imports_neither_pydantic_nor_any_command():
    script = (
        "import sys, shadowrelay.cli as cli\n"
        "cli.main(['--help'], standalone_mode=False)\n"
        "unwanted = {'pydantic', 'rich', 'asyncio', 'structlog', 'shadowrelay.cli.config'}\n"
        "print(sorted(unwanted & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", [["--help"], ["status", "--help"], ["config", "show", "FILE"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_finds_no_room_is_an_error_in_a_sentence(good, command, unbuffered):
    words = [str(good) if word == "FILE" else word for word in command]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "shadowrelay", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={"PYTHONUNBUFFERED": unbuffered},
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == ("Error: the output cannot be written: No space left on device")
    assert "Traceback" not in ended.stderr
    assert "ignored" not in ended.stderr


def test_an_error_of_something_else_is_not_taken_for_one_of_the_output(good, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("click.Group.invoke", full)
    failed = run("config", "check", good)
    assert isinstance(failed.exception, OSError)
    assert "cannot be written" not in failed.output


def test_a_value_out_of_range_is_shown_as_it_was_written(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text(f'drain_timeout = "90m"\n{GOOD}'.replace("[admin]", 'max_message_size = "1TB"\n[admin]'))
    told = run("config", "check", path).stderr
    assert 'drain_timeout = "90m"' in told
    assert 'receive.default.max_message_size = "1TB"' in told


def test_an_interruption_before_a_command_is_ready_is_told_as_one(monkeypatch):
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shadowrelay.cli, "import_module", interrupted)
    result = run("status")
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")


SITES = """
name = "mx1.example.net"
site = "chicago"
receive.default.listen = "127.0.0.1:2525"
routes.inside = { domains = ["example.net"], host = "store.example.net", port = 2424 }
routes.ireland = { domains = ["example.ie"], site = "dublin", host = "store.dublin.example.net" }
routes.france = { domains = ["example.fr"], site = "paris", host = "store.paris.example.net" }
sites.ny.hosts = ["hub1.ny.example.net:25", "hub2.ny.example.net:25"]
sites.dublin.hosts = ["hub1.dublin.example.net:25"]
sites.paris.hosts = ["hub1.paris.example.net:25"]
site_links = [{ sites = ["chicago", "ny"], cost = 10 }, { sites = ["ny", "dublin", "paris"], cost = 20 }]
"""


def test_where_recipients_go_shows_what_shares_a_copy_and_which_hosts_are_tried(tmp_path):
    file = tmp_path / "sites.toml"
    file.write_text(SITES)
    both = run("config", "route", file, "a@example.ie", "b@example.fr", "c@example.net")
    assert both.exit_code == 0
    _, ireland, france, inside = both.stdout.splitlines()
    assert "site/ny" in ireland
    assert "ny → dublin (30)" in ireland
    assert "hub1.ny.example.net:25, hub2.ny.example.net:25" in ireland
    assert "site/ny" in france
    assert "store.example.net:2424" in inside
    (alone,) = json.loads(run("config", "route", "--json", file, "a@example.ie").stdout)
    assert alone == {
        "address": "a@example.ie",
        "route": "ireland",
        "next_hop": "site/dublin",
        "site": "dublin",
        "path": ["ny", "dublin"],
        "cost": 30,
        "hosts": [["hub1.dublin.example.net:25"], ["hub1.ny.example.net:25", "hub2.ny.example.net:25"]],
    }


def test_where_no_route_leads_is_told_and_what_is_no_address_is_refused(tmp_path):
    file = tmp_path / "sites.toml"
    file.write_text(SITES)
    nowhere = run("config", "route", file, "a@example.org")
    assert (nowhere.exit_code, "no route" in nowhere.stdout) == (1, True)
    refused = run("config", "route", file, "example.org")
    assert (refused.exit_code, "example.org is no address" in refused.stderr) == (2, True)
