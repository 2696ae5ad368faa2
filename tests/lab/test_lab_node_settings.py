from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shadowlab import layout, node_settings
from shadowlab.layout import Layout
from shadowrelay import authority
from shadowrelay.settings import Settings, SettingsInvalid, load_settings, settings_warnings


@pytest.fixture
def lab(tmp_path: Path) -> Layout:
    made = layout.plan(tmp_path, nodes=3, ports=range(20_000, 20_011))
    now = datetime.now(UTC)
    authority.init(made.authority, name="lab", now=now)
    for node in made.nodes:
        authority.issue(
            made.authority, node.name, now=now, out=node_settings.certificate(node).certificate.parent
        )
    return made


def loaded(lab: Layout, number: int = 1) -> Settings:
    return load_settings(lab.node(str(number)).config, {})


def test_the_nodes_know_one_another_by_certificates(lab: Layout):
    node_settings.write(lab, [])
    settings = loaded(lab, 3)
    assert settings.peer is not None
    assert settings.peer.tls
    assert settings.peer.externally_secured == []
    assert {"mx1.lab.test", "mx2.lab.test"} <= {member.name for member in settings.members}
    assert settings_warnings(settings) == []


def test_a_lab_shows_in_seconds_what_takes_hours_elsewhere(lab: Layout):
    node_settings.write(lab, [])
    assert loaded(lab).tracking.max_file_age == timedelta(seconds=15)
    policy = loaded(lab).policy()
    assert policy.reject_message_on_shadow_failure
    assert policy.shadow_heartbeat_frequency == timedelta(seconds=1)
    assert policy.shadow_resubmit_time_span == timedelta(seconds=5)
    assert {
        policy.queue_glitch_retry_interval,
        policy.transient_failure_retry_interval,
        policy.outbound_connection_failure_retry_interval,
    } == {timedelta(seconds=1)}


def test_mail_goes_inside_by_lmtp_and_outside_by_smtp(lab: Layout):
    node_settings.write(lab, [])
    inside, outside = (loaded(lab).routes[name] for name in ("inside", "outside"))
    assert (inside.domains, inside.protocol, inside.inside, inside.port) == (
        ["inside.test"],
        "lmtp",
        True,
        20_000,
    )
    assert (outside.domains, outside.protocol, outside.inside, outside.port) == (
        ["outside.test"],
        "smtp",
        False,
        20_001,
    )
    assert {inside.tls, outside.tls} == {"none"}


def test_options_apply_to_all_nodes_and_stay(lab: Layout):
    node_settings.write(lab, ["safety_net_hold_time=1h", "routes.outside.port=9"])
    node_settings.write(lab, ["log.level=debug"])
    for number in (1, 2, 3):
        settings = loaded(lab, number)
        assert settings.policy().safety_net_hold_time == timedelta(hours=1)
        assert settings.routes["outside"].port == 9
        assert settings.log.level == "debug"


def test_how_long_a_stop_may_take_is_known_of_a_file_that_has_become_wrong(lab: Layout):
    node_settings.write(lab, ["drain_timeout=7s"])
    node_settings.certificate(lab.node("2")).key.unlink()
    with pytest.raises(SettingsInvalid):
        node_settings.settings(lab.node("2"))
    assert node_settings.drain_timeout(lab.node("2")) == timedelta(seconds=7)


def test_what_somebody_wrote_into_a_settings_file_stays(lab: Layout):
    node_settings.write(lab, [])
    config = lab.node("2").config
    config.write_text('drain_timeout = "7s"\n' + config.read_text() + "# by hand\n")
    written = config.read_text()
    node_settings.write(lab, [])
    assert config.read_text() == written
    assert node_settings.drain_timeout(lab.node("2")) == timedelta(seconds=7)
    assert node_settings.drain_timeout(lab.node("1")) == timedelta(seconds=30)


def test_nothing_is_written_when_an_option_is_wrong(lab: Layout):
    with pytest.raises(SettingsInvalid, match="unknown setting"):
        node_settings.write(lab, ["safety_net_holdtime=1h"])
    assert not any(node.config.exists() for node in lab.nodes)


@pytest.mark.parametrize(
    "option", ["name=mx9.lab.test", "members=[]", "peer.listen=127.0.0.1:1", "admin={}", "receive.default={}"]
)
def test_what_differs_between_nodes_cannot_be_set_for_all(lab: Layout, option: str):
    with pytest.raises(SettingsInvalid, match="the lab's own"):
        node_settings.write(lab, [option])


def test_the_token_that_was_set_is_found_again(lab: Layout):
    node_settings.write(lab, [])
    assert node_settings.admin_token(lab.node("1")) is None
    node_settings.write(lab, ["admin.token=0123456789abcdef"])
    assert node_settings.admin_token(lab.node("1")) == "0123456789abcdef"


def test_each_node_of_several_workers_names_its_own_and_those_of_the_others(lab: Layout):
    needed = layout.ports_needed(3, breakable=False, workers=3)
    lab = layout.plan(lab.directory, nodes=3, ports=range(20_000, 20_000 + needed), workers=3)
    node_settings.write(lab, [])
    first = loaded(lab)
    assert first.workers == 3
    assert {member.workers for member in first.members} == {3}
    with pytest.raises(SettingsInvalid, match="workers"):
        node_settings.write(lab, ["workers=4"])
