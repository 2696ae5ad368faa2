"""Writes and reads the settings files of a lab's nodes. An option once set stays until it is changed."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from shadowlab.errors import LabError
from shadowlab.layout import INSIDE_DOMAIN, OUTSIDE_DOMAIN, Address, LabNode, Layout
from shadowrelay.authority import Pair, authority_pair
from shadowrelay.settings import (
    SettingError,
    Settings,
    SettingsInvalid,
    apply_overrides,
    parse_duration,
    settings_from_tree,
    to_toml,
)

DEFAULTS: dict[str, Any] = {
    "reject_message_on_shadow_failure": True,
    "shadow_heartbeat_frequency": "1s",
    "shadow_resubmit_time_span": "5s",
    "queue_glitch_retry_interval": "1s",
    "transient_failure_retry_interval": "1s",
    "outbound_connection_failure_retry_interval": "1s",
}
"""Settings of a lab, so that it shows in seconds what takes hours elsewhere."""

TRACKING_AGE = "15s"
"""Age at which a tracking file is closed: the audit reads closed files only; a lab cannot wait an hour."""

_CONNECTIONS = 1000  # all clients of a lab have one address

_OWN = (
    "name",
    "site",
    "host",
    "data_dir",
    "members",
    "workers",
    "receive.default.listen",
    "peer.listen",
    "admin.listen",
    "tracking.directory",
)
_DRAIN = timedelta(seconds=30)


def certificate(node: LabNode) -> Pair:
    """The paths of a node's certificate and key."""
    return Pair(node.config.parent / f"{node.name}.pem", node.config.parent / f"{node.name}.key")


def planned(layout: Layout, options: Sequence[str]) -> Mapping[LabNode, str]:
    """The settings files to write: for nodes that have none, and for all nodes if there are options.

    ``options`` are ``KEY=VALUE``. Raises SettingsInvalid, LabError unless every file is right.
    """
    _refuse_own(options)
    texts: dict[LabNode, str] = {}
    for node in layout.nodes:
        tree = read(node) if node.config.exists() else _tree(layout, node)
        if not node.config.exists() or options:
            tree = apply_overrides(tree, options)
            settings_from_tree(tree, source="--set")
            texts[node] = to_toml(tree)
    return texts


def write(layout: Layout, options: Sequence[str]) -> None:
    """Write the files of ``planned``; none unless all are right. Raises SettingsInvalid, LabError."""
    for node, text in planned(layout, options).items():
        fresh = node.config.with_suffix(".new")
        fresh.write_text(text, "utf-8")
        fresh.replace(node.config)


def read(node: LabNode) -> dict[str, Any]:
    """A node's settings as nested tables. Raises LabError."""
    try:
        return tomllib.loads(node.config.read_text("utf-8"))
    except (OSError, ValueError) as problem:
        raise LabError(f"{node.config} cannot be read: {problem}") from problem


def drain_timeout(node: LabNode) -> timedelta:
    """How long a graceful stop of this node may take, even if its file is wrong by now."""
    try:
        return parse_duration(read(node)["drain_timeout"])
    except (KeyError, ValueError, LabError):
        return _DRAIN


def settings(node: LabNode) -> Settings:
    """A node's settings: its file over defaults. Raises SettingsInvalid, LabError."""
    return settings_from_tree(read(node), source=str(node.config))


def admin_token(node: LabNode) -> str | None:
    """The token of a node's admin API; None if it needs none."""
    try:
        return read(node)["admin"]["token"] or None
    except (KeyError, LabError):
        return None


def _refuse_own(options: Sequence[str]) -> None:
    given = ([part.strip() for part in option.partition("=")] for option in options)
    errors = [
        SettingError(key=key, value=value, source="--set", message="the lab's own to choose, for each node")
        for key, _, value in given
        if any(f"{own}.".startswith(f"{key}.") for own in _OWN)
    ]
    if errors:
        raise SettingsInvalid(errors)


def _tree(layout: Layout, node: LabNode) -> dict[str, Any]:
    mailbox, pair = layout.mailbox, certificate(node)
    return {
        "name": node.name,
        "site": node.site,
        "host": node.host,
        **_workers(node),
        "data_dir": str(node.data_dir),
        "accepted_domains": [INSIDE_DOMAIN],
        "relay_networks": ["127.0.0.0/8"],
        **DEFAULTS,
        "receive": {
            "default": {"listen": _spelt(node.smtp), "max_inbound_connection_per_source": _CONNECTIONS}
        },
        "peer": {
            "listen": _spelt(node.peer),
            "certificate": str(pair.certificate),
            "key": str(pair.key),
            "ca": str(authority_pair(layout.authority).certificate),
        },
        "members": [
            {
                "name": other.name,
                "address": _spelt(layout.reached(node, other)),
                "site": other.site,
                "host": other.host,
                **_workers(other),
            }
            for other in layout.nodes
        ],
        "routes": {
            "inside": _route(INSIDE_DOMAIN, mailbox.inside, protocol="lmtp", inside=True),
            "outside": _route(OUTSIDE_DOMAIN, mailbox.outside, protocol="smtp", inside=False),
        },
        "admin": {"listen": node.admin.removeprefix("http://")},
        "tracking": {"directory": str(node.tracking_dir), "max_file_age": TRACKING_AGE},
    }


def _workers(node: LabNode) -> dict[str, int]:
    return {"workers": node.workers} if node.workers > 1 else {}


def _route(domain: str, to: Address, *, protocol: str, inside: bool) -> dict[str, Any]:
    return {
        "domains": [domain],
        "host": to[0],
        "port": to[1],
        "protocol": protocol,
        "inside": inside,
        "tls": "none",
    }


def _spelt(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
