"""What a holder was told, when the disk of who told it is lost: a proof only where that log may lack it."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from auditing import Auditor
from click.testing import CliRunner
from plainly import judged
from test_audit_histories import AFTER, BEGIN, LOST, OTHER, begin, delivered, log, mail, stop
from test_audit_verdicts import EVIDENCE, row

from shadowaudit.cli import main
from shadowaudit.core.events import Event, Kind
from shadowaudit.core.evidence import Segment
from shadowaudit.core.findings import Class
from shadowaudit.core.fingerprint import key_of
from shadowaudit.core.judge import judge
from shadowaudit.core.reported import report_id
from shadowaudit.core.verdict import INCOMPLETE, PROVEN, VIOLATED
from shadowaudit.core.weighing import weigh
from shadowaudit.engine.exact import looked_at
from shadowaudit.logs.extract import Piece, Source, in_file
from shadowaudit.logs.file import digest_file
from shadowaudit.logs.manifest import open_logs
from shadowaudit.logs.unclosed import Unclosed
from shadowlab.generate.message import HOLDER, Message
from shadowlab.generate.writing import NodeLog

FIRST = "0190b5c4-0000-7000-8000-000000000001"


def told(number: int | None, teller: str = LOST) -> Callable[[Message], None]:
    """Accepted, and its holder hears of a delivery that no log shows, from a log that has got to that row."""

    def story(one: Message) -> None:
        one.accepted()
        if number is None:
            one.discard(800, names=("", ""))
        else:
            given = f";S:TellerDb={teller}"
            one.discard(800, names=("", ""), custom=given, reference=f"{'a' * 16}:{number}")

    return story


def disk_lost(directory: Path, *stories: Callable[[Message], None]) -> Path:
    """mx1 tells of messages, delivers another one, and loses its disk with what its log had after the last
    row, which is row 6 if it told of one.
    """
    mx2 = log(directory, "mx2", OTHER, "c")
    mx1 = log(directory, "mx1", LOST, "a")
    for one in (mx1, mx2):
        begin(one, 0)
    for number, story in enumerate(stories, 1):
        mail(number, 1000, mx1, mx2, story)
    mail(len(stories) + 1, 3000, mx1, mx2, delivered)
    mx1.close(BEGIN + 30_000)
    now = log(directory, "mx1", AFTER, "b")
    for one in (begin, stop):
        one(now, 60_000)
    stop(mx2, 70_000)
    return directory


FATES = [
    pytest.param(3, VIOLATED, Class.PREMATURE_DISCARD, id="its log had it unsettled at that row"),
    pytest.param(6, VIOLATED, Class.PREMATURE_DISCARD, id="its log had it unsettled at its last row"),
    pytest.param(7, PROVEN, Class.HOLDERS_WORD, id="its row was lost with the disk"),
    pytest.param(None, INCOMPLETE, Class.UNPROVEN_LOSS, id="an older version does not say from where"),
]


@pytest.mark.parametrize(("number", "status", "what"), FATES)
def test_a_word_is_a_proof_only_if_the_log_of_who_told_it_may_lack_the_row(
    here: Auditor, tmp_path: Path, number: int | None, status: int, what: Class
) -> None:
    logs = disk_lost(tmp_path / "logs", told(number))
    verdict, found = judged(logs, lost=[LOST])
    assert (verdict.status, what in set().union(*found.values())) == (status, True), verdict.as_dict()
    assert (Class.HOLDERS_WORD in set().union(*found.values())) == (status == PROVEN)
    summed = here(logs, lost=(LOST,))
    assert (summed.status, summed.classes) == (verdict.status, verdict.classes)
    assert summed.totals["suspects"] == 1


def word(node: str, sequence: int, teller: str, mark: int, boot: str = "a") -> Event:
    entries, reference = {"TellerDb": teller}, f"{boot}:{mark}"
    told = row(node, sequence, Kind.HADISCARD, "mx1", "ExplicitlyDiscarded")
    return replace(told, entries=entries, reference=reference)


HELD = (
    row("mx2", 2, Kind.HARECEIVE, "mx1"),
    row("mx3", 2, Kind.HARECEIVE, "mx1"),
    row("mx1", 2, Kind.HAREDIRECT, "mx2"),
    row("mx1", 3, Kind.RECEIVE),
)


def classes(*events: Event, without: tuple[str, ...] = ("mx1",), **changed: Any) -> set[Class]:
    """What is found if the disks of these nodes were lost, or their logs are ``changed``."""
    databases = {
        name: replace(one, **(changed or {"lost": True})) if name in without else one
        for name, one in EVIDENCE.databases.items()
    }
    found = judge(events, replace(EVIDENCE, databases=databases)).findings
    return {one.what for one in found}


@pytest.mark.parametrize(
    ("first", "what"),
    [
        ((word("mx2", 3, "mx1", 12),), Class.HOLDERS_WORD),
        ((word("mx2", 3, "mx1", 4),), Class.PREMATURE_DISCARD),
        ((), Class.PREMATURE_DISCARD),
    ],
    ids=["rightly", "wrongly", "by who was never told"],
)
def test_a_word_that_was_passed_on_is_as_good_as_the_first_one(first: tuple[Event, ...], what: Class) -> None:
    passed_on = word("mx3", 3, "mx2", 5)
    found = classes(*HELD, *first, passed_on)
    assert what in found
    assert len(found & {Class.HOLDERS_WORD, Class.PREMATURE_DISCARD}) == 1


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"closed": False}, Class.PREMATURE_DISCARD),
        ({"closed": False, "whole": False}, Class.UNPROVEN_LOSS),
        ({"closed": False, "from_start": False}, Class.PREMATURE_DISCARD),  # the reception is there
        ({"lost": True, "rolled_back": True}, Class.HOLDERS_WORD),
    ],
    ids=["open", "with a hole", "begun late", "set back"],
)
def test_a_log_denies_a_word_only_if_it_is_whole_up_to_then(changed: dict[str, bool], what: Class) -> None:
    found = classes(*HELD[:1], *HELD[2:], word("mx2", 3, "mx1", 5), **changed)
    assert what in found
    assert len(found & {Class.HOLDERS_WORD, Class.PREMATURE_DISCARD, Class.UNPROVEN_LOSS}) == 1


@pytest.mark.parametrize(
    ("boot", "what"), [("a", Class.UNPROVEN_LOSS), ("b", Class.PREMATURE_DISCARD)], ids=["given up", "new"]
)
def test_a_word_from_a_life_whose_end_was_given_up_is_not_denied_by_the_next_one(
    boot: str, what: Class
) -> None:
    """An older state was put back, which had all rows of the closed files: the next life goes on behind them,
    and gives out the numbers of the rows that are gone.
    """
    lives = (Segment("a", 1, 10, 0), Segment("b", 11, 30, 100))
    found = classes(*HELD[:1], *HELD[2:], word("mx2", 3, "mx1", 20, boot), segments=lives)
    assert found & {Class.HOLDERS_WORD, Class.PREMATURE_DISCARD, Class.UNPROVEN_LOSS} == {what}


def test_a_word_from_a_log_that_goes_on_behind_what_is_at_hand_waits_for_its_next_file() -> None:
    held = (*HELD[:1], *HELD[2:])
    assert classes(*held, word("mx2", 3, "mx1", 12), closed=False) == {Class.UNPROVEN_LOSS}
    old = row("mx2", 3, Kind.HADISCARD, "mx1", "ExplicitlyDiscarded")
    assert classes(*held, old, closed=False) == {Class.UNPROVEN_LOSS}


def test_a_word_that_one_log_denies_may_rest_on_another_log_that_is_not_at_hand() -> None:
    passed_on = (*HELD, word("mx2", 3, "mx1", 4), word("mx2", 4, "mx3", 12))
    assert Class.PREMATURE_DISCARD not in (found := classes(*passed_on, without=("mx3",), closed=False))
    assert Class.UNPROVEN_LOSS in found


def test_who_told_it_and_has_no_row_of_the_message_tells_of_nothing() -> None:
    held = HELD[:1]
    assert Class.PREMATURE_DISCARD in classes(*held, word("mx2", 3, "mx1", 5))
    assert Class.HOLDERS_WORD in classes(*held, word("mx2", 3, "mx1", 12))


def test_who_could_not_believe_its_rows_writes_none_of_what_it_was_told() -> None:
    damaged = replace(row("mx2", 3, Kind.HADAMAGE), entries={"Damaged": "rows"}, recipients=())
    assert Class.HOLDERS_WORD in classes(*HELD, damaged, word("mx3", 3, "mx2", 5))
    assert Class.PREMATURE_DISCARD in classes(*HELD, word("mx3", 3, "mx2", 5))


def test_a_word_tells_how_far_the_log_of_who_told_it_has_to_reach(tmp_path: Path) -> None:
    mx1, mx2 = log(tmp_path, "mx1", LOST, "a"), log(tmp_path, "mx2", OTHER, "c")
    for one in (mx1, mx2):
        begin(one, 0)
    mail(1, 1000, mx1, mx2, told(40))
    for one in (mx1, mx2):
        stop(one, 5000)
    verdict, _ = judged(tmp_path)
    assert any("another node saw row 40 of database" in gap.what for gap in verdict.evidence.gaps)


# While nodes run: what the log says that its node still writes.


def living(
    directory: Path, *, ends: Callable[[Message], None] | None, mark: int, left: str = "open"
) -> tuple[Path, NodeLog]:
    """mx1 and mx2 run. mx2 has closed a file in which mx1 told it of a delivery, by that row; the
    rows since mx1's last closed file are ``left`` in an open one. Row 4 there is the one that ``ends`` it.
    """
    mx1, mx2 = log(directory, "mx1", LOST, "a"), log(directory, "mx2", OTHER, "c")
    for one in (mx1, mx2):
        begin(one, 0)
    mail(1, 1000, mx1, mx2, Message.accepted)
    mx1.close(BEGIN + 1500)
    if ends is not None:
        mail(1, 2000, mx1, mx2, ends)
    mail(2, 3000, mx1, mx2, Message.accepted)
    said = {"names": ("", ""), "custom": f";S:TellerDb={LOST}", "reference": f"{'a' * 16}:{mark}"}
    mail(1, 3500, mx1, mx2, lambda one: one.discard(0, **said))
    mx2.close(BEGIN + 4000)
    if left == "closed meanwhile":
        path = mx1.leave_open(BEGIN + 4000)
        path.rename(path.with_name(path.name[1:].removesuffix(".open")))
    elif left:
        mx1.leave_open(BEGIN + 4000)
    return directory, mx1


def verified(directory: Path, *more: str) -> tuple[int, dict[str, Any]]:
    asked = ["verify", str(directory), "--allow-open", "--no-report", "--json", "--engine", "here"]
    said = CliRunner().invoke(main, [*asked, "--out", str(directory.parent / "out"), *more])
    return said.exit_code, json.loads(said.stdout)


@pytest.mark.parametrize(
    ("ends", "mark", "status", "what"),
    [
        pytest.param(lambda one: one.deliver(0), 4, PROVEN, set(), id="it delivered"),
        pytest.param(lambda one: one.deliver(0), 6, PROVEN, set(), id="and went on"),
        pytest.param(None, 5, VIOLATED, {Class.PREMATURE_DISCARD}, id="it did not"),
        pytest.param(lambda one: one.defer(0), 6, VIOLATED, {Class.PREMATURE_DISCARD}, id="it tries again"),
        pytest.param(None, 9, INCOMPLETE, {Class.UNPROVEN_LOSS}, id="it has not got that far"),
    ],
)
def test_a_word_rests_on_the_row_in_the_log_that_its_teller_still_writes(
    tmp_path: Path, ends: Callable[[Message], None] | None, mark: int, status: int, what: set[Class]
) -> None:
    logs, _ = living(tmp_path / "logs", ends=ends, mark=mark)
    found = verified(logs)
    assert (found[0], found[1]["classes"].keys() - {"open-at-the-end-of-the-log"}) == (status, what), found
    assert judged(logs, allow_open=True)[1].get(FIRST, set()) - {Class.OPEN} == what


@pytest.mark.parametrize("left", ["", "with a hole", "torn"])
def test_a_word_alone_proves_nothing_while_its_teller_runs(tmp_path: Path, left: str) -> None:
    logs, mx1 = living(tmp_path / "logs", ends=lambda one: one.deliver(0), mark=6, left=left)
    if left:
        path = mx1.leave_open(BEGIN)
        lines = path.read_bytes().splitlines(keepends=True)
        del lines[-3 : -2 if left == "with a hole" else None]
        path.write_bytes(b"".join(lines) + (b"2026-" if left == "torn" else b""))
    assert verified(logs)[0] == INCOMPLETE
    assert judged(logs, allow_open=True)[1][FIRST] == {Class.UNPROVEN_LOSS}


@pytest.mark.parametrize(("ends", "status"), [(True, PROVEN), (False, INCOMPLETE)])
def test_a_word_of_an_older_version_rests_on_what_its_teller_writes(
    tmp_path: Path, *, ends: bool, status: int
) -> None:
    mx1, mx2 = log(tmp_path / "logs", "mx1", LOST, "a"), log(tmp_path / "logs", "mx2", OTHER, "c")
    for one in (mx1, mx2):
        begin(one, 0)
    mail(1, 1000, mx1, mx2, told(None))
    for one in (mx1, mx2):
        one.close(BEGIN + 2000)
    if ends:
        mail(1, 1500, mx1, mx2, lambda one: one.deliver(0))
        mx1.leave_open(BEGIN + 2000)
    assert verified(tmp_path / "logs")[0] == status


def test_an_open_log_is_read_once_and_none_of_it_is_kept_but_where_rows_are(tmp_path: Path) -> None:
    """Also after its node has closed it, and somebody has taken it away."""
    mx1, mx2 = log(tmp_path, "mx1", LOST, "a"), log(tmp_path, "mx2", OTHER, "c")
    for one in (mx1, mx2):
        begin(one, 0)
    for number in (1, 2):
        mail(number, 1000, mx1, mx2, Message.accepted)
    mx1.close(BEGIN + 1500)
    mail(1, 2000, mx1, mx2, lambda one: one.deliver(0))
    for attempt in range(4000):
        mail(3, 2000 + attempt, mx1, mx2, lambda one: one.defer(0))
    mail(2, 8000, mx1, mx2, lambda one: one.deliver(0))
    said = {"names": ("", ""), "custom": f";S:TellerDb={LOST}", "reference": f"{'a' * 16}:{mx1.sequence}"}
    for number in (1, 2):
        mail(number, 9000, mx1, mx2, lambda one: one.discard(0, **said))
    mx2.close(BEGIN + 9000)
    path = mx1.leave_open(BEGIN + 9000)
    digests = [digest_file(one) for one in sorted(tmp_path.rglob("MSGTRK*.LOG"))]
    evidence = weigh([facts for facts, _ in digests], allow_open=True, opened=open_logs([tmp_path]))
    unclosed, size = Unclosed(), path.stat().st_size
    pieces = {
        number: [
            Piece(Source.of(facts), row["file_from"], row["file_to"])
            for facts, table in digests
            for row in table.to_pylist()
            if row["low"] == key_of(mail_id(number))[1]
        ]
        for number in (1, 2)
    }
    looked_at(key_of(mail_id(1)), pieces[1], evidence, in_file, Unclosed())  # what is loaded then stays
    found = {}
    tracemalloc.start()
    for number, some in pieces.items():
        found[number] = looked_at(key_of(mail_id(number)), some, evidence, in_file, unclosed)
        path.unlink(missing_ok=True)
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for events, judgement in found.values():
        assert Kind.DELIVER in {one.kind for one in events}
        assert judgement.findings == ()
    assert kept < size / 4, "the octets of the log are not kept"


@pytest.mark.parametrize(
    ("known", "discarded"), [(True, ""), (True, "ExplicitlyDiscarded"), (True, "Orphaned"), (False, "")]
)
def test_a_report_that_a_node_has_from_who_lost_its_log_is_made(
    here: Auditor, tmp_path: Path, *, known: bool, discarded: str
) -> None:
    """mx2 takes a message over, and the report on it, which mx1 had made before its disk was lost."""
    mx2, mx1 = log(tmp_path, "mx2", OTHER, "c"), log(tmp_path, "mx1", LOST, "a")
    for one in (mx1, mx2):
        begin(one, 0)
    mail(1, 1000, mx1, mx2, Message.accepted)
    mx1.close(BEGIN + 1500)

    def refused(one: Message) -> None:
        one.take_over(60_000)
        one.fail(61_000, reported=False)
        at, _, row = one.steps.pop()
        one.steps.append((at, HOLDER, replace(row, client=one.holder, reference="", epoch=2)))

    def reported(one: Message) -> None:
        one.id, one.sender, one.recipients = report_id(mail_id(1), 1), "<>", ("sender@example.org",)
        one.hold(100)
        if discarded:
            said = {"custom": f";S:TellerDb={LOST}", "reference": f"{'a' * 16}:9"}
            one.discard(700, names=("", ""), reason=discarded, **(said if discarded[0] == "E" else {}))
            return
        one.take_over(60_000)
        one.deliver(62_000, who=HOLDER, epoch=2)

    if known:
        mail(2, 1000, mx1, mx2, reported)
    mail(1, 1000, mx1, mx2, refused)
    stop(mx2, 70_000)
    now = log(tmp_path, "mx1", AFTER, "b")
    for one in (begin, stop):
        one(now, 60_000)
    verdict, found = judged(tmp_path, lost=[LOST])
    sound = known and discarded != "Orphaned"
    assert verdict.status == (PROVEN if sound else INCOMPLETE), verdict.as_dict()
    assert (Class.UNPROVEN_LOSS in found[mail_id(1)]) != sound
    summed = here(tmp_path, lost=(LOST,))
    assert (summed.status, summed.classes) == (verdict.status, verdict.classes)


def mail_id(number: int) -> str:
    return f"0190b5c4-0000-7000-8000-{number:012x}"
