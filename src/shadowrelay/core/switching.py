"""Settings of the whole boundary that operators change on a running cluster.

A switch is a record that every member has, as a resubmit request is: of two records the one with the higher
revision counts. Its value counts on every node whose settings file says something else, until it is unset. A
span that is shorter than before counts once nobody relies on the longer one any more (``SPANS``).

Shadow redundancy has a rule of its own. Each node keeps with that record what its own settings file said when
it learnt the revision. As long as the file says the same, the switch counts; a file that says something else
since then counts again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from shadowrelay.core.decisions import Decision, Verdict, VerdictKind, Write
from shadowrelay.core.events.discard_notices import addressed
from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.messages import Confirmation, HolderState
from shadowrelay.core.ownership.transfer import saved
from shadowrelay.core.policy import Policy
from shadowrelay.core.records import next_revision
from shadowrelay.core.replicating import Merging, Rules
from shadowrelay.core.switches import Switch, SwitchValue
from shadowrelay.core.values import replace

REDUNDANCY = "shadow_redundancy_enabled"

SWITCHED = (
    "reject_message_on_shadow_failure",
    "shadow_message_preference_setting",
    "max_retries_for_local_site_shadow",
    "max_retries_for_remote_site_shadow",
    "queue_glitch_retry_count",
    "queue_glitch_retry_interval",
    "transient_failure_retry_count",
    "transient_failure_retry_interval",
    "outbound_connection_failure_retry_interval",
    "unreadable_answer_retry_count",
    "unreadable_answer_retry_interval",
    "shadow_resubmit_time_span",
    "safety_net_hold_time",
    "message_expiration_timeout",
)
"""The settings that operators set for all members."""

SPANS = frozenset(("shadow_resubmit_time_span", "safety_net_hold_time", "message_expiration_timeout"))
"""Those of them on which members rely while they cannot talk. Until every member has the record, and the
longest value that may be in force has passed since, a node does its part by the longest. An owner takes its
holders to promote after the shortest. The other settings count as soon as a node has the record.
"""

_AGREED = (
    "members decide by it when a message may have been taken over, or is forgotten: it is changed in the "
    "settings file of each node"
)
_MACHINE = "it follows what each machine can bear: it is changed in the settings file of each node"
_OWN = "each node goes by its own settings file"

WHY_NOT: Mapping[str, str] = {
    REDUNDANCY: "use shadowrelay redundancy on, or off",
    "opening_timeout": "it counts while a node opens its database, before it can read a record there",
    **dict.fromkeys(
        (
            "shadow_heartbeat_frequency",
            "shadow_heartbeat_timeout_interval",
            "shadow_heartbeat_retry_count",
            "isolated_resubmit_time_span",
            "shadow_message_auto_discard_interval",
            "unresponsive_primary_interval",
            "resubmit_request_age",
        ),
        _AGREED,
    ),
    **dict.fromkeys(
        ("max_per_domain_outbound_connections", "max_outbound_connections", "resubmit_rate"), _MACHINE
    ),
    **dict.fromkeys(
        (
            "shadow_redundancy_promotion_enabled",
            "delay_notification_timeout",
            "queue_max_idle_time",
            "discard_poll_interval",
            "orphan_check_interval",
            "reconcile_timeout",
            "revoke_timeout",
            "shadow_attempt_timeout",
            "shadow_time_cap",
            "shadow_retry_interval",
            "member_skip_interval",
            "holder_loss_heartbeats",
            "holder_choices",
            "resubmit_overlap",
            "resubmit_most_requests",
            "loop_hop_limit",
        ),
        _OWN,
    ),
}
"""Why no other setting of the policy is switched by name."""

_TUNABLES = {one.name: one for one in fields(Policy)}
_MILLISECOND = timedelta(milliseconds=1)


def carried(value: Any) -> SwitchValue:
    """The value of a setting as a record has it."""
    match value:
        case timedelta():
            return value // _MILLISECOND
        case StrEnum():
            return value.value
        case _:
            plain: SwitchValue = value
            return plain


def value_of(switch: Switch) -> Any:
    """The value as the policy has it; None if the setting is unset. Raises ValueError for one that the
    setting cannot have on this node.
    """
    tunable, given = _TUNABLES[switch.name], switch.value
    if given is None:
        return None
    kind, about = type(tunable.default), tunable.metadata
    found: Any = given
    if issubclass(kind, StrEnum) and isinstance(given, str):
        found = kind(given)
    elif kind is timedelta and type(given) is int:
        found = given * _MILLISECOND
    if type(found) is not kind:
        raise ValueError(f"a value of another kind for {switch.name}")
    if about["least"] is not None and not about["least"] <= found <= about["most"]:
        raise ValueError(f"out of range: {switch.name}")
    return found


def fault(switch: Switch) -> str:
    """Why a node does not take such a record from a member; empty if it does."""
    if switch.name == REDUNDANCY:
        sound = isinstance(switch.value, bool) and isinstance(switch.against, bool)
        return "" if sound else f"no value for {REDUNDANCY}"
    if switch.name not in SWITCHED:
        return f"this node cannot switch {switch.name[:40]}"
    try:
        value_of(switch)
    except ValueError as error:
        return str(error)
    return ""


def in_force(file: Policy, switches: Collection[Switch]) -> Policy:
    """The policy by which a node with that settings file, and these records, does its part."""
    return _with(file, switches, lambda value, one: max(value, (one.longest or 0) * _MILLISECOND))


def relied_on(file: Policy, switches: Collection[Switch]) -> Policy:
    """The same, but with the shortest time span after which any other node may promote what this one owns."""
    own = in_force(file, switches)
    if not any(one.pending for one in switches):
        return own
    shortest = _with(file, switches, lambda value, one: min(value, (one.shortest or 0) * _MILLISECOND))
    return replace(own, shadow_resubmit_time_span=shortest.shadow_resubmit_time_span)


def _with(
    file: Policy, switches: Collection[Switch], pending: Callable[[timedelta, Switch], timedelta]
) -> Policy:
    changed: dict[str, Any] = {}
    for one in switches:
        if fault(one):  # kept by another version of this node
            continue
        if one.name != REDUNDANCY:
            value = value_of(one)
        else:
            value = one.value if one.against == file.shadow_redundancy_enabled else None
        if one.pending:
            value = pending(getattr(file, one.name) if value is None else value, one)
        if value is not None:
            changed[one.name] = value
    return replace(file, **changed) if changed else file


def flipped(ledger: Ledger, given: Switch, file: Policy) -> Decision[Switch]:
    """An operator switches: the change counts over all that this node knows of."""
    known = ledger.switch(given.name)
    revision = next_revision(known.revision if known else 0, given.changed_at)
    after = replace(given, revision=revision, kept_at=known.kept_at if known else given.changed_at)
    after = _held(after, known, file)
    return Decision(after, (after,))


def _learnt(switch: Switch, known: Switch | None, about: Merging) -> Switch:
    """A revision that is new to this node counts here, whatever this node's file says now."""
    if switch.name != REDUNDANCY:
        return _held(switch, known, about.policy)
    return replace(switch, against=about.policy.shadow_redundancy_enabled)


