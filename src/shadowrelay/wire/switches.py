"""Switches as JSON: between members, and in the transport database."""

from __future__ import annotations

from typing import Any

from shadowrelay.core.identifiers import RequestId
from shadowrelay.core.switches import Switch
from shadowrelay.wire.told import count_in, flag_in, micros_of, moment_in, object_of, text_in
from shadowrelay.wire.xshadow import message_id, server_name


def switch_told(switch: Switch) -> dict[str, Any]:
    """A switch as JSON; see ``switch_from``."""
    return {
        "id": switch.id,
        "name": switch.name,
        "value": switch.value,
        "against": switch.against,
        "revision": switch.revision,
        "operator": switch.operator,
        "reason": switch.reason,
        "changed_by": switch.changed_by,
        "changed_at": micros_of(switch.changed_at),
    }


def switch_from(told: object) -> Switch:
    """Read a switch. Raises Malformed."""
    found = object_of(told)
    return Switch(
        id=RequestId(message_id(text_in(found, "id"))),
        name=text_in(found, "name"),
        value=flag_in(found, "value"),
        against=flag_in(found, "against"),
        revision=count_in(found, "revision"),
        operator=text_in(found, "operator"),
        reason=text_in(found, "reason"),
        changed_by=server_name(text_in(found, "changed_by")),
        changed_at=moment_in(found, "changed_at"),
    )
