"""Shadow redundancy is switched off and on again on a running cluster, and an owner is lost meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from running_lab import RunningLab, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

REASON = ("--reason", "the link between the sites is down")


def redundancy(lab: RunningLab, name: str, verb: str, *options: str) -> dict[str, Any]:
    """``shadowrelay redundancy`` on a node of the lab."""
    admin = lab.cluster.node(name).admin
    typed = [sys.executable, "-m", "shadowrelay", "redundancy", verb, "--admin", admin, "--json", *options]
    found: dict[str, Any] = json.loads(
        subprocess.run(typed, capture_output=True, text=True, check=True).stdout
    )
    return found


def test_off_copies_go_of_an_owner_that_is_lost_they_are_promoted_and_on_all_is_redundant_again(
    lab: RunningLab,
):
    lab.up("shadow_resubmit_time_span=1h", breakable=True)
    lab.cluster.refuse()
    names = ("mx1", "mx2", "mx3")
    lab.send(6, to="mx1")
    lab.send(4, to="mx2")
    wait_until(lambda: sum(lab.held(name) for name in names) == 10, "each has its copy")
    lab.cluster.freeze("mx2")  # its word about its copies is not heard
    redundancy(lab, "mx1", "off", *REASON)
    wait_until(lambda: not redundancy(lab, "mx3", "show")["on"], "every member that can be reached knows")
    wait_until(lambda: lab.held("mx1") + lab.held("mx3") == 4, "the copies of the owner in reach are gone")
    lab.send(3, to="mx1")
    assert lab.held("mx3") + lab.held("mx1") == 4, "new mail is accepted alone"
    lab.cluster.kill("mx2")
    lab.cluster.wipe("mx2")
    lab.cluster.start("mx2")
    wait_until(lambda: lab.queued("mx1") + lab.queued("mx3") == 13, "what mx2 had is promoted")
    wait_until(lambda: not redundancy(lab, "mx2", "show")["on"], "the new disk learns it")
    shown = redundancy(lab, "mx2", "on", *REASON)
    assert shown["switch"]["reason"] == REASON[1]
    wait_until(lambda: sum(lab.held(name) for name in names) == 13, "everything queued has a second copy")
    wait_until(lambda: not any(lab.status(name).exposed for name in names), "their owners count them")
    lab.cluster.accept()
    lab.verify()
