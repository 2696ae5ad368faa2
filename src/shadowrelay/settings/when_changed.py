"""What a changed settings file changes on a running node, and what waits for its restart.

``WHEN`` says it of each setting; what waits keeps the value with which the node runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from shadowrelay.core.policy import Policy
from shadowrelay.core.values import dataclass
from shadowrelay.operator.cluster_reload import Change
from shadowrelay.settings.checks import cross_checks
from shadowrelay.settings.description import ROOT, SchemaNode
from shadowrelay.settings.errors import SettingError
from shadowrelay.settings.schema import MemberConnector, ReceiveConnector, Settings
from shadowrelay.settings.switched import with_policy


class Reload(StrEnum):
    """When a changed setting counts: at once, for what begins after it; or at the next start."""

    NOW = "now"
    RESTART = "restart"


_NOW, _RESTART = Reload.NOW, Reload.RESTART

WHEN: Mapping[str, Reload] = {
    # What the database, the members and the tracking log know this node by.
    "name": _RESTART,
    "site": _RESTART,
    "host": _RESTART,
    "data_dir": _RESTART,
    # The supervisor starts workers, and drains those that go.
    "workers": _NOW,
    # A socket that listens stays as it is.
    "receive.NAME.listen": _RESTART,
    "receive.NAME.implicit_tls": _RESTART,
    "receive.NAME": _NOW,
    "peer.listen": _RESTART,
    "peer": _NOW,
    "admin.listen": _RESTART,
    "admin": _NOW,
    "tracking.directory": _RESTART,
    "tracking": _NOW,
    "traces": _RESTART,
    # It counts while the database is opened, which is at the start.
    "opening_timeout": _RESTART,
    "back_pressure": _NOW,
    **dict.fromkeys(("accepted_domains", "relay_networks", "drain_timeout", "scrub_interval"), _NOW),
    **dict.fromkeys(("minimum_free_disk", "journal", "recipients_file", "recipient_delimiter"), _NOW),
    **dict.fromkeys(("max_list_depth", "max_list_members"), _NOW),
    **dict.fromkeys(("shaping.NAME", "shaping_patterns"), _NOW),
    **dict.fromkeys(
        ("members[]", "routes.NAME", "sites.NAME", "site_links[]", "dns", "mta_sts", "tls_reports", "log"),
        _NOW,
    ),
    **dict.fromkeys(("shadow_redundancy_enabled", "reject_message_on_shadow_failure"), _NOW),
    **dict.fromkeys(("shadow_redundancy_promotion_enabled", "shadow_message_preference_setting"), _NOW),
    **dict.fromkeys(("max_retries_for_local_site_shadow", "max_retries_for_remote_site_shadow"), _NOW),
    **dict.fromkeys(("shadow_heartbeat_frequency", "shadow_resubmit_time_span"), _NOW),
    **dict.fromkeys(("shadow_heartbeat_timeout_interval", "shadow_heartbeat_retry_count"), _NOW),
    **dict.fromkeys(("isolated_resubmit_time_span", "shadow_message_auto_discard_interval"), _NOW),
    **dict.fromkeys(("safety_net_hold_time", "message_expiration_timeout"), _NOW),
    **dict.fromkeys(("delay_notification_timeout", "queue_glitch_retry_count"), _NOW),
    **dict.fromkeys(("queue_glitch_retry_interval", "transient_failure_retry_count"), _NOW),
    **dict.fromkeys(("transient_failure_retry_interval", "queue_max_idle_time"), _NOW),
    **dict.fromkeys(("outbound_connection_failure_retry_interval", "max_outbound_connections"), _NOW),
    **dict.fromkeys(("unreadable_answer_retry_count", "unreadable_answer_retry_interval"), _NOW),
    **dict.fromkeys(("max_per_domain_outbound_connections", "discard_poll_interval"), _NOW),
    **dict.fromkeys(("orphan_check_interval", "reconcile_timeout", "revoke_timeout"), _NOW),
    **dict.fromkeys(("shadow_attempt_timeout", "shadow_time_cap", "shadow_retry_interval"), _NOW),
    **dict.fromkeys(("member_skip_interval", "holder_loss_heartbeats", "holder_choices"), _NOW),
    **dict.fromkeys(("unresponsive_primary_interval", "resubmit_overlap", "resubmit_rate"), _NOW),
    **dict.fromkeys(("resubmit_most_requests", "resubmit_request_age", "loop_hop_limit"), _NOW),
}
"""Each setting by its key in the reference, or by the beginning of it."""


def when(key: str) -> Reload | None:
    """When a setting counts, by its key in the reference (`receive.NAME.listen`); None: nobody said."""
    while key:
        if key in WHEN:
            return WHEN[key]
        key = key.rpartition(".")[0]
    return None


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What a changed file comes to. ``settings``: those to run with, once ``now`` is changed. ``restart``:
    what the file says otherwise, until the restart. ``wrong``: why the file cannot be taken; then nothing
    changes.
    """

    settings: Settings
    now: tuple[Change, ...]
    restart: tuple[Change, ...]
    wrong: tuple[SettingError, ...] = ()


