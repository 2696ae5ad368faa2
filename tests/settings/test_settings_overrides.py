"""Options of the form KEY=VALUE, and settings written as a file."""

from __future__ import annotations

import pytest

from shadowrelay.settings import SettingsInvalid, apply_overrides, load_settings, settings_from_tree, to_toml

TREE = {"name": "mx1.example.net", "receive": {"default": {"listen": "127.0.0.1:0"}}}


def test_an_override_is_read_as_toml_or_else_as_text():
    changed = apply_overrides(
        TREE,
        [
            "reject_message_on_shadow_failure=true",
            "shadow_resubmit_time_span = 20s",
            "max_retries_for_remote_site_shadow=0",
            'accepted_domains=["inside.test"]',
            "receive.default.max_protocol_errors=20",
            "max_retries_for_remote_site_shadow=1",
        ],
    )
    policy = settings_from_tree(changed).policy()
    assert policy.reject_message_on_shadow_failure
    assert policy.shadow_resubmit_time_span.total_seconds() == 20
    assert policy.max_retries_for_remote_site_shadow == 1
    assert changed["accepted_domains"] == ["inside.test"]
    assert changed["receive"]["default"] == {"listen": "127.0.0.1:0", "max_protocol_errors": 20}
    assert TREE["receive"] == {"default": {"listen": "127.0.0.1:0"}}


def test_every_wrong_override_is_reported_as_a_wrong_setting_is():
    with pytest.raises(SettingsInvalid) as refused:
        apply_overrides(
            TREE,
            [
                "safety_net_hold_tme=1s",
                "site",
                "loop_hop_limit=2",
                "name.x=1",
                "wrongkey=7",
                "log.colour=red",
                "receive.default.submision=true",
                "=1",
                "drain_timeout=" + "[" * 100_000,
                "host=" + "9" * 5000,
            ],
        )
    errors = {error.key: str(error) for error in refused.value.errors}
    assert 'did you mean "safety_net_hold_time"?' in errors["safety_net_hold_tme"]
    assert "KEY=VALUE" in errors["site"]
    assert errors["loop_hop_limit"] == (
        "loop_hop_limit = 2 (--set): out of range; allowed: an integer, from 5 to 1000"
    )
    assert errors["name.x"] == "name.x = 1 (--set): unknown setting"
    assert errors["wrongkey"] == (
        "wrongkey = 7 (--set): unknown setting; allowed: the keys in docs/reference/settings.md"
    )
    assert errors["log.colour"] == "log.colour = red (--set): unknown setting; allowed: level or format"
    assert 'did you mean "submission"?' in errors["receive.default.submision"]
    assert "" in errors
    assert "not a duration" in errors["drain_timeout"]
    assert "host" in errors


def test_overrides_of_incomplete_tables_are_judged_alone():
    assert apply_overrides({}, ["shadow_redundancy_enabled=false"]) == {"shadow_redundancy_enabled": False}


def test_written_tables_load_as_the_settings_they_were(tmp_path):
    tree = {
        **TREE,
        "site": None,
        "peer": {"listen": "127.0.0.1:0", "externally_secured": ["127.0.0.0/8"], "ca": None},
        "members": [{"name": "mx2.example.net", "address": "127.0.0.1:2526"}],
        "routes": {
            "inside": {"domains": ["inside.test", "*.x"], "host": "::1", "port": 24, "protocol": "lmtp"}
        },
    }
    path = tmp_path / "mx1.toml"
    path.write_text(to_toml(tree))
    without_none = {**tree, "peer": {"listen": "127.0.0.1:0", "externally_secured": ["127.0.0.0/8"]}}
    del without_none["site"]
    assert load_settings(path, {}).model_dump() == settings_from_tree(without_none).model_dump()
