"""The recovery table's row of a database that was put back: lineage gives it away."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from running_lab import INSIDE, OUTSIDE, RunningLab, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]


def put_back(lab: RunningLab, name: str, copy: Path) -> None:
    """The node dies, and its disk is replaced by an older copy of itself."""
    lab.cluster.kill(name)
    lab.cluster.wipe(name)
    shutil.copytree(copy, lab.cluster.node(name).data_dir)


def taken_over(lab: RunningLab, name: str, reason: str) -> set[str]:
    rows = lab.events(name, "RESUBMIT")
    assert {row["source-context"] for row in rows} <= {reason}
    return {row["network-message-id"] for row in rows}


def told_of_delivery(lab: RunningLab, name: str) -> set[str]:
    """What a node did not send, because it heard that another one had delivered it."""
    rows = lab.events(name, "HADISCARD")
    return {
        row["network-message-id"] for row in rows if row["source-context"].startswith("DeliveredElsewhere")
    }


@pytest.mark.parametrize("when", ["stopped", "frozen", "running"])
def test_a_database_that_was_put_back_is_known_by_its_lineage(lab: RunningLab, tmp_path: Path, when: str):
    """Copied while the node was stopped: an old copy of itself. While it ran, frozen or not: a snapshot of
    the very incarnation that went on afterwards.
    """
    lab.up("shadow_resubmit_time_span=1h", "drain_timeout=0s")  # stopped, it keeps its queue
    lab.cluster.refuse()
    lab.send(2, recipients=(INSIDE, OUTSIDE))
    before = set(lab.ids("mx1"))
    copied = tmp_path / "copy"
    if when == "stopped":
        lab.cluster.stop("mx1")
        shutil.copytree(lab.cluster.node("mx1").data_dir, copied)
        lab.cluster.start("mx1")
    elif when == "frozen":
        lab.cluster.freeze("mx1")
        shutil.copytree(lab.cluster.node("mx1").data_dir, copied)
        lab.cluster.thaw("mx1")
    else:
        shutil.copytree(lab.cluster.node("mx1").data_dir, copied)
    incarnation = lab.status("mx1").incarnation

    # What is in the copy is delivered after it was made; what comes later is not in the copy.
    lab.cluster.accept()
    wait_until(lambda: lab.count().lost == 0 and lab.queued("mx1") == 0, "delivered after the copy was made")
    wait_until(lambda: lab.held("mx3") == 0, "the holder knows")
    lab.cluster.refuse()
    lab.send(3, recipients=(INSIDE, OUTSIDE))
    after = set(lab.ids("mx1"))
    database = lab.status("mx1").database_id
    put_back(lab, "mx1", copied)
    lab.cluster.accept()
    lab.cluster.start("mx1")
    assert lab.status("mx1").database_id == database
    assert lab.status("mx1").incarnation != incarnation
    wait_until(lambda: len(lab.events("mx3", "RESUBMIT")) == 3, "the holder promotes at the first contact")
    lab.verify()
    assert taken_over(lab, "mx3", "database-rolled-back") == after
    # They were in the queue of the copy: it asked before it sent any of them again.
    wait_until(lambda: told_of_delivery(lab, "mx1") == before, "it is in the log")


def test_a_database_that_was_put_back_among_others_messages_is_no_holder_of_them(
    lab: RunningLab, tmp_path: Path
):
    """What the node held for others since the copy was made is gone with it: the owners copy it again."""
    lab.up("shadow_resubmit_time_span=1h")
    lab.cluster.refuse()
    lab.send(1, to="mx1")
    wait_until(lambda: lab.held("mx3") == 1, "held")
    lab.cluster.freeze("mx3")
    copied = tmp_path / "copy"
    shutil.copytree(lab.cluster.node("mx3").data_dir, copied)
    lab.cluster.thaw("mx3")
    lab.send(3, to="mx1")
    wait_until(lambda: lab.held("mx3") == 4, "held")
    put_back(lab, "mx3", copied)
    lab.cluster.start("mx3")
    assert lab.held("mx3") == 1
    wait_until(lambda: lab.held("mx2") + lab.held("mx3") >= 4, "copied again")
    wait_until(lambda: lab.status("mx1").exposed == 0, "nothing is exposed")
    wait_until(lambda: len(lab.events("mx1", "HAREDIRECT")) >= 7, "it is in the log")
    lab.cluster.accept()
    lab.verify()
    assert [lab.events(name, "RESUBMIT") for name in ("mx1", "mx2", "mx3")] == [[], [], []]
