"""Settings that operators set for all members: how a value is written, and what it has to go with here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError

from shadowrelay.core.policy import Policy
from shadowrelay.core.switches import Switch
from shadowrelay.core.switching import REDUNDANCY, WHY_NOT, in_force
from shadowrelay.settings.checks import attempts
from shadowrelay.settings.description import ROOT, suggestion
from shadowrelay.settings.errors import SettingError
from shadowrelay.settings.origins import OriginKind
from shadowrelay.settings.schema import PolicySettings, Settings
from shadowrelay.settings.values import format_duration
from shadowrelay.settings.wrong_values import error_of

SPAN = "shadow_resubmit_time_span"


def value_of(key: str, given: object) -> Any:
    """The value of a setting of the policy, written as in the settings file. Raises ValueError."""
    field = PolicySettings.model_fields[key]
    kind: Any = Annotated[field.annotation, key, *field.metadata]
    try:
        return TypeAdapter(kind).validate_python(given)
    except ValidationError as error:
        detail = {**error.errors(include_url=False)[0], "loc": (key,)}
        raise ValueError(str(error_of(detail, {key: given}, {}))) from error  # type: ignore[arg-type]


def written(key: str, value: Any) -> str | int | bool:
    """A value of a setting of the policy as it stands in the settings file."""
    if isinstance(value, bool) or type(value) is int:
        return value
    node = ROOT.child(key)
    return node.render(value) if node else str(value)


def why_not(key: str) -> str:
    """Why a setting is not set for all members."""
    if reason := WHY_NOT.get(key):
        return reason
    if key in Settings.model_fields:
        return "it is a node's own: it is changed in the settings file of each node"
    hint = suggestion(key, [one.name for one in fields(Policy)])
    return f"there is no such setting{hint and f': {hint}'}"


def with_policy(settings: Settings, policy: Policy) -> Settings:
    """The settings, but with that policy."""
    return settings.model_copy(update={one.name: getattr(policy, one.name) for one in fields(Policy)})


def wrong(settings: Settings, policy: Policy) -> list[str]:
    """Which values of a policy do not go together on a node with these settings: a sentence each."""

    def refuse(key: str, message: str, *, value: object = "", allowed: str = "") -> SettingError:
        return SettingError(key=key, message=message, value=str(value), allowed=allowed)

    found = list(attempts(with_policy(settings, policy), refuse))
    span, heartbeat = policy.shadow_resubmit_time_span, policy.shadow_heartbeat_frequency
    if span <= heartbeat and span != settings.policy().shadow_resubmit_time_span:
        why, least = "living owners would be replaced between two heartbeats", format_duration(heartbeat)
        allowed = f"more than shadow_heartbeat_frequency, which is {least} on this node"
        found.append(refuse(SPAN, why, value=format_duration(span), allowed=allowed))
    return [str(error) for error in found]


def told(settings: Settings, switches: Mapping[str, Switch]) -> Iterator[str]:
    """Which settings that were set for all members the settings of this node say otherwise, and which do not
    go together here: a sentence each.
    """
    file = settings.policy()
    now = in_force(file, switches.values())
    for key in sorted(switches.keys() - {REDUNDANCY}):
        value, ours = getattr(now, key, None), getattr(file, key, None)
        origin = settings.origin(key)
        if value != ours and origin.kind is not OriginKind.DEFAULT:
            yield (
                f"{key} is {written(key, value)} for all members, and {written(key, ours)} in {origin}, "
                "which does not count: see shadowrelay settings show"
            )
    yield from wrong(settings, now)
