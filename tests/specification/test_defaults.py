"""The defaults of the documents, as the numbers that stand there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from shadowmailbox.settings import MailboxSettings
from shadowrelay.core.policy import Policy, ShadowMessagePreference
from shadowrelay.settings.schema import HopSettings, ReceiveConnector

POLICY: dict[str, Any] = {
    "shadow_redundancy_enabled": True,  # 2013-11
    "reject_message_on_shadow_failure": False,  # 2013-12
    "shadow_redundancy_promotion_enabled": False,  # 2010-36
    "shadow_message_preference_setting": ShadowMessagePreference("prefer_remote"),  # 2013-31
    "max_retries_for_remote_site_shadow": 4,  # 2013-32
    "max_retries_for_local_site_shadow": 2,  # 2013-33
    "shadow_heartbeat_frequency": timedelta(seconds=120),
    "shadow_resubmit_time_span": timedelta(seconds=10_800),  # 2013-44
    "shadow_heartbeat_timeout_interval": timedelta(seconds=900),  # article-21
    "shadow_heartbeat_retry_count": 12,
    "shadow_message_auto_discard_interval": timedelta(seconds=172_800),  # 2013-50
    "safety_net_hold_time": timedelta(seconds=172_800),  # 2013-51
    "message_expiration_timeout": timedelta(seconds=172_800),
    "delay_notification_timeout": timedelta(seconds=14_400),
    "queue_glitch_retry_count": 4,
    "queue_glitch_retry_interval": timedelta(seconds=60),
    "transient_failure_retry_count": 6,
    "transient_failure_retry_interval": timedelta(seconds=300),
    "outbound_connection_failure_retry_interval": timedelta(seconds=600),
    "queue_max_idle_time": timedelta(seconds=180),
    "max_per_domain_outbound_connections": 40,  # facts-5
    "max_outbound_connections": 1000,  # facts-5
    "unresponsive_primary_interval": timedelta(seconds=43_200),  # facts-8
}

SECTIONS: tuple[tuple[type[Any], str, Any], ...] = (
    (ReceiveConnector, "max_acknowledgement_delay", timedelta(seconds=30)),  # 2010-34
    (ReceiveConnector, "tarpit_interval", timedelta(seconds=5)),
    (ReceiveConnector, "max_protocol_errors", 5),
    (ReceiveConnector, "max_inbound_connection", 5000),
    (ReceiveConnector, "max_inbound_connection_per_source", 20),
    (ReceiveConnector, "max_recipients_per_message", 200),
    (HopSettings, "connection_inactivity_timeout", timedelta(seconds=600)),
    (MailboxSettings, "track_duplicates", timedelta(seconds=3_600)),  # article-11
)


@pytest.mark.parametrize(("name", "value"), POLICY.items(), ids=POLICY)
def test_a_default_of_the_policy_is_the_number_of_the_documents(name: str, value: object) -> None:
    assert getattr(Policy(), name) == value


@pytest.mark.parametrize(("section", "name", "value"), SECTIONS, ids=[name for _, name, _ in SECTIONS])
def test_a_default_of_a_connector_is_the_number_of_the_documents(
    section: type[Any], name: str, value: object
) -> None:
    assert section.model_fields[name].default == value
