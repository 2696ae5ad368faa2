"""Links between nodes are cut and healed, in one direction or both."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner
from running_lab import RunningLab, wait_until

from shadowlab import clocks, network
from shadowlab.cli import main
from shadowlab.condition import look
from shadowlab.errors import LabError
from shadowlab.layout import Manner, Way

pytestmark = [pytest.mark.lab, pytest.mark.slow]


MOMENT = timedelta(minutes=5)


def peers(lab: RunningLab, name: str) -> dict[str, str]:
    return {str(peer["name"]).partition(".")[0]: str(peer["state"]) for peer in lab.status(name).peers}


def test_a_cut_is_seen_by_both_sides_and_by_nobody_else_until_it_is_healed(lab: RunningLab):
    lab.up("shadow_resubmit_time_span=1h", "shadow_attempt_timeout=1s", breakable=True)
    wait_until(lambda: set(peers(lab, "mx1").values()) == {"reachable"}, "mx1 reaches both")
    wait_until(lambda: set(peers(lab, "mx3").values()) == {"reachable"}, "mx3 too")
    lab.cluster.cut(*network.between(lab.cluster.layout, "mx1", "mx2"))
    wait_until(lambda: peers(lab, "mx1")["mx2"] == "unreachable", "mx1 misses mx2")
    wait_until(lambda: peers(lab, "mx2")["mx1"] == "unreachable", "mx2 misses mx1")
    assert peers(lab, "mx3") == {"mx1": "reachable", "mx2": "reachable"}
    assert look(lab.cluster).tree()["cuts"] == [
        {"from": "mx1", "to": "mx2", "manner": "silent"},
        {"from": "mx2", "to": "mx1", "manner": "silent"},
    ]
    lab.cluster.heal()
    wait_until(lambda: peers(lab, "mx1")["mx2"] == "reachable", "mx1 meets mx2")
    wait_until(lambda: peers(lab, "mx2")["mx1"] == "reachable", "mx2 meets mx1")
    lab.send(1, to="mx3")
    lab.verify()


def test_what_was_on_its_way_when_a_link_was_cut_goes_on_after_the_healing(lab: RunningLab):
    lab.up("shadow_resubmit_time_span=1h", breakable=True, nodes=2)
    lab.cluster.refuse()
    lab.send(2)
    lab.cluster.cut(Way("mx1", "mx2"))
    lab.cluster.accept()
    wait_until(lambda: lab.count().lost == 0, "the owner delivers")
    assert lab.held("mx2") == 2
    lab.cluster.heal()
    lab.verify()


def test_a_link_that_is_reset_refuses_connections_until_it_is_healed(lab: RunningLab):
    lab.up("shadow_resubmit_time_span=1h", breakable=True, nodes=2)
    lab.cluster.cut(Way("mx1", "mx2"), manner=Manner.RESET)
    wait_until(lambda: peers(lab, "mx1")["mx2"] == "unreachable", "mx1 misses mx2")
    assert not lab.offer(to="mx1", recipients=("anna@inside.test",))
    lab.cluster.heal()
    wait_until(lambda: lab.offer(to="mx1", recipients=("anna@inside.test",)), "copies are made again")
    lab.verify()


def test_a_cut_outlives_the_lab(lab: RunningLab):
    lab.up(breakable=True, nodes=2)
    lab.cluster.cut(Way("mx1", "mx2"))
    lab.cluster.down()
    lab.up()
    wait_until(lambda: peers(lab, "mx1")["mx2"] == "unreachable", "it is still cut")
    lab.cluster.heal()
    wait_until(lambda: lab.offer(to="mx1", recipients=("anna@inside.test",)), "copies are made again")
    lab.verify()


def test_a_lab_without_breakable_links_says_how_to_make_one(lab: RunningLab):
    lab.up(nodes=2)
    with pytest.raises(LabError, match="--breakable"):
        lab.cluster.heal()
    lab.cluster.down()
    with pytest.raises(LabError, match="without --breakable"):
        lab.up(breakable=True)


@pytest.mark.skipif(bool(clocks.lacking()), reason=clocks.lacking())
def test_a_clock_is_set_and_right_again_in_a_lab_with_clocks_alone(lab: RunningLab):
    def by_command(*words: str, status: int = 0) -> str:
        told = CliRunner().invoke(main, ["clock", *words, "--dir", str(lab.directory)])
        assert told.exit_code == status, told.output
        return told.output

    def logged(hours: float) -> bool:
        """Of what is sent now: a node looks at its wall clock now and then."""
        lab.send()
        times = [datetime.fromisoformat(row["date-time"]) for row in lab.events("mx1", "RECEIVE")]
        return any(abs(at - datetime.now(UTC) - timedelta(hours=hours)) < MOMENT for at in times)

    lab.up("reject_message_on_shadow_failure=false", nodes=1, clocks=True)
    for words, hours in ((("--ahead", "20h"), 20), (("--behind", "2h30m"), -2.5), ((), 0)):
        assert by_command("mx1", *words) == "the clock of mx1 is set\n"
        wait_until(lambda hours=hours: logged(hours), "set", 60)
    assert "such as 15m" in by_command("mx1", "--ahead", "soon", status=2)
    lab.cluster.down()
    (lab.directory / "clocks" / "mx1").unlink()
    assert "without --clocks" in by_command("mx1", status=1)
    with pytest.raises(LabError, match="without --clocks"):
        lab.up(clocks=True)
