"""Settings of filters: where they listen, and what they do not go together with."""

from __future__ import annotations

from typing import Any

import pytest

from shadowrelay.settings import settings_from_tree
from shadowrelay.settings.errors import SettingsInvalid
from shadowrelay.settings.filters import WhenDown, parse_filter_socket


def made(**receive: Any) -> Any:
    return settings_from_tree(
        {
            "name": "mx1.example.net",
            "receive": {"default": {"listen": "127.0.0.1:2525", **receive}},
            "routes": {"inside": {"domains": ["*"], "host": "127.0.0.1"}},
        }
    )


def test_filters_keep_the_order_of_the_file() -> None:
    tables = {
        "second": {"address": "unix:/run/b"},
        "first": {"address": "inet:[::1]:8891", "when_down": "accept"},
    }
    found = made(filters=tables).receive["default"].filters
    assert [(name, str(one.address), one.when_down) for name, one in found.items()] == [
        ("second", "unix:/run/b", WhenDown.TEMPFAIL),
        ("first", "inet:[::1]:8891", WhenDown.ACCEPT),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1:8891",
        "inet:127.0.0.1",
        "inet:127.0.0.1:0",
        "unix:run/b",
        "unix:/" + "x" * 107,
        "tcp:a:1",
        3,
    ],
)
def test_what_is_no_socket_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_filter_socket(text)


def test_a_peer_that_tracks_its_messages_needs_a_connector_without_filters() -> None:
    peer = {"name": "mx9.example.org", "externally_secured": ["192.0.2.0/24"]}
    with pytest.raises(SettingsInvalid, match="not together with accept_xshadow"):
        made(filters={"f": {"address": "unix:/run/f"}}, accept_xshadow=[peer])
