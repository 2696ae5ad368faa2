"""Settings that members of a site should have alike, each section as a digest: members compare them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from hashlib import sha256
from pathlib import Path

from shadowrelay.core.policy import Policy
from shadowrelay.settings.description import effective
from shadowrelay.settings.schema import Settings

_ALONE = frozenset(
    ("accepted_domains", "relay_networks", "journal", "recipients_file", "recipient_delimiter",
     "max_list_depth", "max_list_members", "site_links")
)  # fmt: skip
"""Sections that are one value, or a list."""

_NAMED = frozenset(("routes", "sites"))
"""Groups of named tables: each table is a section."""

_A_MINUTE = 60.0

_OWN = ("_file", "certificate", "_key", ".ca")
"""Ends of keys whose values are paths of this machine."""


def sections(settings: Settings, policy: Policy) -> Mapping[str, str]:
    """A digest of each section. ``policy``: the one in force; what is set for all members is in it."""
    values: dict[str, list[object]] = {}
    for one in effective(settings):
        group, _, rest = one.key.partition(".")
        first = group.partition("[")[0]
        if first in _NAMED:
            name = f"{first}.{rest.partition('.')[0]}"
        elif first in _ALONE:
            name = first
        else:
            continue
        value = _content(settings) if first == "recipients_file" else one.value
        if first == "recipients_file" or not one.key.endswith(_OWN):
            values.setdefault(name, []).append([one.key, value])
    values["policy"] = [[one.name, str(getattr(policy, one.name))] for one in fields(policy)]
    return {name: _digest(value) for name, value in sorted(values.items())}


class Sections:
    """The digests of one node: made anew when settings or policy are others, and once a minute, for the file
    of recipients may change. ``seconds``: a monotonic clock.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._made: tuple[Settings, Policy, float, Mapping[str, str]] | None = None

    def of(self, settings: Settings, policy: Policy) -> Mapping[str, str]:
        """``policy``: the one in force, as it is at one moment."""
        now, made = self._seconds(), self._made
        if made is None or made[0] is not settings or made[1] is not policy or now - made[2] > _A_MINUTE:
            made = self._made = settings, policy, now, sections(settings, policy)
        return made[3]


def _content(settings: Settings) -> str:
    """The content counts: where the file is, is the matter of each machine."""
    path: Path | None = settings.recipients_file
    if path is None:
        return ""
    try:
        return sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "unreadable"


def _digest(value: object) -> str:
    return sha256(json.dumps(value, default=str).encode()).hexdigest()[:12]