def reloaded(
    running: Settings,
    file: Settings,
    *,
    alone: bool = False,
    in_force: Callable[[Policy], Policy] = lambda file: file,
) -> Reloaded:
    """What the settings of the file change on a node that runs with others. ``alone``: nobody supervises its
    process, so that the number of workers waits for a restart. ``in_force``: the policy with what operators
    set for all members, made of that of a file: it has to go together with the file too.
    """
    taken = _kept(running, file)
    if alone:
        taken = taken.model_copy(update={"workers": running.workers})
    checked = with_policy(taken, in_force(taken.policy()))
    wrong = tuple(cross_checks(checked, broken=frozenset(), origins={}, of_worker=True))
    return Reloaded(taken, tuple(changes(running, taken)), tuple(changes(taken, file)), wrong)


def _kept(running: Settings, file: Settings) -> Settings:
    """The settings of the file, but with what needs a restart as the node runs with it."""
    top = {
        key: getattr(running, key)
        for key, found in WHEN.items()
        if found is Reload.RESTART and key.isidentifier()
    }
    return file.model_copy(
        update={
            **top,
            "receive": {
                name: _connector(one, file.receive.get(name, one)) for name, one in running.receive.items()
            },
            "peer": _peer(running.peer, file.peer),
            "admin": file.admin.model_copy(update={"listen": running.admin.listen}),
            "tracking": file.tracking.model_copy(update={"directory": running.tracking.directory}),
            "members": [one for one in file.members if one.name != running.name],
        }
    )


def _connector(running: ReceiveConnector, file: ReceiveConnector) -> ReceiveConnector:
    return file.model_copy(update={"listen": running.listen})


def _peer(running: MemberConnector | None, file: MemberConnector | None) -> MemberConnector | None:
    """A connector for members comes and goes with a restart alone, and so does its TLS."""
    if running is None or file is None or running.tls != file.tls:
        return running
    return file.model_copy(update={"listen": running.listen})


def changes(was: Settings, now: Settings) -> Iterator[Change]:
    """The settings that have another value, in the order of the schema."""
    yield from _changes(ROOT, "", was, now)


def _changes(node: SchemaNode, key: str, was: Any, now: Any) -> Iterator[Change]:
    if was == now:
        return
    if node.table is not None and isinstance(was, BaseModel) and isinstance(now, BaseModel):
        for name in node.table.model_fields:
            child = node.child(name)
            if child is not None:
                yield from _changes(
                    child, f"{key}.{name}" if key else name, getattr(was, name), getattr(now, name)
                )
    elif node.element is not None and node.element.table is not None:
        before, after = _tables(was), _tables(now)
        for name in [*before, *(other for other in after if other not in before)]:
            inner = f"{key}.{name}" if node.named else f"{key}[{name}]"
            yield from _changes(node.element, inner, before.get(name), after.get(name))
    else:
        yield Change(key, _shown(node, was), _shown(node, now))


def _tables(found: Any) -> dict[str, Any]:
    """The tables of a group: by their names, or by what tells one of a list from the others."""
    if isinstance(found, Mapping):
        return dict(found)
    return {str(getattr(one, "name", at)): one for at, one in enumerate(found or ())}


def _shown(node: SchemaNode, value: Any) -> str:
    if value is None:
        return "not set"
    if node.table is not None:
        return "a table"
    return "********" if node.secret else node.render(value)
