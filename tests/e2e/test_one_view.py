"""Any node answers for all: where a message is, how it came there, and which node is silent."""

from __future__ import annotations

import json
import time

import pytest
from click.testing import CliRunner
from running_lab import OUTSIDE, RunningLab, wait_until

from shadowlab.layout import MAILBOX
from shadowrelay.cli import main

pytestmark = [pytest.mark.lab, pytest.mark.slow]


def seen(lab: RunningLab, node: str, *words: str) -> str:
    done = CliRunner().invoke(main, [*words, "--admin", lab.cluster.node(node).admin])
    assert done.exit_code == 0, done.output
    return done.stdout


def lines(lab: RunningLab, node: str, *words: str) -> list[dict]:
    return [json.loads(line) for line in seen(lab, node, *words, "--json").splitlines()]


def test_any_node_finds_a_message_tells_its_life_and_names_a_silent_node_in_time(
    lab: RunningLab,
):
    lab.up("queue_glitch_retry_interval=5m", nodes=3)
    lab.cluster.kill(MAILBOX)
    lab.send(1, recipients=(OUTSIDE,))
    (id_,) = lab.ids("mx1")

    (found,) = [one for one in lines(lab, "mx3", "message", "find", OUTSIDE) if one["kind"] == "message"]
    assert found["id"] == id_
    assert sorted(copy["role"] for copy in found["copies"]) == ["primary", "shadow"]
    wait_until(
        lambda: any(one["event"] == "DEFER" for one in lines(lab, "mx2", "message", "trace", id_)),
        "the attempt is in the life of the message, while its log is being written",
    )
    events = [one for one in lines(lab, "mx2", "message", "trace", id_) if one["kind"] == "event"]
    assert [one["at"] for one in events] == sorted(one["at"] for one in events)
    assert len({one["node"] for one in events}) == 2
    shown = json.loads(seen(lab, "mx2", "queue", "show", "outside", "--json"))
    ours = next(one for one in shown["nodes"] if one["queue"])
    assert ours["attempts"][0]["message"] == id_
    assert ours["attempts"][0]["outcome"] == "deferred"

    lab.cluster.freeze("mx3")
    began = time.monotonic()
    status = json.loads(seen(lab, "mx1", "status", "--json"))
    assert time.monotonic() - began < 3
    assert status["queued"] == 1
    silent = [one for one in status["nodes"] if not one["answers"]]
    assert len(silent) == 1
    waited = silent[0]["why"].removeprefix("it is silent: no answer within ").removesuffix(" s")
    assert float(waited) <= 2
    lab.cluster.thaw("mx3")
    lab.cluster.start(MAILBOX)
