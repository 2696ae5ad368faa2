"""A second delivery is explained by what the logs say and by nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shadowlab import clocks
from shadowlab.chaos.causes import Cause, LogRow, explain, read
from shadowlab.chaos.history import History, Loses, MailboxArrival, SendAttempt, SendOutcome, Struck
from shadowlab.chaos.plan import Plan
from shadowlab.chaos.result import ChaosResult
from shadowlab.chaos.verdict import weigh
from shadowlab.clocks import STEPS
from shadowlab.layout import plan

ANNA = "anna@inside.test"
DUPLICATE = ("<1@x>", ANNA)
SPAN = 5.0


def row(at: float, node: str, event: str, *, in_doubt: bool = False, to: str = ANNA) -> LogRow:
    return LogRow(at, node, event, frozenset({to}), in_doubt)


def fault(node: str, began: float, *cut_from: str, loses: Loses = Loses.WORK, lasting: float = 8) -> Struck:
    """``loses`` nothing: the node goes on meanwhile."""
    touched, silences, back = (node, *cut_from), loses is not Loses.NOTHING, began + lasting
    return Struck(1, "name", node, touched, silences, loses, began, began + 0.1, back, back + 2)


def cut(node: str, began: float, *cut_from: str, lasting: float = 8) -> Struck:
    return fault(node, began, *cut_from, loses=Loses.NOTHING, lasting=lasting)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    made = History(tmp_path / "history.jsonl")
    made.tell(SendAttempt(99.9, "<1@x>", (ANNA,), 1, "mx1", SendOutcome.ACKNOWLEDGED, 0.1))
    yield made
    made.close()


@pytest.fixture
def cause(history: History) -> Callable[..., Cause]:
    def found(times: Sequence[float], rows: Sequence[LogRow], *faults: Struck, nodes: int = 3) -> Cause:
        for what in (*(MailboxArrival(at, "<1@x>", ANNA) for at in times), *faults):
            history.tell(what)
        return explain([DUPLICATE], history, {"<1@x>": rows}, nodes=nodes, span=SPAN)[DUPLICATE]

    return found


def test_a_node_that_was_killed_before_it_could_record_the_reply(cause: Callable[..., Cause]):
    rows = [row(100, "mx1", "RECEIVE"), row(110, "mx2", "RESUBMIT"), row(111, "mx2", "DELIVER")]
    assert cause([100.5, 111], rows, fault("mx1", 100.6)) is Cause.UNRECORDED


def test_what_the_next_hop_had_received_when_the_node_died_it_still_delivered(cause: Callable[..., Cause]):
    rows = [row(100, "mx1", "RECEIVE"), row(110, "mx2", "RESUBMIT"), row(111, "mx2", "DELIVER")]
    assert cause([100.9, 111], rows, fault("mx1", 100.6)) is Cause.UNRECORDED


def test_the_record_of_the_second_delivery_is_none_of_the_first(cause: Callable[..., Cause]):
    """The fault killed the node and started it again; its clock is wrong from then on."""
    rows = [row(100, "mx1", "RECEIVE"), row(102.9, "mx1", "DUPLICATEDELIVER")]
    struck = replace(fault("mx1", 100.6, loses=Loses.WORK), broken=103.5, silences=False)
    assert cause([100.5, 102.9], rows, struck) is Cause.UNRECORDED


@pytest.mark.parametrize("node", ["mx1", "mx2"])
def test_all_that_were_killed_at_once_may_have_been_about_to_record(node: str, cause: Callable[..., Cause]):
    rows = [row(100, "mx1", "RECEIVE"), row(105, node, "DELIVER")]
    everybody = ("mx2", "mx3")
    assert cause([100.5, 105], rows, fault("mx1", 100.6, *everybody, lasting=1)) is Cause.UNRECORDED


def test_a_node_that_was_killed_with_all_others_had_recorded_it(cause: Callable[..., Cause]):
    rows = [row(100, "mx1", "RECEIVE"), row(100.55, "mx1", "DELIVER"), row(105, "mx1", "DELIVER")]
    assert cause([100.5, 105], rows, fault("mx1", 100.6, "mx2", "mx3", lasting=1)) is Cause.UNEXPLAINED


def promoted(at: float, *, delivered: float = 100.5) -> list[LogRow]:
    """What mx1 recorded, and mx2 took over all the same."""
    return [
        row(100, "mx1", "RECEIVE"),
        row(delivered, "mx1", "DELIVER"),
        row(at, "mx2", "RESUBMIT"),
        row(at + 1, "mx2", "DUPLICATEDELIVER"),
    ]


@pytest.mark.parametrize("struck", [fault("mx1", 101.2), cut("mx1", 101.2)], ids=["away", "frozen"])
def test_a_node_that_was_away_past_the_time_span_before_the_other_copy_could_learn_of_the_delivery(
    struck: Struck, cause: Callable[..., Cause]
):
    assert cause([100.4, 108], promoted(107), struck) is Cause.UNKNOWN_ELSEWHERE


def test_a_node_that_lost_its_disk_before_the_other_copy_could_learn_of_the_delivery(
    cause: Callable[..., Cause],
):
    lost = fault("mx1", 101.2, loses=Loses.DISK, lasting=1)
    assert cause([100.4, 104], promoted(103), lost) is Cause.UNKNOWN_ELSEWHERE


@pytest.mark.parametrize("at", [103.0, 107.0])
@pytest.mark.parametrize(
    "struck",
    [
        fault("mx1", 101.2, lasting=2),
        cut("mx1", 101.2, lasting=2),
        cut("mx1", 101.2, "mx2", lasting=2),
        cut("mx1", 101.2, "mx2", "mx3", lasting=2),
    ],
    ids=["kill", "freeze", "pair", "one-way"],
)
def test_what_was_recorded_is_not_sent_again_after_a_fault_within_the_time_span(
    struck: Struck, at: float, cause: Callable[..., Cause]
):
    assert cause([100.4, at + 1], promoted(at), struck) is Cause.UNEXPLAINED


@pytest.mark.parametrize("at", [105.0, 130.0], ids=["too early", "long after"])
@pytest.mark.parametrize(
    "struck", [fault("mx1", 101.2), cut("mx1", 101.2, "mx2", "mx3")], ids=["away", "cut off"]
)
def test_a_promotion_that_no_silence_led_to_explains_nothing(
    struck: Struck, at: float, cause: Callable[..., Cause]
):
    assert cause([100.4, at + 1], promoted(at), struck) is Cause.UNEXPLAINED


def test_what_nobody_took_over_is_not_sent_again(cause: Callable[..., Cause]):
    rows = [row(100, "mx1", "RECEIVE"), row(100.5, "mx1", "DELIVER"), row(110, "mx1", "DELIVER")]
    assert cause([100.4, 110], rows, fault("mx1", 101.2)) is Cause.UNEXPLAINED


def test_a_node_that_was_cut_off_and_delivered_meanwhile(cause: Callable[..., Cause]):
    struck = cut("mx1", 101, "mx2", "mx3")
    assert cause([104, 107], promoted(106.5, delivered=104), struck) is Cause.PARTITIONED


@pytest.mark.parametrize("struck", [cut("mx1", 101, "mx2"), cut("mx3", 101, "mx1", "mx2")])
def test_a_cut_that_a_third_node_sees_around_explains_nothing(struck: Struck, cause: Callable[..., Cause]):
    assert cause([104, 107], promoted(106.5, delivered=104), struck) is Cause.UNEXPLAINED


def test_in_a_boundary_of_two_time_alone_decides(cause: Callable[..., Cause]):
    struck = cut("mx2", 101, "mx1")
    assert cause([104, 107], promoted(106.5, delivered=104), struck, nodes=2) is Cause.PARTITIONED


def test_a_node_whose_whole_log_is_lost_is_known_by_its_clients(cause: Callable[..., Cause]):
    rows = [row(110, "mx2", "RESUBMIT"), row(111, "mx2", "DUPLICATEDELIVER")]
    assert cause([100.2, 111], rows, fault("mx1", 100.6)) is Cause.UNRECORDED


def test_a_node_that_was_frozen_records_the_reply_when_it_goes_on(cause: Callable[..., Cause]):
    rows = [
        row(100, "mx1", "RECEIVE"),
        row(106.5, "mx2", "RESUBMIT"),
        row(107, "mx2", "DUPLICATEDELIVER"),
        row(109, "mx1", "DELIVER"),
    ]
    assert cause([100.5, 107], rows, cut("mx1", 101)) is Cause.UNRECORDED


def test_the_record_of_a_node_that_was_frozen_within_the_time_span_is_late_and_not_lost(
    cause: Callable[..., Cause],
):
    rows = [row(100, "mx1", "RECEIVE"), row(103.5, "mx1", "DELIVER"), row(104, "mx1", "DELIVER")]
    assert cause([100.5, 104], rows, cut("mx1", 101, lasting=2)) is Cause.UNEXPLAINED


def test_a_node_that_was_dead_delivered_nothing_meanwhile(cause: Callable[..., Cause]):
    rows = [row(100, "mx1", "RECEIVE"), row(104, "mx1", "DELIVER"), row(107, "mx2", "DELIVER")]
    assert cause([104, 107], rows, fault("mx1", 101)) is Cause.UNEXPLAINED


def test_the_last_delivery_may_have_no_row_of_its_own(cause: Callable[..., Cause]):
    rows = [row(100, "mx1", "RECEIVE"), row(104, "mx1", "DELIVER"), row(106, "mx2", "RESUBMIT")]
    assert cause([104, 112], rows, cut("mx1", 101, "mx2", "mx3")) is Cause.PARTITIONED


def test_the_last_delivery_is_not_the_one_that_others_should_have_known(cause: Callable[..., Cause]):
    rows = [row(100, "mx1", "DELIVER"), row(200, "mx2", "DUPLICATEDELIVER")]
    assert cause([100, 199.9], rows, fault("mx2", 201)) is Cause.UNEXPLAINED


def test_another_nodes_fault_explains_nothing(cause: Callable[..., Cause]):
    rows = [row(100, "mx1", "RECEIVE"), row(100.5, "mx1", "DELIVER"), row(101, "mx2", "DELIVER")]
    assert cause([100.5, 101], rows, fault("mx3", 100.6)) is Cause.UNEXPLAINED


def test_a_fault_that_kept_nobody_from_telling_explains_nothing(cause: Callable[..., Cause]):
    rows = [row(100, "mx1", "RECEIVE"), row(100.5, "mx1", "DELIVER"), row(101, "mx1", "DELIVER")]
    set_clock = replace(cut("mx1", 100.4), touched=())
    assert cause([100.4, 101], rows, set_clock) is Cause.UNEXPLAINED


def test_what_the_log_calls_in_doubt(cause: Callable[..., Cause]):
    rows = [row(100, "mx1", "DELIVER"), row(140, "mx2", "DELIVER", in_doubt=True)]
    assert cause([100, 140], rows) is Cause.IN_DOUBT


def test_a_connection_that_broke_after_the_final_dot(cause: Callable[..., Cause]):
    rows = [row(100, "mx1", "DEFER", in_doubt=True), row(101, "mx1", "DUPLICATEDELIVER")]
    assert cause([100, 101], rows) is Cause.REPLY_LOST


@pytest.mark.parametrize("event", ["DELIVER", "SENDEXTERNAL"])
def test_two_deliveries_without_a_fault_are_unexplained(event: str, cause: Callable[..., Cause]):
    rows = [row(100, "mx1", event), row(200, "mx2", event)]
    assert cause([100, 200], rows, fault("mx1", 150)) is Cause.UNEXPLAINED


def test_an_owner_that_accepted_what_its_holder_had_promoted_meanwhile(cause: Callable[..., Cause]):
    rows = [
        row(100, "mx3", "RESUBMIT"),
        row(101, "mx1", "RECEIVE"),
        row(102, "mx3", "DELIVER"),
        row(103, "mx1", "DUPLICATEDELIVER"),
    ]
    assert cause([102, 103], rows) is Cause.LATE_ANSWER


def test_rows_about_other_recipients_say_nothing(cause: Callable[..., Cause]):
    rows = [row(100, "mx1", "DELIVER"), row(140, "mx2", "DELIVER", in_doubt=True, to="otto@outside.test")]
    assert cause([100, 140], rows) is Cause.UNEXPLAINED


PLAN = Plan(seed=1, seconds=1.0, faults=(), clients=1, rate=1.0, nodes=3)


@pytest.mark.parametrize("why", [Cause.UNRECORDED, Cause.UNEXPLAINED])
def test_chaos_fails_on_a_second_delivery_that_nothing_explains(history: History, why: Cause):
    history.tell(fault("mx1", 100.6))
    sent = Counter({DUPLICATE: 1})
    verdict = weigh(sent, sent, sent + sent, Counter(), {})
    result = ChaosResult(PLAN, history, verdict, {DUPLICATE: why}, (), 1.0, interrupted=False)
    assert result.held is (why is not Cause.UNEXPLAINED)


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize("missing", ["no fault was made", "no message was acknowledged"])
def test_chaos_in_which_nothing_happened_fails_unless_it_was_interrupted(
    history: History, missing: str, *, interrupted: bool
):
    sent = Counter[tuple[str, str]]()
    if "fault" in missing:
        sent[DUPLICATE] = 1
    else:
        history.tell(fault("mx1", 100.6))
    result = ChaosResult(
        PLAN, history, weigh(sent, sent, sent, Counter(), {}), {}, (), 1.0, interrupted=interrupted
    )
    assert result.held is interrupted
    assert result.tree()["problems"] == ([] if interrupted else [f"{missing}: nothing is shown"])


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_rows_of_a_node_whose_clock_was_set_are_brought_back(tmp_path: Path, step: timedelta):
    at = plan(tmp_path, nodes=2, ports=range(10_000, 10_020))
    sent = datetime(2026, 11, 23, 12, 0, 0, tzinfo=UTC)
    for node, way in zip(at.nodes, (1, -1), strict=True):
        node.tracking_dir.mkdir(parents=True)
        logged = (sent + way * step + timedelta(seconds=2)).isoformat()
        (node.tracking_dir / "MSGTRK-1.LOG").write_text(
            "#Fields: date-time,event-id,message-id,recipient-address,custom-data,network-message-id\r\n"
            f"{logged},DELIVER,<1@x>,{ANNA},,1\r\n{logged},DELIVER,<2@x>,{ANNA},,2\r\n",
            "utf-8",
        )
    found = read(at, tmp_path / "none", {"<1@x>": sent.timestamp()})
    assert list(found) == ["<1@x>"]
    assert [(row.node, row.at - sent.timestamp()) for row in found["<1@x>"]] == [("mx1", 2.0), ("mx2", 2.0)]


def test_rows_of_a_node_whose_clock_was_right_stay_as_they_are():
    assert [clocks.corrected(1e9 + late, 1e9) for late in (-1.0, 0.0, 400.0)] == [1e9 - 1, 1e9, 1e9 + 400]
