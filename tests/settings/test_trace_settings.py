"""Traces are asked for by one setting, whose library is an extra."""

from __future__ import annotations

from typing import Any

import pytest

from shadowrelay.settings import SettingsInvalid, checks, settings_from_tree


def tree(endpoint: str) -> dict[str, Any]:
    return {
        "name": "mx1.example.net",
        "receive": {"default": {"listen": "127.0.0.1:2525"}},
        "traces": {"endpoint": endpoint},
    }


def test_without_its_library_the_setting_is_refused_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    settings_from_tree(tree("http://127.0.0.1:4318/v1/traces"))
    monkeypatch.setattr(checks, "find_spec", lambda _: None)
    with pytest.raises(SettingsInvalid) as refused:
        settings_from_tree(tree("http://127.0.0.1:4318/v1/traces"))
    (error,) = refused.value.errors
    assert error.key == "traces.endpoint"
    assert "pip install 'shadowrelay[traces]'" in str(error)


def test_an_endpoint_that_is_no_address_is_refused():
    with pytest.raises(SettingsInvalid) as refused:
        settings_from_tree(tree("collector:4318"))
    assert "http://127.0.0.1:4318/v1/traces" in str(refused.value.errors[0])
