"""Settings are set on one node for all members; a settings file that says otherwise does not count."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sending import MESSAGE, sender, sent
from stations import Station, boundary, eventually, station
from structlog.testing import capture_logs

from shadowrelay.admin.api import build_app
from shadowrelay.admin.server import bind, serve
from shadowrelay.cli import main
from shadowrelay.core.policy import ShadowMessagePreference
from shadowrelay.core.switches import Switch
from shadowrelay.members import record_replication
from shadowrelay.operator.acts import ActRefused
from shadowrelay.operator.resubmit_estimate import CannotDo
from shadowrelay.service.reloading import Reloading
from shadowrelay.settings.switched import written

REJECT = "reject_message_on_shadow_failure"
WAIT = "queue_glitch_retry_interval"
BY = {"operator": "ann", "reason": "a slow provider"}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(record_replication, "REFRESH", 0.1)
    with capture_logs():
        yield


async def running(*stations: Station) -> None:
    for one in stations:
        one.run_links()
        one.run(one.node.replication.run())
    for one in stations:
        await eventually(lambda one=one: len(one.node.boundary.reachable()) == len(stations) - 1)


@asynccontextmanager
async def alone(directory: Path, *, disk: int = 0) -> AsyncIterator[Station]:
    """A node whose only member is away."""
    one = await station(directory, "mx1", ["mx2"], disk=disk)
    try:
        yield one
    finally:
        await one.stop()


async def change(one: Station, key: str, value: object, **by: str) -> Any:
    """Set it, or unset it with None."""
    of = one.node.cluster_settings
    return await (of.unset(key, **BY) if value is None else of.set(key, value, **(BY | by)))


def everywhere(stations: list[Station], key: str, value: object) -> bool:
    return all(getattr(one.node.policy, key) == value for one in stations)


async def shown(one: Station, key: str) -> Any:
    return next(
        found for found in (await one.node.cluster_settings.show())["settings"] if found["key"] == key
    )


async def test_what_is_set_on_one_node_counts_on_all_until_it_is_unset_on_any(
    tmp_path: Path,
) -> None:
    own = {"mx2": {WAIT: "3s"}}
    async with boundary(tmp_path, "mx1", "mx2", "mx3", own=own) as stations:
        await running(*stations)
        await change(stations[0], WAIT, "90s")
        await eventually(lambda: everywhere(stations, WAIT, timedelta(seconds=90)))

        async def all_have_it() -> bool:
            return all(one["has"] for one in (await shown(stations[0], WAIT))["members"])

        await eventually(all_have_it)
        for one in stations:
            found = await shown(one, WAIT)
            assert (found["value"], found["set"]["value"]) == ("1m30s", "1m30s")
            assert found["set"]["operator"] == "ann"
            assert found["set"]["changed_by"] == stations[0].name
        assert (await shown(stations[1], WAIT))["settings_file"] == "3s"
        await change(stations[2], WAIT, None)
        await eventually(lambda: everywhere([stations[0], stations[2]], WAIT, timedelta(seconds=1)))
        await eventually(lambda: everywhere([stations[1]], WAIT, timedelta(seconds=3)))
        assert (await shown(stations[2], WAIT))["set"]["value"] is None


async def test_a_member_that_was_away_or_lost_its_disk_learns_it_at_its_next_contact(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (one, other):
        addresses: Any = one.node.members.addresses
        addresses[other.name] = replace(addresses[other.name], port=1)
        await change(one, "shadow_message_preference_setting", "local_only")
        one.run_links()
        one.run(one.node.replication.run())
        await eventually(lambda: other.name not in one.node.boundary.reachable())
        (having,) = (await shown(one, "shadow_message_preference_setting"))["members"]
        assert not having["has"]
        one.knows(other)
        key = "shadow_message_preference_setting"
        await eventually(lambda: everywhere([other], key, ShadowMessagePreference.LOCAL_ONLY))


async def test_a_set_value_counts_after_a_restart_before_any_mail_is_taken(tmp_path: Path) -> None:
    async with alone(tmp_path) as first:
        await change(first, REJECT, "true")
    async with alone(tmp_path, disk=1) as again:
        await again.node.replication.look()  # as a start does before it listens
        assert (await sent(again, MESSAGE)).startswith("451 4.4.0 ")


async def test_a_message_is_taken_under_the_settings_that_were_in_force_when_it_began(tmp_path: Path) -> None:
    """No member is there, so that policy decides about the message."""
    async with boundary(tmp_path, "mx1", "mx2") as (one, other):
        await other.connectors[0].stop(0)
        for before, after, answer in (("false", "true", "250 "), ("true", "false", "451 4.4.0 ")):
            await change(one, REJECT, before)
            async with sender(one) as client:
                assert (await client.begin()).startswith("250 ")
                await change(one, REJECT, after)
                assert (await client.content(MESSAGE)).startswith(answer)
        await change(one, REJECT, "true")
        for on, answer in ((True, "451 4.4.0 "), (False, "250 ")):
            await one.node.redundancy.turn(on=on, **BY)
            async with sender(one) as client:
                assert (await client.begin()).startswith("250 ")
                await one.node.redundancy.turn(on=not on, **BY)
                assert (await client.content(MESSAGE)).startswith(answer)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (WAIT, "13h", "out of range; allowed: .* from 1s to 12h"),
        (WAIT, "5", "not a duration"),
        (REJECT, "yes", "not true or false"),
        ("queue_glitch_retry_count", "16", "from 0 to 15"),
        ("shadow_message_preference_setting", "nowhere", "prefer_remote, local_only or remote_only"),
        ("max_retries_for_local_site_shadow", "0", "no attempt is left to find a shadow server"),
        ("shadow_redundancy_enabled", "false", "use shadowrelay redundancy"),
        ("opening_timeout", "1h", "before it can read a record"),
        ("max_outbound_connections", "3", "what each machine can bear"),
        ("shadow_resubmit_time_span", "1s", "more than shadow_heartbeat_frequency"),
        ("shadow_heartbeat_frequency", "1s", "members decide by it"),
        ("shadow_message_auto_discard_interval", "1d", "members decide by it"),
        ("data_dir", "/tmp", "a node's own"),
        ("name", "mx9.example.org", "a node's own"),
        ("queue_glitch_retry_cuont", "3", 'did you mean "queue_glitch_retry_count"'),
    ],
)
async def test_what_cannot_be_set_for_all_is_refused_with_the_reason_and_changes_nothing(
    tmp_path: Path, key: str, value: str, why: str
) -> None:
    async with alone(tmp_path) as one:
        before = one.node.in_force.policy
        with pytest.raises((CannotDo, ValueError), match=why):
            await change(one, key, value)
        with pytest.raises(CannotDo):
            await change(one, key, None)
        assert one.node.in_force.policy == before
        assert not await one.read(lambda ledger: ledger.records(Switch))


async def test_a_shorter_span_counts_when_every_member_has_it_and_the_longer_one_has_passed(
    tmp_path: Path,
) -> None:
    span, old, new = "shadow_resubmit_time_span", timedelta(seconds=4), timedelta(seconds=2)
    async with boundary(tmp_path, "mx1", "mx2", **{span: "4s"}) as (one, other):
        addresses: Any = one.node.members.addresses
        addresses[other.name] = replace(addresses[other.name], port=1)
        await change(one, span, "2s")
        one.run_links()
        one.run(one.node.replication.run())
        begun = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < begun + 6:
            assert one.node.policy.shadow_resubmit_time_span == old, "a member does not have it"
            assert one.node.in_force.relied.shadow_resubmit_time_span == new
            await asyncio.sleep(0.1)
        assert (await shown(one, span))["pending"]
        one.knows(other)
        other.knows(one)
        other.run_links()
        other.run(other.node.replication.run())
        await eventually(lambda: other.node.in_force.relied.shadow_resubmit_time_span == new)
        assert other.node.policy.shadow_resubmit_time_span == old
        learnt = asyncio.get_running_loop().time()
        await eventually(lambda: everywhere([one, other], span, new))
        assert asyncio.get_running_loop().time() >= learnt + 3, "the longer one passes first"
        assert not (await shown(one, span))["pending"]


async def test_what_may_still_be_in_force_counts_after_a_restart(tmp_path: Path) -> None:
    async with alone(tmp_path) as first:
        await change(first, "safety_net_hold_time", "1h")
    async with alone(tmp_path, disk=1) as again:
        await again.node.replication.look()
        assert again.node.policy.safety_net_hold_time == timedelta(days=2)
        assert (await shown(again, "safety_net_hold_time"))["set"]["value"] == "1h"
        assert (await shown(again, "safety_net_hold_time"))["pending"]


async def test_a_member_that_cannot_switch_a_setting_is_shown_with_the_reason(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (one, old):

        async def refuses(*_: object) -> Any:
            raise ActRefused("bad value")  # so a member of a version before this one

        old.node.acts.actions = dict(old.node.acts.actions) | {  # type: ignore[misc]
            Switch.kind: replace(old.node.acts.actions[Switch.kind], perform=refuses)
        }
        await running(one, old)
        await change(one, WAIT, "90s")

        async def told() -> bool:
            (having,) = (await shown(one, WAIT))["members"]
            return "older version" in having["why"]

        await eventually(told)


async def test_a_file_that_says_otherwise_is_told_in_the_status_at_a_reload_and_by_a_check(
    tmp_path: Path,
) -> None:
    class NoWriter:
        def limit(self, limits: object) -> None: ...

    async with alone(tmp_path) as one:
        node = one.node
        node.connectors = one.connectors
        await change(one, WAIT, "90s")
        differs = f"{WAIT} is 1m30s for all members, and 1s in "
        assert node.warning() == "", "a default is not said by the file"
        node.current.settings._origins = {WAIT: origin("mx1.toml")}
        assert differs + "mx1.toml, which does not count" in node.warning()
        file = node.settings.model_copy()
        file._origins = {WAIT: origin("mx1.toml")}
        named = {"peer": one.connectors[0], "receive.default": one.connectors[1]}
        reloading = Reloading(node, lambda: file, named, NoWriter(), asyncio.Event())  # type: ignore[arg-type]
        shown = await reloading.reload(dry_run=True)
        assert any(differs in warning for warning in shown.warnings)
    path = tmp_path / "mx1.toml"
    path.write_text(CHECKED.format(data=one.directory, wait="1s"))
    result = CliRunner().invoke(main, ["config", "check", str(path)])
    assert (result.exit_code, f"warning: {differs}{path}" in result.output) == (0, True), result.output
    path.write_text(CHECKED.format(data=one.directory, wait="90s"))
    result = CliRunner().invoke(main, ["config", "check", str(path)])
    assert differs not in result.output


def origin(detail: str) -> Any:
    from shadowrelay.settings.origins import Origin, OriginKind

    return Origin(OriginKind.FILE, detail)


CHECKED = """\
name = "mx1.example.org"
data_dir = "{data}"
queue_glitch_retry_interval = "{wait}"
receive.default.listen = "127.0.0.1:2525"
routes.inside = {{ domains = ["*"], host = "127.0.0.1", tls = "none" }}
"""


async def test_a_file_has_to_go_together_with_what_was_set_for_all(tmp_path: Path) -> None:
    """With no attempt in the other sites, the file may not take those of this site away."""

    class NoWriter:
        def limit(self, limits: object) -> None: ...

    async with alone(tmp_path) as one:
        node = one.node
        node.connectors = one.connectors
        await change(one, "max_retries_for_local_site_shadow", "5")
        file = node.settings.model_copy(update={"max_retries_for_local_site_shadow": 0})
        named = {"peer": one.connectors[0], "receive.default": one.connectors[1]}
        reloading = Reloading(node, lambda: file, named, NoWriter(), asyncio.Event())  # type: ignore[arg-type]
        assert (await reloading.reload()).taken, "what was set counts"
        with pytest.raises(CannotDo, match="no attempt is left"):
            await change(one, "max_retries_for_local_site_shadow", None)
        assert node.policy.max_retries_for_local_site_shadow == 5


@asynccontextmanager
async def serving(one: Station) -> AsyncIterator[str]:
    sock, stop = bind("127.0.0.1", 0), asyncio.Event()
    task = asyncio.create_task(serve(build_app(one.node), sock, stop))
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        one.node.services.events.close()
        stop.set()
        await task


async def test_the_command_sets_shows_and_unsets_and_says_what_is_refused(tmp_path: Path) -> None:
    async with alone(tmp_path) as one, serving(one) as admin:

        async def typed(*words: str) -> tuple[int, str]:
            found = await asyncio.to_thread(CliRunner().invoke, main, ["settings", *words, "--admin", admin])
            return found.exit_code, found.output

        reason = ("--reason", "a slow provider", "--operator", "ann")
        code, text = await typed("set", WAIT, "90s", *reason)
        assert code == 0, text
        assert f"{WAIT} is 1m30s here; the settings file: 1s" in text
        assert "by ann: a slow provider" in text
        assert "mx2.example.org" in text
        code, text = await typed("show")
        assert (code, "1m30s" in text, "a slow provider" in text) == (0, True, True)
        assert all(key in text for key in (REJECT, "unreadable_answer_retry_count"))
        code, text = await typed("show", WAIT, "--json")
        assert (code, json.loads(text)["set"]["revision"] > 0) == (0, True)
        code, text = await typed("unset", WAIT, *reason)
        assert (code, f"{WAIT} is 1s here" in text, "Unset at " in text) == (0, True, True)
        code, text = await typed("unset", WAIT, *reason)
        assert (code, "is not set for all members" in text) == (1, True)
        code, text = await typed("set", WAIT, "90", *reason)
        assert (code, "not a duration" in text) == (1, True)
        code, text = await typed("set", "shadow_resubmit_time_span", "1h", *reason)
        assert (code, "once every member has it" in text) == (0, True)
        code, text = await typed("set", "shadow_heartbeat_frequency", "1h", *reason)
        assert (code, "in the settings file of each node" in text) == (1, True)
        code, text = await typed("show", "data_dir")
        assert (code, REJECT in text) == (1, True)
        assert (await typed("set", WAIT, "90s"))[0] == 2, "a reason is needed"


def test_a_value_is_written_as_in_the_settings_file() -> None:
    assert written(WAIT, timedelta(minutes=90)) == "1h30m"
    assert written(REJECT, True) is True
    assert written("queue_glitch_retry_count", 4) == 4
    assert written("shadow_message_preference_setting", ShadowMessagePreference.LOCAL_ONLY) == "local_only"
