"""A setting is set for all members of a running cluster; some are away, restart, or lose their disk."""

from __future__ import annotations

from typing import Any

import pytest
from running_lab import RunningLab, typed, typed_json, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

KEY = "outbound_connection_failure_retry_interval"
REASON = ("--reason", "a slow provider")


def value(lab: RunningLab, name: str) -> Any:
    return typed_json(lab, name, "settings", "show", KEY)[1].get("value")


def test_it_counts_on_all_nodes_after_a_restart_and_on_a_new_disk_until_it_is_unset(lab: RunningLab) -> None:
    lab.up(f"{KEY}=20m", nodes=2)
    lab.cluster.kill("mx2")
    status, set_, _ = typed_json(lab, "mx1", "settings", "set", KEY, "45m", *REASON)
    assert (status, set_["value"], set_["settings_file"]) == (0, "45m", "20m")
    lab.cluster.start("mx2")
    wait_until(lambda: value(lab, "mx2") == "45m", "a member that was away learns it")
    lab.cluster.kill("mx1")
    lab.cluster.start("mx1")
    assert value(lab, "mx1") == "45m", "it is in force before the node answers"
    lab.cluster.kill("mx2")
    lab.cluster.wipe("mx2")
    lab.cluster.start("mx2")
    wait_until(lambda: value(lab, "mx2") == "45m", "a new disk learns it")
    told = typed(lab, "mx2", "status").stdout
    assert f"{KEY} is 45m for all members, and 20m in " in " ".join(told.split())
    status, refused, why = typed_json(lab, "mx2", "settings", "set", KEY, "500d", *REASON)
    assert (status, refused, "from 1s to 20d" in why) == (1, {}, True)
    assert typed(lab, "mx2", "settings", "unset", KEY, *REASON).returncode == 0
    wait_until(lambda: value(lab, "mx1") == "20m", "each file counts again")
    lab.send(1, to="mx1")