def _held(switch: Switch, known: Switch | None, file: Policy) -> Switch:
    """The record with the values of a span that may have been in force until now."""
    if switch.name not in SPANS:
        return replace(switch, longest=None, shortest=None)
    ours: Any = carried(getattr(file, switch.name))
    values = [ours]
    if known is not None and not fault(known):
        before: list[Any] = [ours if known.value is None else known.value, known.longest, known.shortest]
        values = [one for one in before if one is not None]
    return replace(switch, longest=max(values), shortest=min(values))


def settled(ledger: Ledger, switch: Switch) -> Decision[bool]:
    """Every member has that revision, for long enough: no other value of the span is in force any more."""
    known = ledger.switch(switch.name)
    if known is None or known != switch or not known.pending:
        return Decision(False)
    return Decision(True, (replace(known, longest=None, shortest=None),))


RULES = Rules(kind=Switch, fault=fault, learnt=_learnt, live=lambda *_: True)


def released(ledger: Ledger, message_id: MessageId, now: datetime) -> Decision[bool]:
    """Redundancy is off: holders of a message that we own are told so, and no longer count.

    They discard their copies when they hear it from us, on an unbroken lineage: that is our word that we own
    the message. If we are away, they keep their copies, and promote them as ever. Nothing changes if our copy
    is damaged, or the message may not be ours.
    """
    copy = ledger.copy(message_id)
    if copy is None or not copy.owned or copy.damage or copy.confirmation is not Confirmation.NONE:
        return Decision(False)
    told: list[Write] = []
    after = copy
    for holder in copy.holders:
        if holder.state is not HolderState.SUPERSEDED:
            gone = (Verdict(copy.id, copy.epoch, VerdictKind.SUPERSEDED, str(holder.rank)),)
            told += addressed([holder.database_id], gone, now)
            after = after.with_holder(replace(holder, state=HolderState.SUPERSEDED))
    if not told:
        return Decision(False)
    return Decision(True, (*saved(copy, after).writes, *told))
