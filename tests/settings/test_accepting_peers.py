"""Peers beyond the boundary that may track messages: each has a name and a certificate of its own."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shadowrelay import authority
from shadowrelay.settings import SettingsInvalid, settings_from_tree, settings_warnings

MEMBERS: dict[str, Any] = {
    "peer": {"listen": "127.0.0.1:2526", "externally_secured": ["127.0.0.0/8"]},
    "members": [{"name": "mx2.example.net", "address": "mx2.example.net:2526"}],
}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    authority.init(tmp_path, name="Test", now=datetime.now(UTC))
    for name in ("mx1", "hub", "spoke"):
        authority.issue(tmp_path, f"{name}.example.net", now=datetime.now(UTC))
    return tmp_path


def tree(made: Path, *peers: tuple[str, str], tls: bool = True, **changes: Any) -> dict[str, Any]:
    """``peers``: the name of each, and whose certificate it is to show."""
    pins = [{"name": f"{name}.example.net", "certificate": str(made / shown)} for name, shown in peers]
    connector: dict[str, Any] = {"listen": "127.0.0.1:2525", "accept_xshadow": pins}
    if tls:
        own = made / "mx1.example.net"
        connector |= {"tls_certificate": f"{own}.pem", "tls_key": f"{own}.key"}
    return {"name": "mx1.example.net", "receive": {"default": connector}, **changes}


def errors_of(settings: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(SettingsInvalid) as refused:
        settings_from_tree(settings)
    return {error.key.removeprefix("receive.default."): str(error) for error in refused.value.errors}


HUB = ("hub", "hub.example.net.pem")


def test_peers_with_names_and_certificates_of_their_own_are_taken(made: Path) -> None:
    settings = settings_from_tree(tree(made, HUB, ("spoke", "spoke.example.net.pem")))
    assert "accept_xshadow" not in "\n".join(settings_warnings(settings))


def test_without_tls_of_our_own_nobody_could_show_a_certificate(made: Path) -> None:
    assert set(errors_of(tree(made, HUB, tls=False))) == {"tls_certificate"}


def test_two_peers_of_one_name_or_one_certificate_are_refused(made: Path) -> None:
    twice = errors_of(tree(made, HUB, ("hub", "spoke.example.net.pem")))
    assert set(twice) == {"accept_xshadow[1].name"}
    same = errors_of(tree(made, HUB, ("spoke", HUB[1])))
    assert "hub.example.net has the same certificate" in same["accept_xshadow[1].certificate"]


@pytest.mark.parametrize("file", ["nowhere.pem", "hub.example.net.key"])
def test_what_is_no_certificate_is_refused(made: Path, file: str) -> None:
    assert set(errors_of(tree(made, ("hub", file)))) == {"accept_xshadow[0].certificate"}


def test_where_it_has_no_effect_a_warning_says_why(made: Path) -> None:
    def told(**changes: Any) -> str:
        return "\n".join(settings_warnings(settings_from_tree(tree(made, HUB, **changes))))

    assert "receive.default.accept_xshadow has no effect: this node has members" in told(**MEMBERS)
    disabled = told(shadow_redundancy_enabled=False)
    assert "accept_xshadow has no effect: shadow_redundancy_enabled is false" in disabled
    assert "accept_xshadow" not in told()
