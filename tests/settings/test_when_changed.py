"""What a changed settings file comes to on a running node: what changes now, and what waits for a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shadowrelay.settings import Settings, settings_from_tree
from shadowrelay.settings.when_changed import changes, reloaded

TREE: dict[str, Any] = {
    "name": "mx1.example.org",
    "receive": {"default": {"listen": "127.0.0.1:2525"}},
    "routes": {"out": {"domains": ["*"], "host": "127.0.0.1"}},
    "peer": {"listen": "127.0.0.1:2526", "externally_secured": ["127.0.0.0/8"]},
    "members": [{"name": "mx2.example.org", "address": "127.0.0.1:2527"}],
}


def settings(**changed: Any) -> Settings:
    return settings_from_tree(TREE | changed)


@pytest.mark.parametrize(
    ("changed", "now", "restart"),
    [
        ({"resubmit_rate": 7}, ["resubmit_rate"], []),
        ({"opening_timeout": "1m"}, [], ["opening_timeout"]),
        ({"data_dir": "/elsewhere"}, [], ["data_dir", "tracking.directory"]),
        ({"name": "mx9.example.org"}, [], ["name", "host"]),
        ({"admin": {"listen": "127.0.0.1:1", "token": "x" * 20}}, ["admin.token"], ["admin.listen"]),
        (
            {"receive": {"default": {"listen": "127.0.0.1:1", "max_message_size": "1MiB"}}},
            ["receive.default.max_message_size"],
            ["receive.default.listen"],
        ),
        ({"receive": {**TREE["receive"], "more": {"listen": "127.0.0.1:1"}}}, [], ["receive.more"]),
        (
            {"members": [{"name": "mx3.example.org", "address": "127.0.0.1:2528"}]},
            ["members[mx2.example.org]", "members[mx3.example.org]"],
            [],
        ),
        (
            {
                "routes": {
                    "out": {"domains": ["*"], "host": "127.0.0.1"},
                    "in": {"domains": ["a.b"], "mx": True},
                }
            },
            ["routes.in"],
            [],
        ),
    ],
)
def test_each_change_counts_now_or_waits(changed: dict[str, Any], now: list[str], restart: list[str]):
    found = reloaded(settings(), settings(**changed))
    assert [one.key for one in found.now] == now
    assert sorted(one.key for one in found.restart) == sorted(restart)
    assert not found.wrong
    assert list(changes(found.settings, settings(**changed))) == list(found.restart)


def test_a_secret_is_never_shown():
    found = reloaded(settings(), settings(admin={"token": "x" * 20}))
    assert [(one.was, one.now) for one in found.now] == [("not set", "********")]


def test_what_waits_for_a_restart_is_named_again_at_each_reload_until_then():
    first = reloaded(settings(), settings(data_dir="/elsewhere"))
    again = reloaded(first.settings, settings(data_dir="/elsewhere", resubmit_rate=7))
    assert [one.key for one in again.restart] == ["data_dir", "tracking.directory"]
    assert [one.key for one in again.now] == ["resubmit_rate"]
    assert first.settings.data_dir == Path("/var/lib/shadowrelay")


def test_a_file_that_does_not_work_without_its_restart_is_refused():
    """Its routes lead to a site that is there only under the node's new site."""
    sites = {
        "site": "north",
        "sites": {"south": {"hosts": ["127.0.0.1:25"]}},
        "site_links": [{"sites": ["north", "south"]}],
    }
    assert reloaded(settings(), settings(**sites)).wrong
