"""The policy: settings of redundancy, queues and retries, each with its default and range.

Names are the documented transport-config names in snake_case. A default is written only here: the settings
are made from these fields, and a test compares the reference page with them. ``source`` tells whether a
parameter is Exchange's or ours.
"""

from __future__ import annotations

from dataclasses import field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from shadowrelay.core.values import dataclass


class ShadowMessagePreference(StrEnum):
    """Where the shadow server is looked for (Exchange: ShadowMessagePreferenceSetting)."""

    PREFER_REMOTE = "prefer_remote"
    LOCAL_ONLY = "local_only"
    REMOTE_ONLY = "remote_only"


def tunable(default: Any, doc: str, *, least: Any = None, most: Any = None, source: str = "Exchange") -> Any:
    """A policy field: default, one line of documentation, inclusive range, and source."""
    return field(default=default, metadata={"doc": doc, "least": least, "most": most, "source": source})


def _s(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def _m(minutes: float) -> timedelta:
    return timedelta(minutes=minutes)


def _h(hours: float) -> timedelta:
    return timedelta(hours=hours)


def _d(days: float) -> timedelta:
    return timedelta(days=days)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The values of all tunables. Durations are measured on the monotonic clock while the process runs."""

    shadow_redundancy_enabled: bool = tunable(True, "Make messages redundant before they are acknowledged.")
    reject_message_on_shadow_failure: bool = tunable(
        False, "Answer 451 4.4.0 when no shadow server took a copy, instead of accepting the message exposed."
    )
    shadow_redundancy_promotion_enabled: bool = tunable(
        False, "Relay a message to another transport server where delayed acknowledgement would be skipped."
    )
    shadow_message_preference_setting: ShadowMessagePreference = tunable(
        ShadowMessagePreference.PREFER_REMOTE, "Where a shadow server is looked for."
    )
    max_retries_for_local_site_shadow: int = tunable(2, "Attempts in this site.", least=0, most=255)
    max_retries_for_remote_site_shadow: int = tunable(4, "Attempts in other sites.", least=0, most=255)
    shadow_heartbeat_frequency: timedelta = tunable(
        _m(2), "How often an idle pair of members talks.", least=_s(1), most=_d(1)
    )
    shadow_resubmit_time_span: timedelta = tunable(
        _h(3),
        "How long an owner must be unreachable before its messages are promoted.",
        least=_s(1),
        most=_d(1),
    )
    shadow_heartbeat_timeout_interval: timedelta = tunable(
        _m(15),
        "How long a hop that tracks our messages may be silent before it is asked in a session of its own.",
        least=_s(1),
        most=_d(1),
    )
    shadow_heartbeat_retry_count: int = tunable(
        12, "How many such sessions fail in a row before the hop's messages go another way.", least=1, most=15
    )
    isolated_resubmit_time_span: timedelta = tunable(
        _s(0),
        "How long a node that reaches no other machine waits before it promotes by time; 0: never.",
        least=_s(0),
        most=_d(30),
        source="ours",
    )
    shadow_message_auto_discard_interval: timedelta = tunable(
        _d(2), "How long a discard event is kept for a member that never asks.", least=_s(5), most=_d(90)
    )
    safety_net_hold_time: timedelta = tunable(
        _d(2), "How long settled messages are kept.", least=_s(1), most=_d(90)
    )
    message_expiration_timeout: timedelta = tunable(
        _d(2), "Age at which an undelivered message fails.", least=_s(5), most=_d(90)
    )
    delay_notification_timeout: timedelta = tunable(
        _h(4), "Age at which the sender is told of a delay.", least=_s(1), most=_d(30)
    )
    queue_glitch_retry_count: int = tunable(4, "First retries, for a short glitch.", least=0, most=15)
    queue_glitch_retry_interval: timedelta = tunable(
        _m(1), "Between glitch retries.", least=_s(1), most=_h(12)
    )
    transient_failure_retry_count: int = tunable(6, "Retries after the glitch retries.", least=0, most=15)
    transient_failure_retry_interval: timedelta = tunable(
        _m(5), "Between transient retries.", least=_s(1), most=_h(12)
    )
    outbound_connection_failure_retry_interval: timedelta = tunable(
        _m(10), "Between all later retries.", least=_s(1), most=_d(20)
    )
    unreadable_answer_retry_count: int = tunable(
        3,
        "Retries where a next hop took the content and its answer cannot be read; then an operator decides.",
        least=0,
        most=15,
        source="ours",
    )
    unreadable_answer_retry_interval: timedelta = tunable(
        _m(15),
        "Before the first such retry; before each later one four times as long.",
        least=_s(1),
        most=_d(1),
        source="ours",
    )
    queue_max_idle_time: timedelta = tunable(
        _m(3), "An outbound session idle this long is closed.", least=_s(5), most=_h(1)
    )
    max_per_domain_outbound_connections: int = tunable(40, "Sessions to one next hop.", least=1, most=10_000)
    max_outbound_connections: int = tunable(1000, "Sessions to all next hops.", least=1, most=100_000)

    discard_poll_interval: timedelta = tunable(
        _s(1),
        "How often a holder asks an owner for discard events.",
        least=_s(0.1),
        most=_m(1),
        source="ours",
    )
    orphan_check_interval: timedelta = tunable(
        _s(60), "Age of a copy at which its owner is asked about it.", least=_s(1), most=_h(1), source="ours"
    )
    opening_timeout: timedelta = tunable(
        _m(10),
        "How long the opening of a database may take; after it the node ends.",
        least=_s(1),
        most=_d(1),
        source="ours",
    )
    reconcile_timeout: timedelta = tunable(
        _s(30), "How long a returning owner waits for holders.", least=_s(1), most=_h(1), source="ours"
    )
    revoke_timeout: timedelta = tunable(
        _s(5), "How long a revoke may take before a 451.", least=_s(0.1), most=_m(1), source="ours"
    )
    shadow_attempt_timeout: timedelta = tunable(
        _s(10), "How long one shadow server may take over one step.", least=_s(0.1), most=_m(2), source="ours"
    )
    shadow_time_cap: timedelta = tunable(
        _s(45), "How long all attempts for one message may take.", least=_s(0.5), most=_m(5), source="ours"
    )
    shadow_retry_interval: timedelta = tunable(
        _s(0.5),
        "How long to wait before members that failed are asked again for the same message.",
        least=_s(0.01),
        most=_s(10),
        source="ours",
    )
    member_skip_interval: timedelta = tunable(
        _s(10),
        "How long a member that failed is asked only when no other one is left.",
        least=_s(0.1),
        most=_m(10),
        source="ours",
    )
    holder_loss_heartbeats: int = tunable(
        3, "Failed heartbeats after which a holder counts as gone.", least=1, most=100, source="ours"
    )
    holder_choices: int = tunable(
        16,
        "Members of a site among which a node chooses holders, while one of them can be reached; 0: all.",
        least=0,
        most=10_000,
        source="ours",
    )
    unresponsive_primary_interval: timedelta = tunable(
        _h(12),
        "How long an owner must be silent before its holders answer resubmit requests for it.",
        least=_s(1),
        most=_d(30),
    )
    resubmit_overlap: timedelta = tunable(
        _h(1),
        "By how much the part of a resubmit request for a lost database exceeds the time before its loss.",
        least=_s(0),
        most=_d(1),
        source="ours",
    )
    resubmit_rate: int = tunable(
        20,
        "Messages that a node resubmits from Safety Net in a second, at most.",
        least=1,
        most=10_000,
        source="ours",
    )
    resubmit_most_requests: int = tunable(
        20, "Open resubmit requests in the boundary, at most.", least=1, most=100, source="ours"
    )
    resubmit_request_age: timedelta = tunable(
        _d(7), "Age at which a resubmit request ends.", least=_s(10), most=_d(30), source="ours"
    )
    loop_hop_limit: int = tunable(
        100, "Received fields past which a message loops.", least=5, most=1000, source="ours"
    )
