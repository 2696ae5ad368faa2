"""A settings file that cannot be made changes nothing of a node; one that is taken counts in all parts."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from shadowrelay.core.delivery.hosts import Host
from shadowrelay.core.identifiers import NextHop
from shadowrelay.service import connectors
from shadowrelay.service.reloading import Reloading
from shadowrelay.settings import Settings, settings_from_tree
from shadowrelay.smtp.sending.hop import ConnectionFailed
from tests.stations import MachineClocks, boundary


class NoWriter:
    def limit(self, limits: object) -> None:
        """Of a tracking log that nobody writes."""


def other(found: Settings, **changes: Any) -> Settings:
    """The settings of a station, with other values."""
    tree = found.model_dump(exclude_none=True) | changes
    return settings_from_tree(tree)


def state(node: Any) -> list[object]:
    return [
        node.settings,
        tuple(node.routes),
        node.policy.resubmit_rate,
        node.hosts.ways("new"),
        node.connectors[0].options,
        sorted(node.boundary.watches),
    ]


ROUTES = {"new": {"domains": ["*"], "host": "127.0.0.1", "port": 10, "tls": "none"}}


async def test_a_file_that_cannot_be_made_after_its_check_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (one, _):
        node = one.node
        node.connectors = one.connectors
        file = other(node.settings, routes=ROUTES, resubmit_rate=7, members=[])
        named = {"peer": one.connectors[0], "receive.default": one.connectors[1]}
        reloading = Reloading(node, lambda: file, named, NoWriter(), asyncio.Event())  # type: ignore[arg-type]
        before = state(node)

        def vanished(*_: object) -> None:
            raise OSError("the certificate is gone")

        with monkeypatch.context() as broken:
            broken.setattr(connectors, "for_senders", vanished)
            shown = await reloading.reload()
        assert not shown.taken
        assert shown.wrong == ["the certificate is gone"]
        assert state(node) == before
        assert "the certificate is gone" in reloading.warning
        shown = await reloading.reload()
        assert shown.taken
        assert state(node) != before
        assert [route.name for route in node.routes] == ["new"]
        assert node.policy.resubmit_rate == 7
        assert not node.boundary.watches
        assert reloading.warning == ""


async def test_a_host_that_fails_after_a_reload_rests_as_long_as_the_changed_file_says(
    tmp_path: Path,
) -> None:
    host = Host(NextHop("inside"), "127.0.0.1", 9)
    gone = ConnectionFailed("connect", "refused")
    async with boundary(tmp_path, "mx1", clocks={"mx1": MachineClocks()}) as (one,):
        node = one.node
        node.connectors = one.connectors
        file = other(node.settings, queue_glitch_retry_interval="1h")
        named = {"peer": one.connectors[0], "receive.default": one.connectors[1]}
        reloading = Reloading(node, lambda: file, named, NoWriter(), asyncio.Event())  # type: ignore[arg-type]
        assert (await reloading.reload()).taken
        rests_until = node.hosts.failed(host, gone, several=False).rests_until
        assert rests_until is not None
        assert rests_until - node.clock() > timedelta(minutes=30)


async def test_shaping_and_its_patterns_count_from_a_reload_on_or_not_at_all(tmp_path: Path) -> None:
    file, pattern = tmp_path / "patterns.toml", "[patterns.a]\ncode = 421\ntext = ['x']\npause = '{}'\n"
    async with boundary(tmp_path, "mx1") as (one,):
        node, shaping = one.node, one.node.queue.shaping
        changed = {"shaping": {"a": {"match": ["*"], "connections": 3}}, "shaping_patterns": str(file)}
        base = node.settings

        def read() -> Settings:
            return other(base, **changed)

        reloading = Reloading(node, read, {}, NoWriter(), asyncio.Event())  # type: ignore[arg-type]
        file.write_text(pattern.format("1m"), "utf-8")
        assert (await reloading.reload()).taken
        assert [shape.connections for shape in shaping.shapes] == [3]
        file.write_text(pattern.format("long"), "utf-8")
        shown = await reloading.reload()
        assert not shown.taken
        assert "patterns.a.pause" in shown.wrong[0]
        assert [one.pause for one in shaping.patterns] == [timedelta(minutes=1)]
        file.write_text(pattern.format("2m"), "utf-8")  # the settings are as they were
        assert (await reloading.reload()).taken
        assert [one.pause for one in shaping.patterns] == [timedelta(minutes=2)]


async def test_mta_sts_counts_from_a_reload_on_and_no_longer(tmp_path: Path) -> None:
    world, base = NextHop("world"), {"domains": ["*"], "mx": True}
    async with boundary(tmp_path, "mx1") as (one,):
        node, found = one.node, one.node.settings
        files = [
            other(found, routes={"world": {**base, "mta_sts": on}}, mta_sts={"port": port})
            for on, port in ((True, 8443), (False, 443))
        ]
        reloading = Reloading(node, lambda: files.pop(0), {}, NoWriter(), asyncio.Event())  # type: ignore[arg-type]
        assert not node.tls_policies.concern(world)
        assert (await reloading.reload()).taken
        assert node.tls_policies.concern(world)
        assert node.tls_policies.sts.fetcher.port == 8443
        assert (await reloading.reload()).taken
        assert not node.tls_policies.concern(world)
        assert node.tls_policies.sts.fetcher.port == 443
