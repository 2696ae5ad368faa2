"""The judge of the kill points: what is lost, and which second deliveries have a cause."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shadowlab import layout
from shadowlab.chaos.letters import sealed
from shadowlab.layout import Layout
from shadowlab.mail import Letter

from .bed.verdict import Told
from .kill_cases import cases
from .kill_mail import Sending
from .kill_runs import shortcomings
from .kill_verdict import LOST_RECORD, RESENT, UNTOLD, Kill, Mailboxes, Verdict, judge, torn_logs, untold

TO = "anna@inside.test"
LETTER = Letter("kill-1", "sender@outside.test", (TO,))
MX1, MX3 = "mx1.lab.test", "mx3.lab.test"
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()


class Evidence:
    """What the mailbox server and the nodes wrote. Times are seconds after noon."""

    def __init__(self, directory: Path) -> None:
        self.at: Layout = layout.plan(directory, nodes=3, ports=range(20_000, 20_011))
        for folder in (*(node.tracking_dir for node in self.at.nodes), self.at.log("mailbox").parent):
            folder.mkdir(parents=True)
        self.sequence = 0

    def stored(self, node: str, at: float, network_id: str = "1" * 36, torn: int = 0) -> None:
        """``torn``: so many octets are missing at the end."""
        new = self.at.mailbox.dir / "inside.test" / "anna" / "new"
        new.mkdir(parents=True, exist_ok=True)
        header = f"Received: from {node} ([127.0.0.1])\r\nReceived: from x by y id {network_id}\r\n"
        content = header.encode() + sealed(LETTER, "kill", b"must arrive\r\n").content
        (new / f"{int((NOON + at) * 1e9)}.a.mailbox").write_bytes(content[: len(content) - torn])

    def dropped(self, node: str, at: float) -> None:
        stamp = datetime.fromtimestamp(NOON + at, UTC).isoformat()
        row = {"event": "duplicate_dropped", "message_id": LETTER.message_id, "recipient": TO}
        with self.at.log("mailbox").open("a") as log:
            log.write(json.dumps(row | {"client": node, "timestamp": stamp}) + "\n")

    def row(self, node: str, event: str, at: float, network_id: str = "1" * 36) -> None:
        file = self.at.node(node).tracking_dir / f".MSGTRK-{node}-00aa-1.LOG.open"
        names = "date-time,event-id,message-id,network-message-id,recipient-address,custom-data"
        stamp = datetime.fromtimestamp(NOON + at, UTC).isoformat(timespec="milliseconds")
        self.sequence += 1
        values = (stamp, event, LETTER.message_id, network_id, TO, f"S:Seq={self.sequence};S:Db=d")
        text = file.read_text("utf-8") if file.exists() else f"#Fields: {names}\r\n"
        file.write_text(text + ",".join(values) + "\r\n", "utf-8")

    def judged(self, *kills: Kill, answers: tuple[Told, ...] = (Told.ACCEPTED,)) -> Verdict:
        sending = Sending(LETTER, b"", list(answers))
        return judge(self.at, Mailboxes(self.at), [sending], kills)


def kill(at: float, *, disk_lost: bool = False) -> Kill:
    return Kill(MX1, "after-next-hop-reply", NOON + at, disk_lost)


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    return Evidence(tmp_path)


def test_a_message_that_arrived_without_its_end_is_lost(evidence: Evidence):
    evidence.stored(MX1, 1.0, torn=3)
    assert evidence.judged().lost == 1


def test_an_acknowledged_message_that_is_in_no_mailbox_is_lost(evidence: Evidence):
    verdict = evidence.judged()
    assert (verdict.lost, verdict.delivered) == (1, 0)
    assert verdict.problems


def test_a_refused_message_that_arrives_is_a_problem(evidence: Evidence):
    evidence.stored(MX1, 0)
    verdict = evidence.judged(answers=(Told.REFUSED,))
    assert verdict.unexpected == 1
    assert verdict.problems


def test_one_delivery_is_no_duplicate(evidence: Evidence):
    evidence.stored(MX1, 0)
    evidence.row(MX1, "DELIVER", 0)
    verdict = evidence.judged(kill(0.1))
    assert (verdict.duplicates, verdict.problems) == ({}, [])


def test_a_second_delivery_without_a_death_is_a_problem(evidence: Evidence):
    evidence.stored(MX1, 0)
    evidence.dropped(MX1, 2)
    assert evidence.judged().problems


def test_a_delivery_of_which_the_dead_node_has_no_row_is_explained(evidence: Evidence):
    evidence.stored(MX1, 0)
    evidence.dropped(MX1, 2)
    evidence.row(MX1, "DUPLICATEDELIVER", 2)
    verdict = evidence.judged(kill(0.1))
    assert (verdict.duplicates, verdict.problems) == ({LOST_RECORD: 1}, [])


def test_what_the_next_hop_stored_after_the_death_was_sent_before_it(evidence: Evidence):
    evidence.stored(MX1, 0.3)
    evidence.row(MX1, "LOAD", 1)
    evidence.dropped(MX1, 2)
    assert evidence.judged(kill(0.1)).duplicates == {LOST_RECORD: 1}


def test_what_the_next_process_sent_is_not_explained_by_the_death_before(evidence: Evidence):
    evidence.row(MX1, "LOAD", 1)
    evidence.stored(MX1, 1.3)
    evidence.dropped(MX1, 2)
    assert evidence.judged(kill(0.1)).problems


def test_a_delivery_that_was_recorded_before_the_death_must_not_be_made_again(evidence: Evidence):
    evidence.stored(MX1, 0)
    evidence.row(MX1, "DELIVER", 0.01)
    evidence.dropped(MX1, 2)
    assert evidence.judged(kill(0.1)).problems


def test_a_recorded_delivery_may_be_made_again_when_the_disk_was_lost_at_once(evidence: Evidence):
    evidence.stored(MX1, 0)
    evidence.row(MX1, "DELIVER", 0.01)
    evidence.dropped(MX3, 2)
    assert evidence.judged(kill(0.1, disk_lost=True)).duplicates == {UNTOLD: 1}


def test_a_recorded_delivery_must_not_be_made_again_when_the_holder_had_time_to_ask(evidence: Evidence):
    evidence.stored(MX1, 0)
    evidence.row(MX1, "DELIVER", 0.01)
    evidence.dropped(MX3, 30)
    assert evidence.judged(kill(20, disk_lost=True)).problems


def test_the_death_of_another_node_explains_nothing(evidence: Evidence):
    evidence.stored(MX3, 0)
    evidence.dropped(MX3, 2)
    assert evidence.judged(kill(0.1)).problems


def test_a_death_explains_one_more_delivery_and_not_two(evidence: Evidence):
    evidence.stored(MX1, 0)
    evidence.row(MX1, "LOAD", 1)
    evidence.dropped(MX1, 2)
    evidence.dropped(MX3, 3)
    verdict = evidence.judged(kill(0.1))
    assert verdict.duplicates[LOST_RECORD] == 1
    assert len(verdict.problems) == 1


def test_a_client_without_a_reply_may_cause_one_message_more(evidence: Evidence):
    evidence.stored(MX1, 0)
    evidence.dropped(MX1, 2)
    evidence.row(MX1, "RECEIVE", 0)
    evidence.row(MX1, "LOAD", 1)
    evidence.row(MX1, "RECEIVE", 1, network_id="2" * 36)
    verdict = evidence.judged(kill(0.1), answers=(Told.NO_REPLY, Told.ACCEPTED))
    assert verdict.problems == []
    evidence.dropped(MX3, 3)
    evidence.dropped(MX3, 4)
    assert evidence.judged(kill(0.1), answers=(Told.NO_REPLY, Told.ACCEPTED)).problems


def test_a_client_without_a_reply_is_no_excuse_for_the_same_message_twice(evidence: Evidence):
    evidence.stored(MX1, 0)
    evidence.dropped(MX1, 2)
    evidence.row(MX1, "RECEIVE", 0)
    evidence.row(MX1, "DELIVER", 0.01)
    assert evidence.judged(answers=(Told.NO_REPLY, Told.ACCEPTED)).problems
    assert RESENT not in evidence.judged(answers=(Told.NO_REPLY, Told.ACCEPTED)).duplicates


def test_rows_that_are_missing_or_there_twice_are_found(evidence: Evidence):
    evidence.row(MX1, "RECEIVE", 0)
    assert torn_logs(evidence.at, ()) == []
    evidence.sequence += 1
    evidence.row(MX1, "DELIVER", 1)
    assert torn_logs(evidence.at, ()) == ["mx1: rows missing in the log of database d"]
    evidence.sequence -= 1
    evidence.row(MX1, "DELIVER", 1)
    assert "mx1: rows twice in the log of database d" in torn_logs(evidence.at, ())


def test_an_acknowledged_recipient_that_no_row_settles_is_found(evidence: Evidence):
    sending = Sending(LETTER, b"", [Told.ACCEPTED])
    evidence.row(MX1, "RECEIVE", 0)
    assert untold(evidence.at, [sending])
    evidence.row(MX1, "DELIVER", 1)
    assert untold(evidence.at, [sending]) == []


def test_every_point_has_a_case():
    from shadowrelay.failpoints import POINTS

    assert {case.point for case in cases()} == set(POINTS)


@pytest.mark.parametrize(("killed", "problems"), [(5, []), (4, ["only 4 of 5 kills happened"])])
def test_a_kill_that_was_planned_and_did_not_happen_is_a_problem(killed: int, problems: list[str]) -> None:
    assert shortcomings(killed, 5, "") == problems
    assert shortcomings(killed, 5, "not settled") == [*problems, "not settled"]
